//! How fast the machine is: a neighbour on the same hardware takes speed and leaves no trace in `/proc/stat`.

use std::hint::black_box;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::experiment::Layout;

/// Work between two looks at the clock, some microseconds.
const CHUNK: u64 = 10_000;
/// One look, at both CPUs at once.
const LOOK: Duration = Duration::from_millis(30);
/// Looks of which the fastest counts as what the machine can do.
const LOOKS: u32 = 30;
/// Below this share of its best the machine is disturbed.
pub const CALM: f64 = 0.85;
/// Between two looks of a wait.
const PAUSE: Duration = Duration::from_millis(200);

/// What the machine can do, by arithmetic on the CPUs of server and crowd.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    /// Chunks per second of the slower CPU, at best.
    best: f64,
}

impl Gauge {
    /// Looks for a second or two.
    pub fn calibrate(layout: &Layout) -> Result<Self> {
        let mut best: f64 = 0.0;
        for _ in 0..LOOKS {
            best = best.max(rate(layout)?);
        }
        Ok(Self { best })
    }

    /// Speed now, as a share of the best: 1 is calm.
    pub fn speed(&self, layout: &Layout) -> Result<f64> {
        Ok((rate(layout)? / self.best).min(1.0))
    }

    /// Waits until the machine is calm, or patience ends; gives the speed then.
    pub fn wait_for_calm(&self, layout: &Layout, patience: Duration) -> Result<f64> {
        let deadline = Instant::now() + patience;
        loop {
            let speed = self.speed(layout)?;
            if speed >= CALM || Instant::now() >= deadline {
                return Ok(speed);
            }
            sleep(PAUSE);
        }
    }
}

/// Chunks per second of the slower CPU.
fn rate(layout: &Layout) -> Result<f64> {
    let [server, crowd] = [layout.server_cpu, layout.crowd_cpu];
    std::thread::scope(|scope| {
        let looks = [server, crowd].map(|cpu| scope.spawn(move || rate_of(cpu)));
        let rates =
            looks.map(|look| look.join().unwrap_or_else(|_| Err(anyhow!("a look at the CPU panicked"))));
        let [server, crowd] = rates;
        Ok(server?.min(crowd?))
    })
}

fn rate_of(cpu: usize) -> Result<f64> {
    netns::pin_to_cpu(cpu)?;
    let start = Instant::now();
    let mut chunks = 0_u32;
    let mut value = 1_u64;
    while start.elapsed() < LOOK {
        for _ in 0..CHUNK {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        chunks += 1;
    }
    Ok(f64::from(chunks) / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_as_fast_as_it_can_be_or_slower() {
        let layout = Layout::default();
        let gauge = Gauge::calibrate(&layout).expect("two CPUs");
        let speed = gauge.speed(&layout).expect("two CPUs");
        assert!(speed > 0.0 && speed <= 1.0, "{speed}");
        let waited =
            Gauge { best: 2.0 * gauge.best }.wait_for_calm(&layout, Duration::ZERO).expect("two CPUs");
        assert!(waited <= 0.75, "half the speed of a machine that never was: {waited}");
    }
}
