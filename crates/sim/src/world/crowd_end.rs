//! The crowd's end of the wire: when what comes is found, and when the crowd acts.

use units::Nanos;

use super::packets::{Packet, Pipe};
use crate::profile;

/// What waits there.
#[derive(Debug)]
pub(super) struct CrowdEnd {
    /// Least time between two turns.
    turns: Nanos,
    /// Between two looks for what has come.
    poll: Nanos,
    next_turn: Nanos,
    /// What has come, until the look that finds it and the turn after that.
    came: Pipe,
}

impl CrowdEnd {
    pub(super) fn new(profile: &profile::CrowdEnd) -> Self {
        let (turns, poll) = (profile.turns(), profile.poll());
        Self { turns, poll, next_turn: Nanos::ZERO, came: Pipe::default() }
    }

    /// Least time between two turns.
    pub(super) fn turns(&self) -> Nanos {
        self.turns
    }

    /// A packet has come; back it comes where nothing keeps it waiting.
    pub(super) fn receive(&mut self, packet: Box<Packet>, now: Nanos) -> Option<Box<Packet>> {
        if self.turns == Nanos::ZERO && self.poll == Nanos::ZERO {
            return Some(packet);
        }
        let found = if self.poll == Nanos::ZERO { now.0 } else { now.0.next_multiple_of(self.poll.0) };
        self.came.put(Nanos(found), packet);
        None
    }

    /// A turn begins.
    pub(super) fn begin_turn(&mut self, now: Nanos) {
        self.next_turn = now + self.turns;
    }

    /// What it takes up next, of all that was found until now.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Box<Packet>> {
        self.came.take(now)
    }

    /// When the next turn is, if there is something to do at this time or something has come.
    pub(super) fn next_turn(&self, due: Nanos, now: Nanos) -> Nanos {
        due.min(self.came.next().unwrap_or(Nanos::MAX)).max(now).max(self.next_turn)
    }

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.came.len()
    }
}
