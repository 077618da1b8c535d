//! The event loop: accepts, hands each ready connection its turn, waits.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, getsockname, setsockopt, socket, sockopt,
};
use thiserror::Error;

use crate::connection::{Connection, Desk, Next, Scratch};
use crate::reply::Replies;
use crate::request::MAX_HEAD;
use crate::{Accept, Config, sys};

/// How long a wait lasts at most: how late the stop flag is seen, and how soon accepting is tried
/// again after the system ran out of descriptors.
const TICK_MS: u8 = 100;
/// Events taken from the kernel at a time.
const MAX_EVENTS: usize = 512;

/// A bound listener and its connections.
pub struct Server {
    listener: OwnedFd,
    address: SocketAddr,
    backlog: u32,
    accept: Accept,
    epoll: Epoll,
    /// Indexed by descriptor: the kernel always gives the lowest free one, so this is a slab
    /// without a free list.
    connections: Vec<Option<Waiting>>,
    /// Accepted, not yet served. Kept for its memory only.
    fresh: Vec<Connection>,
    paused: Option<Pause>,
    desk: Desk,
    scratch: Box<Scratch>,
}

/// What a server has done since it was bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections taken from the accept queue.
    pub accepted: u64,
    /// Requests answered with 200.
    pub requests: u64,
    /// Requests refused: 400, 431 or 501.
    pub refused: u64,
    /// Connections that ended while a request was arriving or a reply was leaving.
    pub lost: u64,
    /// Failed accepts: the client had gone, or descriptors or memory ran out.
    pub accept_failures: u64,
}

/// Why a server could not be bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another socket listens there.
    #[error(
        "listen on {0}: address in use; stop what listens there (`ss -ltnp 'sport = :{port}'` names it) or listen elsewhere",
        port = .0.port()
    )]
    InUse(SocketAddr),
    /// A port below `net.ipv4.ip_unprivileged_port_start`.
    #[error("listen on {0}: permission denied; ports below 1024 need CAP_NET_BIND_SERVICE or root")]
    Privileged(SocketAddr),
    /// No interface has the address.
    #[error("listen on {0}: no interface has this address; `ip address` shows those that exist")]
    NotLocal(SocketAddr),
    /// Anything else.
    #[error("{act} for {address}: {cause}")]
    System {
        /// What failed.
        act: &'static str,
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        cause: Errno,
    },
}

/// Why a server stopped by itself: never through a client's doing.
#[derive(Debug, Error)]
#[error("{act}: {cause}")]
pub struct RunError {
    act: &'static str,
    cause: Errno,
}

/// A connection in epoll, and what for.
struct Waiting {
    connection: Connection,
    /// [`Next::Read`] or [`Next::Write`].
    until: Next,
}

/// Accepting is suspended: there was no descriptor or memory for another connection.
struct Pause {
    since: Instant,
    /// One of our connections has closed since, so that there may be room again.
    has_room: bool,
}

impl Server {
    /// Listens. Clients can connect from here on; [`Server::run`] answers them.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let address = config.listen;
        let failed = |act| {
            move |cause| match cause {
                Errno::EADDRINUSE => BindError::InUse(address),
                Errno::EACCES => BindError::Privileged(address),
                Errno::EADDRNOTAVAIL => BindError::NotLocal(address),
                cause => BindError::System { act, address, cause },
            }
        };
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let listener = socket(family, SockType::Stream, flags, None).map_err(failed("open a socket"))?;
        // Connections of an earlier run in TIME_WAIT do not keep the port.
        setsockopt(&listener, sockopt::ReuseAddr, &true).map_err(failed("set SO_REUSEADDR"))?;
        // Accepted sockets inherit it: a second pipelined reply must not wait for the first one's
        // ACK.
        setsockopt(&listener, sockopt::TcpNoDelay, &true).map_err(failed("set TCP_NODELAY"))?;
        bind(listener.as_raw_fd(), &SockaddrStorage::from(address)).map_err(failed("bind"))?;
        sys::listen(&listener, config.backlog).map_err(failed("listen"))?;
        let bound: SockaddrStorage = getsockname(listener.as_raw_fd()).map_err(failed("name the socket"))?;
        let backlog = sys::backlog(&listener).map_err(failed("read the backlog"))?;

        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("create an epoll"))?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token(&listener));
        epoll.add(&listener, event).map_err(failed("watch the listener"))?;
        Ok(Self {
            listener,
            address: socket_addr(&bound).unwrap_or(address),
            backlog,
            accept: config.accept,
            epoll,
            connections: Vec::new(),
            fresh: Vec::new(),
            paused: None,
            desk: Desk {
                replies: Replies::new(config.reply_bytes, config.in_chunks),
                cpu_time: config.cpu_time,
                later: config
                    .later
                    .and_then(|(after, cpu_time)| Some((Instant::now().checked_add(after)?, cpu_time))),
                totals: Totals::default(),
            },
            scratch: Box::new([0; MAX_HEAD]),
        })
    }

    /// Where the server listens; with the port that the kernel chose, if that was left to it.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The backlog in force, connections: what was asked for, capped by `net.core.somaxconn`.
    pub fn backlog(&self) -> u32 {
        self.backlog
    }

    /// Serves until `stop` is set, which is seen within a tenth of a second, or at once after a
    /// signal.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<Totals, RunError> {
        let mut events = vec![EpollEvent::empty(); MAX_EVENTS];
        while !stop.load(Ordering::Relaxed) {
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(TICK_MS)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(RunError::new("wait for events", errno)),
            };
            // A descriptor occurs once in a batch and only its own event closes it, so no event is
            // stale, although an accept in the same batch may reuse the descriptor.
            for event in &events[..ready] {
                if event.data() == token(&self.listener) {
                    self.accept()?;
                } else {
                    self.wake(event.data());
                }
            }
            self.try_resume()?;
        }
        Ok(self.desk.totals)
    }

    /// Takes what the accept mode allows from the accept queue, then serves it.
    fn accept(&mut self) -> Result<(), RunError> {
        loop {
            match sys::accept(&self.listener) {
                Ok(socket) => {
                    self.desk.totals.accepted += 1;
                    self.fresh.push(Connection::new(socket));
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    self.desk.totals.accept_failures += 1;
                    self.pause()?;
                    break;
                }
                Err(errno) if is_of_one_connection(errno) => self.desk.totals.accept_failures += 1,
                Err(errno) => return Err(RunError::new("accept a connection", errno)),
            }
            if self.accept == Accept::One {
                break;
            }
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        for connection in fresh.drain(..) {
            self.start(connection);
        }
        self.fresh = fresh;
        Ok(())
    }

    /// First turn of a connection. Its request has mostly arrived with the handshake or right
    /// behind it, and a client that closes after the reply is then served without a single call to
    /// epoll.
    fn start(&mut self, mut connection: Connection) {
        let until = connection.advance(&mut self.desk, &mut self.scratch);
        if until == Next::Close {
            return self.note_room();
        }
        let token = token(&connection);
        if self.epoll.add(&connection, EpollEvent::new(until.interest(), token)).is_err() {
            // Out of memory or of fs.epoll.max_user_watches: we could not tell when it is ready.
            self.desk.totals.lost += 1;
            return self.note_room();
        }
        let slot = slot(token);
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, || None);
        }
        self.connections[slot] = Some(Waiting { connection, until });
    }

    /// Further turns of a connection.
    fn wake(&mut self, token: u64) {
        let place = &mut self.connections[slot(token)];
        let waiting = place.as_mut().expect("what is in epoll is in the table, and both end together");
        let until = waiting.connection.advance(&mut self.desk, &mut self.scratch);
        if until == waiting.until {
            return;
        }
        let mut event = EpollEvent::new(until.interest(), token);
        if until != Next::Close && self.epoll.modify(&waiting.connection, &mut event).is_ok() {
            waiting.until = until;
            return;
        }
        // Closing the only descriptor of a socket takes it out of epoll, too.
        *place = None;
        self.note_room();
    }

    /// Stops watching the listener. It stays readable while connections wait, so watching it would
    /// have us fail again at once, for ever; they wait in the accept queue instead, where their
    /// number can be seen.
    fn pause(&mut self) -> Result<(), RunError> {
        self.watch_listener(EpollFlags::empty())?;
        self.paused = Some(Pause { since: Instant::now(), has_room: false });
        Ok(())
    }

    fn note_room(&mut self) {
        if let Some(pause) = &mut self.paused {
            pause.has_room = true;
        }
    }

    /// Watches the listener again after a connection of ours has closed; or after a tick, as the
    /// descriptors may be held by others.
    fn try_resume(&mut self) -> Result<(), RunError> {
        let tick = Duration::from_millis(TICK_MS.into());
        let is_over = |pause: &Pause| pause.has_room || pause.since.elapsed() >= tick;
        if self.paused.as_ref().is_some_and(is_over) {
            self.paused = None;
            self.watch_listener(EpollFlags::EPOLLIN)?;
        }
        Ok(())
    }

    fn watch_listener(&self, interest: EpollFlags) -> Result<(), RunError> {
        let mut event = EpollEvent::new(interest, token(&self.listener));
        self.epoll
            .modify(&self.listener, &mut event)
            .map_err(|errno| RunError::new("watch the listener", errno))
    }
}

impl Totals {
    /// Everything that did not go well.
    pub fn errors(&self) -> u64 {
        self.refused + self.lost + self.accept_failures
    }
}

impl Next {
    /// Level-triggered, so that a wake-up cannot be missed and a short read needs no second one to
    /// see `EAGAIN`. Edge-triggered would save the change of interest around an unfinished reply,
    /// which one-packet replies never leave.
    fn interest(self) -> EpollFlags {
        match self {
            Next::Read => EpollFlags::EPOLLIN,
            Next::Write => EpollFlags::EPOLLOUT,
            Next::Close => EpollFlags::empty(),
        }
    }
}

impl RunError {
    fn new(act: &'static str, cause: Errno) -> Self {
        Self { act, cause }
    }
}

fn token(descriptor: &impl AsRawFd) -> u64 {
    u64::try_from(descriptor.as_raw_fd()).expect("open descriptors are not negative")
}

fn slot(token: u64) -> usize {
    usize::try_from(token).expect("descriptors fit")
}

/// Errors that accept(2) passes on from the connection that it would have returned; the next one
/// may be fine.
fn is_of_one_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ECONNABORTED
            | Errno::EPERM
            | Errno::EPROTO
            | Errno::ENETDOWN
            | Errno::ENOPROTOOPT
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::EHOSTUNREACH
            | Errno::EOPNOTSUPP
            | Errno::ENETUNREACH
    )
}

fn socket_addr(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}
