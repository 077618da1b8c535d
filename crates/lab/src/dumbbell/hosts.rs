//! Hosts of one side of a real dumbbell: sockets of the kernel's, which users open for objects, and
//! bulk flows go through.
//!
//! One thread has all hosts of a side, in their network namespace; which host a socket is of is the
//! address that it is bound to. What users do and when is that of [`sim::dumbbell::Population`].
//! Servers of objects are not here: they are `tidegate serve`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrStorage, accept4, bind, connect,
    getpeername, listen, recv, send, setsockopt, socket, sockopt,
};
use sim::dumbbell::{Completion, Population, REOPEN_AFTER};
use units::Nanos;

/// Where bulk flows go.
pub(crate) const SINK_PORT: u16 = 9;
/// Where they come from: the number of each is added.
pub(crate) const FIRST_BULK_PORT: u16 = 20_000;

/// How often it is looked whether the run is over.
const TICK: Duration = Duration::from_millis(50);
const MAX_EVENTS: usize = 256;
/// Read or written at a time.
const CHUNK: usize = 64 * 1024;
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// In epoll, of the listener; connections have the number of their slot.
const LISTENER: u64 = u64::MAX;

/// What the hosts of a side do.
pub(crate) struct Side {
    /// Where their bulk flows come in.
    pub sink: SocketAddr,
    /// Bulk flows that they send.
    pub bulk: Vec<BulkSource>,
    /// Users among them.
    pub(crate) users: Option<UsersOf>,
}

/// A flow that never ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BulkSource {
    /// Of all in the dumbbell.
    pub number: u16,
    /// The host that sends.
    pub from: IpAddr,
    /// The sink.
    pub to: SocketAddr,
    /// After the start.
    pub starts: Nanos,
}

/// Users, and what their hosts are called.
pub(crate) struct UsersOf {
    /// What they do.
    pub crowd: Population,
    /// The address of a host, as the crowd numbers them.
    pub address: Box<dyn Fn(u32) -> IpAddr + Send>,
    /// Of servers.
    pub port: u16,
    /// Data bytes of a full packet.
    pub mss: u32,
}

/// When it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// The start of the run.
    pub start: Instant,
    /// The measured window, from the start.
    pub window: [Duration; 2],
}

/// What the hosts of a side saw in the measured window.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Bytes that each bulk flow's receiver got, by the flow's number.
    pub bulk_bytes: Vec<(u16, u64)>,
    /// Bytes that came, of anything.
    pub bytes: u64,
    /// Objects that were asked for in the window, and are there.
    pub completions: Vec<Completion>,
    /// Objects that were asked for in the window.
    pub asked: u64,
    /// Of these, those whose connection failed.
    pub failed: u64,
    /// Connections of bulk flows that broke off; each was followed by another, while there was
    /// time.
    pub broken: u64,
    /// The latest that a user's request was made after its moment.
    pub latest: Duration,
}

/// A connection.
struct Slot {
    socket: OwnedFd,
    does: Does,
}

enum Does {
    /// A bulk flow is sent, by its place among those of this side.
    Sends(usize),
    /// A bulk flow comes, by its number, where it is one of ours.
    Hears(u16),
    Asks(Object),
}

/// An object of a user's.
struct Object {
    user: u32,
    started: Duration,
    /// What is still to be sent of the request.
    request: Vec<u8>,
    /// Bytes of the reply, and of these, those that are here.
    reply: u64,
    got: u64,
    is_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Bulk(usize),
    User(u32),
}

/// Runs the hosts in the calling thread's namespace until the window's end, or until it is told to
/// stop.
///
/// # Errors
///
/// When sockets cannot be made.
pub(crate) fn run(side: Side, clock: Clock, stop: &AtomicBool) -> Result<Seen> {
    let mut hosts = Hosts::new(side, clock)?;
    let end = clock.start + clock.window[1];
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        hosts.turn()?;
    }
    Ok(hosts.seen)
}

struct Hosts {
    side: Side,
    clock: Clock,
    epoll: Epoll,
    listener: OwnedFd,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<(Duration, Due)>>,
    buffer: Vec<u8>,
    seen: Seen,
}

impl Hosts {
    fn new(side: Side, clock: Clock) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("create an epoll")?;
        let listener = tcp_socket()?;
        setsockopt(&listener, sockopt::ReuseAddr, &true).context("set SO_REUSEADDR")?;
        bind(listener.as_raw_fd(), &SockaddrStorage::from(side.sink))
            .with_context(|| format!("bind to {}", side.sink))?;
        listen(&listener, Backlog::MAXCONN).context("listen")?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).context("watch the listener")?;
        let bulk = side.bulk.iter().enumerate().map(|(which, bulk)| (bulk.starts.into(), Due::Bulk(which)));
        let starts = side.users.as_ref().map(|users| users.crowd.starts()).unwrap_or_default();
        let users = (0..).zip(starts).map(|(user, at)| (Duration::from(at), Due::User(user)));
        Ok(Self {
            due: bulk.chain(users).map(Reverse).collect(),
            side,
            clock,
            epoll,
            listener,
            slots: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; CHUNK],
            seen: Seen::default(),
        })
    }

    fn now(&self) -> Duration {
        self.clock.start.elapsed()
    }

    fn is_in_window(&self, at: Duration) -> bool {
        (self.clock.window[0]..self.clock.window[1]).contains(&at)
    }

    /// Waits until something happens or is due, and does it.
    fn turn(&mut self) -> Result<()> {
        let next = self.due.peek().map_or(TICK, |Reverse((at, _))| at.saturating_sub(self.now()).min(TICK));
        // Rounded up: a millisecond late is better than turning without rest.
        let timeout = u8::try_from(next.as_millis() + 1).unwrap_or(u8::MAX);
        let timeout = if next.is_zero() { EpollTimeout::ZERO } else { EpollTimeout::from(timeout) };
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let heard = match self.epoll.wait(&mut events, timeout) {
            Err(Errno::EINTR) => 0,
            heard => heard.context("wait for connections")?,
        };
        for event in &events[..heard] {
            match event.data() {
                LISTENER => self.accept()?,
                slot => self.wake(slot as usize, event.events())?,
            }
        }
        while let Some(Reverse((at, due))) = self.due.peek().copied() {
            if at > self.now() {
                break;
            }
            self.due.pop();
            match due {
                Due::Bulk(which) => self.open_bulk(which)?,
                Due::User(user) => self.ask(user, at)?,
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            match accept4(self.listener.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC) {
                Ok(socket) => {
                    // SAFETY: accept4 gave it just now, and nobody else has it.
                    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
                    let peer = getpeername::<SockaddrStorage>(socket.as_raw_fd());
                    let port = peer.ok().and_then(|peer| peer.as_sockaddr_in().map(|peer| peer.port()));
                    let number = port.and_then(|port| port.checked_sub(FIRST_BULK_PORT));
                    if let Some(number) = number {
                        self.watch(Slot { socket, does: Does::Hears(number) }, EpollFlags::EPOLLIN)?;
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(errno) => return Err(errno).context("accept a bulk flow"),
            }
        }
    }

    fn open_bulk(&mut self, which: usize) -> Result<()> {
        let BulkSource { number, from, to, .. } = self.side.bulk[which];
        let socket = connect_from((from, FIRST_BULK_PORT + number).into(), to)?;
        self.watch(Slot { socket, does: Does::Sends(which) }, EpollFlags::EPOLLOUT)
    }

    /// A user asks for an object, whose moment was `at`.
    fn ask(&mut self, user: u32, at: Duration) -> Result<()> {
        let Some(users) = &mut self.side.users else { return Ok(()) };
        let asks = users.crowd.ask(user);
        let whose = *users.crowd.get(user);
        let (from, to) = ((users.address)(whose.client), (users.address)(whose.server));
        let (request, reply) = request(asks.bytes, users.crowd.request_bytes());
        let (port, now) = (users.port, self.now());
        self.seen.latest = self.seen.latest.max(now - at);
        self.seen.asked += u64::from(self.is_in_window(now));
        if let Some(after) = asks.next {
            // From its own moment: a late turn does not put off all that follow.
            self.due.push(Reverse((at + Duration::from(after), Due::User(user))));
        }
        let socket = connect_from((from, 0).into(), (to, port).into())?;
        let object = Object { user, started: now, request, reply, got: 0, is_told: false };
        self.watch(Slot { socket, does: Does::Asks(object) }, EpollFlags::EPOLLOUT)
    }

    fn watch(&mut self, slot: Slot, interest: EpollFlags) -> Result<()> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.epoll
            .add(&slot.socket, EpollEvent::new(interest, place as u64))
            .context("watch a connection")?;
        self.slots[place] = Some(slot);
        Ok(())
    }

    /// Something happened to a connection.
    fn wake(&mut self, place: usize, events: EpollFlags) -> Result<()> {
        let Some(mut slot) = self.slots[place].take() else { return Ok(()) };
        let stays = match &mut slot.does {
            Does::Sends(which) => {
                let (which, stays) = (*which, send_all(&slot.socket, &ZEROS).is_ok());
                if !stays {
                    self.seen.broken += 1;
                    let again_at = self.now() + Duration::from(REOPEN_AFTER);
                    self.due.push(Reverse((again_at, Due::Bulk(which))));
                }
                stays
            }
            Does::Hears(number) => {
                let number = *number;
                let (bytes, stays) = self.receive(&slot.socket);
                if self.is_in_window(self.now()) {
                    self.seen.bytes += bytes;
                    match self.seen.bulk_bytes.iter_mut().find(|(other, _)| *other == number) {
                        Some((_, sum)) => *sum += bytes,
                        None => self.seen.bulk_bytes.push((number, bytes)),
                    }
                }
                stays
            }
            Does::Asks(object) => {
                let stays = self.advance(&slot.socket, object, events, place)?;
                if !stays && !object.is_told {
                    self.tell(object, false);
                }
                stays
            }
        };
        if stays {
            self.slots[place] = Some(slot);
        } else {
            // Closing the only descriptor of a socket takes it out of epoll, too.
            self.free.push(place);
        }
        Ok(())
    }

    /// Sends the request, and reads the reply. False when the connection is over.
    fn advance(
        &mut self,
        socket: &OwnedFd,
        object: &mut Object,
        events: EpollFlags,
        place: usize,
    ) -> Result<bool> {
        if !object.request.is_empty() {
            match send_all(socket, &object.request) {
                Ok(sent) => drop(object.request.drain(..sent)),
                Err(_) => return Ok(false),
            }
            if object.request.is_empty() {
                let mut event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
                self.epoll.modify(socket, &mut event).context("watch a connection")?;
            }
        }
        if !events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return Ok(true);
        }
        let (bytes, stays) = self.receive(socket);
        object.got += bytes;
        if self.is_in_window(self.now()) {
            self.seen.bytes += bytes;
        }
        if object.got >= object.reply && !object.is_told {
            self.tell(object, true);
        }
        Ok(stays)
    }

    /// The user hears that an object is there, or never will be.
    fn tell(&mut self, object: &mut Object, is_complete: bool) {
        object.is_told = true;
        let now = self.now();
        let Some(users) = &mut self.side.users else { return };
        let think = users.crowd.got(object.user);
        let packets = object.reply.div_ceil(users.mss.into()) as u32;
        if let Some(think) = think {
            self.due.push(Reverse((now + Duration::from(think), Due::User(object.user))));
        }
        if !self.is_in_window(object.started) {
            return;
        }
        if is_complete {
            self.seen.completions.push(Completion { packets, took: (now - object.started).into() });
        } else {
            self.seen.failed += 1;
        }
    }

    /// What is there, thrown away; and whether more may come.
    fn receive(&mut self, socket: &OwnedFd) -> (u64, bool) {
        let mut bytes = 0;
        loop {
            match recv(socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(0) => return (bytes, false),
                Ok(some) => bytes += some as u64,
                Err(Errno::EAGAIN | Errno::EINTR) => return (bytes, true),
                Err(_) => return (bytes, false),
            }
        }
    }
}

/// A request of a length of its own for so many bytes, head and all; and how long the reply will
/// be: a byte less where the head's number does not allow it, and a head at least.
fn request(bytes: u64, request_bytes: u64) -> (Vec<u8>, u64) {
    let head = |body: u64| serve::reply_bytes(body) - body;
    // The head says how long the body is, so that its length depends on that: the first body is a
    // byte too short at most.
    let body = bytes.saturating_sub(head(bytes));
    let body = if serve::reply_bytes(body + 1) <= bytes { body + 1 } else { body };
    let path = traffic::Object::Bytes(body).path().map(|path| path.to_string()).unwrap_or_default();
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: tidegate\r\nConnection: close\r\nX-Pad: ");
    let end = "\r\n\r\n";
    while ((request.len() + end.len()) as u64) < request_bytes {
        request.push('a');
    }
    request.push_str(end);
    (request.into_bytes(), serve::reply_bytes(body))
}

fn tcp_socket() -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, SockType::Stream, flags, None).context("open a socket")
}

fn connect_from(from: SocketAddr, to: SocketAddr) -> Result<OwnedFd> {
    let socket = tcp_socket()?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(from)).with_context(|| format!("bind to {from}"))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno).with_context(|| format!("connect {from} to {to}")),
    }
}

/// Sends these bytes, or as many as there is room for; of a connection that is not open yet, none.
fn send_all(socket: &OwnedFd, bytes: &[u8]) -> nix::Result<usize> {
    match send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
        Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOTCONN) => Ok(0),
        sent => sent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_is_as_long_as_the_object() {
        for bytes in [1000, 1091, 1092, 1093, 1094, 1095, 5000, 9999, 10_000, 10_090, 10_097, 1_000_000] {
            let (request, reply) = request(bytes, 300);
            assert_eq!(request.len(), 300);
            assert!((bytes - 1..=bytes).contains(&reply), "{bytes}: {reply}");
        }
        assert!(request(1, 300).1 < 120, "a head is the least");
        assert_eq!(request(1000, 10).0.iter().filter(|byte| **byte == b'\n').count(), 5, "it is whole");
    }
}
