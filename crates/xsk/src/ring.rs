//! Memory shared with the kernel: the four rings and the frames' buffers.
//!
//! Each ring has one producer and one consumer, each with an index that only it writes and that
//! counts entries since the ring was made, modulo 2^32. Entries before the producer's index are
//! published by a store with release order and seen by a load with acquire order; the same holds
//! for the consumer's. The kernel does likewise (`net/xdp/xsk_queue.h`).

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::{Mapping, RingOffset};

/// Bytes of one buffer. The kernel allows 2,048 and 4,096; frames of an Ethernet MTU need the
/// smaller.
pub const FRAME_SIZE: u32 = 2048;

/// `struct xdp_desc`: a frame's bytes, by their offset in the registered memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub options: u32,
}

/// One ring. `T` is what the kernel has in this ring: [`Descriptor`] in the RX and TX rings, an
/// address (`u64`) in the others.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _mapping: Mapping,
}

// SAFETY: the pointers go to the mapping that moves along, and the words that the kernel uses too
// are atomics.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `entries` entries (a power of two) at `page_offset` of the socket.
    ///
    /// # Safety
    ///
    /// `offset` and `entries` are what the kernel says of this ring, and its entries are of type
    /// `T`.
    unsafe fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offset: RingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        debug_assert!(entries.is_power_of_two());
        let len = offset.desc as usize + entries as usize * size_of::<T>();
        let mapping = Mapping::of_socket(fd, len, page_offset)?;
        let at = |byte: u64| {
            // SAFETY: the kernel places all three words and the entries within the mapping.
            unsafe { mapping.start().add(byte as usize) }
        };
        Ok(Self {
            producer: at(offset.producer).cast(),
            consumer: at(offset.consumer).cast(),
            entries: at(offset.desc).cast(),
            mask: entries - 1,
            _mapping: mapping,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, within the mapping that lives as long as `self`, and both sides access
        // it as an atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the mask keeps the index within the entries of the mapping.
        unsafe { self.entries.as_ptr().add((index & self.mask) as usize) }
    }
}

/// A ring that we fill and the kernel empties: fill or TX.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Where the next entry goes; ahead of the published index by what is not published yet.
    next: u32,
}

impl<T: Copy> Producer<T> {
    /// # Safety
    ///
    /// As [`Ring::map`], for a ring that nobody else in this process has mapped.
    pub(crate) unsafe fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offset: RingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        let ring = unsafe { Ring::map(fd, page_offset, offset, entries)? };
        Ok(Self { ring, next: 0 })
    }

    /// Writes an entry that the kernel sees after [`Producer::publish`].
    ///
    /// # Panics
    ///
    /// When the ring is full. Ours never are: they have two entries for each of their frames (see
    /// `make_rings`).
    pub(crate) fn push(&mut self, value: T) {
        let used = self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire));
        assert!(used <= self.ring.mask, "a ring has room for all its frames");
        // SAFETY: the entry is free: the kernel has consumed it and looks at it again only once it
        // is published.
        unsafe { self.ring.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Hands all written entries to the kernel.
    pub(crate) fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many entries the kernel has taken since the ring was made, modulo 2^32.
    pub(crate) fn consumed(&self) -> u32 {
        self.ring.consumer().load(Ordering::Acquire)
    }

    /// Whether the kernel has taken all that was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.consumed() == self.next
    }
}

/// A ring that the kernel fills and we empty: RX or completion.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read; ahead of the released index by what is not released yet.
    next: u32,
    /// The producer's index as last seen.
    end: u32,
}

impl<T: Copy> Consumer<T> {
    /// # Safety
    ///
    /// As [`Ring::map`], for a ring that nobody else in this process has mapped.
    pub(crate) unsafe fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offset: RingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        let ring = unsafe { Ring::map(fd, page_offset, offset, entries)? };
        Ok(Self { ring, next: 0, end: 0 })
    }

    /// The next entry, if the kernel has written one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.next == self.end {
            self.end = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.end {
                return None;
            }
        }
        // SAFETY: the kernel has published this entry and writes it again only once it is released.
        let value = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// Gives the entries that were read back to the kernel.
    pub(crate) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// A range of the registered memory's frames, of which it is the only owner in user space.
pub(crate) struct Frames {
    memory: Arc<Mapping>,
    first: u64,
    end: u64,
}

impl Frames {
    /// Divides `memory` into its first `count` frames and the rest.
    pub(crate) fn split(memory: Mapping, count: u32) -> (Self, Self) {
        let memory = Arc::new(memory);
        let middle = u64::from(count) * u64::from(FRAME_SIZE);
        let end = memory.len() as u64;
        assert!(middle <= end, "memory has room for both parts");
        let part = |first, end| Self { memory: Arc::clone(&memory), first, end };
        (part(0, middle), part(middle, end))
    }

    /// Addresses of the frames, for the kernel: offsets in the registered memory, bytes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        (self.first..self.end).step_by(FRAME_SIZE as usize)
    }

    /// The `len` bytes at `address`, or nothing when they are not ours.
    ///
    /// # Safety
    ///
    /// The kernel has given the frame to us, and it does not get it back while the slice lives.
    pub(crate) unsafe fn read(&self, address: u64, len: u32) -> Option<&[u8]> {
        let end = address.checked_add(u64::from(len))?;
        if address < self.first || end > self.end {
            return None;
        }
        // SAFETY: in bounds, initialised by mmap or the kernel, and not written by the kernel, as
        // the caller promises. We write only through `&mut self`.
        Some(unsafe {
            std::slice::from_raw_parts(self.memory.start().as_ptr().add(address as usize), len as usize)
        })
    }

    /// The whole frame that starts at `address`, to write it.
    ///
    /// # Safety
    ///
    /// `address` is one of [`Frames::addresses`]; the kernel has given the frame to us, and it does
    /// not get it back while the slice lives.
    pub(crate) unsafe fn write(&mut self, address: u64) -> &mut [u8] {
        debug_assert!(address >= self.first && address + u64::from(FRAME_SIZE) <= self.end);
        // SAFETY: in bounds and not touched by the kernel, as the caller promises; `&mut self`
        // excludes other slices.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.start().as_ptr().add(address as usize),
                FRAME_SIZE as usize,
            )
        }
    }
}
