//! Flows that are served in turns.

use crate::arena::NONE;

/// What can have a turn.
pub(crate) trait InTurn {
    /// Whose turn is next after this one's.
    fn next(&mut self) -> &mut u32;
}

/// Flows in the order of their turns, linked through [`InTurn::next`]. A flow must be in one such
/// order at most.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    first: u32,
    last: u32,
}

impl Turns {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The one whose turn it is.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn push(&mut self, flows: &mut [impl InTurn], index: u32) {
        *flows[index as usize].next() = NONE;
        match self.last {
            NONE => self.first = index,
            last => *flows[last as usize].next() = index,
        }
        self.last = index;
    }

    pub(crate) fn pop(&mut self, flows: &mut [impl InTurn]) -> Option<u32> {
        let index = self.first()?;
        self.first = *flows[index as usize].next();
        if self.first == NONE {
            self.last = NONE;
        }
        Some(index)
    }
}
