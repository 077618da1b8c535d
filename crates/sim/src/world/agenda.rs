//! What happens next in a world: a few things each of which is expected once, and timers without
//! number.
//!
//! Nearly all that happens is one of the few, within microseconds: which of them comes first is
//! found by looking at each, and only timers go through a queue that is made for millions. The
//! order is that of one queue for all: by time, and at one moment as they were put here.

use std::mem::replace;

use units::Nanos;

use crate::capture::Way;
use crate::kernel::Timer;
use crate::queue::EventQueue;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The first packet of a pipe arrives.
    AtServer,
    AtClients,
    /// The CPU is done with what it began last.
    Cpu,
    /// The crowd has something to do.
    Crowd,
    /// The uplink is done with a frame.
    Uplink,
    /// The CPU hears of the frames in the ring.
    Interrupt,
    /// A path has something to do, where clients are far away.
    FarAway(Way),
    Timer(Timer),
}

/// Those that are expected once, in their places.
const ONCE: [Event; 5] = [Event::AtServer, Event::AtClients, Event::Uplink, Event::Cpu, Event::Crowd];

/// When, and how many were put here before.
type Turn = (Nanos, u64);

const NEVER: Turn = (Nanos::MAX, u64::MAX);

/// All that is to happen.
#[derive(Debug)]
pub(super) struct Agenda {
    expected: [Turn; ONCE.len()],
    others: EventQueue<(u64, Event)>,
    put: u64,
}

impl Agenda {
    pub(super) fn new() -> Self {
        Self { expected: [NEVER; ONCE.len()], others: EventQueue::new(), put: 0 }
    }

    /// Has something happen at a moment, which is now or later.
    pub(super) fn put(&mut self, at: Nanos, event: Event) {
        let turn = (at, self.put);
        self.put += 1;
        let place = match event {
            Event::AtServer => 0,
            Event::AtClients => 1,
            Event::Uplink => 2,
            Event::Cpu => 3,
            Event::Crowd => 4,
            Event::Interrupt | Event::FarAway(_) | Event::Timer(_) => {
                return self.others.push(at, (turn.1, event));
            }
        };
        let before = replace(&mut self.expected[place], turn);
        debug_assert!(before == NEVER || place >= 3, "{event:?} at {at} and at {}", before.0);
        // The crowd is looked at at either time. What the CPU began before was interrupted, and has
        // no end.
        if event == Event::Crowd && before != NEVER {
            self.others.push(before.0, (before.1, event));
        }
    }

    /// What happens next, and when, if that is no later than `until`.
    pub(super) fn take(&mut self, until: Nanos) -> Option<(Nanos, Event)> {
        let mut place = 0;
        for other in 1..ONCE.len() {
            if self.expected[other] < self.expected[place] {
                place = other;
            }
        }
        let turn = self.expected[place];
        if let Some((at, (put, event))) = self.others.peek_until(turn.0.min(until))
            && (at, put) < turn
        {
            self.others.pop_until(at);
            return Some((at, event));
        }
        if turn == NEVER || turn.0 > until {
            return None;
        }
        self.expected[place] = NEVER;
        Some((turn.0, ONCE[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(agenda: &mut Agenda, until: u64) -> Vec<(u64, Event)> {
        std::iter::from_fn(|| agenda.take(Nanos(until))).map(|(at, event)| (at.0, event)).collect()
    }

    #[test]
    fn events_come_in_the_order_of_time_and_of_one_moment_as_they_were_put() {
        let mut agenda = Agenda::new();
        let timer = Event::Timer(Timer::Agent);
        let put = [
            (70, timer),
            (50, Event::Crowd),
            (50, timer),
            (50, Event::AtServer),
            (40, Event::AtClients),
            (70, Event::Cpu),
        ];
        for (at, event) in put {
            agenda.put(Nanos(at), event);
        }
        assert_eq!(drain(&mut agenda, 39), []);
        assert_eq!(drain(&mut agenda, 50), [put[4], put[1], put[2], put[3]]);
        agenda.put(Nanos(60), timer);
        assert_eq!(drain(&mut agenda, u64::MAX), [(60, timer), put[0], put[5]]);
    }

    #[test]
    fn interrupted_step_has_no_end_and_the_crowd_is_looked_at_at_either_time() {
        let mut agenda = Agenda::new();
        for (at, event) in [(70, Event::Cpu), (60, Event::Crowd), (50, Event::Cpu), (40, Event::Crowd)] {
            agenda.put(Nanos(at), event);
        }
        let expected = [(40, Event::Crowd), (50, Event::Cpu), (60, Event::Crowd)];
        assert_eq!(drain(&mut agenda, u64::MAX), expected);
    }
}
