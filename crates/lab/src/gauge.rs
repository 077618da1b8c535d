//! How fast the server's CPU does a kernel's work: a neighbour on the other hardware thread of a
//! core takes up to half of the speed, and leaves no trace in `/proc/stat`.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// Bytes of a datagram.
const BYTES: usize = 64;
/// Round trips between two looks at the clock: some ten microseconds.
const ROUND_TRIPS: u32 = 10;
/// Tries of a look, of which the fastest counts: others were interrupted.
const TRIES: u32 = 20;
/// Between two looks. A look of some 300 us takes 0.3% of the CPU, under every policy.
const EVERY: Duration = Duration::from_millis(100);

/// Looks at a CPU until it is asked what it saw.
#[derive(Debug)]
pub(crate) struct Gauge {
    stop: Arc<AtomicBool>,
    looks: JoinHandle<Result<Duration>>,
}

impl Gauge {
    /// Begins to look.
    pub(crate) fn start(cpu: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        Self { stop, looks: std::thread::spawn(move || mean(cpu, &is_over)) }
    }

    /// Time in which the CPU sent and received a small datagram within itself: the mean of all
    /// looks since the start.
    pub(crate) fn finish(self) -> Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.looks.join().unwrap_or_else(|_| Err(anyhow!("the look at the CPU panicked")))
    }
}

fn mean(cpu: usize, is_over: &AtomicBool) -> Result<Duration> {
    netns::pin_to_cpu(cpu)?;
    let ends = UnixDatagram::pair().context("make a pair of sockets")?;
    let (mut sum, mut looks) = (Duration::ZERO, 0);
    loop {
        sum += look(&ends).context("send within a pair of sockets")?;
        looks += 1;
        if is_over.load(Ordering::Relaxed) {
            return Ok(sum / looks);
        }
        sleep(EVERY);
    }
}

fn look((near, far): &(UnixDatagram, UnixDatagram)) -> std::io::Result<Duration> {
    let mut bytes = [0; BYTES];
    let mut fastest = Duration::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            near.send(&bytes)?;
            far.recv(&mut bytes)?;
        }
        fastest = fastest.min(start.elapsed() / ROUND_TRIPS);
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_some_time() {
        let gauge = Gauge::start(0);
        sleep(3 * EVERY);
        let time = gauge.finish().expect("CPU 0");
        assert!(time > Duration::ZERO && time < Duration::from_millis(10), "{time:?}");
        Gauge::start(100_000).finish().expect_err("no such CPU");
    }
}
