//! Packets of many queues in one memory.

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// Packets of many queues, linked by index. Its memory is that of the most there were at once: free
/// places are used again.
#[derive(Debug, Clone)]
pub(crate) struct Arena<T> {
    nodes: Vec<Node<T>>,
    free: u32,
}

#[derive(Debug, Clone)]
struct Node<T> {
    item: Option<T>,
    next: u32,
    before: u32,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: NONE }
    }
}

impl<T> Arena<T> {
    fn put(&mut self, item: T, before: u32) -> u32 {
        let node = Node { item: Some(item), next: NONE, before };
        if self.free == NONE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.free;
        self.free = std::mem::replace(&mut self.nodes[index as usize], node).next;
        index
    }

    /// What is there, with the indices of what is before it and behind.
    fn take(&mut self, index: u32) -> Option<(T, u32, u32)> {
        let free = self.free;
        let node = self.nodes.get_mut(index as usize)?;
        let item = node.item.take()?;
        let next = std::mem::replace(&mut node.next, free);
        self.free = index;
        Some((item, node.before, next))
    }
}

/// One queue in an arena, first in, first out; the last one can be taken back.
///
/// Every method must be handed the same arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn is_empty(self) -> bool {
        self.first == NONE
    }

    pub(crate) fn first<T>(self, arena: &Arena<T>) -> Option<&T> {
        arena.nodes.get(self.first as usize)?.item.as_ref()
    }

    pub(crate) fn push<T>(&mut self, arena: &mut Arena<T>, item: T) {
        let index = arena.put(item, self.last);
        match self.last {
            NONE => self.first = index,
            last => arena.nodes[last as usize].next = index,
        }
        self.last = index;
    }

    pub(crate) fn pop<T>(&mut self, arena: &mut Arena<T>) -> Option<T> {
        let (item, _, next) = arena.take(self.first)?;
        self.first = next;
        match next {
            NONE => self.last = NONE,
            next => arena.nodes[next as usize].before = NONE,
        }
        Some(item)
    }

    pub(crate) fn pop_last<T>(&mut self, arena: &mut Arena<T>) -> Option<T> {
        let (item, before, _) = arena.take(self.last)?;
        self.last = before;
        match before {
            NONE => self.first = NONE,
            before => arena.nodes[before as usize].next = NONE,
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chains_are_queues_of_their_own(steps in prop::collection::vec((0..3_usize, 0..5_u8), 0..200)) {
            let mut arena = Arena::default();
            let mut chains = [Chain::EMPTY; 3];
            let mut wanted: [VecDeque<usize>; 3] = Default::default();
            let mut most = 0;
            for (number, (which, step)) in steps.into_iter().enumerate() {
                let (chain, wanted) = (&mut chains[which], &mut wanted[which]);
                match step {
                    0 => prop_assert_eq!(chain.pop(&mut arena), wanted.pop_front()),
                    1 => prop_assert_eq!(chain.pop_last(&mut arena), wanted.pop_back()),
                    _ => {
                        chain.push(&mut arena, number);
                        wanted.push_back(number);
                    }
                }
                prop_assert_eq!(chain.first(&arena), wanted.front());
                prop_assert_eq!(chain.is_empty(), wanted.is_empty());
                most = most.max(arena.nodes.iter().filter(|node| node.item.is_some()).count());
            }
            prop_assert_eq!(arena.nodes.len(), most, "free places are used again");
        }
    }
}
