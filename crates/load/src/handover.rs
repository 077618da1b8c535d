//! Frames that came to another worker's queue than their connection's: rings of bytes, one for each
//! ordered pair of workers.
//!
//! The network card spreads replies over its queues as it likes, so of n workers each hands over up
//! to (n - 1)/n of what it receives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};
use rtrb::{Consumer, Producer, RingBuffer};

/// Bytes of all rings together: one between two workers holds 10,000 full frames, or more short
/// ones than there are buffers to receive into. Pages that no frame was in take no memory.
const ALL_RINGS: usize = 64 << 20;
/// Bytes of a ring at least: 40 full frames, or hundreds of short ones.
const LEAST_RING: usize = 64 << 10;
/// A frame is behind its length.
const LENGTH: usize = size_of::<u16>();
/// Longest frame: what fits a buffer of AF_XDP.
const MAX_FRAME: usize = xsk::FRAME_SIZE as usize;

/// One worker's ends of the rings.
pub struct Handover {
    own: usize,
    /// To each worker; of its own nothing goes there.
    to: Vec<Producer<u8>>,
    /// From each worker.
    from: Vec<Consumer<u8>>,
    /// Whose ring is looked at first, so that none waits for ever.
    first: usize,
    bells: Arc<[Bell]>,
    /// Who was given a frame since the last call of [`Handover::ring`].
    is_given: Vec<bool>,
    /// Where a frame that a ring has in two pieces is put together.
    whole: Box<[u8]>,
    given: u64,
    lost: u64,
}

/// Wakes a worker that waits. One that works looks at its rings anyway, so that nobody makes a
/// system call for it.
struct Bell {
    event: EventFd,
    is_waiting: AtomicBool,
}

impl Handover {
    /// The ends of so many workers, in their order.
    ///
    /// # Errors
    ///
    /// No descriptor left for the bells.
    pub fn between(workers: usize) -> io::Result<Vec<Self>> {
        let bytes = (ALL_RINGS / (workers * workers)).max(LEAST_RING);
        Self::with_rings(workers, bytes)
    }

    fn with_rings(workers: usize, bytes: usize) -> io::Result<Vec<Self>> {
        let bells: Arc<[Bell]> = (0..workers).map(|_| Bell::new()).collect::<io::Result<_>>()?;
        let end = |own| Self {
            own,
            to: Vec::new(),
            from: Vec::new(),
            first: 0,
            bells: Arc::clone(&bells),
            is_given: vec![false; workers],
            whole: vec![0; MAX_FRAME].into_boxed_slice(),
            given: 0,
            lost: 0,
        };
        let mut ends: Vec<Self> = (0..workers).map(end).collect();
        for giver in 0..workers {
            for taker in 0..workers {
                let (producer, consumer) = RingBuffer::new(if giver == taker { 0 } else { bytes });
                ends[giver].to.push(producer);
                ends[taker].from.push(consumer);
            }
        }
        Ok(ends)
    }

    /// Hands a frame over to another worker, or counts it as lost when the ring has no room.
    pub fn give(&mut self, to: u32, frame: &[u8]) {
        let to = to as usize;
        let len = u16::try_from(frame.len()).ok().filter(|_| frame.len() <= MAX_FRAME);
        let room = self.to[to].write_chunk(LENGTH + frame.len());
        let (Some(len), Ok(mut room)) = (len, room) else {
            self.lost += 1;
            return;
        };
        let (first, second) = room.as_mut_slices();
        write([&len.to_ne_bytes(), frame], first, second);
        room.commit_all();
        self.is_given[to] = true;
        self.given += 1;
    }

    /// Wakes those who were given something and wait.
    pub fn ring(&mut self) {
        // With the one in `wait`: either the other sees the frame before it waits, or we see that
        // it waits.
        fence(Ordering::SeqCst);
        for (bell, is_given) in self.bells.iter().zip(&mut self.is_given) {
            if std::mem::take(is_given) {
                bell.ring();
            }
        }
    }

    /// Calls `each` with up to `max` frames that others handed over, in the order of each, and
    /// gives how many there were.
    pub fn take(&mut self, max: u32, mut each: impl FnMut(&[u8])) -> u32 {
        let workers = self.from.len();
        let mut count = 0;
        for n in 0..workers {
            let ring = &mut self.from[(self.first + n) % workers];
            while count < max && take_one(ring, &mut self.whole, &mut each) {
                count += 1;
            }
        }
        self.first = (self.first + 1) % workers;
        count
    }

    /// Calls `wait` with what becomes readable when somebody hands a frame over, unless there is
    /// one already.
    ///
    /// # Errors
    ///
    /// Those of `wait`.
    pub fn wait(&self, wait: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        let Bell { event, is_waiting } = &self.bells[self.own];
        is_waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // see `ring`
        let result = if self.from.iter().all(Consumer::is_empty) { wait(event.as_fd()) } else { Ok(()) };
        is_waiting.store(false, Ordering::Relaxed);
        let _ = event.read(); // EAGAIN where nobody rang
        result
    }

    /// Frames that were handed over.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Frames that found the other's ring full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Bell {
    fn new() -> io::Result<Self> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { event, is_waiting: AtomicBool::new(false) })
    }

    fn ring(&self) {
        // Once is enough until it has waited again.
        if self.is_waiting.swap(false, Ordering::Relaxed) {
            self.event.write(1).expect("an event counts to 2^64");
        }
    }
}

/// Writes one after the other, into two pieces as if they were one.
fn write<'a>(bytes: [&[u8]; 2], mut first: &'a mut [u8], mut second: &'a mut [u8]) {
    for bytes in bytes {
        let (to_first, to_second) = bytes.split_at(bytes.len().min(first.len()));
        for (piece, bytes) in [(&mut first, to_first), (&mut second, to_second)] {
            let (into, rest) = std::mem::take(piece).split_at_mut(bytes.len());
            into.copy_from_slice(bytes);
            *piece = rest;
        }
    }
}

/// Takes the first frame of a ring, if there is one: a frame is written whole or not at all.
fn take_one(ring: &mut Consumer<u8>, whole: &mut [u8], each: &mut impl FnMut(&[u8])) -> bool {
    let Ok(length) = ring.read_chunk(LENGTH) else {
        return false;
    };
    let mut bytes = length.as_slices().0.iter().chain(length.as_slices().1);
    let mut byte = || *bytes.next().expect("as many as were asked for");
    let len = usize::from(u16::from_ne_bytes([byte(), byte()]));
    let record = ring.read_chunk(LENGTH + len).expect("a frame is behind its length");
    let (first, second) = record.as_slices();
    match (first.get(LENGTH..), second) {
        (Some(frame), []) => each(frame),
        (first, second) => {
            // The ring's end may be within the frame, and within its length.
            let first = first.unwrap_or_default();
            let second = &second[second.len() - (len - first.len())..];
            whole[..first.len()].copy_from_slice(first);
            whole[first.len()..len].copy_from_slice(second);
            each(&whole[..len]);
        }
    }
    record.commit_all();
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn pair(bytes: usize) -> [Handover; 2] {
        let ends = Handover::with_rings(2, bytes).expect("rings");
        ends.try_into().unwrap_or_else(|_| panic!("two"))
    }

    fn taken(end: &mut Handover, max: u32) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let count = end.take(max, |frame| frames.push(frame.to_vec()));
        assert_eq!(count as usize, frames.len());
        frames
    }

    /// The ring's end comes to lie at each place within a frame and its length.
    #[test]
    fn frames_of_odd_sizes_come_in_their_order_and_whole() {
        let [mut giver, mut taker] = pair(101);
        let (mut sent, mut received) = (0_u32, 0_u32);
        let frame = |n: u32| -> Vec<u8> { (0..n * 7 % 45).map(|at| (n + at) as u8).collect() };
        while received < 10_000 {
            for _ in 0..1 + sent % 2 {
                giver.give(1, &frame(sent));
                sent += 1;
            }
            for got in taken(&mut taker, 64) {
                assert_eq!(got, frame(received));
                received += 1;
            }
        }
        assert_eq!((giver.given(), giver.lost()), (u64::from(sent), 0));
    }

    #[test]
    fn full_ring_loses_the_newest_and_counts_them() {
        let [mut giver, mut taker] = pair(100);
        for n in 0..10 {
            giver.give(1, &[n; 30]);
        }
        assert_eq!((giver.given(), giver.lost()), (3, 7));
        assert_eq!(taken(&mut taker, 64), [[0; 30], [1; 30], [2; 30]]);
        giver.give(1, &[9; 98]);
        assert_eq!(taken(&mut taker, 64), [[9; 98]], "all of it is free again");
        giver.give(1, &[0; 99]);
        assert_eq!(giver.lost(), 8, "one that never fits");
    }

    #[test]
    fn no_ring_is_passed_over_by_who_takes_few() {
        let mut ends = Handover::with_rings(3, 1000).expect("rings");
        for n in 0..10 {
            ends[0].give(2, &[0, n]);
            ends[1].give(2, &[1, n]);
        }
        let turns: Vec<u8> = (0..6).flat_map(|_| taken(&mut ends[2], 2)).map(|frame| frame[0]).collect();
        assert!(turns.contains(&0) && turns.contains(&1), "{turns:?}");
        assert_eq!(taken(&mut ends[2], 0).len(), 0);
    }

    #[test]
    fn nothing_is_allocated_for_a_frame() {
        let [mut giver, mut taker] = pair(1000);
        let allocated = allocation_counter::measure(|| {
            for _ in 0..1000 {
                giver.give(1, &[7; 300]);
                giver.ring();
                assert_eq!(taker.take(9, |frame| assert_eq!(frame, [7; 300])), 1);
            }
        });
        assert_eq!(allocated.count_total, 0);
    }

    #[test]
    fn worker_that_waits_is_woken_and_one_that_has_frames_does_not_wait() {
        let [mut giver, mut taker] = pair(1000);
        let wait = |taker: &Handover| -> bool {
            let mut has_waited = false;
            let poll = |event: BorrowedFd<'_>| -> io::Result<()> {
                has_waited = true;
                let mut fds = [PollFd::new(event, PollFlags::POLLIN)];
                assert_eq!(poll(&mut fds, PollTimeout::from(10_000_u16))?, 1, "it rings within ten seconds");
                Ok(())
            };
            taker.wait(poll).expect("poll");
            has_waited
        };
        giver.give(1, b"early");
        giver.ring();
        assert!(!wait(&taker), "there is a frame already");
        assert_eq!(taken(&mut taker, 9), [b"early"]);
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..1000 {
                    both.wait();
                    giver.give(1, b"frame");
                    giver.ring();
                }
            });
            for _ in 0..1000 {
                both.wait();
                let start = Instant::now();
                while taken(&mut taker, 1).is_empty() {
                    wait(&taker);
                }
                assert!(start.elapsed() < Duration::from_secs(5), "a ring is never missed");
            }
        });
    }
}
