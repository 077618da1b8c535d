//! How connections send long responses, and in which band of an uplink each segment waits:
//! `kernel/bands.h`, as the classifier calls it.
//!
//! The queue is not this model's ([`crate::Outside::send_marked`]): whoever has it says what has
//! left the host ([`super::Kernel::transmitted`]).

use std::collections::VecDeque;

use kernel::{Cutoffs, Response, SizeSource};
use tcp::{Control, PathState};
use wire::{Flags, Segment, SeqNumber};

/// How connections send responses longer than an initial window.
#[derive(Debug, Clone, PartialEq)]
pub struct Sending {
    /// Congestion control of each.
    pub control: Control,
    /// Bytes that a socket takes beyond what is acknowledged; a program that writes more waits.
    pub send_buffer: u32,
    /// Whether the kernel bounds what of one connection is below TCP, as `small_queue()` has it; in
    /// Linux before 3.6 the windows alone do. With a bound a segment that still waits there is not
    /// sent again, either (`skb_still_in_host_queue()`).
    pub has_small_queue: bool,
    /// Of the bands of the uplink.
    pub cutoffs: Cutoffs,
    /// How it is known what is left of a response.
    pub source: SizeSource,
    /// The program itself sets the band of its socket before each write of so many bytes, by what
    /// it has not written yet, as `[SH06]` section 3.2 changes Apache (1.3 writes 32 KiB at a
    /// time). All segments wait there then, also those of bytes that were written before: `source`
    /// and what the socket has sent say nothing.
    pub writes: Option<u32>,
    /// A connection may go to a higher band while segments of it wait in a lower one, which its
    /// later ones overtake then.
    pub overtakes: bool,
    /// SYN/ACKs and segments without data wait in the last band, and not in the first.
    pub control_last: bool,
}

/// What a queue discipline may know of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// 0 is sent first.
    pub band: u8,
    /// Bytes that the response still has to send, those of the segment among them, where that is
    /// known.
    pub left: Option<u64>,
    /// Bytes that it has sent before.
    pub attained: u64,
}

impl Sending {
    /// The mark of a SYN/ACK, and of a segment without data.
    pub(super) fn without_data(&self) -> Mark {
        Mark {
            band: if self.control_last { self.cutoffs.count as u8 } else { 0 },
            left: Some(0),
            attained: 0,
        }
    }

    fn knows_sizes(&self) -> bool {
        !matches!(self.source, SizeSource::Attained | SizeSource::Buffered)
    }
}

/// What is kept of a socket's responses and of its segments on their way.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    response: Response,
    /// First byte of the response, and behind its last.
    start: SeqNumber,
    write_seq: SeqNumber,
    /// What the socket's send buffer has taken of the response, bytes.
    buffered: u64,
    /// The program waits for room in the send buffer.
    is_blocked: bool,
    /// Segments with data below TCP, by their first bytes.
    below: VecDeque<SeqNumber>,
}

impl Outgoing {
    /// The program writes a response of so many bytes, of which the first has this number.
    pub(super) fn respond(&mut self, sending: &Sending, seq: SeqNumber, bytes: u64) {
        if sending.source == SizeSource::Told || sending.source == SizeSource::Sendfile {
            self.response.tell(sending.source, seq.0, bytes);
        }
        (self.start, self.write_seq) = (seq, seq + bytes as u32);
        self.buffered = bytes.min(sending.send_buffer.into());
    }

    /// The client has acknowledged all below `una`: the send buffer has room for more of what the
    /// program writes.
    pub(super) fn acknowledge(&mut self, sending: &Sending, una: SeqNumber) {
        let acknowledged = if una < self.start { 0 } else { u64::from(una - self.start) };
        let all = u64::from(self.write_seq - self.start);
        self.buffered = all.min(acknowledged + u64::from(sending.send_buffer));
    }

    /// What the program had not written when it began its last write.
    fn unwritten(&self, writes: u32) -> u64 {
        let (all, writes) = (u64::from(self.write_seq - self.start), u64::from(writes.max(1)));
        let begun = self.buffered.min(all.saturating_sub(1)) / writes * writes;
        all - begun
    }

    /// The program waits for room, or does no longer.
    pub(super) fn block(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Segments with data, each of `mss` bytes, that may still be sent down.
    pub(super) fn room(&self, sending: &Sending, path: Option<PathState>, mss: u32) -> u32 {
        match path.filter(|_| sending.has_small_queue) {
            Some(path) => small_queue(&path, mss, self.below.len() as u32),
            None => u32::MAX,
        }
    }

    /// A segment leaves TCP. Gives its mark; `None` if it is below already, and nothing leaves.
    pub(super) fn leave(&mut self, sending: &Sending, segment: &Segment<'_>) -> Option<Mark> {
        let without_data = sending.without_data();
        if segment.payload.is_empty() {
            // A FIN alone follows its data wherever that is.
            let is_behind = segment.flags.has(Flags::FIN) && !self.below.is_empty();
            let band = if is_behind { self.response.band } else { without_data.band };
            return Some(Mark { band, ..without_data });
        }
        if sending.has_small_queue && self.below.contains(&segment.seq) {
            return None;
        }
        let outgoing = kernel::Outgoing {
            seq: segment.seq.0,
            end: segment.seq.0.wrapping_add(segment.payload.len() as u32),
            rcv_nxt: segment.ack.0,
            // A program cannot have written more than the send buffer takes.
            write_seq: (self.start + self.buffered as u32).0,
            is_blocked: self.is_blocked.into(),
            has_waiting: u32::from(!self.below.is_empty() && !sending.overtakes),
        };
        let before = self.response.band;
        let payload = (sending.source == SizeSource::Length).then_some(segment.payload);
        let by_buffer = sending.source != SizeSource::Attained;
        let (mut band, left) = self.response.place(&sending.cutoffs, &outgoing, payload, by_buffer);
        if let Some(writes) = sending.writes {
            band = sending.cutoffs.band(self.unwritten(writes));
            if outgoing.has_waiting > 0 {
                band = band.max(before.into());
            }
            self.response.band = band as u8;
        }
        self.below.push_back(segment.seq);
        let start = SeqNumber(self.response.start);
        Some(Mark {
            band: band as u8,
            left: sending.knows_sizes().then_some(left),
            attained: if segment.seq < start { 0 } else { u64::from(segment.seq - start) },
        })
    }

    /// A segment has left the host, or was dropped on its way. Whether it was one of these.
    pub(super) fn left(&mut self, seq: SeqNumber) -> bool {
        let place = self.below.iter().position(|below| *below == seq);
        place.is_some_and(|place| self.below.remove(place).is_some())
    }
}

/// Largest buffer of several segments, bytes (`GSO_LEGACY_MAX_SIZE`).
const LARGEST_BUFFER: u64 = 65_536;
/// Of the rate that a sender is believed to have, it makes buffers of so much time and leaves so
/// much below it (`sk_pacing_shift`).
const SHIFT: u32 = 10;
/// How fast buffers shrink as the least round trip grows: by half every 512 us
/// (`net.ipv4.tcp_tso_rtt_log`, since Linux 5.18).
const ROUND_TRIP_LOG: u32 = 9;
/// Segments of a buffer at least (`net.ipv4.tcp_min_tso_segs`).
const LEAST_SEGMENTS: u64 = 2;

/// Segments that may be sent down beside `below` that are there. They leave in buffers as large as
/// `tcp_tso_autosize()` makes them, as long as less is below than two of these, or than a
/// millisecond of the rate (`tcp_small_queue_check()`). The rate is `tcp_update_pacing_rate()`'s.
/// Linux 6.18, `net/ipv4/tcp_output.c` and `tcp_input.c`.
///
/// A buffer holds two segments where round trips are long. On a LAN it holds all that the window
/// has room for, so that nothing is bounded.
fn small_queue(path: &PathState, mss: u32, below: u32) -> u32 {
    let (mss, window) = (u64::from(mss.max(1)), u64::from(path.window.max(path.unacknowledged)));
    let percent = if path.window < path.threshold / 2 { 200 } else { 120 };
    let a_second = window * percent / 100 * 1_000_000 / (path.round_trip.0 / 1000).max(1);
    let shrinks = (path.least_round_trip.0 / 1000) >> ROUND_TRIP_LOG;
    let of_round_trip = if shrinks < 32 { LARGEST_BUFFER >> shrinks } else { 0 };
    let buffer = ((a_second >> SHIFT) + of_round_trip).min(LARGEST_BUFFER);
    let buffer = (buffer / mss).max(LEAST_SEGMENTS);
    let most = (2 * buffer).max((a_second >> SHIFT) / mss);
    let may_leave = most.saturating_sub(below.into()).div_ceil(buffer) * buffer;
    may_leave as u32
}

#[cfg(test)]
mod tests {
    use tcp::Algorithm;
    use units::Nanos;
    use wire::Options;

    use super::*;

    const MSS: u32 = 1000;
    const PAYLOAD: [u8; MSS as usize] = [0; MSS as usize];

    fn sending(source: SizeSource) -> Sending {
        Sending {
            control: Control { algorithm: Algorithm::NewReno, waits_for_more: true },
            send_buffer: 65_536,
            has_small_queue: true,
            cutoffs: Cutoffs::new(&[1000, 2000, 5000]).expect("ascending"),
            source,
            writes: None,
            overtakes: false,
            control_last: false,
        }
    }

    fn segment(number: u32, flags: Flags, payload: &[u8]) -> Segment<'_> {
        Segment {
            seq: SeqNumber(u32::MAX - 1500) + number * MSS,
            ack: SeqNumber(100),
            flags,
            window: 1000,
            options: Options::NONE,
            payload,
        }
    }

    /// A response of ten segments is written; marks of all of them, each of which has left before
    /// the next.
    fn marks_of(source: SizeSource) -> Vec<Mark> {
        let (sending, mut outgoing) = (sending(source), Outgoing::default());
        outgoing.respond(&sending, segment(0, Flags::ACK, &[]).seq, 10 * u64::from(MSS));
        let one_by_one = |number| {
            let segment = segment(number, Flags::ACK, &PAYLOAD);
            let mark = outgoing.leave(&sending, &segment).expect("it is not below");
            assert!(outgoing.left(segment.seq) && !outgoing.left(segment.seq));
            mark
        };
        (0..10).map(one_by_one).collect()
    }

    #[test]
    fn response_climbs_as_it_is_sent_if_its_size_is_known_and_falls_if_not() {
        let known = marks_of(SizeSource::Told);
        let bands: Vec<u8> = known.iter().map(|mark| mark.band).collect();
        assert_eq!(bands, [3, 3, 3, 3, 3, 2, 2, 2, 1, 0]);
        assert_eq!((known[0].left, known[9].left), (Some(10_000), Some(1000)));
        assert_eq!((known[0].attained, known[9].attained), (0, 9000));
        let attained = marks_of(SizeSource::Attained);
        let bands: Vec<u8> = attained.iter().map(|mark| mark.band).collect();
        assert_eq!(bands, [0, 0, 1, 2, 2, 2, 3, 3, 3, 3]);
        assert!(attained.iter().all(|mark| mark.left.is_none()));
    }

    #[test]
    fn segment_that_waits_keeps_its_connection_down_and_is_not_sent_twice() {
        let (sending, mut outgoing) = (sending(SizeSource::Told), Outgoing::default());
        outgoing.respond(&sending, segment(0, Flags::ACK, &[]).seq, 6 * u64::from(MSS));
        let mut leave = |number, flags, payload| {
            let segment = segment(number, flags, payload);
            (outgoing.leave(&sending, &segment).map(|mark| mark.band), outgoing.below.len())
        };
        assert_eq!(leave(0, Flags::ACK, &PAYLOAD), (Some(3), 1));
        assert_eq!(
            leave(1, Flags::ACK, &PAYLOAD),
            (Some(3), 2),
            "5000 are left: the next band, if nothing waited"
        );
        assert_eq!(leave(0, Flags::ACK, &PAYLOAD), (None, 2));
        assert_eq!(leave(2, Flags::ACK, &[]), (Some(0), 2), "an acknowledgment");
        assert_eq!(leave(2, Flags::ACK | Flags::FIN, &[]), (Some(3), 2));
        let overtakes = Sending { overtakes: true, has_small_queue: false, ..sending.clone() };
        let again = outgoing.leave(&overtakes, &segment(1, Flags::ACK, &PAYLOAD)).expect("sent twice");
        assert_eq!((again.band, again.left), (2, Some(5000)), "its place is by what was left then");
    }

    #[test]
    fn far_connection_has_four_segments_below_and_a_near_one_its_window() {
        let path = |round_trip, least| PathState {
            window: 10 * MSS,
            threshold: 1 << 30,
            in_flight: 0,
            unacknowledged: 0,
            peer_window: 65_536,
            round_trip,
            least_round_trip: least,
            margin: Nanos::ZERO,
            counts: tcp::Counts::default(),
        };
        let far = path(Nanos::from_millis(100), Nanos::from_millis(100));
        assert_eq!([0, 1, 2, 3, 4].map(|below| small_queue(&far, MSS, below)), [4, 4, 2, 2, 0]);
        // A queue has grown since it was near: its buffers are large, but the window has room for
        // one only.
        let near = path(Nanos::from_millis(100), Nanos::from_micros(100));
        assert_eq!((small_queue(&near, MSS, 0), small_queue(&near, MSS, 10)), (130, 130));
        let neither = path(Nanos::from_millis(2), Nanos::from_millis(2));
        assert_eq!(
            small_queue(&neither, MSS, 0),
            34,
            "9.8 kB of the rate and 8.2 kB of the round trip, twice"
        );
    }

    /// 10,000 bytes, a send buffer of 4,000, and writes of 3,000.
    #[test]
    fn socket_is_where_its_program_last_put_it() {
        let by_writes = Sending { writes: Some(3000), send_buffer: 4000, ..sending(SizeSource::Told) };
        let mut outgoing = Outgoing::default();
        let start = segment(0, Flags::ACK, &[]).seq;
        outgoing.respond(&by_writes, start, 10 * u64::from(MSS));
        let bands: Vec<u8> = (0..10)
            .map(|number| {
                outgoing.acknowledge(&by_writes, start + number * MSS);
                let segment = segment(number, Flags::ACK, &PAYLOAD);
                let mark = outgoing.leave(&by_writes, &segment).expect("it is not below");
                assert!(outgoing.left(segment.seq));
                mark.band
            })
            .collect();
        // 4,000 bytes are taken: the second write has begun with 7,000 left; the third has with
        // 6,000, and the last one with 9,000.
        assert_eq!(bands, [3, 3, 2, 2, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn segments_without_data_may_be_last() {
        let last = Sending { control_last: true, ..sending(SizeSource::Told) };
        assert_eq!(last.without_data().band, 3);
        let mark = Outgoing::default().leave(&last, &segment(0, Flags::ACK, &[])).expect("it leaves");
        assert_eq!(mark.band, 3);
    }
}
