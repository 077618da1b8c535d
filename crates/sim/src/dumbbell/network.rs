//! The links and queues between the hosts.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use path::{ConfigError, DEFAULT_CONNECTIONS, Responses};
use units::Nanos;
use wire::{FourTuple, Segment};

use super::access::Access;
use super::bottleneck::{Bottleneck, LinkCounts};
use super::packet::{Arena, FlowKey, Handle, Parcel, Role, Route};
use super::{Dumbbell, Way};
use crate::queue::EventQueue;

/// What happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// The first packet of a host's link arrives at its router.
    AtRouter(u32),
    /// The first packet of a router's link to a host arrives there.
    AtHost(u32),
    /// The bottleneck has something to do.
    Bottleneck(Way),
    /// A deadline of an end of a flow.
    Deadline(FlowKey, Role),
    /// A bulk flow begins.
    Bulk(u32),
    /// A user goes on.
    User(u32),
    /// The next SYN of the flood.
    Flood,
}

/// Links, queues and what is under way.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) events: EventQueue<Event>,
    arena: Arena,
    /// From each host to its router, the hosts on the left first.
    up: Vec<Access>,
    /// Back.
    down: Vec<Access>,
    /// Hosts on the left.
    left: u32,
    bottlenecks: [Bottleneck; 2],
    /// What the routers know of responses, if a discipline goes by them.
    responses: Option<Responses>,
    /// Packets that hosts have sent, and the flood.
    sent: u64,
    delivered: u64,
}

/// All frames are of IPv4: how long one is depends on the segment.
const TUPLE: FourTuple = FourTuple {
    src: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
    dst: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
};

impl Network {
    pub(super) fn new(setup: &Dumbbell) -> Result<Self, ConfigError> {
        let access = |delays: &[Nanos]| -> Vec<Access> {
            delays.iter().map(|&delay| Access::new(setup.access_rate_bps, delay)).collect()
        };
        let (mut up, mut down) = (access(&setup.left), access(&setup.left));
        up.append(&mut access(&setup.right));
        down.append(&mut access(&setup.right));
        let bottleneck =
            |config, seed| Bottleneck::new(config, (setup.warm_up, setup.stack.data_mss()), seed);
        let bottlenecks =
            [bottleneck(&setup.to_right, setup.seed)?, bottleneck(&setup.to_left, !setup.seed)?];
        Ok(Self {
            events: EventQueue::new(),
            arena: Arena::default(),
            up,
            down,
            left: setup.left.len() as u32,
            bottlenecks,
            responses: [&setup.to_right, &setup.to_left]
                .iter()
                .any(|path| path.queue.goes_by_response())
                .then(|| Responses::new(DEFAULT_CONNECTIONS)),
            sent: 0,
            delivered: 0,
        })
    }

    /// A host sends a segment.
    pub(super) fn send(&mut self, route: Route, segment: &Segment<'_>, now: Nanos) {
        let bytes = wire::frame_len(&TUPLE, segment) as u32;
        let packet = self.arena.put(Parcel::new(route, segment), bytes);
        self.sent += 1;
        if let Some(arrives) = self.up[route.from_host as usize].send(now, packet) {
            self.events.push(arrives, Event::AtRouter(route.from_host));
        }
    }

    /// A segment comes to the left router from elsewhere.
    pub(super) fn inject(&mut self, route: Route, segment: &Segment<'_>, now: Nanos) {
        let bytes = wire::frame_len(&TUPLE, segment) as u32;
        let packet = self.arena.put(Parcel::new(route, segment), bytes);
        self.sent += 1;
        self.arrive_at_bottleneck(Way::ToRight, packet, now);
        self.look_at_bottleneck(Way::ToRight);
    }

    fn arrive_at_bottleneck(&mut self, way: Way, mut packet: Handle, now: Nanos) {
        if let Some(responses) = &mut self.responses {
            packet.service = self.arena.get(packet).service(responses);
        }
        self.bottlenecks[way as usize].arrive(packet, now, &mut self.arena);
    }

    pub(super) fn arrive_at_router(&mut self, host: u32, now: Nanos) {
        let way = if host < self.left { Way::ToRight } else { Way::ToLeft };
        while let Some(packet) = self.up[host as usize].take(now) {
            self.arrive_at_bottleneck(way, packet, now);
        }
        self.look_at_bottleneck(way);
        if let Some(next) = self.up[host as usize].next() {
            self.events.push(next, Event::AtRouter(host));
        }
    }

    /// What has crossed the bottleneck goes on to its host.
    pub(super) fn cross(&mut self, way: Way, now: Nanos) {
        if !self.bottlenecks[way as usize].is_woken(now) {
            return;
        }
        while let Some(packet) = self.bottlenecks[way as usize].take(now, &mut self.arena) {
            let host = self.arena.get(packet).route.to_host;
            if let Some(arrives) = self.down[host as usize].send(now, packet) {
                self.events.push(arrives, Event::AtHost(host));
            }
        }
        self.look_at_bottleneck(way);
    }

    fn look_at_bottleneck(&mut self, way: Way) {
        if let Some(next) = self.bottlenecks[way as usize].wake() {
            self.events.push(next, Event::Bottleneck(way));
        }
    }

    /// The next packet that has arrived at a host.
    pub(super) fn take_at_host(&mut self, host: u32, now: Nanos) -> Option<Parcel> {
        match self.down[host as usize].take(now) {
            Some(packet) => {
                self.delivered += 1;
                Some(self.arena.take(packet))
            }
            None => {
                if let Some(next) = self.down[host as usize].next() {
                    self.events.push(next, Event::AtHost(host));
                }
                None
            }
        }
    }

    pub(super) fn counts(&mut self, way: Way, now: Nanos) -> LinkCounts {
        self.bottlenecks[way as usize].counts(now)
    }

    /// In debug builds: what was sent has arrived, was dropped or is under way.
    pub(super) fn check(&self) {
        let links = self.up.iter().chain(&self.down).map(Access::len).sum::<usize>();
        let queues = self.bottlenecks.iter().map(Bottleneck::len).sum::<usize>();
        debug_assert_eq!(
            self.arena.len(),
            links + queues,
            "every packet under way is in a queue or on a link"
        );
        let dropped: u64 = self.bottlenecks.iter().map(Bottleneck::dropped).sum();
        debug_assert_eq!(
            self.sent,
            self.delivered + dropped + self.arena.len() as u64,
            "what was sent has arrived, was dropped or is under way"
        );
    }
}
