//! Clients that are far from the server: a path of `crates/path` each way, behind the wire's own
//! delay.

use std::hash::BuildHasher;

use aqm::PacketKind;
use crowd::{Clients, Endpoint};
use foldhash::fast::FixedState;
use path::{
    Config, ConfigError, Content, Counters, DEFAULT_CONNECTIONS, Path, Responses, Seen, Service, Side,
};
use units::Nanos;
use wire::Flags;

use super::packets::{Packet, Packets};
use super::peer;
use crate::capture::Way;
use crate::woken::Woken;

/// What went one way since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// What became of packets; lengths are those of frames without FCS.
    pub packets: Counters,
    /// Of those that came, SYNs and SYN/ACKs.
    pub opening: u64,
    /// Of these, those that were dropped or lost.
    pub opening_dropped: u64,
}

/// Both ways.
#[derive(Debug)]
pub(super) struct Distance {
    to_server: Direction,
    to_clients: Direction,
    flow_key: FixedState,
    /// If a discipline goes by them.
    responses: Option<Responses>,
    /// Who is of which group.
    clients: Clients,
}

#[derive(Debug)]
struct Direction {
    /// One for each group of clients.
    paths: Vec<Path<Carried>>,
    opening: u64,
    opening_dropped: u64,
    woken: Woken,
}

/// A packet on a path, with what a queue asks of it.
#[derive(Debug)]
struct Carried {
    packet: Box<Packet>,
    bytes: u32,
    flow: u32,
    kind: PacketKind,
    service: Service,
}

impl aqm::Packet for Carried {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        self.flow
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

impl Distance {
    /// A way to the server and one back for each group of these clients.
    pub(super) fn new(groups: &[[Config; 2]], clients: Clients, seed: u64) -> Result<Self, ConfigError> {
        // The first as `tidegate link` has them.
        let direction = |which: usize| -> Result<Direction, ConfigError> {
            let path = |(group, configs): (u64, &[Config; 2])| {
                let seed = seed.wrapping_mul(2).wrapping_add(which as u64);
                Path::new(&configs[which], seed ^ group << 40)
            };
            let paths = (0..).zip(groups).map(path).collect::<Result<_, _>>()?;
            Ok(Direction { paths, opening: 0, opening_dropped: 0, woken: Woken::default() })
        };
        Ok(Self {
            to_server: direction(0)?,
            to_clients: direction(1)?,
            flow_key: FixedState::with_seed(seed),
            responses: groups
                .iter()
                .flatten()
                .any(|config| config.queue.goes_by_response())
                .then(|| Responses::new(DEFAULT_CONNECTIONS)),
            clients,
        })
    }

    /// A packet of so many bytes sets out. When somebody is to look at this way, if nobody has been
    /// told yet.
    pub(super) fn set_out(
        &mut self,
        way: Way,
        packet: Box<Packet>,
        bytes: u32,
        now: Nanos,
        packets: &mut Packets,
    ) -> Option<Nanos> {
        let flow = flow(&self.flow_key, packet.endpoint);
        let kind = PacketKind::of_tcp(packet.segment().flags.0);
        let service = self.service(way, &packet);
        let groups = self.to_server.paths.len() as u8;
        let group = self.clients.group(packet.endpoint, groups);
        let direction = self.direction(way);
        let Direction { paths, opening, opening_dropped, .. } = &mut *direction;
        *opening += opens(kind);
        let carried = Carried { packet, bytes, flow, kind, service };
        paths[usize::from(group)].arrive(now, carried, &mut |carried, _| {
            *opening_dropped += opens(carried.kind);
            packets.take_back(carried.packet);
        });
        direction.wake()
    }

    /// Whether somebody was told to look now: an earlier moment may have come in between.
    pub(super) fn is_woken(&mut self, way: Way, now: Nanos) -> bool {
        self.direction(way).woken.is_now(now)
    }

    /// The next packet that is there by now; to be asked until there is none.
    pub(super) fn take(&mut self, way: Way, now: Nanos, packets: &mut Packets) -> Option<Box<Packet>> {
        let Direction { paths, opening_dropped, .. } = self.direction(way);
        let drop = &mut |carried: Carried, _| {
            *opening_dropped += opens(carried.kind);
            packets.take_back(carried.packet);
        };
        let arrival = paths.iter_mut().find_map(|path| path.take(now, drop));
        arrival.map(|arrival| arrival.packet.packet)
    }

    /// When somebody is to look at this way, if nobody has been told yet.
    pub(super) fn wake(&mut self, way: Way) -> Option<Nanos> {
        self.direction(way).wake()
    }

    /// To the server, and to the clients.
    pub(super) fn counts(&self) -> [PathCounts; 2] {
        [&self.to_server, &self.to_clients].map(|direction| PathCounts {
            packets: direction.paths.iter().map(|path| *path.counters()).sum(),
            opening: direction.opening,
            opening_dropped: direction.opening_dropped,
        })
    }

    /// Packets that wait or are under way; in debug builds, what came has left, was dropped or is
    /// among them.
    pub(super) fn len(&self) -> usize {
        let len_of = |path: &Path<Carried>| {
            let len = path.qlen_pkts() as usize + path.in_flight();
            let Counters { arrived, delivered, dropped, .. } = path.counters();
            debug_assert_eq!(arrived.packets, delivered.packets + dropped.packets + len as u64, "of a path");
            len
        };
        let len = |direction: &Direction| direction.paths.iter().map(len_of).sum::<usize>();
        len(&self.to_server) + len(&self.to_clients)
    }

    /// What is known of the packet's response, if a discipline asks.
    fn service(&mut self, way: Way, packet: &Packet) -> Service {
        let Some(responses) = &mut self.responses else { return Service::default() };
        let connection = self.flow_key.hash_one(peer(packet.endpoint).0);
        let side = match way {
            Way::ToServer => Side::First,
            Way::ToClient => Side::Second,
        };
        let segment = packet.segment();
        let seen = Seen {
            seq: segment.seq.0,
            is_syn: segment.flags.has(Flags::SYN),
            payload_bytes: segment.payload.len() as u32,
            content: Content::Bytes(segment.payload),
        };
        responses.segment(connection, side, &seen)
    }

    fn direction(&mut self, way: Way) -> &mut Direction {
        match way {
            Way::ToServer => &mut self.to_server,
            Way::ToClient => &mut self.to_clients,
        }
    }
}

impl Direction {
    fn wake(&mut self) -> Option<Nanos> {
        let next = self.paths.iter().filter_map(Path::next).min();
        self.woken.tell(next)
    }
}

fn flow(key: &FixedState, endpoint: Endpoint) -> u32 {
    key.hash_one(peer(endpoint).0) as u32
}

fn opens(kind: PacketKind) -> u64 {
    u64::from(kind != PacketKind::Other)
}
