//! Received frames.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::ring::{Consumer, Descriptor, FRAME_SIZE, Frames, Producer};
use crate::sys;

/// The receiving half of a socket.
pub struct Rx {
    pub(crate) ring: Consumer<Descriptor>,
    pub(crate) fill: Producer<u64>,
    pub(crate) frames: Frames,
    pub(crate) fd: Arc<OwnedFd>,
}

impl Rx {
    /// Gives the kernel all frames to receive into.
    pub(crate) fn fill_all(&mut self) {
        for address in self.frames.addresses() {
            self.fill.push(address);
        }
        self.fill.publish();
    }

    /// Calls `each` with up to `max` received frames, in the order of their arrival, and gives how
    /// many there were.
    ///
    /// A frame starts with its Ethernet header. Its buffer goes back to the kernel when this
    /// returns, so a `max` of a few dozen keeps buffers coming during a burst. Does not wait and
    /// makes no system call.
    pub fn receive(&mut self, max: u32, mut each: impl FnMut(&[u8])) -> u32 {
        let mut count = 0;
        while count < max {
            let Some(descriptor) = self.ring.pop() else {
                break;
            };
            // SAFETY: the RX ring gave us the frame; it goes to the fill ring below, after `each`,
            // and is not published before the loop ends.
            if let Some(frame) = unsafe { self.frames.read(descriptor.address, descriptor.len) } {
                each(frame);
            }
            // The kernel starts the data behind a headroom: the frame's own address is the chunk's.
            self.fill.push(descriptor.address & !u64::from(FRAME_SIZE - 1));
            count += 1;
        }
        if count > 0 {
            self.ring.release();
            self.fill.publish();
        }
        count
    }

    /// Waits until a frame arrives, `timeout` passes or a signal comes.
    ///
    /// The kernel may also send what [`crate::Tx`] has published meanwhile.
    ///
    /// # Errors
    ///
    /// What ppoll(2) says; an interrupted wait is none.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        wait_for_any([&*self], None, timeout)
    }
}

/// Waits until a frame arrives at one of them, or another descriptor is readable; until `timeout`
/// passes or a signal comes. See [`Rx::wait`].
///
/// # Errors
///
/// What ppoll(2) says; an interrupted wait is none.
///
/// # Panics
///
/// When there are more than [`crate::MAX_QUEUES`].
pub fn wait_for_any<'a>(
    receivers: impl IntoIterator<Item = &'a Rx>,
    other: Option<BorrowedFd<'a>>,
    timeout: Duration,
) -> io::Result<()> {
    sys::wait_readable(receivers.into_iter().map(|rx| rx.fd.as_fd()).chain(other), timeout)
}
