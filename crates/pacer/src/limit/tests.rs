use super::*;

const TICK: Nanos = Nanos::from_millis(50);

/// A server that answers in proportion to how many wait, up to so many a second, and is asked for
/// much more.
struct Server {
    most_per_s: f64,
    work_s: f64,
}

impl Server {
    /// What it answers while so many wait.
    fn per_s(&self, waiting: f64) -> f64 {
        (waiting / self.work_s).min(self.most_per_s)
    }

    fn tick(&self, waiting: f64, refused: u64) -> Tick {
        let seconds = TICK.as_secs_f64();
        Tick {
            elapsed: TICK,
            answered: (self.per_s(waiting) * seconds) as u64,
            response: Nanos::from_secs_f64(self.work_s),
            waited: Nanos::from_secs_f64(waiting * seconds),
            refused,
            waiting_at_onset: 200,
            ..Tick::default()
        }
    }

    /// Goes on for so many ticks with as many waiting as may.
    fn crowd(&self, limit: &mut Limit, ticks: u32) {
        for _ in 0..ticks {
            limit.tick(self.tick(limit.limit, 1_000));
        }
    }
}

/// After a second in which half of what it can is asked for.
fn calm(server: &Server) -> Limit {
    let mut limit = Limit::default();
    let waiting = 0.5 * server.most_per_s * server.work_s;
    (0..20).for_each(|_| limit.tick(server.tick(waiting, 0)));
    limit
}

#[test]
fn nothing_is_quick_until_enough_answers_were_seen() {
    let mut limit = Limit::default();
    assert_eq!(limit.quick(), None);
    let few = Tick { elapsed: TICK, answered: 15, response: Nanos::from_millis(3), ..Tick::default() };
    limit.tick(few);
    assert_eq!(limit.quick(), None);
    limit.tick(Tick { answered: 17, ..few });
    assert_eq!(limit.quick(), Some(Nanos::from_millis(12)), "four times 3 ms");
}

#[test]
fn usual_answer_becomes_shorter_at_once_and_longer_within_a_minute() {
    let server = |work_s| Server { most_per_s: 10_000.0, work_s };
    let mut limit = calm(&server(0.004));
    limit.tick(server(0.001).tick(5.0, 0));
    limit.tick(server(0.001).tick(5.0, 0));
    assert_eq!(limit.quick(), Some(Nanos::from_millis(4)));
    (0..1_200).for_each(|_| limit.tick(server(0.004).tick(5.0, 0)));
    let quick_ms = limit.quick().expect("known").as_millis_f64();
    assert!((11.0..14.0).contains(&quick_ms), "{quick_ms} ms, of 16");
}

#[test]
fn crowd_begins_with_as_many_as_stood_and_ends_with_what_the_server_has_under_its_hands() {
    let server = Server { most_per_s: 5_000.0, work_s: 0.01 };
    let mut limit = calm(&server);
    server.crowd(&mut limit, 1);
    assert_eq!(limit.now(), 200);
    server.crowd(&mut limit, 200);
    assert!((50..=70).contains(&limit.now()), "{} for the fifty that it has under its hands", limit.now());
}

#[test]
fn limit_below_what_the_server_needs_is_doubled_until_it_brings_nothing() {
    let server = Server { most_per_s: 40_000.0, work_s: 0.01 };
    let mut limit = calm(&server);
    server.crowd(&mut limit, 1_200);
    assert!((380..=500).contains(&limit.now()), "{} for the four hundred", limit.now());
}

#[test]
fn idle_time_makes_the_limit_grow_only_where_it_says_how_many_wait() {
    for (waiting, grown) in [(9.0, 14), (1.0, 10)] {
        let rest = Nanos::from_secs(10);
        let mut limit = Limit { limit: 10.0, phase: Phase::Hold, rest, ..Limit::default() };
        let server = Server { most_per_s: 5_000.0, work_s: 0.001 };
        let tick = Tick { idle: Nanos(TICK.0 / 10), ..server.tick(waiting, 1_000) };
        limit.go_on(tick.shown(), TICK);
        assert_eq!(limit.now(), grown, "{waiting} of ten waited");
    }
}

#[test]
fn nobody_refused_for_a_period_ends_the_crowd_once_the_kernel_decides_alone() {
    let server = Server { most_per_s: 5_000.0, work_s: 0.001 };
    let mut limit = calm(&server);
    server.crowd(&mut limit, 100);
    let found = limit.now();
    assert!(found < 64, "{found}");
    // Until then it grows, so that few are refused and the crowd can end.
    let refusing = Tick { is_refusing: true, ..server.tick(3.0, 0) };
    (0..40).for_each(|_| limit.tick(refusing));
    assert_eq!((limit.phase, limit.now()), (Phase::Hold, limit.ease_to as u32));
    (0..40).for_each(|_| limit.tick(server.tick(3.0, 0)));
    assert_eq!(limit.phase, Phase::Calm);
    assert!((32..=64).contains(&limit.now()), "{}", limit.now());
}

#[test]
fn change_is_waited_for_by_answers_and_by_round_trips() {
    let shown = Tick {
        round_trip: Nanos::from_millis(300),
        ..Server { most_per_s: 100.0, work_s: 0.1 }.tick(10.0, 1)
    };
    let mut limit = Limit::default();
    limit.settle(1.0, shown.shown());
    let ticks = (0..100).take_while(|_| limit.is_settling(&shown)).count();
    assert_eq!(ticks, 6, "ten answers take two ticks, and 300 ms six");
}

#[test]
fn refusals_while_the_server_stands_idle_end_for_ten_seconds() {
    let server = Server { most_per_s: 5_000.0, work_s: 0.001 };
    let mut limit = calm(&server);
    server.crowd(&mut limit, 40);
    assert!(!limit.has_stopped());
    let idle = Tick { idle: Nanos(TICK.0 / 4 * 3), ..server.tick(0.7, 1_000) };
    (0..20).for_each(|_| limit.tick(idle));
    assert!(limit.has_stopped());
    let calm = server.tick(3.0, 0);
    let ticks = (0..400).take_while(|_| {
        limit.tick(calm);
        limit.has_stopped()
    });
    assert!((150..=200).contains(&ticks.count()), "ten seconds are two hundred ticks");
}
