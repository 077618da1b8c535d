//! A timing wheel: one deadline per connection, each set, moved and removed in constant time,
//! without allocation.

use units::Nanos;

/// How often deadlines are to be looked at. Retransmission timers count in hundreds of
/// milliseconds, delayed ACKs in tens.
pub const TICK: Nanos = Nanos::from_millis(1);
/// Ticks in a turn of the wheel. A deadline further away waits at the far end and is put back when
/// that comes round.
const SLOTS: u64 = 4096;
const NONE: u32 = u32::MAX;

/// Deadlines by small integer id.
#[derive(Debug)]
pub struct Wheel {
    /// The tick whose slot is being emptied; all earlier ones are empty.
    current: u64,
    /// First id of each slot's list.
    heads: Vec<u32>,
    links: Vec<Link>,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
    /// Slot of the list that this id is in, or [`NONE`].
    slot: u32,
}

const UNLINKED: Link = Link { prev: NONE, next: NONE, slot: NONE };

impl Wheel {
    /// Memory for one id, bytes.
    pub const BYTES_PER_ID: usize = size_of::<Link>();

    /// An empty wheel at time zero.
    pub fn with_capacity(ids: usize) -> Self {
        Self { current: 0, heads: vec![NONE; SLOTS as usize], links: Vec::with_capacity(ids) }
    }

    /// Sets or moves the deadline of `id`. It comes up at the first tick at or after `at`, or at
    /// the end of this turn if that is earlier: the caller looks whether it is due and sets it
    /// again.
    pub fn set(&mut self, id: u32, at: Nanos) {
        let index = id as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, UNLINKED);
        }
        let tick = at.0.div_ceil(TICK.0).clamp(self.current + 1, self.current + SLOTS - 1);
        let slot = (tick % SLOTS) as u32;
        if self.links[index].slot == slot {
            return;
        }
        self.remove(id);
        let head = self.heads[slot as usize];
        self.links[index] = Link { prev: NONE, next: head, slot };
        if head != NONE {
            self.links[head as usize].prev = id;
        }
        self.heads[slot as usize] = id;
    }

    /// Removes the deadline of `id`, if it has one.
    pub fn remove(&mut self, id: u32) {
        let Some(&Link { prev, next, slot }) = self.links.get(id as usize) else {
            return;
        };
        if slot == NONE {
            return;
        }
        match prev {
            NONE => self.heads[slot as usize] = next,
            prev => self.links[prev as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
        self.links[id as usize] = UNLINKED;
    }

    /// Takes out one id whose tick has come by `now`; `None` when all that were due are out.
    pub fn pop(&mut self, now: Nanos) -> Option<u32> {
        let target = now.0 / TICK.0;
        loop {
            let id = self.heads[(self.current % SLOTS) as usize];
            if id != NONE {
                self.remove(id);
                return Some(id);
            }
            if self.current >= target {
                return None;
            }
            self.current += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel, now: Nanos) -> Vec<u32> {
        let mut ids: Vec<u32> = std::iter::from_fn(|| wheel.pop(now)).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn deadlines_come_up_at_their_tick_and_never_before() {
        let mut wheel = Wheel::with_capacity(0);
        wheel.set(0, Nanos::from_micros(1500));
        wheel.set(1, Nanos::from_millis(2));
        wheel.set(2, Nanos::from_millis(3));
        assert!(due(&mut wheel, Nanos::from_micros(1999)).is_empty());
        assert_eq!(due(&mut wheel, Nanos::from_millis(2)), [0, 1]);
        assert_eq!(due(&mut wheel, Nanos::from_millis(9)), [2]);
    }

    #[test]
    fn removed_and_moved_deadlines_do_not_come_up() {
        let mut wheel = Wheel::with_capacity(4);
        for id in 0..4 {
            wheel.set(id, Nanos::from_millis(5));
        }
        wheel.remove(1);
        wheel.set(2, Nanos::from_millis(50));
        assert_eq!(due(&mut wheel, Nanos::from_millis(10)), [0, 3]);
        assert_eq!(due(&mut wheel, Nanos::from_millis(50)), [2]);
    }

    #[test]
    fn deadline_beyond_a_turn_comes_up_within_the_turn() {
        let mut wheel = Wheel::with_capacity(1);
        wheel.set(0, Nanos::from_secs(10));
        let mut turns = 0;
        for millis in 0.. {
            let now = Nanos::from_millis(millis);
            if wheel.pop(now).is_some() {
                if now >= Nanos::from_secs(10) {
                    break;
                }
                turns += 1;
                wheel.set(0, Nanos::from_secs(10));
            }
        }
        assert_eq!(turns, 2, "10 s are two whole turns of 4.095 s and a part");
    }

    #[test]
    fn deadline_set_in_the_past_comes_up_at_the_next_tick() {
        let mut wheel = Wheel::with_capacity(1);
        assert!(due(&mut wheel, Nanos::from_secs(1)).is_empty());
        wheel.set(0, Nanos::ZERO);
        assert!(due(&mut wheel, Nanos::from_secs(1)).is_empty());
        assert_eq!(due(&mut wheel, Nanos::from_millis(1001)), [0]);
    }
}
