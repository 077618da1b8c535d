//! Frames to send.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::ring::{Consumer, Descriptor, FRAME_SIZE, Frames, Producer};
use crate::sys;

/// How often a flush asks again when the kernel takes no frame. It takes none while completions or
/// socket memory are short; on veth both come back within the call.
const IDLE_KICKS: u32 = 8;

/// The sending half of a socket.
pub struct Tx {
    pub(crate) ring: Producer<Descriptor>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) frames: Frames,
    /// Frames that are ours to write, the one last used on top: its bytes are the likeliest to be
    /// in the cache.
    pub(crate) free: Vec<u64>,
    pub(crate) fd: Arc<OwnedFd>,
}

impl Tx {
    /// How many more frames can be queued now.
    pub fn transmit_room(&mut self) -> u32 {
        self.reclaim();
        self.free.len() as u32
    }

    /// Queues one frame, which `fill` writes into a buffer of [`FRAME_SIZE`] bytes with old content
    /// and whose length it gives. False, without calling `fill`, when no buffer is free.
    ///
    /// A length of zero queues nothing. The frame starts with its Ethernet header; its checksums
    /// must be right. It is not sent before [`Tx::flush`].
    ///
    /// # Panics
    ///
    /// When the length is more than the buffer's.
    pub fn transmit(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(address) = self.take_free() else {
            return false;
        };
        // SAFETY: an address on the free list is a frame of ours that the kernel does not have; it
        // gets it below.
        let len = fill(unsafe { self.frames.write(address) });
        assert!(len <= FRAME_SIZE as usize, "a frame of {len} bytes is longer than its buffer");
        if len == 0 {
            self.free.push(address);
            return true;
        }
        self.ring.push(Descriptor { address, len: len as u32, options: 0 });
        true
    }

    /// Hands the queued frames to the kernel and gives how many it took.
    ///
    /// In copy mode the frames are sent within this call, and on veth the peer receives them within
    /// it too, unless its NAPI has a thread. What the kernel does not take for want of memory stays
    /// queued for the next call.
    ///
    /// # Errors
    ///
    /// What sendto(2) says, save EAGAIN, EBUSY and ENOBUFS; ENETDOWN when the interface is down.
    pub fn flush(&mut self) -> io::Result<u32> {
        self.ring.publish();
        let before = self.ring.consumed();
        let mut idle_kicks = 0;
        while !self.ring.is_empty() && idle_kicks < IDLE_KICKS {
            let seen = self.ring.consumed();
            match sys::kick(self.fd.as_fd()) {
                Err(error) if !is_transient(&error) => return Err(error),
                _ => {}
            }
            self.reclaim();
            idle_kicks = if self.ring.consumed() == seen { idle_kicks + 1 } else { 0 };
        }
        Ok(self.ring.consumed().wrapping_sub(before))
    }

    fn take_free(&mut self) -> Option<u64> {
        if self.free.is_empty() {
            self.reclaim();
        }
        self.free.pop()
    }

    /// Takes back the buffers whose frames have left.
    fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some(address) = self.completion.pop() {
            self.free.push(address & !u64::from(FRAME_SIZE - 1));
        }
        if self.free.len() > before {
            self.completion.release();
        }
    }
}

/// EAGAIN: the budget of a kick is used up; EBUSY: the device queue is full; ENOBUFS: no memory for
/// a socket buffer.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS))
}
