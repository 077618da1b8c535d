//! Burning CPU time, as an application does between request and reply.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Keeps the calling thread busy until it has had `amount` of CPU time.
///
/// The thread's own clock, not wall time and not a calibrated loop: preemption does not shorten the work, and a change
/// of the CPU's frequency does not stretch it. Reading it is a system call of some 200 ns, which bounds how far we
/// overshoot. Receive processing in softirq that interrupts the thread is counted as the thread's own on kernels built
/// without `CONFIG_IRQ_TIME_ACCOUNTING`; there the work comes out short under load.
pub(crate) fn burn(amount: Duration) {
    if amount.is_zero() {
        return;
    }
    let end = thread_time() + amount;
    while thread_time() < end {
        std::hint::spin_loop();
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux always has the thread CPU clock").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burn_uses_at_least_the_amount() {
        let start = thread_time();
        burn(Duration::from_millis(2));
        assert!(thread_time() - start >= Duration::from_millis(2));
    }
}
