//! Packets on the wire, by when they arrive.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use units::Nanos;

use crate::Arrival;

/// Packets on the wire. Those that arrive in the order in which they were sent are in a list, which
/// costs nothing to keep sorted; only the others, of jitter and reordering, need a heap.
#[derive(Debug)]
pub(crate) struct InFlight<P> {
    in_order: VecDeque<Flying<P>>,
    overtaking: BinaryHeap<Reverse<Flying<P>>>,
    sent: u64,
}

impl<P> Default for InFlight<P> {
    fn default() -> Self {
        Self { in_order: VecDeque::new(), overtaking: BinaryHeap::new(), sent: 0 }
    }
}

impl<P> InFlight<P> {
    /// Of packets that arrive at the same moment the one pushed first goes first.
    pub(crate) fn push(&mut self, at: Nanos, packet: P) {
        let flying = Flying { at, number: self.sent, packet };
        self.sent += 1;
        if self.in_order.back().is_none_or(|last| last.at <= at) {
            self.in_order.push_back(flying);
        } else {
            self.overtaking.push(Reverse(flying));
        }
    }

    pub(crate) fn first_at(&self) -> Option<Nanos> {
        let overtaking = self.overtaking.peek().map(|Reverse(flying)| flying.at);
        [self.in_order.front().map(|flying| flying.at), overtaking].into_iter().flatten().min()
    }

    /// The next one, if it has arrived by `now`.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<Arrival<P>> {
        let from_heap = match (self.in_order.front(), self.overtaking.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        let flying = if from_heap {
            self.overtaking.peek().filter(|Reverse(flying)| flying.at <= now)?;
            self.overtaking.pop().map(|Reverse(flying)| flying)?
        } else {
            self.in_order.front().filter(|flying| flying.at <= now)?;
            self.in_order.pop_front()?
        };
        Some(Arrival { at: flying.at, packet: flying.packet })
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.overtaking.len()
    }
}

#[derive(Debug)]
struct Flying<P> {
    at: Nanos,
    number: u64,
    packet: P,
}

impl<P> Ord for Flying<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<P> PartialOrd for Flying<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Eq for Flying<P> {}

impl<P> PartialEq for Flying<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_by_their_moment_and_then_by_their_number() {
        let mut in_flight = InFlight::default();
        for (packet, at) in [(0, 30), (1, 50), (2, 10), (3, 40), (4, 50), (5, 10), (6, 60)] {
            in_flight.push(Nanos(at), packet);
        }
        assert_eq!((in_flight.len(), in_flight.first_at()), (7, Some(Nanos(10))));
        assert_eq!(in_flight.take(Nanos(9)), None);
        let mut order = Vec::new();
        while let Some(arrival) = in_flight.take(Nanos(55)) {
            order.push(arrival.packet);
        }
        assert_eq!(order, [2, 5, 0, 3, 1, 4]);
        assert_eq!((in_flight.len(), in_flight.first_at()), (1, Some(Nanos(60))));
    }
}
