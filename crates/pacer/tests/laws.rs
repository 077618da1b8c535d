//! The limit that is found, before servers of many kinds in virtual time.

mod model;
mod others;

use model::{Seen, Server, Work};
use others::{Bbr, Breakwater, Envoy, Gradient2, Law, Target, Vegas};
use pacer::limit::Limit;
use units::Nanos;

const TICK: Nanos = Nanos::from_millis(50);
/// How long the law may take to settle.
const SETTLE: Nanos = Nanos::from_secs(2);
/// How long is measured after that.
const WINDOW: Nanos = Nanos::from_secs(8);
/// As many crowds.
const SEEDS: [u64; 3] = [1, 11, 21];

struct Case {
    name: &'static str,
    workers: usize,
    work: Work,
    handshake: Nanos,
    attempts_per_s: f64,
    /// Share of the best fixed limit's answers that the one that is found must have.
    share: f64,
}

const fn micros(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

/// Twice what the server can do, or more.
const CASES: [Case; 8] = [
    Case {
        name: "30 us",
        workers: 1,
        work: Work::Fixed(micros(30)),
        handshake: micros(100),
        attempts_per_s: 70e3,
        share: 0.97,
    },
    Case {
        name: "100 us, exponential",
        workers: 1,
        work: Work::Exponential(micros(100)),
        handshake: micros(100),
        attempts_per_s: 40e3,
        share: 0.97,
    },
    Case {
        name: "1 ms",
        workers: 1,
        work: Work::Fixed(micros(1000)),
        handshake: micros(100),
        attempts_per_s: 4e3,
        share: 0.97,
    },
    Case {
        name: "10 ms",
        workers: 1,
        work: Work::Fixed(micros(10_000)),
        handshake: micros(100),
        attempts_per_s: 400.0,
        share: 0.97,
    },
    Case {
        name: "30 us, and one in a hundred 10 ms",
        workers: 1,
        work: Work::Mixed(micros(30), micros(10_000), 100),
        handshake: micros(100),
        attempts_per_s: 30e3,
        share: 0.985,
    },
    Case {
        name: "fifty that sleep 10 ms",
        workers: 50,
        work: Work::Fixed(micros(10_000)),
        handshake: micros(100),
        attempts_per_s: 20e3,
        share: 0.97,
    },
    Case {
        name: "eight cores, 100 us, exponential",
        workers: 8,
        work: Work::Exponential(micros(100)),
        handshake: micros(100),
        attempts_per_s: 160e3,
        share: 0.965,
    },
    Case {
        name: "30 us, clients 20 ms away",
        workers: 1,
        work: Work::Fixed(micros(30)),
        handshake: micros(20_000),
        attempts_per_s: 70e3,
        share: 0.97,
    },
];

impl Case {
    fn server(&self, seed: u64) -> Server {
        Server::new(self.workers, self.work, self.handshake, self.attempts_per_s, seed)
    }

    /// With a limit that does not change.
    fn fixed(&self, limit: u32, seed: u64) -> Seen {
        let mut server = self.server(seed);
        server.limit = limit;
        server.run(SETTLE);
        server.run(WINDOW)
    }
}

type Make = fn() -> Box<dyn Law>;

/// Under the law for a span; what happened in it.
fn follow(server: &mut Server, law: &mut dyn Law, span: Nanos) -> Seen {
    let mut sum = Seen::default();
    for _ in 0..span.0 / TICK.0 {
        server.limit = law.limit();
        let seen = server.run(TICK);
        law.tick(&seen, TICK);
        sum.answered += seen.answered;
        sum.idle += seen.idle;
        sum.refused += seen.refused;
        sum.response += seen.response;
    }
    sum
}

fn mean_ms(seen: &Seen) -> f64 {
    seen.response.as_millis_f64() / seen.answered.max(1) as f64
}

/// What a law does once it has settled, before the same crowd.
fn settled(case: &Case, law: &mut dyn Law, seed: u64) -> Seen {
    let mut calm = Server::new(case.workers, case.work, case.handshake, 0.2 * case.attempts_per_s, seed);
    follow(&mut calm, law, SETTLE);
    let mut server = case.server(seed);
    follow(&mut server, law, SETTLE);
    follow(&mut server, law, WINDOW)
}

/// Answers of the best fixed limit.
fn best(case: &Case, seed: u64) -> u64 {
    (0..11).map(|power| case.fixed(1 << power, seed).answered).max().expect("some")
}

#[test]
fn found_limit_answers_as_many_as_the_best_fixed_one() {
    for (case, seed) in CASES.iter().flat_map(|case| SEEDS.map(|seed| (case, seed))) {
        let mut limit = Limit::default();
        let seen = settled(case, &mut limit, seed);
        let share = seen.answered as f64 / best(case, seed) as f64;
        eprintln!(
            "{}: {:.1}% of the best fixed limit's, mean {:.2} ms, limit {}",
            case.name,
            share * 100.0,
            mean_ms(&seen),
            limit.now()
        );
        assert!(share > case.share, "{}, crowd {seed}: {share}", case.name);
    }
}

#[test]
fn every_other_law_answers_a_tenth_less_or_twice_as_late_somewhere() {
    let laws: [(&str, Make); 7] = [
        ("gradient", || Box::new(Gradient2::default())),
        ("Vegas", || Box::new(Vegas::default())),
        ("Envoy", || Box::new(Envoy::default())),
        ("BBR", || Box::new(Bbr::default())),
        ("5 ms", || Box::new(Target::new(Nanos::from_millis(5)))),
        ("20 ms", || Box::new(Target::new(Nanos::from_millis(20)))),
        ("Breakwater, 5 ms", || Box::new(Breakwater::new(Nanos::from_millis(5)))),
    ];
    let ours: Vec<Seen> = CASES.iter().map(|case| settled(case, &mut Limit::default(), SEEDS[0])).collect();
    for (name, law) in laws {
        let mut is_worse = false;
        for (case, ours) in CASES.iter().zip(&ours) {
            let seen = settled(case, &mut *law(), SEEDS[0]);
            let share = seen.answered as f64 / ours.answered as f64;
            let times = mean_ms(&seen) / mean_ms(ours);
            eprintln!("{name}, {}: {share:.2} of our answers, {times:.1} times our mean", case.name);
            is_worse |= share < 0.9 || times > 2.0;
        }
        assert!(is_worse, "{name} is as good everywhere: use it");
    }
}

#[test]
fn limit_settles_within_two_seconds_of_a_tenfold_slower_or_faster_service() {
    let [fast, slow] = [micros(100), micros(1000)];
    for (before, after) in [(fast, slow), (slow, fast)] {
        let case = |work| Case {
            name: "a jump",
            workers: 1,
            work: Work::Exponential(work),
            handshake: micros(100),
            attempts_per_s: 40e3,
            share: 0.97,
        };
        let best = best(&case(after), SEEDS[0]) as f64 / WINDOW.as_secs_f64();
        let (mut server, mut limit) = (case(before).server(SEEDS[0]), Limit::default());
        follow(&mut server, &mut limit, WINDOW);
        server.work = Work::Exponential(after);
        let meanwhile = follow(&mut server, &mut limit, Nanos::from_secs(2));
        let per_s = |seen: &Seen, span: Nanos| seen.answered as f64 / span.as_secs_f64();
        let share = per_s(&meanwhile, Nanos::from_secs(2)) / best;
        assert!(share > 0.5, "{before} to {after}: {share} meanwhile");
        let share = per_s(&follow(&mut server, &mut limit, WINDOW), WINDOW) / best;
        assert!(share > 0.97, "{before} to {after}: {share} afterwards");
    }
}
