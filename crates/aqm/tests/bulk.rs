//! RED under 100 bulk flows on 10 Mbit/s, beside what ns-3.44 measures for the same network.
//!
//! ns-3: RedQueueDisc with MinTh 30, MaxTh 90, LInterm 10, QW 0.002, MeanPktSize 1000, MaxSize 180p
//! on a device queue of one packet; 100 BulkSend flows of TcpNewReno with MinRto 200 ms, IP packets
//! of 1000 bytes, InitialCwnd 2, no delayed ACKs; round trips of 40 to 120 ms, starts 50 ms apart;
//! seconds 20 to
//! 120. The flows of `dumbbell.rs` know of less than SACK tells and send less in vain than ns-3's
//!      without it: they should lie near both.

use crate::common::config;
use crate::common::dumbbell::{Dumbbell, Outcome, run};
use aqm::{Config, DropReason, base_probability};

fn outcome(text: &str) -> Outcome {
    let outcome = run(&Dumbbell::bulk(), &config(text));
    println!(
        "{text:20} queue {:5.1}, drops {:5.2}%, goodput {:5.1}%",
        outcome.queue,
        100.0 * outcome.drop_rate(),
        100.0 * outcome.goodput
    );
    outcome
}

/// What ns-3 has with SACK and without, and how far ours may lie outside: a seventh of it.
struct Ns3 {
    queue: [f64; 2],
    drop_rate: [f64; 2],
    least_goodput: f64,
}

fn assert_within(value: f64, [least, most]: [f64; 2], what: &str) {
    assert!(
        value >= least * 6.0 / 7.0 && value <= most * 8.0 / 7.0,
        "{what}: {value}, where ns-3 has {least} to {most}"
    );
}

fn assert_in_line(text: &str, ns3: &Ns3) -> Outcome {
    let outcome = outcome(text);
    assert_within(outcome.queue, ns3.queue, "mean queue");
    assert_within(outcome.drop_rate(), ns3.drop_rate, "drop rate");
    assert!(outcome.goodput >= ns3.least_goodput, "goodput {}", outcome.goodput);
    assert!(outcome.utilisation > 0.995 && outcome.utilisation < 1.0001, "sent {}", outcome.utilisation);
    assert_eq!(outcome.drops[DropReason::Tail], 0, "the average stays below the limit");
    outcome
}

#[test]
fn red_is_in_line_with_ns_3() {
    assert_in_line("red", &Ns3 { queue: [75.9, 84.7], drop_rate: [0.154, 0.193], least_goodput: 0.95 });
}

#[test]
fn red_that_waits_is_in_line_with_ns_3() {
    assert_in_line("red:wait", &Ns3 { queue: [99.4, 105.4], drop_rate: [0.136, 0.181], least_goodput: 0.95 });
}

/// The share of drops must be the one that RED's own curve has at the mean queue: with uniform gaps
/// of up to 1/p packets, two over 1/p + 1.
#[test]
fn drops_are_those_of_reds_curve_at_the_mean_queue() {
    let Config::Red(red) = config("red") else { unreachable!("it is red") };
    let outcome = outcome("red");
    let base = base_probability(&red, outcome.queue);
    let wanted = 2.0 * base / (1.0 + base);
    let rate = outcome.drop_rate();
    assert!((rate / wanted - 1.0).abs() < 0.15, "{rate} at a mean queue of {}, not {wanted}", outcome.queue);
}

#[test]
fn codel_is_in_line_with_ns_3() {
    let outcome = outcome("codel");
    assert_within(outcome.queue, [56.5, 56.5], "mean queue");
    // ns-3's with SACK; ours, which sends again what had arrived, loses more.
    assert_within(outcome.drop_rate(), [0.176, 0.176 * 1.1], "drop rate");
    assert!(outcome.goodput > 0.95, "goodput {}", outcome.goodput);
}
