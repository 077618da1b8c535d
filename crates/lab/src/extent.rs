//! How large a grid may be, and how long one would take that is larger.

use std::time::Duration;

/// Cells that a file may ask for, so that a slip of the pen does not run for a year.
const MOST_CELLS: u128 = 100_000;

/// What an attempt at a server takes to simulate, seconds, between what was measured on fast cores, 0.8 to 1.9 us, and on one that others used, 5 to 7 (`tidegate bench sim.events_per_second`).
pub const ATTEMPT_S: f64 = 3e-6;
/// What a full packet over a dumbbell's bottleneck takes, on a slow core: a fast one has done 1 us (`tidegate bench sim.bulk100_seconds`).
pub const PACKET_S: f64 = 2e-6;

/// Refuses a grid of more cells than that by `time`, what it would take in words, and `fewer`, what makes it smaller.
pub fn check(cells: u128, time: &str, fewer: &str) -> Result<(), String> {
    if cells <= MOST_CELLS {
        return Ok(());
    }
    Err(format!(
        "{cells} cells would take {time}; {MOST_CELLS} cells are the most: lower grid.repetitions, or {fewer}"
    ))
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
    fn grid_is_refused_by_its_size_and_no_product_overflows() {
        assert_eq!(check(MOST_CELLS, "", ""), Ok(()));
        let cells = u128::from(u32::MAX) * 1_000_000;
        let time = roughly(times(Duration::from_secs(7200), cells));
        let why = check(cells, &time, "take out loads").expect_err("too many");
        assert!(why.contains("4294967295000000 cells") && why.contains("years"), "{why}");
    }
}
