//! What theory says of workloads of `[SH06]` table 1.
//!
//! `experiments/scheduling/sec-6.3.toml` holds a simulated server against these numbers.

use theory::{Alternating, BoundedPareto, fair, srpt};

/// Bytes of files that 10 Mbit/s carry per second, with heads and headers beside them on the link.
const LINK: f64 = 1_250_000.0 * 5_000.0 / 5_552.0;

#[test]
fn means_are_those_that_the_experiment_is_held_against() {
    let sizes = BoundedPareto::new(840.0, 2_020_000.0, 1.1).expect("sizes");
    for (low_s, high_s, low, high, fair_ms, srpt_ms) in [
        (25.0, 25.0, 0.2, 1.2, 222.0, 34.0),
        (10.0, 10.0, 0.2, 1.2, 108.0, 22.0),
        (25.0, 25.0, 0.4, 1.4, 539.0, 82.0),
        (10.0, 10.0, 0.4, 1.4, 237.0, 43.0),
    ] {
        let load = Alternating::new(low_s, high_s, low, high).expect("a load");
        let (fair, srpt) = (fair(&sizes, LINK, &load).response, srpt(&sizes, LINK, &load));
        for (what, mean_s, expected_ms) in [("FAIR", fair.mean_s, fair_ms), ("SRPT", srpt.mean_s, srpt_ms)] {
            let ms = 1e3 * mean_s;
            assert!((ms - expected_ms).abs() < 0.6, "{what} at {low} and {high}, {low_s} s each: {ms} ms");
        }
        let largest = srpt.at(1_900_000.0) / fair.at(1_900_000.0);
        assert!((0.95..1.15).contains(&largest), "the largest take {largest} times as long");
    }
}
