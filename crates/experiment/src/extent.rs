//! How large a grid may be, and how long one would take that is larger.

use std::time::Duration;

/// Cells that a file may ask for, and seconds that they may take, so that a slip of the pen does
/// not run for a year.
const MOST_CELLS: u128 = 100_000;
const MOST_S: f64 = 30.0 * 86_400.0;

/// What an attempt at a server takes to simulate, seconds, between what was measured on fast cores,
/// 0.8 to 1.9 us, and on one that others used, 5 to 7 (`tidegate bench sim.events_per_second`).
pub(crate) const ATTEMPT_S: f64 = 3e-6;
/// What a full packet over a dumbbell's bottleneck takes, on a slow core: a fast one has done 1 us
/// (`tidegate bench sim.bulk100_seconds`).
pub(crate) const PACKET_S: f64 = 2e-6;

/// Memory of a simulated attempt that nobody has answered, bytes: 10 million take 2.1 GiB
/// (`tidegate bench sim.clients_10m_gib`).
pub(crate) const ATTEMPT_BYTES: f64 = 225.0;
/// Says how much memory is to be had: proc(5), `MemAvailable`, in KiB.
const MEMORY: &str = "/proc/meminfo";

/// What a server takes for a request beside the work that it is told to do, seconds.
const OWN_WORK_S: f64 = 40e-6;

/// Requests/s that a server can answer which works so long for each, before it is measured.
pub(crate) fn likely_rate(cpu_time: Duration) -> f64 {
    1.0 / (cpu_time.as_secs_f64() + OWN_WORK_S)
}

/// Refuses a grid of more cells than that, or of more `seconds` where it takes the least, by
/// `time`, what it would take in words, and `fewer`, what makes it smaller.
pub(crate) fn check(cells: u128, seconds: f64, time: &str, fewer: &str) -> Result<(), String> {
    let (most, lower) = if cells > MOST_CELLS {
        (format!("{MOST_CELLS} cells are"), "grid.repetitions")
    } else if seconds > MOST_S {
        (format!("{} are", roughly(MOST_S)), "grid.repetitions or grid.duration")
    } else {
        return Ok(());
    };
    Err(format!("{cells} cells would take {time}; {most} the most: lower {lower}, or {fewer}"))
}

/// Refuses cells that take far more memory together than there is, with so many `attempts` waiting
/// in each: how many a server can do is known to a factor of two.
pub(crate) fn check_memory(attempts: f64, cells_at_once: usize, available: f64) -> Result<(), String> {
    let wanted = attempts * ATTEMPT_BYTES * cells_at_once as f64;
    if wanted <= 2.0 * available {
        return Ok(());
    }
    let [wanted, available] = [wanted, available].map(|bytes| bytes / f64::from(1 << 30));
    Err(format!(
        "a cell may have {attempts:.0} attempts waiting, and {cells_at_once} at once take {wanted:.0} GiB of memory, of which {available:.0} are to be had: lower grid.loads, grid.duration or crowd.timeout, or --threads"
    ))
}

/// Memory that is to be had, bytes; `None` where the system does not say.
pub(crate) fn available_memory() -> Option<f64> {
    available_in(&std::fs::read_to_string(MEMORY).ok()?)
}

fn available_in(text: &str) -> Option<f64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(kib.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// A time in words, in the largest unit of which there is one.
pub(crate) fn roughly(seconds: f64) -> String {
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
pub(crate) fn times(span: Duration, count: u128) -> f64 {
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
    fn cells_that_take_more_memory_than_there_is_are_refused() {
        let gib = f64::from(1 << 30);
        assert_eq!(check_memory(10e6, 2, 2.15 * gib), Ok(()));
        let why = check_memory(10e6, 4, 2.15 * gib).expect_err("too many at once");
        assert!(
            why.starts_with("a cell may have 10000000 attempts waiting, and 4 at once take 8 GiB"),
            "{why}"
        );
        let text = "MemTotal:       24689764 kB\nMemAvailable:   20000000 kB\nBuffers: 3 kB\n";
        assert_eq!(available_in(text), Some(20_480_000_000.0));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
        assert!(available_memory().is_some_and(|bytes| bytes > 1e6), "Linux says it");
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
