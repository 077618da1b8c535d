//! What the counts say of policies that cannot do what they are for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{ListenerSample, Sample, ServerSample, Trigger, WaitsFrom};

/// Answers between two samples that say enough.
const ENOUGH: u64 = 32;

/// What is known of each listener; each thing is said once.
#[derive(Debug, Default)]
pub struct Advice {
    of: BTreeMap<SocketAddr, Known>,
}

#[derive(Debug, Default)]
struct Known {
    last: ServerSample,
    /// Connections by the look at which an answer was seen last.
    established: u64,
    has_said: bool,
}

impl Advice {
    /// Notes on the listeners of this sample, one line each.
    ///
    /// `others` are the programs that see the same sockets, by number.
    pub fn notes(&mut self, sample: &Sample, others: impl Fn(SocketAddr) -> Vec<u32>) -> Vec<String> {
        self.of.retain(|listen, _| sample.listeners.iter().any(|of| of.listener.listen == *listen));
        sample.listeners.iter().filter_map(|of| self.note(of, &others)).collect()
    }

    fn note(&mut self, of: &ListenerSample, others: impl Fn(SocketAddr) -> Vec<u32>) -> Option<String> {
        let (listener, now) = (&of.listener, of.service?);
        let known = self.of.entry(listener.listen).or_default();
        let last = std::mem::replace(&mut known.last, now);
        if now.answered != last.answered {
            known.established = now.established;
        }
        let unanswered = now.established.saturating_sub(known.established);
        if unanswered >= ENOUGH && now.limit.is_none() && !known.has_said {
            known.has_said = listener.policy.trigger == Trigger::Unserved(None);
            return known
                .has_said
                .then(|| unseen_answers(listener.listen, unanswered, &others(listener.listen)));
        }
        if now.answered.saturating_sub(last.answered) < ENOUGH || known.has_said {
            return None;
        }
        let note = match (listener.policy.trigger, listener.policy.waits_from) {
            (_, WaitsFrom::Request) => unseen_requests(listener.listen, &now, &last),
            (Trigger::Sojourn(target_us), _) => {
                short_target(listener.listen, Duration::from_micros(target_us.get().into()), &now)
            }
            _ => None,
        };
        known.has_said = note.is_some();
        note
    }
}

fn unseen_answers(listen: SocketAddr, count: u64, others: &[u32]) -> String {
    let others: Vec<String> = others.iter().map(u32::to_string).collect();
    let others = match &others[..] {
        [] => String::new(),
        others => format!(
            ", or another sockops program takes the events (bpftool prog show id {})",
            others.join(", ")
        ),
    };
    format!(
        "{count} connections have come to {listen}, and no answer of its server was seen: it hangs, or speaks MPTCP{others}; until one \
         is, the kernel decides alone"
    )
}

fn unseen_requests(listen: SocketAddr, now: &ServerSample, last: &ServerSample) -> Option<String> {
    let (all, silent) =
        (now.answered - last.answered, now.answered_silent.saturating_sub(last.answered_silent));
    (2 * silent > all).then(|| {
        format!(
            "the server of {listen} begins {silent} of {all} answers before a request is seen, so that `request` sees few who wait for it; \
             take first-byte, or neither"
        )
    })
}

fn short_target(listen: SocketAddr, target: Duration, now: &ServerSample) -> Option<String> {
    (now.response_floor > target).then(|| {
        format!(
            "all but one in twenty responses of the server of {listen} took {:.1?} or more, and its target is {:.1?}: whoever comes while \
             others wait is refused; take a longer one, or unserved",
            now.response_floor,
            target
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Listener, ListenerStats, PathStats};

    fn sample(policy: &str, answered: u64, silent: u64) -> Sample {
        let listener =
            Listener::new("192.0.2.1:80".parse().expect("address"), policy.parse().expect("policy"));
        let service = ServerSample {
            answered,
            answered_silent: silent,
            response_floor: Duration::from_millis(8),
            ..ServerSample::default()
        };
        let sample = ListenerSample {
            listener,
            load: None,
            stats: ListenerStats::default(),
            service: Some(service),
            observed: None,
            is_blind: false,
        };
        Sample { listeners: vec![sample], path: PathStats::default(), away: BTreeSet::new() }
    }

    #[test]
    fn answers_that_are_not_seen_are_said_once() {
        let mut unseen = sample("abort+rst-syn+unserved", 0, 0);
        unseen.listeners[0].service.as_mut().expect("it has one").established = 100;
        let mut advice = Advice::default();
        let notes = advice.notes(&unseen, |_| vec![12, 13]);
        assert!(
            notes[0].starts_with("100 connections have come to 192.0.2.1:80, and no answer"),
            "{notes:?}"
        );
        assert!(
            notes[0].contains("sockops program takes the events (bpftool prog show id 12, 13)"),
            "{notes:?}"
        );
        assert!(advice.notes(&unseen, |_| vec![12, 13]).is_empty(), "once is enough");
    }

    #[test]
    fn answers_that_are_not_seen_any_more_are_said_too() {
        let mut advice = Advice::default();
        let mut said = |answered, established, limit| {
            let mut sample = sample("abort+rst-syn+unserved", answered, 0);
            let service = sample.listeners[0].service.as_mut().expect("it has one");
            (service.established, service.limit) = (established, limit);
            advice.notes(&sample, |_| vec![12])
        };
        assert!(said(1000, 1000, Some(32)).is_empty());
        assert!(said(1000, 1100, Some(32)).is_empty(), "the server may pause");
        let notes = said(1000, 1500, None);
        assert!(
            notes[0].starts_with("500 connections have come to 192.0.2.1:80, and no answer"),
            "{notes:?}"
        );
    }

    #[test]
    fn request_is_not_for_servers_whose_requests_are_not_seen() {
        let mut advice = Advice::default();
        let mut said = |answered, silent| {
            advice.notes(&sample("rst-syn+unserved+request", answered, silent), |_| Vec::new())
        };
        assert!(said(100, 50).is_empty(), "half of them are seen");
        assert!(said(110, 60).is_empty(), "ten are few");
        let notes = said(210, 160);
        assert!(notes[0].contains("192.0.2.1:80 begins 100 of 100 answers"), "{notes:?}");
        assert!(said(310, 260).is_empty(), "once is enough");
        assert!(Advice::default().notes(&sample("rst-syn+unserved", 100, 100), |_| Vec::new()).is_empty());
    }

    #[test]
    fn target_below_what_a_request_takes_is_said_with_what_was_measured() {
        for (policy, is_said) in [("rst-syn+sojourn:5ms", true), ("rst-syn+sojourn:9ms", false)] {
            let mut advice = Advice::default();
            let notes: Vec<String> = (1..10)
                .flat_map(|turn| advice.notes(&sample(policy, 100 * turn, 0), |_| Vec::new()))
                .collect();
            assert_eq!(notes.len(), usize::from(is_said), "{notes:?}");
            assert!(notes.iter().all(|note| note.contains("took 8.0ms or more, and its target is 5.0ms")));
        }
    }
}
