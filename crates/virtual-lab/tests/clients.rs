//! What clients do: groups at several distances, reuse of connections, abort and reload.

use results::Answer;

use crate::run;

fn experiment(crowd: &str, path: &str, claims: &str) -> String {
    format!(
        r#"
        name = "clients"
        title = "What do clients do?"
        [crowd]
        timeout = "60s"
        close = "fin"
        arrivals = "poisson"
        workload = "world-cup"
        demand = {{ persistent = 0.2 }}
        {crowd}
        [path]
        {path}
        [grid]
        loads = [1.0]
        warmup = "2s"
        duration = "20s"
        repetitions = 3
        [[server]]
        name = "s"
        kind = "built-in"
        backlog = 1024
        [[policy]]
        name = "stock"
        {claims}
        "#
    )
}

/// `[SH06]` section 5.1, B: five groups from 0 to 150 ms. A handshake and a small reply take two
/// round trips.
#[test]
fn groups_of_clients_wait_for_their_own_round_trips() {
    let claim = |group: u32, ms: f64| {
        format!(
            "[[claim]]\nsource = \"here\"\ntext = \"group {group}\"\nmeasure = \"user_mean\"\nserver = \"s\"\ngroup = {group}\npolicy = \"stock\"\nloads = [1.0]\n\
             holds = {{ at_least = {}, at_most = {} }}\n",
            ms - 1.0,
            ms + 5.0
        )
    };
    let alone = "[[claim]]\nsource = \"here\"\ntext = \"as alone\"\nmeasure = \"user_mean\"\nserver = \"s\"\ngroup = 4\nagainst_server = \"s-group-4\"\n\
                 policy = \"stock\"\nloads = [1.0]\nholds = { at_least = 0.98, at_most = 1.02 }\n";
    let claims: String =
        (0..5).map(|group| claim(group, 75.0 * f64::from(group))).chain([alone.to_owned()]).collect();
    let groups =
        "groups = [\"delay 0ms\", \"delay 18.75ms\", \"delay 37.5ms\", \"delay 56.25ms\", \"delay 75ms\"]";
    let small = "{ kind = \"heavy-tail\", least = 100, median = 300, p90 = 900, most = 1300, shape = 1.2 }";
    let file = experiment("", &format!("rate = \"10mbit\"\ngroups_alone = true\n{groups}"), &claims);
    let run = run(&file.replace("\"world-cup\"", small));
    for claim in &run.claims {
        assert_eq!(claim.answer, Answer::Holds, "{claim:?}");
    }
    assert_eq!(run.claims.len(), 6);
    let crowd = &run.cells[0].crowd;
    let replies: u64 = crowd.groups.iter().map(|group| group.replies).sum();
    assert_eq!(replies, crowd.user_ms.count);
    for group in &crowd.groups {
        assert!((group.replies as f64 / replies as f64 - 0.2).abs() < 0.01, "{:?}", crowd.groups);
    }
    let path = run.cells[0].path.as_ref().expect("a path");
    assert!(path.to_clients.contains("group 4: ") && path.to_clients.contains("75ms"), "{}", path.to_clients);
}

/// `[SH06]` section 5.1, E: a connection carries five requests, and only the first of them has a
/// handshake.
#[test]
fn reused_connection_saves_the_handshake_of_those_that_follow() {
    let of = |reuse: u8| {
        let run = run(&experiment(&format!("reuse = {reuse}"), "rate = \"100mbit\"\ndelay = \"50ms\"", ""));
        run.cells[0].crowd.clone()
    };
    let (alone, five) = (of(1), of(5));
    assert_eq!(alone.offered, five.offered, "the same users");
    let syns = |crowd: &results::CrowdSummary| crowd.syns_per_s / crowd.offered_per_s;
    assert!((syns(&alone) - 1.0).abs() < 0.01, "{}", syns(&alone));
    assert!((syns(&five) - 0.2).abs() < 0.02, "{}", syns(&five));
    // Four in five save a round trip of 100 ms.
    let saved = alone.user_ms.mean - five.user_ms.mean;
    assert!((75.0..85.0).contains(&saved), "{saved} ms saved");
}

/// `[SH06]` section 5.1, H: with a loss that makes some replies late, users abort after 300 ms, and
/// try again at most twice.
#[test]
fn users_who_abort_count_from_their_first_try_and_some_never_complete() {
    let abort = "abort = { after = \"300ms\", reloads = 2 }";
    let run = run(&experiment(abort, "rate = \"100mbit\"\ndelay = \"20ms\"\nloss = \"20%\"", ""));
    let crowd = &run.cells[0].crowd;
    assert!(crowd.reloads > 0 && crowd.gave_up > 0, "{crowd:?}");
    assert!(crowd.response_ms.max <= 301.0, "a try lasts no longer: {}", crowd.response_ms.max);
    assert!((600.0..=901.0).contains(&crowd.user_ms.max), "three tries: {}", crowd.user_ms.max);
    assert!(crowd.user_ms.mean > crowd.response_ms.mean);
    let incomplete = crowd.sizes.incomplete_share().expect("requests");
    let all: u64 = crowd.sizes.classes.iter().map(|class| class.replies + class.incomplete).sum();
    let gave_up = crowd.gave_up as f64 / all as f64;
    assert!((incomplete / gave_up - 1.0).abs() < 0.1, "{incomplete} of the requests, {gave_up} by users");
}
