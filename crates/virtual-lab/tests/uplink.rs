//! Servers behind an uplink.

use crate::{run, run_on, why_not};

const EXPERIMENT: &str = r#"
    name = "uplink"
    title = "Does the order on an uplink matter?"
    profile = "pentium-2002"
    [crowd]
    timeout = "60s"
    close = "fin"
    arrivals = "poisson"
    workload = "world-cup"
    demand = { low_s = 4, high_s = 6, low = 0.2, high = 1.2 }
    [uplink]
    rate = "10mbit"
    tsq = false
    [grid]
    loads = [1.0]
    warmup = "2s"
    duration = "20s"
    repetitions = 2
    [[server]]
    name = "apache"
    kind = "apache"
    backlog = 511
    processes = 350
    closes_after = 1
    [[server]]
    name = "small-packets"
    kind = "apache"
    backlog = 511
    processes = 350
    closes_after = 1
    mss = 536
    initial_rto = "500ms"
    [[policy]]
    name = "fair"
    [[policy]]
    name = "srpt"
    uplink = { order = "srpt" }
    [[policy]]
    name = "exact"
    uplink = { aqm = "srpt:limit=100", tsq = true }
    [[claim]]
    source = "[SH06] section 5"
    text = "most requests are answered sooner"
    measure = "mean"
    policy = "srpt"
    against = "fair"
    loads = [1.0]
    holds = { at_most = 0.5 }
    [[claim]]
    source = "[SH06] section 4"
    text = "there are fewer connections"
    measure = "connections_peak"
    policy = "srpt"
    against = "fair"
    loads = [1.0]
    holds = { at_most = 0.8 }
"#;

#[test]
fn shortest_response_first_is_sooner_and_each_second_is_written_down() {
    let run = run(EXPERIMENT);
    assert_eq!(run.cells.len(), 12);
    for claim in run.claims.iter().filter(|claim| claim.server == "apache") {
        // Two runs are too few for an interval.
        let ours = claim.ours.as_ref().expect("measured");
        assert!(claim.at_most.is_some_and(|most| ours.mean <= most), "{claim:?}");
    }
    for cell in &run.cells {
        let uplink = cell.uplink.as_deref().expect("its uplink");
        let series = &uplink.series;
        for counts in [&series.connections, &series.syn_qlen, &series.accept_qlen, &series.dropped] {
            assert_eq!(counts.len(), 22, "a number for each second, the warm-up's first");
        }
        let sent: u64 = series.sent_bytes[2..].iter().map(|&bytes| u64::from(bytes)).sum();
        assert_eq!(sent, uplink.sent_bytes);
        let rate = uplink.sent_bytes as f64 * 8.0 / 20.0;
        assert!((rate / 1e7 - uplink.utilisation).abs() < 1e-3, "{rate} and {}", uplink.utilisation);
        // In the overload, from the fourth second of each cycle to the tenth, the link is busy.
        let overload = series.sent_bytes[5..10].iter().chain(&series.sent_bytes[15..20]);
        let mean = overload.map(|&bytes| f64::from(bytes)).sum::<f64>() / 10.0;
        assert!(mean > 0.9 * 1.25e6, "{mean} bytes/s: {:?}", series.sent_bytes);
        let frames = |cell: &results::Cell| cell.uplink.as_deref().map_or(0, |uplink| uplink.sent);
        let other = run.cells.iter().find(|other| {
            other.server == "small-packets"
                && (&other.policy, other.repetition) == (&cell.policy, cell.repetition)
        });
        if cell.server == "apache" {
            let more = frames(other.expect("the same")) as f64 / frames(cell) as f64;
            assert!((1.4..2.2).contains(&more), "{more} times as many frames of 536 bytes");
        }
    }
}

#[test]
fn threads_make_no_difference() {
    let cells = |threads| run_on(EXPERIMENT, threads).cells;
    assert_eq!(cells(1), cells(3));
}

#[test]
fn what_cannot_be_behind_an_uplink_is_said_in_one_line() {
    for (from, to, why) in [
        ("rate = \"10mbit\"", "rate = \"0mbit\"", "uplink.rate = \"0mbit\" is no rate"),
        ("rate = \"10mbit\"\n", "", "uplink.rate is missing"),
        ("order = \"srpt\"", "order = \"lifo\"", "unknown word `lifo`"),
        ("order = \"srpt\"", "rate = \"20mbit\"", "policy \"srpt\": uplink.rate is that of all policies"),
        (
            "order = \"srpt\"",
            "order = \"srpt\", cutoffs = [5, 4]",
            "policy \"srpt\": uplink.cutoffs = [5, 4]",
        ),
        (
            "demand = { low_s = 4, high_s = 6, low = 0.2, high = 1.2 }",
            "",
            "server \"apache\": behind an uplink",
        ),
        ("mss = 536", "mss = 40", "server \"small-packets\": mss = 40: from 88"),
        ("initial_rto = \"500ms\"", "initial_rto = \"1ms\"", "initial_rto = 1ms: from 200ms"),
        ("processes = 350", "processes = 0", "nonzero"),
        (
            "[uplink]\n    rate = \"10mbit\"\n    tsq = false",
            "[path]\n    rate = \"10mbit\"",
            "policy \"srpt\": uplink changes",
        ),
    ] {
        assert!(EXPERIMENT.contains(from), "the test changes nothing: {from}");
        let said = why_not(&EXPERIMENT.replacen(from, to, 1));
        assert!(said.contains(why) && !said.trim_end().contains('\n'), "{from} -> {to}: {said}");
    }
}
