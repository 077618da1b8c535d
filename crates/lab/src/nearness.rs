//! How near two CPUs are to each other, which on a virtual machine is a matter of the moment.
//!
//! A hypervisor moves virtual CPUs about. Where both are on one chip a cache line goes from one to
//! the other and back in 60 to 110 ns, where they are on two in 400 (an EPYC of today, for seconds
//! to minutes at a time), and all that is handed from core to core takes that much longer, while
//! what stays on one core does not. What is measured in one state is no measure of the other, and a
//! ratio of what is and what is not handed over says more of the hypervisor than of either.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use experiment::Layout;
use netns::pin_to_cpu;
use nix::unistd::{SysconfVar, sysconf};

/// Of the shortest round trip that was seen, what still is near.
const NEAR: f64 = 3.0;
/// Longest wait until they are near again, after one in vain.
const AFTER_A_WAIT_IN_VAIN: Duration = Duration::from_secs(1);
/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// A look takes the best of some samples, as either thread may be interrupted.
const SAMPLES: usize = 5;
const TRIPS_PER_SAMPLE: u32 = 1000;

/// How near two CPUs are, and ever were.
#[derive(Debug)]
pub struct Nearness {
    cpus: [usize; 2],
    seen: Mutex<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    least_ns: f64,
    was_in_vain: bool,
}

impl Nearness {
    /// Of the server's CPU and the crowd's, at which nobody has looked yet.
    ///
    /// # Errors
    ///
    /// When this machine has not the CPUs of the layout. The simulator needs none of them.
    pub fn of(layout: &Layout) -> Result<Self> {
        // All CPUs of the machine: the bench pins its own thread to one of them.
        let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).context("testbed: count this machine's CPUs")?;
        let cpus = online.map_or(1, |cpus| cpus as usize);
        ensure!(cpus >= 2, "testbed: the lab needs two CPUs, one for the server and one for the crowd");
        let ends = [layout.server_cpu, layout.crowd_cpu];
        match ends.into_iter().find(|&cpu| cpu >= cpus) {
            Some(cpu) => bail!("testbed: CPU {cpu} is not there; this machine has {cpus}, numbered from 0"),
            None => Ok(Self::between(ends)),
        }
    }

    fn between(cpus: [usize; 2]) -> Self {
        Self { cpus, seen: Mutex::new(Seen { least_ns: f64::INFINITY, was_in_vain: false }) }
    }

    /// Waits until they are about as near as they have ever been, and gives a cache line's round
    /// trip then, ns.
    ///
    /// It waits for `patience` at most, and for a second at most where the last wait was in vain.
    ///
    /// # Errors
    ///
    /// A stop; a CPU that is not to be had.
    pub fn wait(&self, patience: Duration, stop: &AtomicBool) -> Result<f64> {
        let patience = if self.seen().was_in_vain { AFTER_A_WAIT_IN_VAIN.min(patience) } else { patience };
        let start = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            let now_ns = self.look()?;
            let (is_far, is_over) = (self.is_far(now_ns), start.elapsed() >= patience);
            if !is_far || is_over {
                self.change(|seen| seen.was_in_vain = is_far);
                return Ok(now_ns);
            }
            sleep(PAUSE);
        }
    }

    /// A cache line's round trip now, ns.
    ///
    /// # Errors
    ///
    /// A CPU that is not to be had.
    pub(crate) fn look(&self) -> Result<f64> {
        let now_ns = round_trip_ns(self.cpus)?;
        self.change(|seen| seen.least_ns = seen.least_ns.min(now_ns));
        Ok(now_ns)
    }

    /// Whether such a round trip is far above the shortest that was seen.
    pub(crate) fn is_far(&self, round_trip_ns: f64) -> bool {
        round_trip_ns > NEAR * self.least_ns()
    }

    /// The shortest that was seen, ns; infinite before the first look.
    pub(crate) fn least_ns(&self) -> f64 {
        self.seen().least_ns
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().expect("nobody panics with it")
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().expect("nobody panics with it"));
    }
}

fn round_trip_ns([here, there]: [usize; 2]) -> Result<f64> {
    const HERE: u32 = 0;
    const THERE: u32 = 1;
    const OVER: u32 = 2;
    let ball = AtomicU32::new(HERE);
    let returns = || {
        let pinned = pin_to_cpu(there);
        loop {
            match ball.load(Ordering::Acquire) {
                THERE => ball.store(HERE, Ordering::Release),
                OVER => return pinned,
                _ => {}
            }
        }
    };
    let serves = || {
        let pinned = pin_to_cpu(here);
        let mut least_ns = f64::INFINITY;
        for _ in 0..SAMPLES {
            let start = Instant::now();
            for _ in 0..TRIPS_PER_SAMPLE {
                ball.store(THERE, Ordering::Release);
                while ball.load(Ordering::Acquire) != HERE {}
            }
            least_ns = least_ns.min(start.elapsed().as_nanos() as f64 / f64::from(TRIPS_PER_SAMPLE));
        }
        ball.store(OVER, Ordering::Release);
        pinned.map(|()| least_ns)
    };
    let panicked = |_| anyhow!("the look at how near the CPUs are panicked");
    scope(|scope| {
        let (returns, serves) = (scope.spawn(returns), scope.spawn(serves));
        let least_ns = serves.join().map_err(panicked)??;
        returns.join().map_err(panicked)??;
        Ok(least_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_are_some_nanoseconds_apart() {
        let nearness = Nearness::between([0, 1]);
        let ns = nearness.look().expect("two CPUs");
        assert!(ns > 1.0 && ns < 1e6, "{ns} ns");
        assert!(!nearness.is_far(ns) && nearness.is_far(10.0 * ns));
        Nearness::between([0, 100_000]).look().expect_err("no such CPU");
    }

    #[test]
    fn pinned_caller_sees_both_cpus() {
        let pinned = || pin_to_cpu(0).map(|()| Nearness::of(&Layout::default()));
        let nearness = std::thread::spawn(pinned).join().expect("no panic");
        nearness.expect("a CPU to be had").expect("two CPUs");
    }

    #[test]
    fn who_is_far_is_waited_for_once() {
        let nearness = Nearness::between([0, 1]);
        nearness.change(|seen| *seen = Seen { least_ns: 1e-3, was_in_vain: true });
        let (start, stop) = (Instant::now(), AtomicBool::new(false));
        nearness.wait(2 * AFTER_A_WAIT_IN_VAIN, &stop).expect("two CPUs");
        assert!(start.elapsed() >= AFTER_A_WAIT_IN_VAIN, "they are never that near");
        stop.store(true, Ordering::Relaxed);
        nearness.wait(AFTER_A_WAIT_IN_VAIN, &stop).expect_err("stopped");
    }
}
