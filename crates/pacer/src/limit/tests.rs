//! Servers as simple as a question wants them, each told in ticks.

use super::*;

const TICK: Nanos = Nanos::from_millis(50);
/// In a tick, before any of these servers.
const MANY: u64 = 1_000_000;

/// A server that answers in a millisecond, up to `most` requests at a time, and is idle for `idle` of the time, for so many ticks.
fn serve(limit: &mut Limit, most: u32, idle: f64, ticks: u32) -> u64 {
    (0..ticks)
        .map(|_| {
            let answered = 50 * u64::from(limit.now().min(most));
            let (idle, waited) =
                (Nanos((idle * TICK.0 as f64) as u64), Nanos(u64::from(limit.now()) * TICK.0));
            limit.tick(Tick { answered, idle, waited, ..refusing() });
            answered
        })
        .sum()
}

fn refusing() -> Tick {
    Tick { elapsed: TICK, refused: MANY, echo: Nanos::from_millis(1), ..Tick::default() }
}

#[test]
fn limit_that_does_not_bind_stays() {
    let mut limit = Limit::default();
    (0..100).for_each(|_| limit.tick(Tick { answered: 1000, idle: TICK, refused: 0, ..refusing() }));
    assert_eq!(limit, Limit::default());
}

#[test]
fn twice_the_limit_is_kept_where_it_leaves_few_refused() {
    for (refused, wanted) in [(5, 8.0), (MANY, beyond(4.4))] {
        let mut limit = Limit::default();
        (0..2).for_each(|_| limit.tick(Tick { answered: 100, ..refusing() }));
        assert_eq!(limit.limit, 8.0);
        (0..2).for_each(|_| limit.tick(Tick { answered: 110, refused, ..refusing() }));
        assert!((limit.limit - wanted).abs() < 1e-9, "{} with {refused} refused", limit.limit);
    }
}

#[test]
fn limit_goes_a_root_beyond_the_knee_from_both_sides() {
    for (most, first) in [(1, 4.0), (50, 4.0), (50, 1000.0), (1000, 4.0)] {
        let mut limit = Limit { limit: first, ..Limit::default() };
        if first > FIRST {
            limit.phase = Phase::Hold { left: Nanos::ZERO };
        }
        serve(&mut limit, most, 0.0, 100);
        let knee = f64::from(most.max(2));
        let far = limit.limit / beyond(knee);
        assert!((0.7..1.5).contains(&far), "{} for {most}, from {first}", limit.limit);
    }
}

#[test]
fn periods_with_half_the_limit_cost_little() {
    let mut limit = Limit::default();
    serve(&mut limit, 64, 0.0, 40);
    let share = serve(&mut limit, 64, 0.0, 10_000) as f64 / (64.0 * 50.0 * 10_000.0);
    assert!((0.985..0.9999).contains(&share), "{share}: they cost a hundredth, and there are some");
}

/// A server that 64 keep busy, and a load that is a little too much.
#[test]
fn periods_with_half_the_limit_cost_less_where_few_are_refused() {
    let mut limit = Limit { limit: 72.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    let mut serve = |ticks: u64| -> u64 {
        let answers = (0..ticks).map(|_| {
            let answered = 50 * u64::from(limit.now().min(64));
            let waited = Nanos(u64::from(limit.now()) * TICK.0);
            limit.tick(Tick { answered, waited, refused: answered / 20, ..refusing() });
            answered
        });
        answers.sum()
    };
    serve(1_000);
    let share = serve(100_000) as f64 / (64.0 * 50.0 * 100_000.0);
    assert!(
        (0.997..0.9999).contains(&share),
        "{share}: they cost a quarter of a hundredth, and there are some"
    );
}

/// As before clients who are far away, who come for a round trip as they were let in before.
#[test]
fn half_of_the_limit_that_as_many_wait_with_asks_for_twice_of_it() {
    // How many wait, or as many as may; how far away the clients are, who wait for a millisecond; and the largest limit.
    for (waiting, away_ms, most) in
        [(None, 20, 16), (Some(16), 20, 32), (Some(16), 0, 16), (Some(7), 20, 32), (Some(6), 20, 16)]
    {
        let phase = Phase::Hold { left: Nanos::ZERO };
        let mut limit = Limit { limit: 16.0, phase, was_pressed: true, ..Limit::default() };
        let seen = (0..10).map(|_| {
            let answered = 50 * waiting.unwrap_or(16);
            let waiting = waiting.unwrap_or(limit.now().into());
            limit.tick(Tick {
                answered,
                waited: Nanos(waiting * TICK.0),
                echo: Nanos::from_millis(1 + away_ms),
                ..refusing()
            });
            limit.now()
        });
        assert_eq!(seen.max(), Some(most), "{waiting:?} wait, {away_ms} ms away");
    }
}

/// Of two hundred processes, each of which takes ten milliseconds: a period has so much of the answers of the one before.
#[test]
fn answers_that_are_left_from_the_period_before_do_not_bring_the_limit_down() {
    let mut limit = Limit { limit: 214.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    let mut before = limit.now();
    let limits = (0..4_000).map(|_| {
        let served = [before, limit.now()].map(|limit| u64::from(limit.min(200)));
        before = limit.now();
        limit.tick(Tick {
            answered: served[0] + 4 * served[1],
            waited: Nanos(u64::from(before) * TICK.0),
            echo: Nanos::from_millis(10),
            ..refusing()
        });
        limit.limit
    });
    let least = limits.fold(f64::INFINITY, f64::min);
    assert!(least > 195.0, "down to {least}");
}

#[test]
fn limit_is_not_halved_in_the_first_period_of_a_crowd() {
    for (calm, is_halved) in [(2, false), (0, true)] {
        let mut limit = Limit { limit: 20.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
        // A period has two ticks.
        let refused = [vec![MANY; 2], vec![0; calm]].concat().repeat(10);
        let limits = refused.into_iter().map(|refused| {
            limit.tick(Tick { answered: 1000, refused, ..refusing() });
            limit.now()
        });
        assert_eq!(limits.min() < Some(20), is_halved, "{calm} calm ticks between two periods");
    }
}

/// As many as may wait who are not refused any more only wait, and then as many are refused as before, or seven tenths: with the time in which the places were filled it would look like half of them.
#[test]
fn twice_the_limit_is_judged_once_what_it_adds_is_full() {
    for (places, refused, refused_then) in [(64_u32, 5, 5), (640, 20, 14)] {
        let phase = Phase::Hold { left: Nanos::ZERO };
        let first = places;
        let mut limit = Limit { limit: first.into(), phase, ..Limit::default() };
        let mut places: u64 = first.into();
        let limits: Vec<_> = (0..200)
            .map(|_| {
                let is_tried = limit.now() > first;
                let asked = if is_tried && places == 0 { refused_then } else { refused };
                let taken = if is_tried { places.min(asked) } else { 0 };
                places -= taken;
                limit.tick(Tick {
                    answered: 500,
                    waited: Nanos(40 * TICK.0),
                    refused: asked - taken,
                    ..refusing()
                });
                limit.now()
            })
            .collect();
        let seen = (limits.iter().max(), limits.last());
        assert_eq!(seen, (Some(&(2 * first)), Some(&first)), "{refused_then} of {refused} are refused");
    }
}

/// It answers 500 in a tick, and so many more come.
#[test]
fn few_too_many_do_not_double_the_limit_again_and_again() {
    for (too_many, first) in [(25, 8.0), (25, 1_000.0), (5, 64.0)] {
        let phase = Phase::Hold { left: Nanos::ZERO };
        let mut limit = Limit { limit: first, phase, ..Limit::default() };
        let mut queue: u64 = 0;
        for _ in 0..12_000 {
            let left = queue + too_many;
            queue = left.min(limit.now().into());
            let echo = Nanos(queue * TICK.0 / 500);
            limit.tick(Tick {
                answered: 500,
                waited: Nanos(queue * TICK.0),
                refused: left - queue,
                echo,
                ..refusing()
            });
        }
        assert!(
            limit.limit < 100.0,
            "{} after ten minutes of {too_many} too many, from {first}",
            limit.limit
        );
    }
}

#[test]
fn deaf_limit_hears_of_idle_time_that_was_not_there_when_it_turned_deaf() {
    for (idle, wanted) in [(0.03, 10.0), (0.06, 12.4)] {
        let mut limit = Limit {
            limit: 10.0,
            phase: Phase::Hold { left: Nanos::from_secs(1000) },
            deaf: Nanos::from_secs(1000),
            idle_when_deaf: 0.025,
            ..Limit::default()
        };
        serve(&mut limit, 4, idle, 2);
        assert!((limit.limit - wanted).abs() < 1e-6, "{} with {idle}", limit.limit);
    }
}

/// As in a pool that is a third from its knee and loses in proportion, of which half the limit keeps a third away and not a half.
#[test]
fn half_that_leaves_most_waiting_is_judged_by_how_many_wait() {
    let phase = Phase::Hold { left: Nanos::ZERO };
    let mut limit = Limit { limit: 40.0, phase, was_pressed: true, ..Limit::default() };
    let seen = (0..12).map(|_| {
        let waiting = if limit.now() < 40 { 28 } else { 40 };
        limit.tick(Tick { answered: 50 * waiting, waited: Nanos(waiting * TICK.0), ..refusing() });
        limit.now()
    });
    assert_eq!(seen.max(), Some(80));
}

/// As of processes that are in each other's way a little.
#[test]
fn half_that_loses_a_little_less_than_in_proportion_asks_for_twice_of_it() {
    for (with_half, most) in [(1_080, 80), (1_200, 40)] {
        let phase = Phase::Hold { left: Nanos::ZERO };
        let mut limit = Limit { limit: 40.0, phase, was_pressed: true, ..Limit::default() };
        let seen = (0..12).map(|_| {
            let answered = if limit.now() < 40 { with_half } else { 2_000 };
            let waited = Nanos(u64::from(limit.now()) * TICK.0);
            limit.tick(Tick { answered, waited, ..refusing() });
            limit.now()
        });
        assert_eq!(seen.max(), Some(most), "{with_half} of 2,000");
    }
}

#[test]
fn half_with_which_each_waits_less_long_has_shown_something() {
    let phase = Phase::Hold { left: Nanos::ZERO };
    let mut limit = Limit { limit: 16.0, phase, was_pressed: true, ..Limit::default() };
    let seen = (0..10).map(|_| {
        let waiting = if limit.now() < 16 { 13 } else { 16 };
        let echo = Nanos::from_millis(21);
        limit.tick(Tick { answered: 800, waited: Nanos(waiting * TICK.0), echo, ..refusing() });
        limit.now()
    });
    assert_eq!(seen.max(), Some(16));
}

#[test]
fn more_that_a_server_can_do_is_found() {
    let mut limit = Limit::default();
    serve(&mut limit, 16, 0.0, 100);
    assert!(limit.limit < 24.0, "{}", limit.limit);
    serve(&mut limit, 256, 0.0, 400);
    assert!(limit.limit > 256.0, "{}", limit.limit);
}

#[test]
fn idle_server_gets_more_unless_only_a_burst_was_refused() {
    let held = || Limit { limit: 20.0, phase: Phase::Hold { left: Nanos::from_secs(1) }, ..Limit::default() };
    for (idle, wanted) in [(0.001, 20.0), (0.01, 21.0), (0.1, 28.0), (0.9, 40.0)] {
        let mut limit = held();
        serve(&mut limit, 1, idle, 3);
        assert_eq!(limit.limit, wanted, "{idle}");
    }
    let mut limit = held();
    for refused in [MANY, 0].repeat(100) {
        limit.tick(Tick { answered: 50, idle: TICK, refused, ..refusing() });
    }
    assert!(limit.limit <= 20.0, "{}", limit.limit);
}

/// As the lab's own server on one CPU with its softirq: a fiftieth of the time nobody waits, however many may.
#[test]
fn idle_time_that_a_larger_limit_does_not_use_makes_no_larger_limit() {
    for first in [4.0, 40.0] {
        let phase = if first > FIRST { Phase::Hold { left: Nanos::ZERO } } else { Limit::default().phase };
        let mut limit = Limit { limit: first, phase, ..Limit::default() };
        let most = (0..4_000).map(|_| {
            serve(&mut limit, 16, 0.02, 1);
            limit.limit
        });
        let most = most.fold(0.0, f64::max);
        assert!(most <= 100.0, "from {first} to {most}");
        assert!((12.0..60.0).contains(&limit.limit), "{} at last, from {first}", limit.limit);
    }
}

/// As beside a flood: from hardly ever to a fiftieth of the time nobody waits, now more and now less, and in a quarter of the ticks not at all, however many may.
/// Where few are refused nothing is known of half the limit, and noise that is taken for less idle time is not made good.
#[test]
fn idle_time_that_comes_and_goes_makes_no_limit_without_end() {
    for (seed, refused) in (1..=8).flat_map(|seed| [(seed, MANY), (seed, 50)]) {
        let mut random: u64 = seed;
        let mut limit = Limit { limit: 40.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
        let limits = (0..4_000).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let idle = (random >> 32) as f64 / f64::from(u32::MAX);
            let idle = 0.02 * (idle - 0.25).max(0.0) / 0.75;
            let answered = 50 * u64::from(limit.now().min(16));
            limit.tick(Tick { answered, idle: Nanos((idle * TICK.0 as f64) as u64), refused, ..refusing() });
            limit.limit
        });
        let largest = limits.fold(0.0, f64::max);
        let bound = if refused == MANY { 200.0 } else { 1000.0 };
        assert!(largest <= bound, "crowd {seed}, {refused} refused: to {largest}");
        assert!(
            refused != MANY || (12.0..100.0).contains(&limit.limit),
            "crowd {seed}: {} at last",
            limit.limit
        );
    }
}

/// As with receive processing in threads on the program's CPU: the more may wait, the less often the program has done all of it before more have come.
#[test]
fn idle_time_that_goes_by_halves_is_followed_while_a_doubling_is_worth_it() {
    let mut limit = Limit::default();
    let limits: Vec<_> = (0..4_000)
        .map(|_| {
            let idle = Nanos((1.2 / limit.limit * TICK.0 as f64) as u64);
            limit.tick(Tick { answered: 800, idle, ..refusing() });
            limit.limit
        })
        .collect();
    let most = limits.iter().copied().fold(0.0, f64::max);
    // With 32 it is idle for 3.75% of the time, and with 64 for half of that.
    assert!((64.0..=128.0).contains(&most), "to {most}");
    assert!((8.0..=64.0).contains(&limit.limit), "{} at last", limit.limit);
}

#[test]
fn limit_that_has_doubled_for_less_than_a_fiftieth_goes_back() {
    for (idle_then, wanted) in [(0.008, 40.0), (0.0001, 80.0)] {
        let mut limit =
            Limit { limit: 40.0, phase: Phase::Hold { left: Nanos::from_secs(1000) }, ..Limit::default() };
        for _ in 0..2_000 {
            let idle = if limit.limit < 80.0 { 0.02 } else { idle_then };
            serve(&mut limit, 16, idle, 1);
            if limit.limit >= 80.0 && idle_then < NOT_IDLE || limit.deaf > Nanos::ZERO {
                break;
            }
        }
        assert!((wanted..wanted * 1.1).contains(&limit.limit), "{}", limit.limit);
    }
}

#[test]
fn idle_time_after_few_calm_periods_is_the_same_spell() {
    for (calm, refused, wanted) in
        [(0, MANY, Some(40.0)), (7, MANY, Some(40.0)), (8, MANY, None), (7, 0, Some(40.0)), (8, 0, None)]
    {
        let mut limit =
            Limit { limit: 40.0, phase: Phase::Hold { left: Nanos::from_secs(100) }, ..Limit::default() };
        serve(&mut limit, 16, 0.25, 2);
        assert_eq!(limit.limit, 80.0);
        (0..2 * calm).for_each(|_| limit.tick(Tick { answered: 800, refused, ..refusing() }));
        assert_eq!(limit.spell.map(|spell| spell.limit()), wanted, "after {calm} periods");
    }
}

#[test]
fn spell_begins_anew_where_the_limit_has_come_below_its_beginning() {
    let mut limit =
        Limit { limit: 40.0, phase: Phase::Hold { left: Nanos::from_secs(100) }, ..Limit::default() };
    let limits = [40.0, 20.0, 40.0].map(|before| {
        limit.limit = before;
        serve(&mut limit, 16, 0.25, 2);
        limit.limit
    });
    assert_eq!(limits, [80.0, 40.0, 20.0]);
}

#[test]
fn second_spell_of_idle_time_is_heard_as_the_first_was() {
    let mut limit =
        Limit { limit: 10.0, phase: Phase::Hold { left: Nanos::from_secs(100) }, ..Limit::default() };
    serve(&mut limit, 4, 0.2, 3);
    let grown = limit.limit;
    assert!(grown > 10.0, "{grown}");
    serve(&mut limit, 4, 0.0, 30);
    limit.limit = 40.0;
    serve(&mut limit, 4, 0.15, 3);
    assert!(limit.limit > 40.0, "{} after it was idle again", limit.limit);
}

#[test]
fn limit_that_refuses_a_few_grows_while_that_helps() {
    // Half as many are refused by twice the limit; those that a queue refuses, whatever the limit.
    for by_queue in [0, 5] {
        let mut limit = Limit { phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
        for _ in 0..1000 {
            let refused = u64::from(256 / limit.now());
            limit.tick(Tick { answered: 1000, refused, refused_by_queue: by_queue, ..refusing() });
        }
        assert_eq!(limit.limit, 64.0, "beside {by_queue}");
    }
}

/// As is what a queue refuses in its stead, and what was there when those who asked had gone.
#[test]
fn twice_the_limit_that_does_not_help_is_taken_back() {
    for (name, answered, refused, by_queue) in
        [("as many", 1000, 50, 0), ("by a queue", 1000, 0, 50), ("gone", 100, 0, 0)]
    {
        let mut limit = Limit { limit: 4.4, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
        let limits: Vec<_> = (0..1000)
            .map(|_| {
                let is_tried = limit.now() > 4;
                let answered = if is_tried { answered } else { 1000 };
                let (refused, refused_by_queue) = if is_tried { (refused, by_queue) } else { (50, 0) };
                limit.tick(Tick { answered, refused, refused_by_queue, ..refusing() });
                limit.limit
            })
            .collect();
        assert!(limits.iter().all(|limit| [4.4, 8.8].contains(limit)), "{name}: {limits:?}");
        let tried = limits.iter().filter(|&&limit| limit == 8.8).count();
        assert!((1..=250).contains(&tried), "{name}: for {tried} of 1000 ticks");
    }
}

/// The limit is full, clients are far away, and half of it lets as many wait: twice of it was tried, and is not again for a while.
#[test]
fn half_of_the_limit_does_not_ask_again_for_what_was_tried() {
    for (untried, most) in [(Nanos::ZERO, 32), (Nanos::from_secs(1000), 16)] {
        let mut limit = Limit {
            limit: 16.0,
            phase: Phase::Hold { left: Nanos::ZERO },
            was_pressed: true,
            untried,
            ..Limit::default()
        };
        let limits = (0..20).map(|_| {
            limit.tick(Tick {
                answered: 800,
                waited: Nanos(16 * TICK.0),
                refused: 40,
                echo: Nanos::from_millis(21),
                ..refusing()
            });
            limit.now()
        });
        assert_eq!(limits.max(), Some(most), "not for {untried:?}");
        assert!(limit.unhalved > Nanos::ZERO || untried == Nanos::ZERO, "it waits as long for half of it");
    }
}

#[test]
fn quiet_hour_does_not_hide_that_some_are_refused_now() {
    let mut limit = Limit { limit: 1000.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    for _ in 0..72_000 {
        limit.tick(Tick { answered: 1000, refused: 0, ..refusing() });
    }
    assert_eq!(limit.limit, 1000.0);
    let limits = (0..600).map(|_| {
        limit.tick(Tick { answered: 1000, refused: 20, ..refusing() });
        limit.now()
    });
    assert_eq!(limits.max(), Some(2000), "half a minute in which one in fifty is refused");
}

#[test]
fn deaf_limit_hears_again_in_the_morning() {
    let deaf = Nanos::from_secs(10);
    let mut limit = Limit { deaf, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    (0..400).for_each(|_| limit.tick(Tick { answered: 1000, refused: 0, ..refusing() }));
    assert_eq!(limit.deaf, Nanos::ZERO, "nobody was refused meanwhile");
}

/// A trial begins with what a period shows, or does not.
#[test]
fn trial_that_would_take_too_long_is_not_begun() {
    for (limit, echo_ms, is_begun) in [(100.0, 1, true), (10_000.0, 1, false), (10_000.0, 3_000, true)] {
        let phase = Phase::Hold { left: Nanos::ZERO };
        let mut limit = Limit { limit, phase, ..Limit::default() };
        let first = limit.now();
        let limits = (0..400).map(|_| {
            let echo = Nanos::from_millis(echo_ms);
            limit.tick(Tick { answered: 1000, refused: 10, echo, ..refusing() });
            limit.now()
        });
        assert_eq!(limits.max() > Some(first), is_begun, "{first}, {echo_ms} ms");
    }
}

#[test]
fn limit_above_what_a_queue_holds_comes_down() {
    let mut limit = Limit { limit: 1e5, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    for _ in 0..600 {
        let answered = 50 * u64::from(limit.now().min(4));
        let (refused, refused_by_queue) = if limit.now() > 128 { (0, MANY) } else { (MANY, 0) };
        limit.tick(Tick { answered, refused, refused_by_queue, ..refusing() });
    }
    assert!(limit.limit < 8.0, "{}", limit.limit);
}

#[test]
fn server_that_becomes_faster_is_not_taken_for_one_that_gains_by_more() {
    let mut limit = Limit { limit: 16.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    let mut answered = 1000.0;
    for _ in 0..100 {
        limit.tick(Tick { answered: answered as u64, ..refusing() });
        answered *= 1.05;
    }
    assert!(limit.limit < 6.0, "{}, though it is a tenth faster each period", limit.limit);
}

#[test]
fn few_answers_are_waited_for_but_not_for_ever() {
    for (answered, ticks) in [(100, 2), (10, 7), (1, 10), (0, 200)] {
        let mut limit = Limit::default();
        (1..ticks).for_each(|_| limit.tick(Tick { answered, ..refusing() }));
        assert_ne!(limit.age, Nanos::ZERO, "{answered}");
        limit.tick(Tick { answered, ..refusing() });
        assert_eq!(limit.age, Nanos::ZERO, "{answered}");
    }
}

#[test]
fn server_that_hangs_teaches_nothing() {
    let mut limit = Limit::default();
    serve(&mut limit, 50, 0.0, 100);
    let before = limit.limit;
    (0..1000).for_each(|_| limit.tick(refusing()));
    assert_eq!(limit.limit, before);
}

#[test]
fn slow_answers_are_waited_for_before_they_count() {
    let slow = Tick { answered: 100, echo: Nanos::from_millis(500), ..refusing() };
    let mut limit = Limit::default();
    (0..29).for_each(|_| limit.tick(slow));
    assert_eq!(limit.limit, FIRST, "half a second passes by, and a second counts");
    limit.tick(slow);
    assert_eq!(limit.limit, 2.0 * FIRST);
}

#[test]
fn limit_stays_between_the_smallest_and_the_largest() {
    let mut limit = Limit::default();
    serve(&mut limit, 1, 0.0, 1000);
    assert!((SMALLEST..6.0).contains(&limit.limit), "{}", limit.limit);
    serve(&mut limit, 1, 1.0, 1000);
    assert_eq!(limit.limit, LARGEST);
}

#[test]
fn limit_that_is_raised_goes_on_from_there_and_can_be_taken_back() {
    let mut limit = Limit::default();
    serve(&mut limit, 64, 0.0, 100);
    let found = limit.clone();
    limit.raise(found.now());
    assert_eq!(limit, found, "no more is nothing");
    limit.raise(500);
    limit.raise(1000);
    assert_eq!(limit.now(), 1000);
    // Before a server that answers no more for it, it comes down as any other does.
    serve(&mut limit, 64, 0.0, 200);
    assert!((64..100).contains(&limit.now()), "{}", limit.now());
    limit.raise(1000);
    limit.take_back();
    assert_eq!(limit.now(), found.now(), "before it was raised for the first time");
    limit.take_back();
    assert_eq!(limit.now(), found.now());
}

#[test]
fn half_with_which_each_waits_less_by_more_than_chance_shows_a_queue_for_a_while() {
    for (answered, in_turn, is_shown) in [(500, 500, true), (4, 4, false), (500, 4, false), (500, 0, false)] {
        let phase = Phase::Hold { left: Nanos::ZERO };
        let mut limit = Limit { limit: 100.0, phase, was_pressed: true, ..Limit::default() };
        for _ in 0..100 {
            if limit.limit == 100.0 {
                let waited = Nanos(u64::from(in_turn > 0) * u64::from(limit.now()) * TICK.0);
                limit.tick(Tick { answered, in_turn, waited, ..refusing() });
            }
        }
        assert!(limit.limit < 100.0, "as many are answered with half of it, {answered} in a tick");
        assert_eq!(limit.has_shown_queue(), is_shown, "{in_turn} of {answered} in turn");
        // Nobody is refused any more.
        (0..20).for_each(|_| limit.tick(Tick { answered: 500, refused: 0, ..refusing() }));
        assert!(!limit.has_shown_queue());
    }
}

#[test]
fn half_with_which_each_waits_as_long_ends_a_queue() {
    let phase = Phase::Hold { left: Nanos::ZERO };
    let queued = Nanos::from_secs(60);
    let mut limit = Limit { limit: 100.0, phase, queued, was_pressed: true, ..Limit::default() };
    serve(&mut limit, 1_000, 0.0, 10);
    assert!(limit.limit > 100.0 && !limit.has_shown_queue(), "{limit:?}");
}

#[test]
fn limit_that_is_raised_in_a_trial_is_taken_back_to_what_was_there_before_it() {
    let mut limit = Limit { limit: 8.0, phase: Phase::Hold { left: Nanos::ZERO }, ..Limit::default() };
    for _ in 0..100 {
        if !matches!(limit.phase, Phase::More(_)) {
            limit.tick(Tick { answered: 500, refused: 10, ..refusing() });
        }
    }
    assert_eq!(limit.now(), 16, "twice of it is tried");
    limit.raise(1000);
    limit.take_back();
    assert_eq!(limit.now(), 8);
}

#[test]
fn limit_that_has_come_below_what_it_was_before_it_was_raised_is_not_raised_by_taking_back() {
    let mut limit = Limit { limit: 500.0, ..Limit::default() };
    limit.raise(1000);
    serve(&mut limit, 64, 0.0, 400);
    let now = limit.now();
    assert!(now < 100, "{now}");
    limit.take_back();
    assert_eq!(limit.now(), now);
}

#[test]
fn limit_that_is_taken_back_in_a_crowd_is_found_as_soon_as_the_first_one() {
    let mut first = Limit::default();
    serve(&mut first, 500, 0.0, 20);
    let mut limit = Limit::default();
    limit.raise(1000);
    limit.take_back();
    serve(&mut limit, 500, 0.0, 20);
    assert_eq!(limit, first);
    assert!(limit.now() > 100, "{}", limit.now());
}
