//! One crowd without a network: what it sends is heard here, and answered by hand.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use traffic::{Arrivals, Sessions, Workload};
use wire::{Flags, Options};

use super::testing::{ask, workload};
use super::*;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\nUser-Agent: tidegate\r\n\r\n";
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// One attempt at time zero, then one every 100 ms; patience of 10 s.
fn crowd(close: Close) -> Crowd {
    crowd_of(Workload::default(), |manners| manners.close = close)
}

fn crowd_of(workload: Workload, change: impl FnOnce(&mut Manners)) -> Crowd {
    let mut manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: Nanos::ZERO, end: Nanos::from_millis(100) },
        stacks: Stacks::default(),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let clients = Clients::new("10.1.0.0/24".parse().expect("a network"));
    change(&mut manners);
    let asks = Asks::new(workload, 1, "test", "/");
    Crowd::new(manners, asks, clients, Schedule::new(Arrivals::Fixed, 10.0, 1), 16)
}

/// What the crowd sends, with its data made owned.
#[derive(Default)]
struct Sent(Vec<(Endpoint, Flags, SeqNumber, SeqNumber, Vec<u8>)>);

impl Sent {
    fn by(&mut self, act: impl FnOnce(&mut dyn FnMut(Endpoint, &Segment<'_>))) -> Vec<(Flags, Vec<u8>)> {
        let before = self.0.len();
        act(&mut |endpoint, segment| {
            self.0.push((endpoint, segment.flags, segment.seq, segment.ack, segment.payload.to_vec()));
        });
        self.0[before..].iter().map(|(_, flags, _, _, payload)| (*flags, payload.clone())).collect()
    }

    fn syn(&self) -> (Endpoint, SeqNumber) {
        (self.0[0].0, self.0[0].2)
    }
}

fn from_server(seq: u32, ack: SeqNumber, flags: Flags, payload: &[u8]) -> Segment<'_> {
    Segment { seq: SeqNumber(seq), ack, flags, window: 65_535, options: Options::default(), payload }
}

fn started(crowd: &mut Crowd) -> Sent {
    let mut sent = Sent::default();
    let syn = sent.by(|mut send| assert!(crowd.start_next(Nanos::ZERO, &mut send)));
    assert_eq!(syn, [(Flags::SYN, vec![])]);
    sent
}

fn summary(crowd: &Crowd) -> results::CrowdSummary {
    crowd.tally().summary(Nanos::from_millis(100), results::GeneratorHealth::default())
}

#[test]
fn attempt_sends_its_request_reads_the_reply_and_resets() {
    let mut crowd = crowd(Close::Reset);
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let syn_ack = from_server(500, iss + 1, Flags::SYN | Flags::ACK, b"");
    let now = Nanos::from_millis(1);
    let out = sent.by(|mut send| crowd.on_segment(endpoint, &syn_ack, now, &mut send));
    assert_eq!(out, [(Flags::ACK, vec![]), (Flags::ACK | Flags::PSH, REQUEST.to_vec())]);
    let reply = from_server(501, iss + 1 + REQUEST.len() as u32, Flags::ACK | Flags::PSH, REPLY);
    let out = sent.by(|mut send| crowd.on_segment(endpoint, &reply, now, &mut send));
    // Linux acknowledges the first data at once, before the application has seen it.
    assert_eq!(out, [(Flags::ACK, vec![]), (Flags::RST | Flags::ACK, vec![])]);
    assert_eq!((crowd.live(), summary(&crowd).ok), (0, 1));
    assert!(crowd.is_over());
}

#[test]
fn not_found_is_a_complete_reply_of_its_own_class() {
    let mut crowd = crowd(Close::Reset);
    crowd.keep_ended();
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let mut hear = |crowd: &mut Crowd, segment| {
        sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_millis(1), &mut send))
    };
    hear(&mut crowd, from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""));
    let acked = iss + 1 + REQUEST.len() as u32;
    let reply = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
    hear(&mut crowd, from_server(501, acked, Flags::ACK, &reply[..reply.len() - 1]));
    assert_eq!(summary(&crowd).statuses, Statuses::default(), "its last byte is missing");
    let end = 501 + reply.len() as u32 - 1;
    hear(&mut crowd, from_server(end, acked, Flags::ACK, &reply[reply.len() - 1..]));
    let summary = summary(&crowd);
    let expected = Statuses { informational: 1, client_error: 1, ..Statuses::default() };
    assert_eq!((summary.ok, summary.statuses), (1, expected));
    assert_eq!(crowd.tally().totals.statuses, expected);
    assert_eq!(crowd.take_ended().map(|ended| ended.status).collect::<Vec<_>>(), [404]);
}

#[test]
fn attempt_that_closes_by_fin_lives_until_the_server_closed_too() {
    let mut crowd = crowd(Close::Fin);
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let acked = iss + 1 + REQUEST.len() as u32;
    let mut hear = |crowd: &mut Crowd, segment| {
        sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_millis(1), &mut send))
    };
    hear(&mut crowd, from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""));
    let out = hear(&mut crowd, from_server(501, acked, Flags::ACK, REPLY));
    assert_eq!(out, [(Flags::ACK, vec![]), (Flags::FIN | Flags::ACK, vec![])]);
    assert_eq!((crowd.live(), summary(&crowd).ok), (1, 1));
    let end = 501 + REPLY.len() as u32;
    let out = hear(&mut crowd, from_server(end, acked + 1, Flags::FIN | Flags::ACK, b""));
    assert_eq!(out, [(Flags::ACK, vec![])]);
    assert_eq!(crowd.live(), 0);
}

#[test]
fn connection_with_several_requests_sends_each_when_the_last_was_answered() {
    let workload = workload("kind = \"one-packet\"\nrequests_per_connection = 10");
    let mut crowd = crowd_of(workload, |manners| manners.close = Close::Reset);
    crowd.keep_ended();
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let mut hear = |crowd: &mut Crowd, now, segment| {
        sent.by(|mut send| crowd.on_segment(endpoint, &segment, now, &mut send))
    };
    let mut out =
        hear(&mut crowd, Nanos::from_millis(1), from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""));
    let (mut requests, mut seq) = (0, 501);
    while out.iter().any(|(_, payload)| payload == REQUEST) {
        requests += 1;
        let now = Nanos::from_millis(1 + 10 * requests);
        let acked = iss + 1 + requests as u32 * REQUEST.len() as u32;
        // The reply comes before the acknowledgment of its request: the next one waits for that.
        let early = iss + 1 + (requests as u32 - 1) * REQUEST.len() as u32;
        hear(&mut crowd, now, from_server(seq, early, Flags::ACK, b"HTTP"));
        out = hear(&mut crowd, now, from_server(seq + 4, early, Flags::ACK, &REPLY[4..]));
        assert!(out.iter().all(|(_, payload)| payload.is_empty()), "request {requests} is not acknowledged");
        seq += REPLY.len() as u32;
        if crowd.live() == 1 {
            out = hear(&mut crowd, now, from_server(seq, acked, Flags::ACK, b""));
        }
    }
    assert!((5..=15).contains(&requests), "{requests}");
    let totals = crowd.tally().totals;
    assert_eq!((totals.ok, totals.replies, crowd.live()), (1, requests, 0));
    assert_eq!(totals.statuses, Statuses { successful: requests, ..Statuses::default() });
    let ended: Vec<_> = crowd.take_ended().map(|ended| (ended.cause, ended.replies, ended.syns)).collect();
    assert_eq!(ended, [(Cause::Ok, requests as u8, 1)]);
    assert_eq!(crowd.take_ended().count(), 0, "taken");
    assert_eq!(totals.response_us, 11_000 + 10_000 * (requests - 1), "each from when it could be sent");
}

/// A reply of a server that takes no more requests, and of one that sends what nobody asked for.
#[test]
fn connection_that_does_not_go_on_as_asked_is_malformed_however_it_is_cut() {
    for (flags, payload, more) in [
        (Flags::ACK | Flags::FIN, REPLY, None),
        (Flags::ACK, REPLY, Some((Flags::ACK | Flags::FIN, &b""[..]))),
        (Flags::ACK, REPLY, Some((Flags::ACK, REPLY))),
    ] {
        let workload = workload("kind = \"one-packet\"\nrequests_per_connection = 10");
        let mut crowd = crowd_of(workload, |_| {});
        let mut sent = started(&mut crowd);
        let (endpoint, iss) = sent.syn();
        let mut hear = |crowd: &mut Crowd, segment| {
            sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_millis(1), &mut send));
        };
        hear(&mut crowd, from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""));
        // Before the request is acknowledged, so that the next one waits.
        hear(&mut crowd, from_server(501, iss + 1, flags, payload));
        if let Some((flags, payload)) = more {
            hear(&mut crowd, from_server(501 + REPLY.len() as u32, iss + 1, flags, payload));
        }
        let summary = summary(&crowd);
        assert_eq!((summary.malformed, summary.ok, summary.reset), (1, 0, 0), "{flags} {more:?}");
        assert_eq!(crowd.tally().totals.replies, 1, "one was asked for");
    }
}

/// `[SH06]` section 5.1, H.
#[test]
fn user_who_loses_patience_reloads_and_gives_up_after_the_last() {
    let mut crowd = crowd_of(Workload::default(), |manners| {
        manners.abort = Some(Abort { after: Nanos::from_secs(3), reloads: 2 });
        manners.window.end = Nanos::from_secs(1);
    });
    let mut sent = started(&mut crowd);
    let mut first_syns = vec![];
    for millis in 0..=12_000 {
        let now = Nanos::from_millis(millis);
        let before = crowd.tally().totals.offered;
        sent.by(|mut send| while crowd.on_deadline(now, &mut send) {});
        first_syns.extend((before..crowd.tally().totals.offered).map(|_| millis));
    }
    assert_eq!(first_syns, [3000, 6000], "after the one at 0");
    let endpoints: std::collections::BTreeSet<_> =
        sent.0.iter().map(|(endpoint, ..)| (endpoint.client, endpoint.port)).collect();
    assert_eq!(endpoints.len(), 3, "each on a connection of its own");
    let summary = summary(&crowd);
    assert_eq!((summary.offered, summary.aborted, summary.gave_up, crowd.live()), (1, 1, 1, 0));
}

#[test]
fn user_who_is_answered_after_a_reload_waited_since_the_first_attempt() {
    let mut crowd = crowd_of(Workload::default(), |manners| {
        manners.abort = Some(Abort { after: Nanos::from_secs(3), reloads: 1 });
        manners.close = Close::Reset;
        manners.window.end = Nanos::from_secs(10);
    });
    let mut sent = started(&mut crowd);
    for millis in 0..=3_000 {
        sent.by(|mut send| while crowd.on_deadline(Nanos::from_millis(millis), &mut send) {});
    }
    let (endpoint, _, iss, ..) = *sent.0.last().expect("a SYN");
    let now = Nanos::from_millis(3_500);
    let syn_ack = from_server(500, iss + 1, Flags::SYN | Flags::ACK, b"");
    sent.by(|mut send| crowd.on_segment(endpoint, &syn_ack, now, &mut send));
    let reply = from_server(501, iss + 1 + REQUEST.len() as u32, Flags::ACK, REPLY);
    sent.by(|mut send| crowd.on_segment(endpoint, &reply, now, &mut send));
    let summary = crowd.tally().summary(Nanos::from_secs(10), results::GeneratorHealth::default());
    assert_eq!((summary.ok, summary.aborted, summary.reloads, summary.gave_up), (1, 1, 1, 0));
    assert!((summary.response_ms.mean - 500.0).abs() < 1.0 && (summary.user_ms.mean - 3500.0).abs() < 2.0);
}

/// Whatever the server does, and wherever the run is stopped.
#[test]
fn every_session_ends_and_every_attempt_has_its_cause() {
    for seed in 0..60 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let is_stopped = seed % 3 == 0;
        let mut crowd = crowd_of(Workload::default(), |manners| {
            let (think, between_objects) = (Nanos::from_millis(300), Nanos::from_millis(50));
            manners.sessions = Sessions::new(2.0, 3.0, think, between_objects);
            manners.shard = Shard::new(seed as u32 % 2, 2).expect("a part");
            let reloads = (seed % 5) as u8;
            manners.abort =
                (reloads > 1).then(|| Abort { after: Nanos::from_millis(700), reloads: reloads - 1 });
            manners.timeout = Nanos::from_secs(2);
            manners.window.end = Nanos::from_secs(10);
            manners.seed = seed;
            (manners.reuse, manners.groups) = ((1 + seed % 4) as u8, (1 + seed % 3) as u8);
        });
        crowd.keep_ended();
        let mut questions = Vec::new();
        let end = if is_stopped { 900 } else { 4000 };
        for step in 0..end {
            let now = Nanos::from_millis(10 * step);
            let mut send = |endpoint: Endpoint, segment: &Segment<'_>| ask(&mut questions, endpoint, segment);
            while crowd.on_deadline(now, &mut send) {}
            while crowd.start_next(now, &mut send) {}
            while let Some(question) = questions.pop() {
                let answer = match random.random_range(0..10) {
                    0 => question.refusal(),
                    1 => None,
                    _ => question.answer(),
                };
                let Some(answer) = answer else { continue };
                crowd.on_segment(question.endpoint, &answer, now, &mut |endpoint, segment| {
                    ask(&mut questions, endpoint, segment);
                });
            }
        }
        if is_stopped {
            crowd.stop(Nanos::from_secs(9), Nanos::ZERO);
        } else {
            assert!(crowd.is_over(), "seed {seed}");
            assert!(crowd.visits.as_ref().expect("sessions").is_settled(), "seed {seed}: {:?}", crowd.visits);
        }
        let ended = crowd.take_ended().count() as u64;
        let summary = crowd.tally().summary(Nanos::from_secs(10), results::GeneratorHealth::default());
        let causes = [
            summary.ok,
            summary.refused,
            summary.reset,
            summary.timed_out_connect,
            summary.timed_out_response,
            summary.aborted,
            summary.malformed,
            summary.unfinished,
        ];
        assert_eq!(
            causes.iter().sum::<u64>() + summary.not_sent,
            summary.offered,
            "seed {seed}: {summary:?}"
        );
        assert!(ended >= summary.offered - summary.not_sent, "seed {seed}: {ended} {summary:?}");
        assert!(summary.ok > 0 && summary.refused > 0, "seed {seed}: {summary:?}");
    }
}

/// A server that answers at once, but to the users that are left waiting.
struct Served {
    crowd: Crowd,
    /// Of each segment that came with data or a SYN: when, from where, and whether it was a SYN.
    asked: Vec<(u64, Endpoint, bool)>,
    /// Of the last answer.
    acked: SeqNumber,
}

impl Served {
    fn by(change: impl FnOnce(&mut Manners)) -> Self {
        let crowd = crowd_of(Workload::default(), |manners| {
            manners.window.end = Nanos::from_secs(2);
            change(manners);
        });
        Self { crowd, asked: Vec::new(), acked: SeqNumber(0) }
    }

    /// Until then, in steps of 10 ms. Requests that come in this step of a turn of 100 ms get no
    /// answer.
    fn until(&mut self, from_ms: u64, to_ms: u64, is_answered: impl Fn(u64) -> bool) {
        let mut questions = Vec::new();
        for millis in (from_ms..to_ms).step_by(10) {
            let now = Nanos::from_millis(millis);
            let mut send = |endpoint: Endpoint, segment: &Segment<'_>| ask(&mut questions, endpoint, segment);
            while self.crowd.on_deadline(now, &mut send) {}
            while self.crowd.start_next(now, &mut send) {}
            while let Some(question) = questions.pop() {
                let Some(answer) = question.answer() else { continue };
                let is_syn = question.flags.has(Flags::SYN);
                let is_request = !answer.payload.is_empty();
                if is_syn || is_request {
                    self.asked.push((millis, question.endpoint, is_syn));
                }
                if is_request && !is_answered(millis) {
                    continue;
                }
                self.acked = answer.ack;
                self.crowd.on_segment(question.endpoint, &answer, now, &mut |endpoint, segment| {
                    ask(&mut questions, endpoint, segment);
                });
            }
            self.crowd.check();
        }
    }

    fn syns(&self) -> usize {
        self.asked.iter().filter(|(.., is_syn)| *is_syn).count()
    }

    fn requests(&self) -> usize {
        self.asked.len() - self.syns()
    }
}

/// `[SH06]` section 2.4: 20 users, one after the other.
#[test]
fn connection_carries_as_many_users_as_it_may_and_another_is_opened_then() {
    for (reuse, connections) in [(1, 20), (2, 10), (5, 4), (6, 4), (20, 1)] {
        let mut served = Served::by(|manners| manners.reuse = reuse);
        served.crowd.keep_ended();
        served.until(0, 3000, |_| true);
        assert_eq!((served.syns(), served.requests()), (connections, 20), "of {reuse}");
        let summary = served.crowd.tally().summary(Nanos::from_secs(2), results::GeneratorHealth::default());
        assert_eq!((summary.offered, summary.ok, summary.user_ms.count), (20, 20, 20));
        assert!(served.crowd.is_over());
        let syns: u32 = served.crowd.take_ended().map(|ended| ended.syns).sum();
        assert_eq!(syns as usize, connections, "a user on a connection that is there sends none");
    }
}

#[test]
fn connection_that_is_busy_is_not_shared() {
    // Answers come from 500 ms on, to the user who comes then at once, to those before when TCP
    // sends their requests again.
    let mut served = Served::by(|manners| manners.reuse = 20);
    served.until(0, 3000, |millis| millis >= 500);
    assert_eq!(served.syns(), 6, "{:?}", served.asked);
    assert_eq!(served.crowd.tally().totals.ok, 20);
}

#[test]
fn idle_connection_that_the_server_closes_is_closed_and_not_used_again() {
    for flags in [Flags::FIN | Flags::ACK, Flags::RST | Flags::ACK] {
        let mut served = Served::by(|manners| (manners.reuse, manners.close) = (20, Close::Reset));
        served.until(0, 150, |_| true);
        let (_, endpoint, _) = served.asked[0];
        assert_eq!((served.syns(), served.requests(), served.crowd.live()), (1, 2, 1));
        let id = served.crowd.table.find(endpoint).expect("it is idle");
        assert!(served.crowd.table.get_mut(id).is_idle);
        let close = from_server(501 + 2 * REPLY.len() as u32, served.acked, flags, b"");
        served.crowd.on_segment(endpoint, &close, Nanos::from_millis(160), &mut |_, _| {});
        assert_eq!(served.crowd.live(), 0, "{flags}");
        served.until(170, 3000, |_| true);
        assert_eq!((served.syns(), served.requests()), (2, 20), "{flags}");
        let summary = summary(&served.crowd);
        assert_eq!((summary.malformed, summary.reset), (0, 0), "nobody asked anything then");
    }
}

/// The user who is not answered aborts after 300 ms, and opens a connection though three are idle.
#[test]
fn reload_opens_a_connection_also_where_one_is_idle() {
    let mut served = Served::by(|manners| {
        (manners.reuse, manners.close) = (20, Close::Reset);
        manners.abort = Some(Abort { after: Nanos::from_millis(300), reloads: 3 });
        manners.window.end = Nanos::from_millis(250);
    });
    // The user at 100 ms is not answered, nor are the requests that TCP sends again.
    served.until(0, 3000, |millis| !(100..200).contains(&millis) && !(201..400).contains(&millis));
    assert_eq!(served.crowd.tally().totals.ok, 3);
    let at_400: Vec<bool> =
        served.asked.iter().filter(|(millis, ..)| *millis == 400).map(|(.., is_syn)| *is_syn).collect();
    assert_eq!(at_400[..2], [true, false], "{:?}", served.asked);
}

#[test]
fn users_are_of_one_group_after_the_other_and_reuse_connections_of_their_own() {
    let mut served = Served::by(|manners| (manners.reuse, manners.groups) = (20, 5));
    served.until(0, 3000, |_| true);
    let clients = served.crowd.clients();
    let requests = served.asked.iter().filter(|(.., is_syn)| !is_syn);
    let groups: Vec<u8> = requests.map(|(_, endpoint, _)| clients.group(*endpoint, 5)).collect();
    assert_eq!(groups, [0, 1, 2, 3, 4].repeat(4));
    assert_eq!(served.syns(), 5);
    let summary = served.crowd.tally().summary(Nanos::from_secs(2), results::GeneratorHealth::default());
    assert_eq!(summary.groups.iter().map(|group| group.replies).collect::<Vec<_>>(), [4; 5]);
}

#[test]
fn parts_of_a_crowd_are_the_whole_one() {
    let starts_of = |shard: Option<Shard>| {
        let mut crowd = crowd_of(Workload::default(), |manners| {
            manners.window.end = Nanos::from_secs(3);
            manners.shard = shard.expect("a part");
            manners.stacks = "linux:0.5,macos:0.5".parse().expect("stacks");
        });
        crowd.keep_ended();
        let mut sent = Sent::default();
        for millis in 0..=3_000 {
            sent.by(|mut send| while crowd.start_next(Nanos::from_millis(millis), &mut send) {});
        }
        crowd.stop(Nanos::from_secs(3), Nanos::ZERO);
        crowd
            .take_ended()
            .map(|ended| (ended.user, ended.intended_start, ended.stack.name))
            .collect::<std::collections::BTreeSet<_>>()
    };
    let whole = starts_of(Shard::new(0, 1));
    let parts: Vec<_> = (0..3).map(|index| starts_of(Shard::new(index, 3))).collect();
    assert_eq!(whole.len(), 30);
    assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 30);
    // However many workers send one of the parts.
    for count in [2, 5] {
        let worker = |worker| Shard::new(1, 3).map(|part| part.of_worker(worker, count));
        let workers: Vec<_> = (0..count).map(|number| starts_of(worker(number))).collect();
        assert_eq!(workers.iter().map(|of_worker| of_worker.len()).sum::<usize>(), parts[1].len());
        assert_eq!(workers.into_iter().flatten().collect::<std::collections::BTreeSet<_>>(), parts[1]);
    }
    assert_eq!(parts.into_iter().flatten().collect::<std::collections::BTreeSet<_>>(), whole);
    assert_eq!(Shard::new(3, 3), None);
}

#[test]
fn client_that_retries_after_a_reset_is_refused_only_at_last() {
    let mut crowd = crowd_of(Workload::default(), |manners| {
        manners.stacks = "windows-xp".parse().expect("a stack");
    });
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    for refused in [0, 0, 1] {
        let reset = from_server(0, iss + 1, Flags::RST | Flags::ACK, b"");
        sent.by(|mut send| crowd.on_segment(endpoint, &reset, Nanos::from_millis(1), &mut send));
        assert_eq!(crowd.tally().totals.refused, refused);
    }
    assert_eq!(crowd.tally().totals.syns, 3);
}

#[test]
fn refused_attempt_ends_at_once_and_sends_no_more() {
    let mut crowd = crowd(Close::Reset);
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let reset = from_server(0, iss + 1, Flags::RST | Flags::ACK, b"");
    let out = sent.by(|mut send| crowd.on_segment(endpoint, &reset, Nanos::from_millis(1), &mut send));
    assert_eq!(out, []);
    assert_eq!((crowd.live(), summary(&crowd).refused), (0, 1));
}

#[test]
fn unanswered_attempt_resends_its_syn_until_the_user_loses_patience() {
    let mut crowd = crowd(Close::Reset);
    let mut sent = started(&mut crowd);
    let mut syns_at_ms = vec![0];
    for millis in 0..=10_001 {
        let now = Nanos::from_millis(millis);
        let out = sent.by(|mut send| while crowd.on_deadline(now, &mut send) {});
        syns_at_ms.extend(out.iter().map(|_| millis));
    }
    assert_eq!(syns_at_ms, [0, 1000, 2000, 3000, 4000, 5000, 7000]);
    assert_eq!((crowd.live(), summary(&crowd).timed_out_connect), (0, 1));
}

#[test]
fn established_attempt_that_hears_nothing_times_out_in_its_response() {
    let mut crowd = crowd(Close::Reset);
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let syn_ack = from_server(500, iss + 1, Flags::SYN | Flags::ACK, b"");
    sent.by(|mut send| crowd.on_segment(endpoint, &syn_ack, Nanos::from_millis(1), &mut send));
    for millis in 0..=10_001 {
        sent.by(|mut send| while crowd.on_deadline(Nanos::from_millis(millis), &mut send) {});
    }
    assert_eq!(summary(&crowd).timed_out_response, 1);
    let requests = sent.0.iter().filter(|(.., payload)| payload == REQUEST).count();
    assert_eq!(requests, 6, "at 0, 0.2, 0.6, 1.4, 3.0, 6.2 s after the handshake");
}

/// `[Shu05]` figure 4.11: the server knows only that nothing more will come, and serves the request
/// in vain.
#[test]
fn timed_out_attempt_half_closes_and_resets_the_late_reply() {
    let mut crowd = crowd(Close::Fin);
    let mut sent = started(&mut crowd);
    let (endpoint, iss) = sent.syn();
    let acked = iss + 1 + REQUEST.len() as u32;
    let mut hear = |crowd: &mut Crowd, segment, millis| {
        sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_millis(millis), &mut send))
    };
    hear(&mut crowd, from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""), 1);
    hear(&mut crowd, from_server(501, acked, Flags::ACK, b""), 2);
    let mut out = Vec::new();
    for millis in 0..=10_001 {
        let now = Nanos::from_millis(millis);
        out.extend(sent.by(|mut send| while crowd.on_deadline(now, &mut send) {}));
    }
    assert_eq!(out, [(Flags::FIN | Flags::ACK, vec![])]);
    assert_eq!((crowd.live(), summary(&crowd).timed_out_response), (1, 1));
    let late =
        [(501, REPLY, Flags::ACK | Flags::PSH), (501 + REPLY.len() as u32, b"", Flags::FIN | Flags::ACK)];
    for (seq, payload, flags) in late {
        let segment = from_server(seq, acked + 1, flags, payload);
        let out = sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_secs(25), &mut send));
        assert_eq!(out, [(Flags::RST, vec![])]);
    }
    assert_eq!(crowd.live(), 0);
}

#[test]
fn segment_for_nobody_is_reset() {
    let mut crowd = crowd(Close::Reset);
    let nobody = Endpoint { client: 9, port: 40_000 };
    let mut sent = Sent::default();
    let syn_ack = from_server(500, SeqNumber(77), Flags::SYN | Flags::ACK, b"");
    let out = sent.by(|mut send| crowd.on_segment(nobody, &syn_ack, Nanos::ZERO, &mut send));
    assert_eq!(out, [(Flags::RST, vec![])]);
    assert_eq!(sent.0[0].2, SeqNumber(77), "the reset takes its sequence number from the ACK");
}

#[test]
fn stopped_run_gives_every_open_attempt_a_cause() {
    let mut crowd = crowd(Close::Reset);
    started(&mut crowd);
    crowd.stop(Nanos::from_millis(50), Nanos::ZERO);
    let summary = summary(&crowd);
    assert_eq!((summary.offered, summary.unfinished), (1, 1));
}

#[test]
fn live_connection_fits_256_bytes() {
    const { assert!(Crowd::BYTES_PER_CONNECTION <= 256) };
}
