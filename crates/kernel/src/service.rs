//! Who waits for a server: `kernel/unserved.h` with all that it includes, with one CPU and no lock.
//! `kernel/follow.bpf.h` and `kernel/syn_stage.bpf.h` call it in the same order.

use units::Nanos;

use crate::raw::{EPOCHS, NS_PER_US};
use crate::{ListenerLoad, Pace, Service, Wait, functions};

impl Service {
    /// Of those that were accepted or are in the queue, how many wait for the server, and not for something else.
    pub fn counted(&self, pace: &Pace) -> u32 {
        functions::count_recent(self, pace)
    }

    /// Nobody has come yet, of a server with this generation.
    pub fn of_generation(generation: u32) -> Self {
        Self { epoch: EPOCHS.into(), generation, ..Self::default() }
    }

    /// And it is idle from now on: who comes at once may be a burst.
    pub fn idle(generation: u32, now: Nanos) -> Self {
        Self { idle_since_ns: now.0, ..Self::of_generation(generation) }
    }

    /// Whether anybody waits, and the rest that a SYN is decided by, into the load of a listener of the server.
    pub fn read(&mut self, pace: &Pace, now: Nanos, load: &mut ListenerLoad) {
        if now.0 >= self.epoch_ends_ns {
            functions::turn_epochs(self, pace, now.0);
        }
        functions::read_waiting(self, pace, now.0, load);
    }

    /// Whether one that the limit keeps out gets in all the same; a burst, and who comes back after he was left unanswered, only past a limit that was found.
    pub fn may_exceed(
        &mut self,
        pace: &Pace,
        now: Nanos,
        load: &ListenerLoad,
        is_found: bool,
        is_owed: bool,
    ) -> bool {
        let past = functions::count_past(load, is_found, 0);
        functions::may_go_past(self, pace, past, is_owed, now.0)
    }

    /// Whether one that finds no place in the accept queue is better left unanswered, as in a burst.
    pub fn may_defer(&mut self, pace: &Pace, now: Nanos) -> bool {
        functions::defer(self, pace, now.0)
    }

    /// One that was has come back, and gets in.
    pub fn repay(&mut self, pace: &Pace, now: Nanos) {
        functions::repay(self, pace, now.0)
    }

    /// A SYN was admitted.
    pub fn expect(&mut self, pace: &Pace, now: Nanos) {
        functions::expect(self, pace, now.0)
    }

    /// A handshake has ended, after so many microseconds; 0 if that is not known, as after a SYN cookie of the kernel's.
    pub fn begin(&mut self, pace: &Pace, handshake_us: u32, now: Nanos) -> Wait {
        let mut wait = Wait::default();
        functions::arrive(self, pace, handshake_us, now.0);
        functions::begin(self, pace, &mut wait, handshake_us, now.0);
        wait
    }

    /// More of a request has come.
    pub fn go_on(&mut self, pace: &Pace, wait: &mut Wait, now: Nanos) {
        functions::go_on(self, pace, wait, now.0)
    }

    /// The response begins, or never will.
    pub fn end(&mut self, pace: &Pace, wait: &Wait, is_answered: bool, now: Nanos) {
        let us = now.0.wrapping_sub(wait.since_ns) / u64::from(NS_PER_US);
        functions::end(self, pace, wait, is_answered, functions::bucket_of(us), now.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;

    /// As on two CPUs at once: whoever is there a moment after the other one must not find nothing left.
    #[test]
    fn cpu_that_comes_second_may_spend_what_the_first_has_left() {
        const EACH: u64 = 4_000_000;
        let pace =
            Pace { answer_ns: 4, patience_ns: 1_000_000_000, kept_ns: 4_000_000_000, ..Pace::default() };
        let idle_ns = pace.kept_ns;
        let service = Box::into_raw(Box::new(Service { idle_ns, ..Service::of_generation(0) }));
        let address = service as usize;
        let defer = move || {
            // SAFETY: it lives until both threads have ended, and the header changes with atomic instructions what they share.
            let ask = |now| unsafe { raw::defer(address as *mut Service, &raw const pace, now) };
            (0..EACH).filter(|_| ask(10_000_000_000)).count() as u64
        };
        let other = std::thread::spawn(defer);
        let deferred = defer() + other.join().expect("no panic");
        // SAFETY: nobody else has it any more.
        let service = unsafe { Box::from_raw(service) };
        assert_eq!((deferred, service.spent_ns), (2 * EACH, 2 * EACH * pace.answer_ns));
    }
}
