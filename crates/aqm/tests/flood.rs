//! What a flood of SYNs from forged addresses does to bulk flows, and to the SYNs of others, under
//! RED and under REDFavor with its guard and without.

use crate::common::config;
use crate::common::dumbbell::{Dumbbell, Outcome, run};
use aqm::DropReason;
use units::Nanos;

/// 100 bulk flows on 10 Mbit/s, 100 SYNs/s of others, and a flood of so much of the link in SYNs of
/// so many bytes.
fn flooded(text: &str, load: f64, bytes: u32) -> Outcome {
    let dumbbell = Dumbbell {
        flood_per_s: load * 10e6 / 8.0 / f64::from(bytes),
        flood_bytes: bytes,
        syns_per_s: 100.0,
        measured: Nanos::from_secs(20),
        ..Dumbbell::bulk()
    };
    let outcome = run(&dumbbell, &config(text));
    println!(
        "{text:18} flood of {load:3} in {bytes:4} bytes: goodput {:4.1}%, {:4} pushed out, {:4.1}% of others' SYNs lost",
        100.0 * outcome.goodput,
        outcome.drops[DropReason::PushedOut],
        100.0 * lost(&outcome),
    );
    outcome
}

fn lost(outcome: &Outcome) -> f64 {
    outcome.lost_syns as f64 / outcome.syns as f64
}

#[test]
fn syns_are_lost_under_red_and_not_under_redfavor() {
    let (red, redfavor) = (flooded("red", 0.0, 40), flooded("redfavor", 0.0, 40));
    assert!(lost(&red) > 0.1, "{}", lost(&red));
    assert_eq!(redfavor.lost_syns, 0);
    assert!((redfavor.goodput / red.goodput - 1.0).abs() < 0.02, "{} {}", redfavor.goodput, red.goodput);
    assert!((redfavor.drop_rate() / red.drop_rate() - 1.0).abs() < 0.1);
}

#[test]
fn flood_starves_data_without_a_guard() {
    for (bytes, load) in [(40, 1.0), (1000, 1.0), (40, 10.0)] {
        let outcome = flooded("redfavor:guard=off", load, bytes);
        assert!(outcome.goodput < 0.05, "{}", outcome.goodput);
    }
    assert!(flooded("red", 10.0, 40).goodput < 0.05, "nor can RED do anything");
}

/// All but the guard's share, and a little for the losses that TCP answers.
#[test]
fn guard_leaves_data_its_share_in_any_flood() {
    for (bytes, load) in [(40, 0.1), (40, 0.3), (40, 1.0), (40, 10.0), (1000, 1.0), (1000, 10.0)] {
        let outcome = flooded("redfavor", load, bytes);
        assert!(outcome.goodput > 0.7, "flood of {load} in {bytes} bytes: {}", outcome.goodput);
    }
    let outcome = flooded("redfavor:guard=10%", 10.0, 40);
    assert!(outcome.goodput > 0.85, "{}", outcome.goodput);
}

#[test]
fn guard_lets_syns_through_in_a_small_flood() {
    let outcome = flooded("redfavor", 0.02, 40);
    assert!(lost(&outcome) < 0.01, "{}", lost(&outcome));
}
