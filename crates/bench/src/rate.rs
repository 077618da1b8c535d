//! How fast a socket can send: the reference for benchmarks.

use std::io;
use std::time::{Duration, Instant};

use xsk::Tx;

/// Frames per flush, as a busy sender has them.
const BATCH: u32 = 64;

/// What [`raw_send_rate`] measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendRate {
    /// Frames that the kernel took.
    pub frames: u64,
    /// How long that was.
    pub elapsed: Duration,
}

impl SendRate {
    /// Frames per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.frames as f64 / self.elapsed.as_secs_f64()
    }
}

/// The rate at which `tx` sends `frame` again and again for about `duration`, writing it anew each
/// time.
///
/// On veth this includes what the peer does with a frame, unless that happens on another CPU.
///
/// # Errors
///
/// Those of [`Tx::flush`].
///
/// # Panics
///
/// When `frame` is longer than a buffer.
pub(crate) fn raw_send_rate(tx: &mut Tx, frame: &[u8], duration: Duration) -> io::Result<SendRate> {
    let start = Instant::now();
    let mut frames = 0;
    while start.elapsed() < duration {
        for _ in 0..BATCH {
            tx.transmit(|buffer| {
                buffer[..frame.len()].copy_from_slice(frame);
                frame.len()
            });
        }
        frames += u64::from(tx.flush()?);
    }
    Ok(SendRate { frames, elapsed: start.elapsed() })
}
