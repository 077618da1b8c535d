//! A crowd, a server with one CPU, and the wire between them.
//!
//! ```text
//!   crowd -- delay --> receive ring -> softirq -> kernel -> program
//!         <-- delay --------------------------------'----------'
//! ```
//!
//! The clients' machines cost nothing; they are one that acts in turns, as the lab's generator, or
//! each acts at a time of his own. Frames take as long as the wire's delay; the wire has no rate of
//! its own here. Behind it, clients may be far away (`distance.rs`).

mod agenda;
mod crowd_end;
mod distance;
mod interrupts;
mod packets;
mod uplink;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::SocketAddr;

use crowd::{Crowd, Endpoint};
use foldhash::fast::FixedState;
use path::ConfigError;
use units::Nanos;
use verdict::ListenerLoad;
use wire::{Flags, FourTuple, Options, Segment, SeqNumber, frame_len};

use crate::capture::{Capture, Way};
use crate::cpu::{Cpu, Next};
use crate::kernel::{self, GuardStats, Kernel, Mark, News, Outside, Peer, Timer, Waiting, WorkPath};
use crate::profile::{Frames, Profile};
use crate::program::Program;
use crate::server::Serving;
use agenda::{Agenda, Event};
use crowd_end::CrowdEnd;
use distance::Distance;
use interrupts::{Heard, Interrupts};
use packets::{Packet, Packets, Pipe};
use uplink::Uplink;

pub use distance::PathCounts;
pub use uplink::{Device, UplinkConfig, UplinkCounts};

/// What is simulated, beside the crowd.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The server's kernel, listener and guard.
    pub kernel: kernel::Config,
    /// Its program.
    pub service: Serving,
    /// What its work costs, and how the crowd's end of the wire works.
    pub profile: Profile,
}

/// What happened at the server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerCounts {
    /// Of its kernel.
    pub kernel: kernel::Counters,
    /// Of its guard.
    pub guard: GuardStats,
    /// Frames that found the receive ring full.
    pub frames_lost: u64,
    /// Frames that were received.
    pub frames: u64,
    /// Requests that its program answered.
    pub answered: u64,
    /// Connections that it found reset.
    pub errors: u64,
    /// Its CPU's time in softirq, and in the program.
    pub softirq: Nanos,
    /// The same of the program.
    pub program: Nanos,
    /// How often the CPU turned to frames.
    pub turns: u64,
}

/// What waits for the softirq.
#[derive(Debug)]
enum Pending {
    Packet(Box<Packet>),
    Timer(Timer),
}

/// What the kernel said while it worked, and what is for later than its work.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "as in `Packets`")]
struct Said {
    packets: Vec<Box<Packet>>,
    news: Vec<News>,
}

/// The rest of the world, while the kernel works.
struct Rest<'a> {
    now: Nanos,
    events: &'a mut Agenda,
    packets: &'a mut Packets,
    said: &'a mut Said,
}

impl Outside for Rest<'_> {
    fn send(&mut self, to: Peer, segment: &Segment<'_>) {
        let endpoint = Endpoint { client: to.address(), port: to.port() };
        self.said.packets.push(self.packets.packet(endpoint, segment));
    }

    fn send_marked(&mut self, to: Peer, segment: &Segment<'_>, mark: Mark) {
        let endpoint = Endpoint { client: to.address(), port: to.port() };
        let mut packet = self.packets.packet(endpoint, segment);
        packet.mark = mark;
        self.said.packets.push(packet);
    }

    fn wake(&mut self, at: Nanos, timer: Timer) {
        self.events.put(at.max(self.now), Event::Timer(timer));
    }

    fn tell(&mut self, news: News) {
        self.said.news.push(news);
    }
}

/// Source port of forged SYNs. No client of the crowd has it, so nobody hears the answers.
const FORGED_PORT: u16 = 0;

/// Which flow a packet is of, as a device hashes it.
const FLOWS: FixedState = FixedState::with_seed(0x5e5d);

fn peer(endpoint: Endpoint) -> Peer {
    Peer::new(endpoint.client, endpoint.port)
}

/// All of it.
#[derive(Debug)]
pub struct World {
    crowd: Crowd,
    kernel: Kernel,
    program: Program,
    cpu: Cpu,
    /// What work in softirq costs.
    frame_costs: Frames,
    /// Frames that the receive ring holds.
    ring_size: u32,
    delay: Nanos,
    events: Agenda,
    packets: Packets,
    to_server: Pipe,
    to_clients: Pipe,
    ring: VecDeque<Pending>,
    interrupts: Interrupts,
    /// Of these, frames.
    frames_waiting: u32,
    said: Said,
    /// When the crowd is looked at next.
    crowd_at: Nanos,
    crowd_end: CrowdEnd,
    frames: u64,
    frames_lost: u64,
    /// Events so far.
    happened: u64,
    /// Of the server's link, if that is wanted.
    capture: Option<Box<Capture>>,
    /// How far away the clients are, if they are.
    distance: Option<Box<Distance>>,
    /// Between the server and the wire, if it is narrow.
    uplink: Option<Box<Uplink>>,
    /// Forged SYNs so far.
    forged: u32,
}

impl World {
    /// Nothing has happened yet.
    pub fn new(setup: Setup, crowd: Crowd) -> Self {
        let cpu_time = setup.profile.working(setup.service.cpu_time);
        let service = Serving { cpu_time, ..setup.service };
        let mut world = Self {
            crowd,
            kernel: Kernel::new(kernel::Config {
                searches_list: setup.profile.softirq.examined > 0.0,
                ..setup.kernel
            }),
            program: Program::new(service, setup.profile.steps()),
            cpu: Cpu::new(setup.profile.turns(), setup.profile.turn_to_frames()),
            frame_costs: setup.profile.frames(),
            ring_size: setup.profile.receive.ring,
            delay: setup.profile.crowd.delay(),
            events: Agenda::new(),
            packets: Packets::default(),
            to_server: Pipe::default(),
            to_clients: Pipe::default(),
            ring: VecDeque::new(),
            interrupts: Interrupts::new(setup.profile.moderation()),
            frames_waiting: 0,
            said: Said::default(),
            crowd_at: Nanos::MAX,
            crowd_end: CrowdEnd::new(&setup.profile.crowd),
            frames: 0,
            frames_lost: 0,
            happened: 0,
            capture: None,
            distance: None,
            uplink: None,
            forged: 0,
        };
        {
            let Self { kernel, events, packets, said, .. } = &mut world;
            kernel.start(Nanos::ZERO, &mut Rest { now: Nanos::ZERO, events, packets, said });
        }
        world.let_out(Nanos::ZERO, Nanos::ZERO);
        world.look_at_crowd(Nanos::ZERO);
        world
    }

    /// Keeps the frames of the server's link from now on, so many of them. The server has this
    /// address there, of the clients' family.
    pub fn capture(&mut self, server: SocketAddr, most: usize) {
        self.capture = Some(Box::new(Capture::new(server, self.crowd.clients(), most)));
    }

    /// The frames that were kept, if any were to be.
    pub fn take_capture(&mut self) -> Option<Capture> {
        self.capture.take().map(|capture| *capture)
    }

    /// Puts a path between clients and server, each way, behind the wire's own delay. To be said
    /// before anything happens.
    ///
    /// # Errors
    ///
    /// For a path that was not parsed, but put together, and contradicts itself.
    pub fn far_away(
        &mut self,
        to_server: &path::Config,
        to_clients: &path::Config,
        seed: u64,
    ) -> Result<(), ConfigError> {
        self.far_away_in_groups(&[[to_server.clone(), to_clients.clone()]], seed)
    }

    /// The same with a path each way for each group of clients: as many as the crowd has.
    ///
    /// # Errors
    ///
    /// As [`World::far_away`].
    pub fn far_away_in_groups(&mut self, ways: &[[path::Config; 2]], seed: u64) -> Result<(), ConfigError> {
        debug_assert_eq!(ways.len(), usize::from(self.crowd.groups()), "a way for each group");
        self.distance = Some(Box::new(Distance::new(ways, self.crowd.clients(), seed)?));
        Ok(())
    }

    /// Gives the server an uplink of some rate, before the wire. To be said before anything
    /// happens.
    ///
    /// # Errors
    ///
    /// For a queue that was not parsed, but put together, and contradicts itself.
    pub fn narrow(&mut self, config: UplinkConfig, seed: u64) -> Result<(), aqm::ConfigError> {
        self.uplink = Some(Box::new(Uplink::new(config, seed)?));
        Ok(())
    }

    /// What went through the server's uplink since the start, if it has one.
    pub fn uplink(&self) -> Option<UplinkCounts> {
        self.uplink.as_ref().map(|uplink| uplink.counts())
    }

    /// Ends of connections that take memory at the server, and of these TIME_WAITs.
    pub fn kept(&mut self, now: Nanos) -> (u32, u32) {
        self.kernel.end_time_waits(now);
        self.kernel.kept()
    }

    /// Connections at the server that do not wait for accept(2).
    pub fn connections(&self) -> u32 {
        self.kernel.connections()
    }

    /// Sends so many forged SYNs at `now`, where [`World::run_until`] has stopped.
    pub fn forge(&mut self, syns: u32, now: Nanos) {
        let Self { crowd, to_server, events, packets, delay, .. } = self;
        let mut send = sender(to_server, events, packets, now + *delay);
        for _ in 0..syns {
            self.forged = self.forged.wrapping_add(1);
            let endpoint = Endpoint { client: self.forged % crowd.clients().count(), port: FORGED_PORT };
            let syn = Segment {
                seq: SeqNumber(self.forged),
                ack: SeqNumber(0),
                flags: Flags::SYN,
                window: u16::MAX,
                options: Options::NONE,
                payload: &[],
            };
            send(endpoint, &syn);
        }
    }

    /// What went to the server and to the clients since the start, where they are far away.
    pub fn paths(&self) -> Option<[PathCounts; 2]> {
        self.distance.as_ref().map(|distance| distance.counts())
    }

    /// The crowd.
    pub fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// The attempts that have ended since the last call, where the crowd keeps them.
    pub fn take_ended(&mut self) -> impl Iterator<Item = crowd::Ended> + '_ {
        self.crowd.take_ended()
    }

    /// The listener's queues.
    pub fn load(&self) -> ListenerLoad {
        self.kernel.load()
    }

    /// Who waits for the server, where the policy asks.
    pub fn waiting(&self) -> Option<Waiting> {
        self.kernel.waiting()
    }

    /// What is counted of the server, where the policy asks.
    pub fn service(&self) -> Option<&pacer::Service> {
        self.kernel.service()
    }

    /// Events so far.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// What happened at the server so far.
    pub fn server(&self) -> ServerCounts {
        ServerCounts {
            kernel: *self.kernel.counters(),
            guard: *self.kernel.guard(),
            frames_lost: self.frames_lost,
            frames: self.frames,
            answered: self.program.answered(),
            errors: self.program.errors(),
            softirq: self.cpu.softirq,
            program: self.cpu.program,
            turns: self.cpu.turned,
        }
    }

    /// Lets time pass until a moment, or until nobody has anything to do any more. Whether the
    /// crowd is through.
    pub fn run_until(&mut self, until: Nanos) -> bool {
        while let Some((now, event)) = self.events.take(until) {
            self.happened += 1;
            match event {
                Event::AtServer => self.arrive_at_server(now),
                Event::AtClients => self.arrive_at_clients(now),
                Event::Cpu => self.cpu_done(now),
                Event::FarAway(way) => self.come_from_far(way, now),
                Event::Uplink => self.leave_uplink(now),
                Event::Timer(timer) if !self.kernel.is_due(timer, now) => {}
                Event::Timer(timer) => {
                    self.ring.push_back(Pending::Timer(timer));
                    self.interrupts.on_timer();
                    self.wake_cpu(now);
                }
                Event::Interrupt => {
                    self.interrupts.come(now);
                    self.wake_cpu(now);
                }
                Event::Crowd => self.run_crowd(now),
            }
        }
        if cfg!(debug_assertions) {
            self.check();
        }
        self.crowd.is_over()
    }

    /// No packet is lost without being counted, no queue is over its limit, and every attempt ends
    /// in one cause.
    fn check(&self) {
        let in_ring = self.ring.iter().filter(|pending| matches!(pending, Pending::Packet(_))).count();
        let far_away = self.distance.as_ref().map_or(0, |distance| distance.len());
        let leaving = self.uplink.as_ref().map_or(0, |uplink| uplink.len());
        let places = [
            self.to_server.len(),
            self.to_clients.len(),
            in_ring,
            self.crowd_end.len(),
            self.said.packets.len(),
            far_away,
            leaving,
        ];
        assert_eq!(
            self.packets.under_way(),
            places.iter().sum::<usize>(),
            "every packet is in one place: {places:?}"
        );
        let came = match self.paths() {
            None => self.to_server.crossed(),
            Some([to_server, _]) => to_server.packets.delivered.packets,
        };
        assert_eq!(came, self.frames + self.frames_lost, "what came to the server was received or lost");
        assert_eq!(in_ring, self.frames_waiting as usize, "frames that wait");
        assert!(self.frames_waiting <= self.ring_size, "the ring holds {}", self.ring_size);
        self.kernel.check();
        self.crowd.check();
    }

    /// Ends it: what is open is unfinished. Who would have begun in the crowd's next turn has not
    /// come.
    pub fn stop(&mut self, now: Nanos) {
        self.crowd.stop(now, self.crowd_end.turns());
    }

    fn arrive_at_server(&mut self, now: Nanos) {
        while let Some(packet) = self.to_server.take(now) {
            match self.distance {
                None => self.enter_server(packet, now),
                Some(_) => self.set_out(Way::ToServer, packet, now),
            }
        }
        if let Some(next) = self.to_server.next() {
            self.events.put(next, Event::AtServer);
        }
    }

    fn enter_server(&mut self, packet: Box<Packet>, now: Nanos) {
        if let Some(capture) = &mut self.capture {
            capture.add(now, Way::ToServer, packet.endpoint, &packet.segment());
        }
        if self.frames_waiting >= self.ring_size {
            self.frames_lost += 1;
            self.packets.take_back(packet);
            return;
        }
        self.frames += 1;
        self.frames_waiting += 1;
        self.ring.push_back(Pending::Packet(packet));
        match self.interrupts.on_frame(now) {
            Heard::Now => self.wake_cpu(now),
            Heard::At(later) => self.events.put(later, Event::Interrupt),
            Heard::WithAnother => {}
        }
    }

    /// A packet has come to the near end of a path.
    fn set_out(&mut self, way: Way, packet: Box<Packet>, now: Nanos) {
        let Some(distance) = &mut self.distance else { return };
        // Its length goes by the family alone, which is that of both ends.
        let client = self.crowd.clients().address(packet.endpoint.client);
        let tuple = FourTuple { src: (client, 0).into(), dst: (client, 0).into() };
        let bytes = frame_len(&tuple, &packet.segment()) as u32;
        if let Some(at) = distance.set_out(way, packet, bytes, now, &mut self.packets) {
            self.events.put(at, Event::FarAway(way));
        }
    }

    /// Packets have come to the far end of a path.
    fn come_from_far(&mut self, way: Way, now: Nanos) {
        if !self.distance.as_mut().is_some_and(|distance| distance.is_woken(way, now)) {
            return;
        }
        while let Some(packet) =
            self.distance.as_mut().and_then(|distance| distance.take(way, now, &mut self.packets))
        {
            match way {
                Way::ToServer => self.enter_server(packet, now),
                Way::ToClient => self.enter_client(packet, now),
            }
        }
        if way == Way::ToClient {
            self.look_at_crowd(now);
        }
        if let Some(at) = self.distance.as_mut().and_then(|distance| distance.wake(way)) {
            self.events.put(at, Event::FarAway(way));
        }
    }

    fn wake_cpu(&mut self, now: Nanos) {
        if self.cpu.on_frame(now) {
            self.go_on(now);
        }
    }

    fn cpu_done(&mut self, now: Nanos) {
        if self.cpu.done() {
            let Self { program, kernel, events, packets, said, .. } = self;
            program.end(kernel, now, &mut Rest { now, events, packets, said });
            self.let_out(now, now);
        }
        self.go_on(now);
    }

    /// The CPU takes up what is next.
    fn go_on(&mut self, now: Nanos) {
        debug_assert!(self.cpu.is_idle(), "one thing at a time");
        let has_frames = self.interrupts.look(self.ring.is_empty());
        let next = self.cpu.next(has_frames, self.program.has_steps(), now);
        let done = match next {
            Next::Idle => return,
            Next::Resume(left) => self.cpu.begin_step(left, now),
            Next::Step => {
                let cost = self.program.begin(&mut self.kernel);
                self.cpu.begin_step(cost, now)
            }
            Next::Frame => {
                let (path, cost) = self.receive_next(now);
                let done = self.cpu.begin_frame(path, cost, now);
                // What it causes leaves when it is done.
                self.let_out(done, now);
                done
            }
        };
        self.events.put(done, Event::Cpu);
    }

    /// The first that waits for the softirq, what it needs, and what it costs.
    fn receive_next(&mut self, now: Nanos) -> (Option<WorkPath>, Nanos) {
        let Self { kernel, events, packets, said, frame_costs, .. } = self;
        match self.ring.pop_front().expect("something waits") {
            Pending::Packet(packet) => {
                self.frames_waiting -= 1;
                let mut rest = Rest { now, events, packets, said };
                let work = kernel.receive(peer(packet.endpoint), &packet.segment(), now, &mut rest);
                packets.take_back(packet);
                let leaves = said.packets.iter().map(|packet| packet.segment().payload.len()).sum();
                let cost = frame_costs.segment(work)
                    + frame_costs.guarded(work, kernel.guard_looks(work, now))
                    + frame_costs.search(kernel.examined())
                    + frame_costs.data(leaves);
                (Some(work.path()), cost)
            }
            Pending::Timer(timer) => {
                kernel.on_timer(timer, now, &mut Rest { now, events, packets, said });
                (None, if said.packets.is_empty() { Nanos::ZERO } else { frame_costs.timer })
            }
        }
    }

    /// What the kernel said goes its ways.
    fn let_out(&mut self, leaves: Nanos, now: Nanos) {
        for news in self.said.news.drain(..) {
            self.program.hear(news);
        }
        if self.uplink.is_some() {
            return self.let_out_by_uplink(leaves, now);
        }
        let arrives = leaves + self.delay;
        for packet in self.said.packets.drain(..) {
            if let Some(capture) = &mut self.capture {
                capture.add(leaves, Way::ToClient, packet.endpoint, &packet.segment());
            }
            if self.to_clients.put(arrives, packet) {
                self.events.put(arrives, Event::AtClients);
            }
        }
    }

    /// The same where the server has an uplink.
    fn let_out_by_uplink(&mut self, leaves: Nanos, now: Nanos) {
        let mut packets = std::mem::take(&mut self.said.packets);
        for packet in packets.drain(..) {
            if let Some(capture) = &mut self.capture {
                capture.add(leaves, Way::ToClient, packet.endpoint, &packet.segment());
            }
            self.enter_uplink(packet, now);
        }
        self.said.packets = packets; // its memory
        self.forget_dropped();
    }

    /// A packet comes to the uplink.
    fn enter_uplink(&mut self, packet: Box<Packet>, now: Nanos) {
        let Self { uplink, events, crowd, .. } = self;
        let Some(uplink) = uplink else { return };
        let client = crowd.clients().address(packet.endpoint.client);
        let tuple = FourTuple { src: (client, 0).into(), dst: (client, 0).into() };
        let bytes = frame_len(&tuple, &packet.segment()) as u32;
        let flow = FLOWS.hash_one(peer(packet.endpoint).0) as u32;
        if let Some(at) = uplink.put(packet, (bytes, flow), now) {
            events.put(at, Event::Uplink);
        }
    }

    /// The uplink is done with a packet, which goes on to the wire.
    fn leave_uplink(&mut self, now: Nanos) {
        let Self { uplink, events, delay, to_clients, kernel, packets, said, .. } = self;
        let Some(uplink) = uplink else { return };
        let (packet, next) = uplink.done(now);
        if let Some(at) = next {
            events.put(at, Event::Uplink);
        }
        if packet.payload_bytes() > 0 {
            kernel.transmitted(
                peer(packet.endpoint),
                packet.seq,
                now,
                &mut Rest { now, events, packets, said },
            );
        }
        let arrives = now + *delay;
        if to_clients.put(arrives, packet) {
            events.put(arrives, Event::AtClients);
        }
        self.let_out(now, now);
    }

    /// The kernel is told of what the uplink has dropped.
    fn forget_dropped(&mut self) {
        let Self { uplink, kernel, packets, .. } = self;
        while let Some(packet) = uplink.as_mut().and_then(|uplink| uplink.take_dropped()) {
            if packet.payload_bytes() > 0 {
                kernel.lost_below(peer(packet.endpoint), packet.seq);
            }
            packets.take_back(packet);
        }
    }

    fn arrive_at_clients(&mut self, now: Nanos) {
        while let Some(packet) = self.to_clients.take(now) {
            match self.distance {
                None => self.enter_client(packet, now),
                Some(_) => self.set_out(Way::ToClient, packet, now),
            }
        }
        if let Some(next) = self.to_clients.next() {
            self.events.put(next, Event::AtClients);
        }
        self.look_at_crowd(now);
    }

    /// A packet has come to the crowd's machine.
    fn enter_client(&mut self, packet: Box<Packet>, now: Nanos) {
        if let Some(packet) = self.crowd_end.receive(packet, now) {
            self.take(packet, now);
        }
    }

    fn take(&mut self, packet: Box<Packet>, now: Nanos) {
        if packet.endpoint.port != FORGED_PORT {
            let Self { crowd, to_server, events, packets, delay, .. } = self;
            let mut send = sender(to_server, events, packets, now + *delay);
            crowd.on_segment(packet.endpoint, &packet.segment(), now, &mut send);
        }
        self.packets.take_back(packet);
    }

    fn run_crowd(&mut self, now: Nanos) {
        if now < self.crowd_at {
            return;
        }
        self.crowd_at = Nanos::MAX;
        self.crowd_end.begin_turn(now);
        while let Some(packet) = self.crowd_end.take(now) {
            self.take(packet, now);
        }
        {
            let Self { crowd, to_server, events, packets, delay, .. } = self;
            let mut send = sender(to_server, events, packets, now + *delay);
            while crowd.on_deadline(now, &mut send) {}
            while crowd.start_next(now, &mut send) {}
        }
        self.look_at_crowd(now);
    }

    /// Sees to it that the crowd is looked at when it has something to do.
    fn look_at_crowd(&mut self, now: Nanos) {
        let tick = if self.crowd.live() > 0 {
            Nanos((now.0 / crowd::TICK.0 + 1) * crowd::TICK.0)
        } else {
            Nanos::MAX
        };
        let due = self.crowd.next_start().unwrap_or(Nanos::MAX).min(tick);
        let next = self.crowd_end.next_turn(due, now);
        if next < self.crowd_at {
            self.crowd_at = next;
            self.events.put(next, Event::Crowd);
        }
    }
}

/// Puts what clients send on the wire.
fn sender<'a>(
    pipe: &'a mut Pipe,
    events: &'a mut Agenda,
    packets: &'a mut Packets,
    arrives: Nanos,
) -> impl FnMut(Endpoint, &Segment<'_>) + 'a {
    move |endpoint, segment| {
        if pipe.put(arrives, packets.packet(endpoint, segment)) {
            events.put(arrives, Event::AtServer);
        }
    }
}
