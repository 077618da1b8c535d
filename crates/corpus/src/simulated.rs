//! The simulated kernel as what packet scripts are played to: the same scripts, in virtual time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use script::{Arrival, Ends, Family, Setup, State, System};
use sim::{Config, EventQueue, News, Outside, Peer, Read, SocketId, SocketState, Timer};
use units::Nanos;
use verdict::ListenerLoad;
use wire::{Ethernet, FourTuple, Segment};

use crate::fields::fields;

/// A simulated server and the wire to it, which takes no time.
#[derive(Debug)]
pub struct Simulated {
    kernel: sim::Kernel,
    wire: Wire,
    now: Nanos,
    connections: HashMap<SocketAddr, SocketId>,
}

/// What leaves the kernel.
#[derive(Debug)]
struct Wire {
    ends: Ends,
    now: Nanos,
    timers: EventQueue<Timer>,
    arrived: VecDeque<Arrival>,
}

impl Outside for Wire {
    fn send(&mut self, to: Peer, segment: &Segment<'_>) {
        let Ethernet { src, dst } = self.ends.ethernet;
        let ethernet = Ethernet { src: dst, dst: src };
        let tuple = FourTuple { src: self.ends.server, dst: SocketAddr::new(self.ends.client, to.port()) };
        let mut frame = vec![0; 2048];
        let len = wire::emit(&mut frame, &ethernet, &tuple, segment);
        frame.truncate(len);
        self.arrived.push_back(Arrival { at: self.now, frame });
    }

    fn wake(&mut self, at: Nanos, timer: Timer) {
        self.timers.push(at, timer);
    }

    fn tell(&mut self, _: News) {}
}

impl Simulated {
    /// A server as a script wants it.
    ///
    /// # Errors
    ///
    /// A sysctl that the simulated kernel has not.
    pub fn start(setup: &Setup, family: Family) -> Result<Self> {
        let (client, server) = match family {
            Family::Ipv4 => ("10.9.0.77", "10.9.0.2:8080"),
            Family::Ipv6 => ("fd00:9::77", "[fd00:9::2]:8080"),
        };
        let ethernet = Ethernet { src: [2, 0, 0, 0, 0, 1], dst: [2, 0, 0, 0, 0, 2] };
        let ends = Ends { ethernet, client: client.parse()?, server: server.parse()? };
        let wire = Wire { ends, now: Nanos::ZERO, timers: EventQueue::new(), arrived: VecDeque::new() };
        let (mut wire, mut kernel) = (wire, sim::Kernel::new(config(setup)?));
        kernel.start(Nanos::ZERO, &mut wire);
        Ok(Self { kernel, wire, now: Nanos::ZERO, connections: HashMap::new() })
    }

    fn connection(&self, peer: SocketAddr) -> Result<SocketId> {
        self.connections
            .get(&peer)
            .copied()
            .with_context(|| format!("no connection with {peer} was accepted"))
    }
}

fn config(setup: &Setup) -> Result<Config> {
    let Setup { policy, dry_run, backlog, .. } = *setup;
    let mut config = Config { policy, dry_run, backlog, ..Config::default() };
    for (name, value) in &setup.sysctls {
        if let Err(lack) = config.set_sysctl(name, value) {
            bail!("the simulated kernel has no {lack}");
        }
    }
    Ok(config)
}

impl System for Simulated {
    type Error = anyhow::Error;

    fn ends(&self) -> Ends {
        self.wire.ends
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let Ok((tuple, segment)) = wire::parse(frame) else { bail!("the script sent no frame") };
        self.kernel.receive(Peer::new(0, tuple.src.port()), &segment, self.now, &mut self.wire);
        Ok(())
    }

    fn receive(&mut self, until: Nanos) -> Result<Option<Arrival>> {
        loop {
            if let Some(arrival) = self.wire.arrived.pop_front() {
                return Ok(Some(arrival));
            }
            let Some((at, timer)) = self.wire.timers.pop_until(until) else {
                self.now = self.now.max(until);
                self.wire.now = self.now;
                return Ok(None);
            };
            self.now = at;
            self.wire.now = at;
            self.kernel.on_timer(timer, at, &mut self.wire);
        }
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn accept(&mut self) -> Result<Option<SocketAddr>> {
        let Some((id, peer)) = self.kernel.accept() else { return Ok(None) };
        let peer = SocketAddr::new(self.wire.ends.client, peer.port());
        self.connections.insert(peer, id);
        Ok(Some(peer))
    }

    fn read(&mut self, peer: SocketAddr, max: usize) -> Result<script::Read> {
        let mut bytes = Vec::new();
        Ok(match self.kernel.read(self.connection(peer)?, max, &mut bytes) {
            Read::Bytes(_) => script::Read::Bytes(bytes),
            Read::Eof => script::Read::Eof,
            Read::Reset => script::Read::Reset,
            Read::Nothing => script::Read::Nothing,
        })
    }

    fn write(&mut self, peer: SocketAddr, bytes: &[u8]) -> Result<()> {
        let id = self.connection(peer)?;
        Ok(self.kernel.write(id, bytes, self.now, &mut self.wire)?)
    }

    fn shutdown(&mut self, peer: SocketAddr) -> Result<()> {
        let id = self.connection(peer)?;
        self.kernel.shutdown(id, self.now, &mut self.wire);
        Ok(())
    }

    fn close(&mut self, peer: SocketAddr) -> Result<()> {
        let id = self.connection(peer)?;
        self.connections.remove(&peer);
        self.kernel.close(id, self.now, &mut self.wire);
        Ok(())
    }

    fn state(&mut self, peer: SocketAddr) -> Result<State> {
        Ok(match self.kernel.state(Peer::new(0, peer.port()), self.now) {
            SocketState::SynRecv => State::SynRecv,
            SocketState::Established => State::Established,
            SocketState::FinWait1 => State::FinWait1,
            SocketState::FinWait2 => State::FinWait2,
            SocketState::CloseWait => State::CloseWait,
            SocketState::Closing => State::Closing,
            SocketState::LastAck => State::LastAck,
            SocketState::TimeWait => State::TimeWait,
            SocketState::Gone => State::Gone,
        })
    }

    fn load(&mut self) -> Result<ListenerLoad> {
        Ok(self.kernel.load())
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        let mut counters: BTreeMap<String, u64> =
            self.kernel.counters().named().map(|(name, count)| (name.to_owned(), count)).into();
        let stats = self.kernel.guard();
        counters.extend(fields(&stats.listener, |counter| counter.is_simulated));
        counters.extend(fields(&stats.path, |counter| counter.is_simulated));
        if let Some(waiting) = self.kernel.waiting() {
            let sums = [
                ("server_established", waiting.established),
                ("server_answered", waiting.answered),
                ("server_answered_silent", waiting.answered_silent),
                ("server_ended", waiting.ended),
            ];
            counters.extend(sums.map(|(name, sum)| (name.to_owned(), sum)));
        }
        Ok(counters)
    }
}
