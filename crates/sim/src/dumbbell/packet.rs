//! What goes through the network: segments whose payload is zeros, in an arena.

use aqm::PacketKind;
use path::{Content, Responses, Seen, Service, Side};
use slotmap::{Key, new_key_type};
use tcp::{Stream, Zeros};
use wire::{Flags, Options, Segment, SeqNumber};

new_key_type! {
    /// A flow. What is under way to one that is over finds it gone.
    pub(super) struct FlowKey;
}

/// Which end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends the SYN.
    Opener = 0,
    /// Answers it.
    Acceptor = 1,
}

/// A packet as links and queues have it: where the rest is, and what disciplines ask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle {
    index: u32,
    pub(super) bytes: u32,
    hash: u32,
    kind: PacketKind,
    /// Of its response, since it came to a bottleneck.
    pub(super) service: Service,
}

impl aqm::Packet for Handle {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        self.hash
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }

    fn left(&self) -> Option<u64> {
        self.service.left
    }

    fn attained(&self) -> u64 {
        self.service.attained
    }
}

/// Where a segment goes, and how it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    pub(super) flow: FlowKey,
    /// The end that it is for.
    pub(super) to: Role,
    pub(super) from_host: u32,
    pub(super) to_host: u32,
    /// Of the flow.
    pub(super) hash: u32,
    /// It is of an object of a page.
    pub(super) is_short: bool,
    /// Bytes of the response that the segment may be of, as a router can read it in its head; 0 if
    /// it cannot.
    pub(super) response_bytes: u64,
}

impl Route {
    /// A SYN of a flood: of no flow.
    pub(super) fn of_flood(to_host: u32, hash: u32) -> Self {
        Self {
            flow: FlowKey::null(),
            to: Role::Acceptor,
            from_host: 0,
            to_host,
            hash,
            is_short: false,
            response_bytes: 0,
        }
    }

    pub(super) fn is_flood(&self) -> bool {
        self.flow.is_null()
    }
}

/// The rest of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parcel {
    pub(super) route: Route,
    seq: SeqNumber,
    ack: SeqNumber,
    flags: Flags,
    window: u16,
    payload_bytes: u32,
    options: Options,
}

impl Parcel {
    pub(super) fn new(route: Route, segment: &Segment<'_>) -> Self {
        let Segment { seq, ack, flags, window, options, payload } = *segment;
        Self { route, seq, ack, flags, window, payload_bytes: payload.len() as u32, options }
    }

    pub(super) fn segment(&self) -> Segment<'static> {
        let Self { seq, ack, flags, window, options, payload_bytes, .. } = *self;
        let payload = ZEROS.bytes(0, payload_bytes as usize);
        Segment { seq, ack, flags, window, options, payload }
    }

    /// Which packet of its sender's stream it is: 0 of a SYN, from 1 on of full segments of so many
    /// bytes; `None` without data.
    pub(super) fn number(&self, mss: u32) -> Option<u32> {
        if self.flags.has(Flags::SYN) {
            return Some(0);
        }
        (self.payload_bytes > 0).then(|| 1 + (self.seq - FIRST) / mss)
    }

    /// What a router knows of its response.
    pub(super) fn service(&self, responses: &mut Responses) -> Service {
        if self.route.is_flood() {
            return Service { left: Some(0), attained: 0 };
        }
        let side = match self.route.to {
            Role::Acceptor => Side::First,
            Role::Opener => Side::Second,
        };
        let content = match self.route.response_bytes {
            0 => Content::Bytes(&[]),
            bytes => Content::Length(bytes),
        };
        let seen = Seen { seq: self.seq.0, is_syn: self.opens(), payload_bytes: self.payload_bytes, content };
        responses.segment(self.route.flow.data().as_ffi(), side, &seen)
    }

    pub(super) fn opens(&self) -> bool {
        self.flags.has(Flags::SYN)
    }
}

static ZEROS: Zeros = Zeros(u64::MAX);

/// The initial sequence number of both ends of each flow: nobody guesses here.
pub(super) const ISS: SeqNumber = SeqNumber(0);
/// Of the first byte of a stream.
const FIRST: SeqNumber = SeqNumber(1);

/// Packets under way. Its memory is that of the most there were at once.
#[derive(Debug, Default)]
pub(super) struct Arena {
    parcels: Vec<Parcel>,
    free: Vec<u32>,
}

impl Arena {
    /// Keeps a packet of so many bytes on the wire.
    pub(super) fn put(&mut self, parcel: Parcel, bytes: u32) -> Handle {
        let (hash, kind) = (parcel.route.hash, PacketKind::of_tcp(parcel.flags.0));
        let index = match self.free.pop() {
            Some(index) => {
                self.parcels[index as usize] = parcel;
                index
            }
            None => {
                self.parcels.push(parcel);
                self.parcels.len() as u32 - 1
            }
        };
        Handle { index, bytes, hash, kind, service: Service::default() }
    }

    pub(super) fn get(&self, handle: Handle) -> &Parcel {
        &self.parcels[handle.index as usize]
    }

    /// The packet is no longer under way.
    pub(super) fn take(&mut self, handle: Handle) -> Parcel {
        self.free.push(handle.index);
        self.parcels[handle.index as usize]
    }

    /// Packets under way.
    pub(super) fn len(&self) -> usize {
        self.parcels.len() - self.free.len()
    }
}
