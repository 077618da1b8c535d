//! How each guarded server does, second by second: for balancers, and at `/status`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use guard::{ListenerSample, Sample, Second, ServerSample, Weight};
use schemars::JsonSchema;
use serde::Serialize;
use telemetry::{per_s, refused};
use top::{Signs, State};
use units::Nanos;
use watch::Counter;

/// For so long after a listener is drained no more, balancers are told that it is ready: longer
/// than any of them waits between two checks.
const READY: Duration = Duration::from_secs(60);

/// How long after a change of the weight a whole second shows what came of it: HAProxy hears of it
/// within a second if it asks so often. Turns come a little early or late.
const HEARD_AFTER: Duration = Duration::from_millis(1900);

/// What `GET /status` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Status {
    /// In the order of their addresses.
    pub listeners: Vec<ListenerStatus>,
}

/// A listener in the last second.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ListenerStatus {
    /// Address and port.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// In a word.
    pub state: State,
    /// Whether nobody is turned away, whatever `state` and `refused_per_s` say: they count what
    /// would be done.
    pub dry_run: bool,
    /// Connections that waited, of how many may: 0 to 1, mean of the second's looks. Of a server
    /// that is not followed, its accept queue's now; null while neither is known.
    pub utilisation: Option<f64>,
    /// Connections that wait for the server now; null if it is not followed.
    pub waiting: Option<u64>,
    /// How many may; null if that is not limited, or not known yet.
    pub limit: Option<u32>,
    /// Answers that began, a second; null if the server is not followed.
    pub answered_per_s: Option<f64>,
    /// SYNs and ends of handshakes that were turned away, a second.
    pub refused_per_s: f64,
    /// What a balancer should send it, in percent of its usual share: 5 to 100.
    pub weight_percent: u32,
    /// Whether the file says that balancers should send no new connection.
    pub drain: bool,
    /// Whether it said so until a moment ago.
    #[serde(skip)]
    pub is_ready_again: bool,
}

/// One second after the other.
#[derive(Debug, Default)]
pub struct Seconds {
    last: Option<(Sample, Instant)>,
    /// And when each has changed.
    weights: BTreeMap<SocketAddr, (Weight, Option<Instant>)>,
    /// Listeners that are drained, or were, and when that was seen last.
    drained: BTreeMap<SocketAddr, Instant>,
}

impl Seconds {
    /// The one that ends now. `is_leased`: whether the programs decide.
    pub fn next(&mut self, sample: &Sample, now: Instant, is_leased: bool) -> Vec<ListenerStatus> {
        let last = self.last.replace((sample.clone(), now));
        let (before, span) = match &last {
            Some((before, at)) => (before, now.saturating_duration_since(*at)),
            None => (sample, Duration::ZERO),
        };
        let is_leased = is_leased && sample.path.unleased == before.path.unleased;
        let mut listeners: Vec<_> = sample
            .listeners
            .iter()
            .map(|of| {
                let is_same = |other: &&ListenerSample| other.listener.listen == of.listener.listen;
                // One that a reload has brought has no second behind it.
                let before = before.listeners.iter().find(is_same).unwrap_or(of);
                self.listener(of, before, span, now, is_leased)
            })
            .collect();
        let is_there = |listen: &SocketAddr| listeners.iter().any(|of| of.listen == *listen);
        self.weights.retain(|listen, _| is_there(listen));
        self.drained.retain(|listen, seen| is_there(listen) && is_recent(*seen, now));
        listeners.sort_by_key(|of| of.listen);
        listeners
    }

    fn listener(
        &mut self,
        of: &ListenerSample,
        before: &ListenerSample,
        span: Duration,
        now: Instant,
        is_leased: bool,
    ) -> ListenerStatus {
        let (listen, drain) = (of.listener.listen, of.listener.drain);
        let refused = refused(&of.stats).saturating_sub(refused(&before.stats));
        let utilisation = utilisation(of, before);
        let state = state(of, before, refused, is_leased);
        let second = second(of, before, refused, utilisation);
        let acts = !of.listener.dry_run && of.observed.is_none();
        let is_learning = of.service.is_some_and(|service| service.is_learning);
        let is_known = is_leased && of.load.is_some() && !is_learning && !of.is_blind;
        let (weight, changed) = self.weights.entry(listen).or_insert((Weight::FULL, None));
        weight.learn(&second, Nanos::from(span));
        if !acts || !is_known {
            // A balancer must not act on what we do not know, or would do only.
            weight.fill();
            *changed = None;
        } else if !span.is_zero()
            && changed.is_none_or(|changed| now.saturating_duration_since(changed) >= HEARD_AFTER)
        {
            let before = weight.percent();
            weight.change(&second);
            if weight.percent() != before {
                *changed = Some(now);
            }
        }
        if drain {
            self.drained.insert(listen, now);
        }
        let answered = |service: ServerSample| {
            let earlier = before.service.map_or(service.answered, |before| before.answered);
            per_s(service.answered, earlier, span)
        };
        ListenerStatus {
            listen,
            state,
            dry_run: of.listener.dry_run && of.observed.is_none(),
            utilisation,
            waiting: of.service.map(|service| service.counted),
            limit: of.service.and_then(|service| service.limit),
            answered_per_s: of.service.map(answered),
            refused_per_s: per_s(refused, 0, span),
            weight_percent: weight.percent(),
            drain,
            is_ready_again: !drain && self.drained.get(&listen).is_some_and(|seen| is_recent(*seen, now)),
        }
    }
}

fn is_recent(drained: Instant, now: Instant) -> bool {
    now.saturating_duration_since(drained) < READY
}

fn utilisation(of: &ListenerSample, before: &ListenerSample) -> Option<f64> {
    let share = |waiting: f64, limit: u32| (limit > 0).then(|| (waiting / f64::from(limit)).min(1.0));
    let Some(service) = of.service else {
        return of.load.and_then(|load| share(load.accept_qlen.into(), load.accept_limit));
    };
    let earlier = before.service.unwrap_or_default();
    let looks = service.waited.looks.count().saturating_sub(earlier.waited.looks.count());
    let sum = service.waited.sum.saturating_sub(earlier.waited.sum);
    let mean = if looks == 0 { service.counted as f64 } else { sum as f64 / looks as f64 };
    service.limit.and_then(|limit| share(mean, limit))
}

fn second(of: &ListenerSample, before: &ListenerSample, refused: u64, utilisation: Option<f64>) -> Second {
    let service = of.service.unwrap_or_default();
    let earlier = before.service.unwrap_or_default();
    let took = service.responses_us.since(&earlier.responses_us);
    Second {
        offered: of.stats.seen.saturating_sub(before.stats.seen),
        refused,
        answered: took.count(),
        // Where the bucket begins: it errs to the quick side.
        median: took.below(0.5).map(|end_us| Nanos::from_micros(end_us / 2)),
        fullness: utilisation.unwrap_or(0.0),
    }
}

fn state(of: &ListenerSample, before: &ListenerSample, refused: u64, is_leased: bool) -> State {
    let (service, observed) = (of.service, of.observed.as_ref());
    let answered = |of: &ListenerSample| match (&of.observed, of.service) {
        (Some(observed), _) => observed.counters.get(Counter::Accepted).unwrap_or(0),
        (None, Some(service)) => service.answered,
        (None, None) => of.stats.admitted,
    };
    let dropped = |of: &ListenerSample| of.observed.as_ref().map_or(0, |observed| observed.drops);
    let is_queue_full = of.load.is_some_and(|load| load.is_accept_queue_full());
    State::of(&Signs {
        is_lease_lost: !is_leased,
        listens: of.load.is_some(),
        is_blind: of.is_blind,
        is_guarded: observed.is_none(),
        refused: refused + dropped(of).saturating_sub(dropped(before)),
        is_full: service.map_or(is_queue_full, |of| of.limit.is_some_and(|limit| of.counted >= limit.into())),
        is_learning: service.is_some_and(|service| service.is_learning),
        answered: answered(of).saturating_sub(answered(before)),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guard::{Listener, ListenerLoad, ListenerStats, PathStats, Waiting};

    use super::*;

    /// A server of which 100 SYNs came, and some were refused, and at each of 20 looks so many
    /// waited of 10 that may.
    fn after(seconds: u64, refused: u64, waiting: u64) -> Sample {
        let listener = Listener::new(
            "192.0.2.1:80".parse().expect("address"),
            "rst-syn+unserved".parse().expect("policy"),
        );
        let stats =
            ListenerStats { seen: 100 * seconds, reset: refused * seconds, ..ListenerStats::default() };
        let mut waited = Waiting { sum: 20 * seconds * waiting, ..Waiting::default() };
        (0..20 * seconds).for_each(|_| waited.looks.add(waiting));
        let service = ServerSample {
            counted: waiting,
            limit: Some(10),
            answered: 70 * seconds,
            waited,
            ..ServerSample::default()
        };
        let load = Some(ListenerLoad { accept_limit: 128, ..ListenerLoad::default() });
        let service = Some(service);
        let of = ListenerSample { listener, load, stats, service, observed: None, is_blind: false };
        Sample { listeners: vec![of], path: PathStats::default(), away: BTreeSet::new() }
    }

    /// The status after so many of these seconds.
    fn lasting(seconds: u64, refused: u64, waiting: u64, change: impl Fn(&mut Sample)) -> ListenerStatus {
        let (mut all, start) = (Seconds::default(), Instant::now());
        let mut status = |second| {
            let mut sample = after(second, refused, waiting);
            change(&mut sample);
            all.next(&sample, start + Duration::from_secs(second), true).remove(0)
        };
        for second in 0..seconds {
            status(second);
        }
        status(seconds)
    }

    #[test]
    fn server_that_refuses_gets_less_every_other_second() {
        let status = lasting(1, 30, 9, |_| {});
        assert_eq!((status.state, status.weight_percent), (State::Refusing, 70));
        assert_eq!((status.utilisation, status.waiting, status.limit), (Some(0.9), Some(9), Some(10)));
        assert_eq!((status.answered_per_s, status.refused_per_s), (Some(70.0), 30.0));
        assert_eq!(lasting(2, 30, 9, |_| {}).weight_percent, 70);
        assert_eq!(lasting(3, 30, 9, |_| {}).weight_percent, 49);
        assert_eq!(lasting(4, 30, 9, |_| {}).weight_percent, 49);
    }

    #[test]
    fn server_whose_answers_take_much_longer_than_usual_gets_less() {
        // A second after ten in which they took a millisecond.
        let taking = |ms: u64| {
            move |of: &mut Sample| {
                let service = of.listeners[0].service.as_mut().expect("followed");
                (0..service.answered.min(700)).for_each(|_| service.responses_us.add(1000));
                (0..service.answered.saturating_sub(700)).for_each(|_| service.responses_us.add(1000 * ms));
            }
        };
        for (ms, percent) in [(1, 100), (3, 100), (17, 56), (3000, 50)] {
            assert_eq!(lasting(11, 0, 9, taking(ms)).weight_percent, percent, "{ms} ms");
        }
    }

    #[test]
    fn state_is_that_of_the_last_second() {
        for (refused, waiting, state) in
            [(0, 0, State::Busy), (0, 10, State::Burst), (1, 10, State::Refusing), (1, 0, State::Refusing)]
        {
            assert_eq!(lasting(1, refused, waiting, |_| {}).state, state);
        }
        let nobody = |of: &mut Sample| of.listeners[0].service.iter_mut().for_each(|of| of.answered = 0);
        assert_eq!(lasting(1, 0, 0, nobody).state, State::Idle);
    }

    #[test]
    fn balancer_is_told_the_whole_weight_of_a_server_that_is_not_known() {
        let learning =
            |of: &mut Sample| of.listeners[0].service.iter_mut().for_each(|of| of.is_learning = true);
        let gone = |of: &mut Sample| of.listeners[0].load = None;
        let dry = |of: &mut Sample| of.listeners[0].listener.dry_run = true;
        let unleased = |of: &mut Sample| of.path.unleased = of.listeners[0].stats.seen;
        let blind = |of: &mut Sample| of.listeners[0].is_blind = true;
        assert_eq!((lasting(1, 30, 9, dry).dry_run, lasting(1, 30, 9, gone).dry_run), (true, false));
        type Change = dyn Fn(&mut Sample);
        let cases: [(&Change, State); 5] = [
            (&learning, State::Refusing),
            (&gone, State::NoListener),
            (&dry, State::Refusing),
            (&unleased, State::LeaseLost),
            (&blind, State::Blind),
        ];
        for (change, state) in cases {
            let status = lasting(5, 30, 9, change);
            assert_eq!((status.state, status.weight_percent), (state, 100));
        }
    }

    #[test]
    fn listener_is_ready_for_a_minute_after_it_was_drained() {
        let (mut all, start) = (Seconds::default(), Instant::now());
        let mut after_s = |second, drain| {
            let mut sample = after(second, 0, 0);
            sample.listeners[0].listener.drain = drain;
            let status = all.next(&sample, start + Duration::from_secs(second), true).remove(0);
            (status.drain, status.is_ready_again)
        };
        assert_eq!(after_s(0, false), (false, false));
        assert_eq!(after_s(1, true), (true, false));
        assert_eq!(after_s(2, false), (false, true));
        assert_eq!(after_s(60, false), (false, true));
        assert_eq!((after_s(62, false), after_s(63, false)), ((false, false), (false, false)));
    }
}
