//! Crowds whose loads are of a bandwidth.

use crate::run;

const EXPERIMENT: &str = r#"
    name = "demand"
    title = "Is as much asked for as the file says?"
    [crowd]
    timeout = "60s"
    close = "fin"
    arrivals = "poisson"
    workload = "world-cup"
    demand = { low_s = 4, high_s = 2, low = 0.3, high = 0.9 }
    [path]
    rate = "100mbit"
    [grid]
    loads = [1.0]
    warmup = "6s"
    duration = "60s"
    [[server]]
    name = "twice"
    kind = "built-in"
    backlog = 1024
    [[server]]
    name = "steady"
    kind = "built-in"
    backlog = 1024
    crowd = { demand = { persistent = 0.4 } }
    [[policy]]
    name = "stock"
"#;

/// 100 Mbit/s is 12.5 MB/s, which is 2,499.2 files of 5,001.6 B. Nobody searches for a saturation
/// rate.
#[test]
fn crowd_asks_for_as_much_bandwidth_as_the_file_says() {
    let run = run(EXPERIMENT);
    let rates: Vec<f64> = run.saturations.iter().map(|found| found.rate_per_s).collect();
    assert!(rates.iter().all(|rate| (rate - 2499.2).abs() < 1.0), "{rates:?}");
    assert!(run.saturations.iter().all(|found| found.probes.is_empty()));
    for (cell, load) in run.cells.iter().zip([0.5, 0.4]) {
        let ratio = cell.crowd.offered_per_s / (load * 2499.2);
        // A Poisson count of 60,000 or more is within 1.3% but once in a thousand times.
        assert!((ratio - 1.0).abs() < 0.013, "{}: {ratio} of what was to come", cell.server);
        assert!(cell.crowd.ok as f64 > 0.98 * cell.crowd.offered as f64, "{:?}", cell.crowd);
    }
    let said = run.header.deviations.join("\n");
    for words in [
        "The crowd of twice asks for 4 s at 0.3, 2 s at 0.9: a load of 0.500 on the mean, 0.500 in the window.",
        "The crowd of steady asks for W0 of 0.4: a load of 0.400 on the mean",
        "A load of 1 is 2499.2 requests/s, whose files are 100000 kbit/s",
        "Loads are of a bandwidth",
    ] {
        assert!(said.contains(words), "{said}");
    }
}
