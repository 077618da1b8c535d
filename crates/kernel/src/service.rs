//! Who waits for a server: `kernel/unserved.h` with all that it includes, with one CPU and no lock.
//! `kernel/follow.bpf.h` and `kernel/syn_stage.bpf.h` call it in the same order.

use units::Nanos;

use crate::raw::{EPOCHS, NS_PER_US};
use crate::{Attempt, ListenerLoad, ListenerPolicy, Pace, Service, Verdict, Wait, functions};

impl Service {
    /// Of those that were accepted or are in the queue, how many wait for the server, and not for
    /// something else.
    pub fn counted(&self, pace: &Pace) -> u32 {
        functions::count_recent(self, pace)
    }

    /// Nobody has come yet, of a server with this generation.
    pub fn of_generation(generation: u32) -> Self {
        Self { epoch: EPOCHS.into(), generation, ..Self::default() }
    }

    /// The same, and idle from `now` on.
    pub fn idle(generation: u32, now: Nanos) -> Self {
        Self { idle_since_ns: now.0, ..Self::of_generation(generation) }
    }

    /// May this attempt start? And whether only the server is in the way of one that may not.
    pub fn decide(
        &mut self,
        pace: &Pace,
        policy: &ListenerPolicy,
        load: &ListenerLoad,
        attempt: &Attempt,
        now: Nanos,
    ) -> (Verdict, bool) {
        let (mut load, mut is_by_server) = (*load, false);
        if now.0 >= self.epoch_ends_ns {
            functions::turn_epochs(self, pace, now.0);
        }
        let verdict = functions::decide_syn(policy, &mut load, attempt, self, pace, now.0, &mut is_by_server);
        (verdict, is_by_server)
    }

    /// Whether somebody was refused a moment ago.
    pub fn is_refusing(&self, pace: &Pace, now: Nanos) -> bool {
        functions::is_refusing(self, pace, now.0)
    }

    /// A handshake has ended, after so many microseconds; 0 if that is not known, as after a SYN
    /// cookie of the kernel's. `random` picks who is followed; `None`: not this one.
    pub fn begin(&mut self, pace: &Pace, random: u32, handshake_us: u32, now: Nanos) -> Option<Wait> {
        let weight = functions::weigh(self, pace, random);
        let mut wait = Wait::default();
        (weight > 0).then(|| {
            functions::begin(self, pace, &mut wait, weight, handshake_us, now.0);
            wait
        })
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
