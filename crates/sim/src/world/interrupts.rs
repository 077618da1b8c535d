//! When the CPU hears of frames: at once, or as often as the NIC lets it.
//!
//! Linux looks for frames as long as it finds some (NAPI), and asks for an interrupt when there are
//! none. A NIC that moderates its interrupts (`ethtool -C rx-usecs`) gives one no sooner than so
//! long after the one before, so that frames come together.

use units::Nanos;

/// Of one ring.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// Least time between two.
    apart: Nanos,
    /// Not before this is there another.
    next: Nanos,
    is_expected: bool,
    /// The CPU knows that there are frames, and looks for more.
    is_heard: bool,
}

/// What a frame that comes does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// The CPU hears of it, or finds it among the others.
    Now,
    /// It will hear of it then.
    At(Nanos),
    /// It will hear of it with an earlier one.
    WithAnother,
}

impl Interrupts {
    pub(super) fn new(apart: Nanos) -> Self {
        Self { apart, next: Nanos::ZERO, is_expected: false, is_heard: false }
    }

    pub(super) fn on_frame(&mut self, now: Nanos) -> Heard {
        if self.is_heard {
            return Heard::Now;
        }
        if self.is_expected {
            return Heard::WithAnother;
        }
        if now < self.next {
            self.is_expected = true;
            return Heard::At(self.next);
        }
        self.come(now);
        Heard::Now
    }

    /// There is one now.
    pub(super) fn come(&mut self, now: Nanos) {
        self.is_expected = false;
        self.is_heard = true;
        self.next = now + self.apart;
    }

    /// A timer does not wait for the NIC. Frames before it in the ring are taken with it, up to one
    /// interrupt early, where Linux would leave them.
    pub(super) fn on_timer(&mut self) {
        self.is_heard = true;
    }

    /// Whether the CPU sees something to do, with a ring that has something or not; it stops
    /// looking when there is nothing.
    pub(super) fn look(&mut self, is_empty: bool) -> bool {
        self.is_heard &= !is_empty;
        self.is_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_come_soon_after_an_interrupt_wait_for_the_next_together() {
        let mut interrupts = Interrupts::new(Nanos(50));
        assert_eq!(interrupts.on_frame(Nanos(100)), Heard::Now);
        assert_eq!(interrupts.on_frame(Nanos(110)), Heard::Now, "it looks for frames until it finds none");
        assert!(interrupts.look(false) && !interrupts.look(true));
        assert_eq!(interrupts.on_frame(Nanos(120)), Heard::At(Nanos(150)));
        assert_eq!(interrupts.on_frame(Nanos(130)), Heard::WithAnother);
        assert!(!interrupts.look(false), "not before the interrupt");
        interrupts.come(Nanos(150));
        assert!(interrupts.look(false) && !interrupts.look(true));
        assert_eq!(interrupts.on_frame(Nanos(199)), Heard::At(Nanos(200)));
        interrupts.on_timer();
        assert!(interrupts.look(false), "the CPU looks into the ring");
    }

    #[test]
    fn without_moderation_each_frame_is_heard_of_at_once() {
        let mut interrupts = Interrupts::new(Nanos::ZERO);
        for now in [0, 0, 1, 1] {
            assert_eq!(interrupts.on_frame(Nanos(now)), Heard::Now);
            interrupts.look(true);
        }
    }
}
