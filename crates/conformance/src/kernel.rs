//! The running kernel as a system for scripts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use corpus::fields;
use guard::{Attach, Config, Guard, Listener, ListenerLoad, Sample};
use netns::{Lan, Tap};
use nix::sys::socket::{Backlog, listen};
use script::{Arrival, Ends, Family, Hook, Read, Setup, State, System};
use units::Nanos;
use wire::Ethernet;

use crate::proc_net;

const PORT: u16 = 8080;
/// A tail loss probe would send the last segment again so soon that it could be taken for a
/// mistake.
const NO_PROBES: (&str, &str) = ("net.ipv4.tcp_early_retrans", "0");
/// For what the kernel does at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server in a namespace, a listening socket there with the guard before it, and a raw socket at
/// the other end of the wire. Everything goes with it.
#[derive(Debug)]
pub struct Kernel {
    guard: Guard,
    listener: TcpListener,
    connections: HashMap<SocketAddr, TcpStream>,
    tap: Tap,
    /// Received while something else was waited for.
    queue: VecDeque<Arrival>,
    ends: Ends,
    started: Instant,
    _peer: Option<bpf::Link>,
    lan: Lan,
}

impl Kernel {
    /// Sets sysctls, listens, and starts the guard.
    ///
    /// # Errors
    ///
    /// A sysctl that the kernel has not, a hook that it lacks, a policy that the guard refuses.
    pub fn start(lan: Lan, setup: &Setup, family: Family, hook: Hook) -> Result<Self> {
        lan.server.set_sysctl(NO_PROBES.0, NO_PROBES.1)?;
        for (name, value) in &setup.sysctls {
            lan.server.set_sysctl(name, value)?;
        }
        let index = usize::from(family == Family::Ipv6);
        let server = SocketAddr::new(Lan::SERVER[index].parse()?, PORT);
        let ends = Ends {
            ethernet: Ethernet { src: lan.c0.mac, dst: lan.s0.mac },
            client: Lan::GHOST[index].parse()?,
            server,
        };
        let listener = lan.server.enter(|| start_listening(server, setup.backlog))??;
        // XDP_TX on veth is for peers with an XDP program.
        let peer = (hook == Hook::Xdp)
            .then(|| lan.client.enter(|| bpf::Link::pass(lan.c0.ifindex)))
            .transpose()?
            .transpose()?;
        let tap = Tap::open(&lan.client, lan.c0.ifindex)?;
        let config = config(setup, server, &lan.s0.name, hook);
        let guard = lan.server.enter(|| Guard::start(&config))??;
        Ok(Self {
            guard,
            listener,
            connections: HashMap::new(),
            tap,
            queue: VecDeque::new(),
            ends,
            started: Instant::now(),
            _peer: peer,
            lan,
        })
    }

    fn sample(&self) -> Result<Sample> {
        self.lan.server.enter(|| self.guard.sample())?
    }

    fn connection(&mut self, peer: SocketAddr) -> Result<&mut TcpStream> {
        let connection = self.connections.get_mut(&peer);
        connection.ok_or_else(|| anyhow!("the server has no connection with {peer}; accept it first"))
    }

    fn next_frame(&self, timeout: Duration) -> Result<Option<Arrival>> {
        let frame = self.tap.receive(timeout)?;
        Ok(frame.map(|frame| {
            let at = self.started.elapsed().saturating_sub(frame.age);
            Arrival { at: at.into(), frame: frame.bytes }
        }))
    }

    /// Asks for the Ethernet address of the server and keeps what came before the answer.
    fn ask_who_has(&mut self) -> Result<()> {
        let IpAddr::V4(address) = Lan::SERVER[0].parse()? else { unreachable!("the first is IPv4") };
        self.tap.send(&arp::request(&self.ends.ethernet, address))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let arrival = self.next_frame(left)?;
            let arrival = arrival.context("settle: the server's kernel answers no ARP; is the link up?")?;
            if arp::is_reply(&arrival.frame) {
                return Ok(());
            }
            self.queue.push_back(arrival);
        }
    }
}

fn start_listening(address: SocketAddr, backlog: u32) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    let backlog = Backlog::new(i32::try_from(backlog)?)
        .with_context(|| format!("listen with backlog {backlog}; choose a smaller one"))?;
    listen(&listener, backlog).with_context(|| format!("listen on {address} with a backlog"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn config(setup: &Setup, server: SocketAddr, interface: &str, hook: Hook) -> Config {
    let listener = Listener { dry_run: setup.dry_run, ..Listener::new(server, setup.policy) };
    Config {
        listeners: vec![listener],
        interfaces: vec![interface.to_owned()],
        attach: match hook {
            Hook::Auto => Attach::Auto,
            Hook::Tcx => Attach::Tcx,
            Hook::Xdp => Attach::Xdp,
            Hook::XdpGeneric => Attach::XdpGeneric,
        },
        must_listen: true,
        ..Config::default()
    }
}

impl System for Kernel {
    type Error = anyhow::Error;

    fn ends(&self) -> Ends {
        self.ends
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        Ok(self.tap.send(frame)?)
    }

    fn receive(&mut self, until: Nanos) -> Result<Option<Arrival>> {
        if let Some(arrival) = self.queue.pop_front() {
            return Ok(Some(arrival));
        }
        self.next_frame(Duration::from_nanos(until.since(self.now()).0))
    }

    /// By a question that the kernel answers behind everything that came before it. Twice: what
    /// XDP_TX sends leaves when a batch of frames ends, behind what the kernel answers to others of
    /// the batch.
    fn settle(&mut self) -> Result<()> {
        self.ask_who_has()?;
        self.ask_who_has()
    }

    fn accept(&mut self) -> Result<Option<SocketAddr>> {
        let (stream, peer) = match self.listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            accepted => accepted.context("accept a connection")?,
        };
        stream.set_nonblocking(true)?;
        let peer = SocketAddr::new(peer.ip(), peer.port()); // without flow label and scope
        self.connections.insert(peer, stream);
        Ok(Some(peer))
    }

    fn read(&mut self, peer: SocketAddr, max: usize) -> Result<Read> {
        let mut bytes = vec![0; max];
        match self.connection(peer)?.read(&mut bytes) {
            Ok(0) => Ok(Read::Eof),
            Ok(len) => {
                bytes.truncate(len);
                Ok(Read::Bytes(bytes))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Read::Reset),
            Err(error) => Err(error).with_context(|| format!("read from {peer}")),
        }
    }

    fn write(&mut self, peer: SocketAddr, bytes: &[u8]) -> Result<()> {
        let written = self.connection(peer)?.write(bytes).with_context(|| format!("write to {peer}"))?;
        ensure!(
            written == bytes.len(),
            "write to {peer}: {written} bytes of {} fit; write less",
            bytes.len()
        );
        Ok(())
    }

    fn shutdown(&mut self, peer: SocketAddr) -> Result<()> {
        self.connection(peer)?.shutdown(Shutdown::Write).with_context(|| format!("shut down {peer}"))
    }

    fn close(&mut self, peer: SocketAddr) -> Result<()> {
        self.connection(peer)?;
        self.connections.remove(&peer);
        Ok(())
    }

    fn state(&mut self, peer: SocketAddr) -> Result<State> {
        let server = self.ends.server;
        self.lan.server.enter(|| proc_net::state(server, peer))?
    }

    fn load(&mut self) -> Result<ListenerLoad> {
        self.sample()?.listeners[0].load.context("nothing listens any more")
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        let mut counters = netns::namespace_counters(&self.lan.server)?;
        let sample = self.sample()?;
        counters.extend(fields(&sample.listeners[0].stats, |_| true));
        counters.extend(fields(&sample.path, |_| true));
        if let Some(service) = &sample.listeners[0].service {
            let sums = [
                ("server_established", service.established),
                ("server_answered", service.answered),
                ("server_answered_silent", service.answered_silent),
                ("server_ended", service.ended),
            ];
            counters.extend(sums.map(|(name, sum)| (name.to_owned(), sum)));
        }
        Ok(counters)
    }
}

/// Just enough of RFC 826.
mod arp {
    use super::*;

    const HEADER: [u8; 10] = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
    const REQUEST: u8 = 1;
    const REPLY: u8 = 2;

    /// From nobody (RFC 5227 calls it a probe), so that the server learns no neighbour by it.
    pub fn request(ethernet: &Ethernet, address: Ipv4Addr) -> Vec<u8> {
        let mut frame = [ethernet.dst, ethernet.src].concat();
        frame.extend(HEADER);
        frame[21] = REQUEST;
        frame.extend(ethernet.src);
        frame.extend([0; 4]);
        frame.extend([0; 6]);
        frame.extend(address.octets());
        frame
    }

    pub fn is_reply(frame: &[u8]) -> bool {
        frame.get(12..22).is_some_and(|header| header[..9] == HEADER[..9] && header[9] == REPLY)
    }
}
