//! How connections send long responses, and in which band of an uplink each segment waits: `kernel/bands.h`, as the classifier calls it.
//!
//! The queue is not this model's ([`crate::Outside::send_marked`]): whoever has it says what has left the host ([`super::Kernel::transmitted`]).

use std::collections::VecDeque;

use kernel::{Cutoffs, Response, SizeSource};
use tcp::Control;
use wire::{Flags, Segment, SeqNumber};

/// How connections send responses longer than an initial window.
#[derive(Debug, Clone, PartialEq)]
pub struct Sending {
    /// Congestion control of each.
    pub control: Control,
    /// Bytes that a socket takes beyond what is acknowledged; a program that writes more waits.
    pub send_buffer: u32,
    /// Segments of one connection that may be below TCP (`tcp_small_queue_check()`, since Linux 3.6); `None` for a kernel before, where the windows alone bound them. With a
    /// bound a segment that still waits there is not sent again, either (`skb_still_in_host_queue()`).
    pub small_queue: Option<u32>,
    /// Of the bands of the uplink.
    pub cutoffs: Cutoffs,
    /// How it is known what is left of a response.
    pub source: SizeSource,
    /// The program itself sets the band of its socket before each write of so many bytes, by what it has not written yet, as `[SH06]` section 3.2 changes Apache (1.3
    /// writes 32 KiB at a time). All segments wait there then, also those of bytes that were written before: `source` and what the socket has sent say nothing.
    pub writes: Option<u32>,
    /// A connection may go to a higher band while segments of it wait in a lower one, which its later ones overtake then.
    pub overtakes: bool,
    /// SYN/ACKs and segments without data wait in the last band, and not in the first.
    pub control_last: bool,
}

/// What a queue discipline may know of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// 0 is sent first.
    pub band: u8,
    /// Bytes that the response still has to send, those of the segment among them, where that is known.
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

    /// The client has acknowledged all below `una`: the send buffer has room for more of what the program writes.
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

    /// Segments with data that may still be sent down.
    pub(super) fn room(&self, sending: &Sending) -> u32 {
        let most = sending.small_queue.unwrap_or(u32::MAX);
        most.saturating_sub(self.below.len() as u32)
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
        if sending.small_queue.is_some() && self.below.contains(&segment.seq) {
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

#[cfg(test)]
mod tests {
    use tcp::Algorithm;
    use wire::Options;

    use super::*;

    const MSS: u32 = 1000;
    const PAYLOAD: [u8; MSS as usize] = [0; MSS as usize];

    fn sending(source: SizeSource) -> Sending {
        Sending {
            control: Control { algorithm: Algorithm::NewReno, waits_for_more: true },
            send_buffer: 65_536,
            small_queue: Some(4),
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

    /// A response of ten segments is written; marks of all of them, each of which has left before the next.
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
            (outgoing.leave(&sending, &segment).map(|mark| mark.band), outgoing.room(&sending))
        };
        assert_eq!(leave(0, Flags::ACK, &PAYLOAD), (Some(3), 3));
        assert_eq!(
            leave(1, Flags::ACK, &PAYLOAD),
            (Some(3), 2),
            "5000 are left: the next band, if nothing waited"
        );
        assert_eq!(leave(0, Flags::ACK, &PAYLOAD), (None, 2));
        assert_eq!(leave(2, Flags::ACK, &[]), (Some(0), 2), "an acknowledgment");
        assert_eq!(leave(2, Flags::ACK | Flags::FIN, &[]), (Some(3), 2));
        let overtakes = Sending { overtakes: true, small_queue: None, ..sending.clone() };
        let again = outgoing.leave(&overtakes, &segment(1, Flags::ACK, &PAYLOAD)).expect("sent twice");
        assert_eq!((again.band, again.left), (2, Some(5000)), "its place is by what was left then");
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
        // 4,000 bytes are taken: the second write has begun with 7,000 left; the third has with 6,000, and the last one with 9,000.
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
