//! Flows that are served in turns.

use crate::arena::NONE;

/// What can have a turn.
pub(crate) trait InTurn {
    /// Whose turns are next to this one's.
    fn links(&mut self) -> &mut Links;
}

/// The flows whose turns are before and after one's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    before: u32,
    next: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { before: NONE, next: NONE };
}

/// Flows in the order of their turns. A flow must be in one such order at most.
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
        *flows[index as usize].links() = Links { before: self.last, next: NONE };
        match self.last {
            NONE => self.first = index,
            last => flows[last as usize].links().next = index,
        }
        self.last = index;
    }

    pub(crate) fn pop(&mut self, flows: &mut [impl InTurn]) -> Option<u32> {
        let index = self.first()?;
        self.remove(flows, index);
        Some(index)
    }

    /// Takes out a flow that is in this order.
    pub(crate) fn remove(&mut self, flows: &mut [impl InTurn], index: u32) {
        let Links { before, next } = *flows[index as usize].links();
        match before {
            NONE => self.first = next,
            before => flows[before as usize].links().next = next,
        }
        match next {
            NONE => self.last = before,
            next => flows[next as usize].links().before = before,
        }
    }
}
