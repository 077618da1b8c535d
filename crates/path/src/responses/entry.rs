//! One direction of a connection: where its responses begin and end.

use super::http::{Head, Length, Requests};
use super::{Content, Seen, Service};

/// Offset of the first byte that is seen: below is room for what was sent before.
const FIRST: u64 = 1 << 32;

/// One direction. Bytes have offsets of 64 bits, from [`FIRST`] on.
#[derive(Debug, Default)]
pub(super) struct Half {
    is_open: bool,
    /// Offset behind the last byte that was seen, and its sequence number.
    high: u64,
    high_seq: u32,
    /// Where the response begins that comes now.
    start: u64,
    now: Now,
    /// Where the one before it began, if that had a known length, and has come.
    before: Option<u64>,
    /// That this direction has to answer.
    requests: Requests,
}

/// What is known of the response that comes now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Now {
    /// Its first byte has not come.
    #[default]
    Begins,
    /// It ends before that offset.
    Known(u64),
    Unknown,
}

impl Half {
    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// A connection is opened; its first byte has that sequence number. A SYN that is sent again
    /// changes nothing.
    pub(super) fn open(&mut self, seq: u32) {
        if !self.is_open || self.high_seq != seq {
            *self = Self::from(seq);
        }
    }

    fn from(seq: u32) -> Self {
        Self { is_open: true, high: FIRST, high_seq: seq, start: FIRST, ..Self::default() }
    }

    /// At which byte of its payload a segment has bytes that were not seen before, if it has some.
    pub(super) fn new_bytes(&mut self, seen: &Seen<'_>) -> Option<usize> {
        let (offset, end) = self.place(seen);
        (end > self.high).then(|| self.high.saturating_sub(offset) as usize)
    }

    /// Offsets of a segment's first byte, and behind its last.
    fn place(&mut self, seen: &Seen<'_>) -> (u64, u64) {
        if !self.is_open {
            let requests = self.requests;
            *self = Self { requests, ..Self::from(seen.seq) };
        }
        let ahead = seen.seq.wrapping_sub(self.high_seq).cast_signed();
        let offset = self.high.saturating_add_signed(ahead.into());
        (offset, offset + u64::from(seen.payload_bytes))
    }

    /// New data has come in the opposite direction.
    pub(super) fn asked(&mut self, payload: &[u8]) {
        match self.now {
            // It is pipelined, or the rest of a request.
            Now::Known(_) => {}
            Now::Begins if self.start == self.high => {}
            Now::Begins | Now::Unknown => {
                self.start = self.high;
                self.now = Now::Begins;
                self.requests = Requests::default();
            }
        }
        self.before = None;
        self.requests.read(payload);
    }

    /// A segment with payload comes in this direction.
    pub(super) fn responded(&mut self, seen: &Seen<'_>) -> Service {
        let (offset, end) = self.place(seen);
        if self.lied(seen, offset) {
            self.start = offset;
            self.now = Now::Begins;
        }
        if self.now == Now::Begins && self.start == offset {
            self.begin(seen, offset);
        }
        let service = self.service(offset, seen.payload_bytes);
        if end > self.high {
            self.high = end;
            self.high_seq = seen.seq.wrapping_add(seen.payload_bytes);
        }
        self.end(seen, offset, end);
        service
    }

    /// A packet without sequence numbers comes in this direction.
    pub(super) fn counted(&mut self, bytes: u32) -> Service {
        let attained = self.high - self.start;
        self.high += u64::from(bytes);
        self.now = Now::Unknown;
        Service { left: None, attained }
    }

    /// Whether another response begins here, though the last one said that it would go on.
    fn lied(&self, seen: &Seen<'_>, offset: u64) -> bool {
        let is_early = matches!(self.now, Now::Known(_)) && offset == self.high && offset > self.start;
        is_early
            && !self.requests.is_empty()
            && matches!(seen.content, Content::Bytes(bytes) if Head::read(bytes).is_some())
    }

    /// A response begins in the segment.
    fn begin(&mut self, seen: &Seen<'_>, offset: u64) {
        let length = match seen.content {
            Content::Length(bytes) => Some(Length::Bytes(bytes)),
            Content::Bytes(bytes) => bytes
                .get((self.start - offset) as usize..)
                .and_then(Head::read)
                .map(|head| head.length(self.requests.is_head())),
        };
        let ends_after = |bytes| self.start.checked_add(bytes).map_or(Now::Unknown, Now::Known);
        match length {
            Some(Length::Bytes(bytes)) => {
                self.now = ends_after(bytes);
                self.requests.answer();
            }
            Some(Length::Interim(bytes)) => self.now = ends_after(bytes),
            Some(Length::Unknown) => {
                self.now = Now::Unknown;
                self.requests.answer();
            }
            None => {
                // Nobody asked for it: the one before is longer than it said.
                if let Some(before) = self.before.filter(|_| self.requests.is_empty()) {
                    self.start = before;
                }
                self.now = Now::Unknown;
                self.requests.answer();
            }
        }
    }

    /// Responses that end with what has come, and begin in the segment.
    fn end(&mut self, seen: &Seen<'_>, offset: u64, segment_end: u64) {
        while let Now::Known(end) = self.now
            && end <= self.high
        {
            self.before = Some(self.start);
            self.start = end;
            self.now = Now::Begins;
            // Of what a simulation has no bytes of, one response begins in a segment.
            if (offset..segment_end).contains(&end) && matches!(seen.content, Content::Bytes(_)) {
                self.begin(seen, offset);
            }
        }
    }

    fn service(&self, offset: u64, bytes: u32) -> Service {
        let bytes = u64::from(bytes);
        if offset < self.start {
            // Of a response before this one.
            return Service { left: Some(bytes), attained: 0 };
        }
        let left = match self.now {
            Now::Known(end) if offset >= self.high => Some(end.saturating_sub(offset)),
            Now::Known(end) => {
                Some(end.saturating_sub(self.high).saturating_add(bytes).min(end.saturating_sub(offset)))
            }
            Now::Begins | Now::Unknown => None,
        };
        Service { left, attained: offset - self.start }
    }
}
