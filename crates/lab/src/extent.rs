//! How large a grid may be, and how long one would take that is larger.

use std::time::Duration;

/// Cells that a file may ask for, and seconds that they may take, so that a slip of the pen does not run for a year.
const MOST_CELLS: u128 = 100_000;
const MOST_S: f64 = 30.0 * 86_400.0;

/// What an attempt at a server takes to simulate, seconds, between what was measured on fast cores, 0.8 to 1.9 us, and on one that others used, 5 to 7 (`tidegate bench sim.events_per_second`).
pub const ATTEMPT_S: f64 = 3e-6;
/// What a full packet over a dumbbell's bottleneck takes, on a slow core: a fast one has done 1 us (`tidegate bench sim.bulk100_seconds`).
pub const PACKET_S: f64 = 2e-6;

/// What a server takes for a request beside the work that it is told to do, seconds.
const OWN_WORK_S: f64 = 40e-6;

/// Requests/s that a server can answer which works so long for each, before it is measured.
pub fn likely_rate(cpu_time: Duration) -> f64 {
    1.0 / (cpu_time.as_secs_f64() + OWN_WORK_S)
}

/// Refuses a grid of more cells than that, or of more `seconds` where it takes the least, by `time`, what it would take in words, and `fewer`, what makes it smaller.
pub fn check(cells: u128, seconds: f64, time: &str, fewer: &str) -> Result<(), String> {
    let (most, lower) = if cells > MOST_CELLS {
        (format!("{MOST_CELLS} cells are"), "grid.repetitions")
    } else if seconds > MOST_S {
        (format!("{} are", roughly(MOST_S)), "grid.repetitions or grid.duration")
    } else {
        return Ok(());
    };
    Err(format!("{cells} cells would take {time}; {most} the most: lower {lower}, or {fewer}"))
}

/// A time in words, in the largest unit of which there is one.
pub fn roughly(seconds: f64) -> String {
    const UNITS: [(f64, &str); 5] = [
        (365.25 * 86_400.0, "years"),
        (86_400.0, "days"),
        (3600.0, "hours"),
        (60.0, "minutes"),
        (1.0, "seconds"),
    ];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= 2.0 * unit).unwrap_or(UNITS[4]);
    format!("{:.0} {name}", seconds / unit)
}

/// So many times a span, as seconds: a [`Duration`] could not hold it.
pub fn times(span: Duration, count: u128) -> f64 {
    span.as_secs_f64() * count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_said_in_a_unit_that_fits() {
        for (seconds, said) in [
            (0.4, "0 seconds"),
            (119.0, "119 seconds"),
            (120.0, "2 minutes"),
            (4e9, "127 years"),
            (1e6, "12 days"),
        ] {
            assert_eq!(roughly(seconds), said);
        }
    }

    #[test]
    fn grid_is_refused_by_its_size_or_its_time_and_no_product_overflows() {
        assert_eq!(check(MOST_CELLS, MOST_S, "", ""), Ok(()));
        let cells = u128::from(u32::MAX) * 1_000_000;
        let seconds = times(Duration::from_secs(7200), cells);
        let why = check(cells, seconds, &roughly(seconds), "take out loads").expect_err("too many");
        assert!(why.contains("4294967295000000 cells") && why.contains("years"), "{why}");
        let why = check(7, 1.01 * MOST_S, "a while", "take out loads").expect_err("too long");
        assert_eq!(
            why,
            "7 cells would take a while; 30 days are the most: lower grid.repetitions or grid.duration, or take out loads"
        );
    }
}
