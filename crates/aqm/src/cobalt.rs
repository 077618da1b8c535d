//! Cobalt, which drops for each queue of CAKE.

use units::Nanos;

use crate::arithmetic::RandomNumbers;

/// Of BLUE's probability when a queue is full, and when it is found empty: 1/256 and 1/4096, of
/// 2^32.
const INCREMENT: u32 = 1 << 24;
const DECREMENT: u32 = 1 << 20;

/// Fixed for all queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Params {
    pub(crate) interval: Nanos,
    pub(crate) target: Nanos,
    /// Time to send the largest packet.
    pub(crate) mtu_time: Nanos,
}

/// CoDel and BLUE side by side: CoDel for senders that respond to drops, BLUE for those that fill
/// the queue all the same.
///
/// Source: `cobalt_*()` in `net/sched/sch_cake.c` of Linux 6.18. Differs: no ECN, and the square
/// root is exact, where Linux takes a step of Newton's from the last one for more than 15 drops.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cobalt {
    /// Of CoDel: drops that its rate stands for.
    count: u32,
    /// One over the square root of `count`, as of its last change. 0 until then, as in Linux, so
    /// that the first drop of a queue follows at once on the first packet that is too late.
    inverse_root: f64,
    is_dropping: bool,
    /// When CoDel drops next; without drops, until when the queue is in use.
    drop_next: Nanos,
    /// Of BLUE, of 2^32.
    probability: u32,
    changed_at: Nanos,
}

impl Cobalt {
    /// A packet had to be dropped, as there is no memory for all.
    pub(crate) fn full(&mut self, params: &Params, now: Nanos) {
        if now.since(self.changed_at) > params.target {
            self.probability = self.probability.saturating_add(INCREMENT);
            self.changed_at = now;
        }
        self.is_dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// It was the queue's turn, and it was empty.
    pub(crate) fn empty(&mut self, params: &Params, now: Nanos) {
        if self.probability > 0 && now.since(self.changed_at) > params.target {
            self.probability = self.probability.saturating_sub(DECREMENT);
            self.changed_at = now;
        }
        self.is_dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.step(self.count - 1, params);
        }
    }

    /// Whether anything of the past matters still.
    pub(crate) fn is_at_rest(&self, now: Nanos) -> bool {
        self.probability == 0 && self.count == 0 && now >= self.drop_next
    }

    /// Whether a packet that was taken from the head, and has waited so long, is to be dropped.
    pub(crate) fn drops(
        &mut self,
        params: &Params,
        now: Nanos,
        sojourn: Nanos,
        random: &mut RandomNumbers,
    ) -> bool {
        let mut drops = false;
        let is_due = self.is_due(now);
        let mut is_past = now > self.drop_next;
        if sojourn > params.target && sojourn.0 > params.mtu_time.0.saturating_mul(4) {
            if !self.is_dropping {
                self.is_dropping = true;
                self.drop_next = self.after(now, params);
            }
            self.count = self.count.max(1);
        } else {
            self.is_dropping = false;
        }
        if is_due && self.is_dropping {
            drops = true;
            self.step(self.count.saturating_add(1), params);
            is_past = now > self.drop_next;
        } else if is_due {
            while self.is_due(now) {
                self.step(self.count - 1, params);
            }
            is_past = now > self.drop_next;
        }
        if self.probability > 0 {
            drops |= random.next_u32() < self.probability;
        }
        if self.count == 0 {
            self.drop_next = now + params.interval;
        } else if is_past && !drops {
            self.drop_next = now;
        }
        drops
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.count > 0 && now >= self.drop_next
    }

    /// The rate is that of so many drops, from the next one on.
    fn step(&mut self, count: u32, params: &Params) {
        self.count = count;
        self.inverse_root = 1.0 / f64::from(count.max(1)).sqrt();
        self.drop_next = self.after(self.drop_next, params);
    }

    fn after(&self, at: Nanos, params: &Params) -> Nanos {
        at + Nanos((params.interval.0 as f64 * self.inverse_root) as u64)
    }
}
