//! The clock of a run.

use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use units::Nanos;

/// Time since the start of a run: monotonic.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time since the start.
    pub fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }

    /// Gives the time once it is `moment` or later; on the CPU meanwhile, because moments are
    /// microseconds away.
    pub fn spin_until(&self, moment: Nanos) -> Nanos {
        loop {
            let now = self.now();
            if now >= moment {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has the clock");
    std::time::Duration::from(time).into()
}
