use std::collections::BTreeMap;

use results::{CrowdSummary, LatencySummary, Statuses};

use super::*;

const LOADS: [f64; 3] = [1.0, 1.25, 1.8];
const SCOPE: Scope<'_> = Scope {
    loads: &LOADS,
    policies: &[("stock", false), ("abort", true), ("abort-rst-syn", true)],
    servers: &["a", "b"],
    groups: 5,
};

const GOODPUT: &str = r#"
    source = "[Shu05] figure 4.7(a)"
    text = "after the peak, abort rst-syn answers at least 27% more than default"
    measure = "goodput"
    policy = "abort-rst-syn"
    against = "stock"
    loads = [1.25, 1.8]
    paper = 1.27
    holds = { at_least = 1.27 }
"#;

fn claim(text: &str) -> Claim {
    toml::from_str(text).expect("a claim")
}

/// The claim with something else in its place.
#[track_caller]
fn changed(from: &str, to: &str) -> Claim {
    assert!(GOODPUT.contains(from), "the test changes nothing");
    claim(&GOODPUT.replace(from, to))
}

fn cell(policy: &str, load: f64, repetition: u32, goodput: f64) -> Cell {
    let crowd = CrowdSummary {
        window_s: 4.0,
        offered_per_s: 100.0 * load,
        goodput_per_s: goodput,
        response_ms: LatencySummary { count: 1, mean: 1000.0 / goodput, ..LatencySummary::default() },
        ..CrowdSummary::default()
    };
    Cell { server: "a".to_owned(), policy: policy.to_owned(), load, repetition, crowd, ..Cell::default() }
}

/// Stock at 100/s everywhere, the guarded one at so many times that in each repetition.
fn cells(ratios: &[f64]) -> Vec<Cell> {
    let repetition = |(repetition, ratio): (u32, &f64)| {
        LOADS.map(|load| {
            [cell("stock", load, repetition, 100.0), cell("abort-rst-syn", load, repetition, 100.0 * ratio)]
        })
    };
    (0..).zip(ratios).flat_map(repetition).flatten().collect()
}

/// Of a run that was to have as many repetitions as it has.
fn answer(claim: &Claim, cells: &[Cell]) -> ClaimAnswer {
    let repetitions = cells.iter().map(|cell| cell.repetition + 1).max().unwrap_or(1);
    claim.answer("test", "a", Planned { loads: &LOADS, repetitions }, cells)
}

#[test]
fn run_that_ended_early_decides_nothing_that_rests_on_what_is_missing() {
    let of_all = |claim: &Claim, cells: &[Cell], repetitions| {
        claim.answer("test", "a", Planned { loads: &LOADS, repetitions }, cells)
    };
    for ratio in [1.3, 1.1] {
        let answer = of_all(&claim(GOODPUT), &cells(&[ratio]), 3);
        assert_eq!(answer.answer, Answer::Undecided, "of three repetitions one is there");
        assert_eq!(answer.marks, ["8 of the 12 cells that it rests on are missing: the run ended early"]);
        assert!(answer.ours.is_some(), "its number is shown");
    }
    let mut cells = cells(&[1.3, 1.3]);
    cells.retain(|cell| cell.repetition == 0 || cell.load == 1.0);
    assert_eq!(of_all(&claim(GOODPUT), &cells, 2).answer, Answer::Undecided);
    let at_one = changed("[1.25, 1.8]", "[1.0]");
    assert_eq!(of_all(&at_one, &cells, 2).answer, Answer::Holds, "nothing is missing of what it rests on");
    assert_eq!(of_all(&claim(GOODPUT), &[], 2).answer, Answer::NotMeasured, "there is no number at all");
}

#[test]
fn single_run_holds_or_fails_by_its_number() {
    let claim = claim(GOODPUT);
    let held = answer(&claim, &cells(&[1.3]));
    assert_eq!((held.answer, held.unit), (Answer::Holds, Unit::Ratio));
    assert!((held.ours.expect("measured").mean - 1.3).abs() < 1e-9);
    assert_eq!(answer(&claim, &cells(&[1.2])).answer, Answer::Fails);
    assert_eq!(held.measured, "goodput of abort-rst-syn over stock at 1.25x, 1.8x");
}

#[test]
fn interval_across_a_bound_is_undecided() {
    let claim = claim(GOODPUT);
    assert_eq!(answer(&claim, &cells(&[1.32, 1.31, 1.33])).answer, Answer::Holds);
    assert_eq!(answer(&claim, &cells(&[1.1, 1.11, 1.12])).answer, Answer::Fails);
    let undecided = answer(&claim, &cells(&[1.2, 1.3, 1.4]));
    assert_eq!(undecided.answer, Answer::Undecided);
    let ours = undecided.ours.expect("measured");
    assert!(ours.low < 1.27 && 1.27 < ours.high && ours.count == 3, "{ours:?}");
}

#[test]
fn both_bounds_count() {
    let claim = changed("{ at_least = 1.27 }", "{ at_least = 0.95, at_most = 1.05 }");
    for (ratio, expected) in [(0.9, Answer::Fails), (1.0, Answer::Holds), (1.1, Answer::Fails)] {
        assert_eq!(answer(&claim, &cells(&[ratio])).answer, expected, "{ratio}");
    }
}

#[test]
fn missing_cell_is_not_measured_and_named() {
    let mut cells = cells(&[1.3]);
    cells.retain(|cell| cell.policy != "stock" || cell.load != 1.8);
    let answer = answer(&claim(GOODPUT), &cells);
    assert_eq!((answer.answer, answer.ours), (Answer::NotMeasured, None));
    assert_eq!(answer.marks, ["stock was not measured at 1.8 times saturation"]);
}

#[test]
fn repetition_that_is_not_complete_does_not_count() {
    let mut cells = cells(&[1.3, 9.0]);
    cells.retain(|cell| cell.repetition == 0 || cell.load < 1.5);
    assert_eq!(answer(&claim(GOODPUT), &cells).ours.map(|ours| ours.count), Some(1));
}

#[test]
fn cells_of_another_server_do_not_count() {
    let planned = Planned { loads: &LOADS, repetitions: 1 };
    let answer = claim(GOODPUT).answer("test", "b", planned, &cells(&[1.3]));
    assert_eq!(answer.answer, Answer::NotMeasured);
}

#[test]
fn no_reply_has_no_response_time_to_compare() {
    let mut cells = cells(&[0.5]);
    cells.iter_mut().for_each(|cell| cell.crowd.response_ms.count = 0);
    let answer = answer(&changed("\"goodput\"", "\"mean\""), &cells);
    assert_eq!(answer.answer, Answer::NotMeasured);
    assert_eq!(answer.marks, ["abort-rst-syn has no mean response time at 1.25 times saturation"]);
}

#[test]
fn peak_is_the_largest_of_all_loads() {
    let claim = changed("loads = [1.25, 1.8]", "peak = true");
    let mut cells = cells(&[1.0]);
    cells.iter_mut().filter(|cell| cell.policy != "stock" && cell.load == 1.0).for_each(|cell| {
        cell.crowd.goodput_per_s = 140.0;
    });
    let answer = answer(&claim, &cells);
    assert!((answer.ours.expect("measured").mean - 1.4).abs() < 1e-9);
    assert_eq!(answer.measured, "goodput of abort-rst-syn over stock at its peak");
}

#[test]
fn one_policy_is_compared_with_itself_at_another_load() {
    let claim = changed("against = \"stock\"", "against_loads = [1.0]");
    let mut cells = cells(&[1.0]);
    cells.iter_mut().filter(|cell| cell.load > 1.0).for_each(|cell| cell.crowd.goodput_per_s = 300.0);
    let answer = answer(&claim, &cells);
    assert!((answer.ours.expect("measured").mean - 3.0).abs() < 1e-9);
    assert_eq!(answer.measured, "goodput of abort-rst-syn at 1.25x, 1.8x over that at 1x");
}

#[test]
fn marks_of_the_cells_behind_an_answer_are_said() {
    let mut cells = cells(&[1.3]);
    for cell in &mut cells {
        cell.marks = vec!["late".to_owned()];
    }
    let marks = answer(&claim(GOODPUT), &cells).marks;
    assert_eq!(marks.len(), 4, "two policies at two loads, and not at 1.0: {marks:?}");
}

#[test]
fn claim_that_no_run_could_answer_is_refused_with_the_reason() {
    let error = |from: &str, to: &str| changed(from, to).check(&SCOPE).expect_err("refused");
    assert_eq!(claim(GOODPUT).check(&SCOPE), Ok(()));
    assert!(
        error("\"stock\"", "\"stok\"")
            .contains("no [[policy]] or [[aqm]] is called \"stok\"; there are stock, abort")
    );
    assert!(
        error("[1.25, 1.8]", "[1.26]").contains("load 1.26 is not measured; grid.loads are [1.0, 1.25, 1.8]")
    );
    assert!(error("[1.25, 1.8]", "[]").contains("give loads = [...], or peak = true"));
    assert!(error("[1.25, 1.8]", "[1.8]\npeak = true").contains("give one"));
    assert!(error("{ at_least = 1.27 }", "{}").contains("holds says nothing"));
    assert!(error("{ at_least = 1.27 }", "{ at_least = 2.0, at_most = 1.0 }").contains("can never be"));
    assert!(error("\"goodput\"", "\"syn_drops_per_attempt\"").contains("policy \"stock\" has none"));
    let peak = GOODPUT.replace("\"goodput\"", "\"mean\"").replace("loads = [1.25, 1.8]", "peak = true");
    assert!(claim(&peak).check(&SCOPE).expect_err("refused").contains("measure = \"goodput\""));
}

#[test]
fn goodput_of_a_claim_is_at_the_speed_of_the_search() {
    let mut cell = cell("stock", 1.0, 0, 80.0);
    cell.speed_before = Some(0.8);
    assert_eq!(Measure::Goodput.of(&cell), Some(100.0));
    assert_eq!(
        Measure::ErrorShare.of(&cell).map(|share| (share * 100.0).round()),
        Some(20.0),
        "a share needs none"
    );
}

#[test]
fn unknown_measure_is_refused_with_those_that_there_are() {
    let error = toml::from_str::<Claim>(&GOODPUT.replace("\"goodput\"", "\"speed\"")).expect_err("refused");
    assert!(error.message().contains("unknown variant `speed`"), "{error}");
    assert!(error.message().contains("`error_share`"), "{error}");
}

#[test]
fn measures_are_what_their_names_say() {
    let mut cell = cell("abort", 1.0, 0, 60.0);
    cell.crowd.ended_by_syns = vec![50, 20, 10, 20];
    cell.kernel =
        BTreeMap::from([("TcpExt.ListenOverflows".to_owned(), 800), ("Tcp.RetransSegs".to_owned(), 12)]);
    let counters = [
        ("syns.dropped", 0.0),
        ("syns.reset", 0.0),
        ("syns.accept_full", 150.0),
        ("acks.full", 50.0),
        ("acks.implied", 30.0),
    ];
    cell.guard_per_s = counters.map(|(name, per_s)| (name.to_owned(), per_s)).into();
    let expected = [
        (Measure::ErrorShare, 0.4),
        (Measure::OneSynShare, 0.5),
        (Measure::ThreeSynsShare, 0.3),
        (Measure::SynDropsPerAttempt, 1.5),
        (Measure::AckDropsPerAttempt, 0.2),
        (Measure::AckShareOfDrops, 20.0 / 170.0),
        (Measure::AckDropInflation, 2.5),
        (Measure::OverflowsPerAttempt, 2.0),
        (Measure::Retransmissions, 12.0),
    ];
    for (measure, value) in expected {
        let measured = measure.of(&cell).expect("measured");
        assert!((measured - value).abs() < 1e-9, "{measure}: {measured}");
    }
    cell.guard_per_s.insert("syns.dropped".to_owned(), 70.0);
    assert_eq!(Measure::SynDropsPerAttempt.of(&cell), Some(0.7), "the guard left none to the kernel");
    cell.guard_per_s.clear();
    assert_eq!(Measure::AckShareOfDrops.of(&cell), None);
}

/// A hundred requests: 98 small ones, a large one, and one that was given up.
#[test]
fn measures_of_sizes_are_of_what_was_asked_for() {
    let read = |name: &str| changed("measure = \"goodput\"", &format!("measure = {name:?}")).measure;
    let mut cell = cell("stock", 1.0, 0, 100.0);
    let names = [
        ("user_mean", 250.0),
        ("user_c2", 6.39),
        ("first_byte_mean", 20.0),
        ("largest_1pct_mean", 17_800.0),
        ("largest_mean", 17_800.0),
        ("mean_to_1kb", 5.0),
        ("mean_to_2kb", 7.0),
        ("mean_to_5kb", 9.0),
        ("mean_to_50kb", 50.0),
        ("mean_above_50kb", 17_800.0),
        ("second_mean_max", 3000.0),
        ("second_mean_p95", 3000.0),
        ("incomplete_share", 0.01),
        ("incomplete_largest_1pct", 0.5),
        ("byte_throughput", 1.25e6),
    ];
    for (name, _) in &names[..10] {
        assert_eq!(read(name).of(&cell), None, "{name} of nothing");
    }
    let crowd = &mut cell.crowd;
    crowd.user_ms = LatencySummary { count: 99, mean: 250.0, c2: 6.39, ..LatencySummary::default() };
    crowd.first_byte_ms = LatencySummary { count: 99, mean: 20.0, ..LatencySummary::default() };
    crowd.bytes_per_s = 1.25e6;
    for _ in 0..95 {
        crowd.sizes.replied(1_000, 4_000, 5_000);
    }
    for (bytes, us) in [(1_001, 7_000), (4_999, 9_000), (50_000, 50_000), (2_000_000, 17_800_000)] {
        crowd.sizes.replied(bytes, us / 2, us);
    }
    crowd.sizes.given_up(2_000_000);
    crowd.seconds.replied(0, 10_000);
    crowd.seconds.replied(7, 3_000_000);
    for (name, expected) in names {
        let value = read(name).of(&cell).expect(name);
        // The largest 1% of a hundred requests is one of the two of its size.
        assert!((value / expected - 1.0).abs() < 1e-6, "{name}: {value}, expected {expected}");
    }
    assert_eq!((read("user_c2").unit(), read("byte_throughput").unit()), (Unit::Ratio, Unit::PerSecond));
    assert_eq!(read("largest_mean").to_string(), "mean response time of the largest");
}

#[test]
fn claim_may_be_of_one_group_of_clients() {
    let of_group =
        |group: &str| changed("measure = \"goodput\"", &format!("measure = \"user_mean\"\ngroup = {group}"));
    assert_eq!(of_group("4").check(&SCOPE), Ok(()));
    assert!(of_group("5").check(&SCOPE).expect_err("no such").contains("none of the 5 of [path], from 0"));
    let alone = Scope { groups: 1, ..SCOPE };
    assert!(of_group("0").check(&alone).expect_err("no groups").contains("none of the 1"));
    let goodput = changed("loads", "group = 1\n    loads").check(&SCOPE).expect_err("of goodput");
    assert!(goodput.contains("is for measure = \"user_mean\""), "{goodput}");
    let mut cells = cells(&[1.0]);
    for cell in &mut cells {
        let ms = if cell.policy == "stock" { 100 } else { 150 };
        cell.crowd.groups =
            (0..5).map(|group| GroupCount { replies: 2, user_us: 2000 * ms * group }).collect();
    }
    let answer = answer(&of_group("2"), &cells);
    assert!((answer.ours.expect("a number").mean - 1.5).abs() < 1e-9);
    assert!(
        answer.measured.starts_with("mean response time from the first try to group 2 of"),
        "{}",
        answer.measured
    );
}

#[test]
fn claim_may_be_held_against_another_server() {
    let text = "server = \"a\"\n    against_server = \"b\"\n    group = 2\n    measure = \"user_mean\"";
    let claim = changed("measure = \"goodput\"", text);
    let claim = Claim { against: None, ..claim };
    assert_eq!(claim.check(&SCOPE), Ok(()));
    let no_server = Claim { server: None, ..claim.clone() }.check(&SCOPE).expect_err("of which");
    assert!(no_server.contains("against_server = \"b\" wants server"), "{no_server}");
    let nobody = Claim { against_server: Some("c".to_owned()), ..claim.clone() };
    assert!(nobody.check(&SCOPE).expect_err("no such").contains("both of a, b"));
    let mut cells = cells(&[1.0]);
    for cell in &mut cells {
        cell.crowd.groups = (0..5).map(|group| GroupCount { replies: 1, user_us: 1000 * group }).collect();
    }
    let mut before_b = cells.clone();
    for cell in &mut before_b {
        (cell.server, cell.crowd.groups) = ("b".to_owned(), Vec::new());
        cell.crowd.user_ms = LatencySummary { count: 1, mean: 4.0, ..LatencySummary::default() };
    }
    let alone = answer(&claim, &cells);
    assert_eq!(alone.answer, Answer::NotMeasured, "nothing was measured before b");
    cells.extend(before_b);
    let answer = answer(&claim, &cells);
    assert!((answer.ours.expect("a number").mean - 0.5).abs() < 1e-9, "2 ms over 4 ms");
    assert!(answer.measured.ends_with("before b"), "{}", answer.measured);
}

#[test]
fn claim_may_be_of_one_server_that_is_measured() {
    let of_all = claim(GOODPUT);
    assert!(of_all.is_of("a") && of_all.is_of("b"));
    let of_one = changed("policy = \"abort", "server = \"b\"\n    policy = \"abort");
    assert_eq!(of_one.check(&SCOPE), Ok(()));
    assert!(of_one.is_of("b") && !of_one.is_of("a"));
    let of_none = changed("policy = \"abort", "server = \"c\"\n    policy = \"abort");
    assert_eq!(
        of_none.check(&SCOPE),
        Err("no [[server]] or [[scenario]] is called \"c\"; there are a, b".to_owned())
    );
}

#[test]
fn reason_is_given_for_what_does_not_hold_and_for_nothing_else() {
    let claim = changed("paper = 1.27", "why = \"the server is spared too little\"");
    for answer in [Answer::Fails, Answer::Undecided] {
        assert_eq!(claim.why_not(answer).as_deref(), Some("the server is spared too little"));
    }
    for answer in [Answer::Holds, Answer::NotMeasured] {
        assert_eq!(claim.why_not(answer), None, "{answer:?}");
    }
}

#[test]
fn shares_of_the_cpu_and_replies_per_syn_are_those_of_the_cell() {
    let mut cell = cell("stock", 1.0, 0, 50.0);
    cell.crowd.syns_per_s = 200.0;
    cell.server_cpu = results::CpuShares { user: 0.2, system: 0.1, softirq: 0.5, ..Default::default() };
    assert_eq!(Measure::RepliesPerSyn.of(&cell), Some(0.25));
    assert_eq!(Measure::SoftirqShare.of(&cell), Some(0.5));
    assert!((Measure::ProgramShare.of(&cell).expect("a share") - 0.3).abs() < 1e-9);
    cell.crowd.syns_per_s = 0.0;
    assert_eq!(Measure::RepliesPerSyn.of(&cell), None, "nothing was sent");
}

#[test]
fn replies_are_shared_out_by_the_class_of_their_status() {
    let mut cell = cell("stock", 1.0, 0, 80.0);
    assert_eq!(Measure::Non2xxShare.of(&cell), None, "no reply, or results of an older version");
    cell.crowd.statuses =
        Statuses { informational: 9, successful: 5, redirection: 1, client_error: 10, server_error: 4 };
    for (name, share) in [
        ("status_2xx_share", 0.25),
        ("status_3xx_share", 0.05),
        ("status_4xx_share", 0.5),
        ("status_5xx_share", 0.2),
        ("non_2xx_share", 0.75),
    ] {
        let claim = changed("\"goodput\"", &format!("{name:?}"));
        assert_eq!(claim.measure.of(&cell), Some(share), "{name}");
        assert!(!claim.measure.is_of_link() && !claim.measure.needs_guard(), "{name}");
    }
}

#[test]
fn syns_that_a_simulated_kernel_dropped_count_where_the_guard_refused_none() {
    let mut cell = cell("abort", 1.0, 0, 50.0);
    let counts = [("syns.dropped", 0.0), ("syns.reset", 0.0), ("syns.accept_full", 30.0)];
    cell.guard_per_s = counts.map(|(name, per_s)| (name.to_owned(), per_s)).into();
    assert_eq!(Measure::SynDropsPerAttempt.of(&cell), Some(0.3));
    cell.guard_per_s.insert("syns.kernel_dropped".to_owned(), 80.0);
    assert_eq!(Measure::SynDropsPerAttempt.of(&cell), Some(0.8));
    cell.guard_per_s.insert("syns.reset".to_owned(), 20.0);
    assert_eq!(Measure::SynDropsPerAttempt.of(&cell), Some(0.2));
}
