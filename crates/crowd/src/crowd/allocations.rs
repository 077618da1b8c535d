//! Nothing is allocated for a packet, a connection or a request. What grows is not counted by them:
//! histograms when a time is longer than all before, tables beyond what they were made for, and
//! sessions.

use traffic::{Arrivals, Workload};

use super::testing::{Question, ask, workload as named};
use super::*;

const RATE: f64 = 5000.0;

fn crowd(workload: Workload, close: Close) -> Crowd {
    let manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close,
        window: Window { start: Nanos::ZERO, end: Nanos::from_secs(10) },
        stacks: "linux:0.5,windows-10:0.3,macos:0.2".parse().expect("stacks"),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let clients = Clients::new("10.1.0.0/16".parse().expect("a network"));
    let asks = Asks::new(workload, 1, "test", "/");
    Crowd::new(manners, asks, clients, Schedule::new(Arrivals::Poisson, RATE, 1), 10_000)
}

/// A second of a crowd before a server that answers at once.
fn one_second(crowd: &mut Crowd, questions: &mut Vec<Question>, second: u64) {
    for step in 0..10_000 {
        let now = Nanos::from_secs(second) + Nanos::from_micros(100 * step);
        let mut send = |endpoint: Endpoint, segment: &Segment<'_>| ask(questions, endpoint, segment);
        while crowd.on_deadline(now, &mut send) {}
        while crowd.start_next(now, &mut send) {}
        while let Some(question) = questions.pop() {
            let Some(answer) = question.answer() else { continue };
            crowd.on_segment(question.endpoint, &answer, now, &mut |endpoint, segment| {
                ask(questions, endpoint, segment);
            });
        }
    }
}

#[test]
fn nothing_is_allocated_for_a_packet_a_connection_or_a_request() {
    for (workload, close) in
        [("one-packet", Close::Reset), ("one-packet", Close::Fin), ("specweb99-7.2", Close::Fin)]
    {
        let mut crowd = crowd(named(workload), close);
        let mut questions = Vec::with_capacity(1000);
        one_second(&mut crowd, &mut questions, 0);
        let before = crowd.tally().totals.replies;
        let allocated = allocation_counter::measure(|| one_second(&mut crowd, &mut questions, 1));
        let replies = crowd.tally().totals.replies - before;
        assert!(replies as f64 > 0.9 * RATE, "{workload}: {replies} replies");
        assert_eq!(allocated.count_total, 0, "{workload}: {replies} replies");
    }
}
