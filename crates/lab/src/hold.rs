//! Connections that are opened before the crowd comes, and held beside it: by clients who are slow,
//! or mean harm.
//!
//! They are ordinary sockets of the crowd's namespace, whose TCP is Linux's, and not the
//! generator's. What it is not: no client that comes back after the server has closed its
//! connection in good order; one that was reset does.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use experiment::{Hold, Layout};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, getsockopt, send, setsockopt,
    socket, sockopt,
};
use results::Held;

use crate::stop::STOP_EVERY;
use crate::testbed::{HOLDER_INTERFACE, Testbed};

/// Of [`Hold::DESCRIPTORS`], for all but held connections.
const OTHER_DESCRIPTORS: u64 = 1_000;

/// Connections opened per second: 11,000 take three seconds.
const OPEN_PER_S: f64 = 4_000.0;
/// Of those that were refused, per second: a client each 2 ms, which no guard can take for the
/// crowd.
const AGAIN_PER_S: f64 = 500.0;
/// Most handshakes at once, half of the usual backlog.
const MOST_OPENING: usize = 64;
/// How long a handshake may take: its SYN is sent three times.
const ANSWER: Duration = Duration::from_secs(3);
/// How long the refused may try again before the crowd comes; they go on beside it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the whole may take before the crowd comes, when a server does not answer.
const LONGEST: Duration = Duration::from_secs(30);
/// Between two turns, which are short, so that the generator on the same CPU is on time.
const TURN: Duration = Duration::from_millis(2);
/// What a turn makes up for at most.
const LATEST: Duration = Duration::from_millis(100);
const MAX_EVENTS: usize = 256;

/// Receive buffer of a slow reader, bytes; the kernel doubles it.
const SMALL: usize = 4096;
/// Requests that it sends and whose replies it never reads. The replies of the built-in server to
/// 100 still fit the kernel's send buffer: it would be done with them.
const PIPELINED: usize = 400;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: tidegate\r\n\r\n";
/// The rest is a byte a second.
const HALF_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: tidegate\r\nX-Slow: ";

/// What a held connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Idle,
    HalfRequest,
    SlowReader,
}

const KINDS: [Kind; 3] = [Kind::Idle, Kind::HalfRequest, Kind::SlowReader];

impl Kind {
    /// Key in the experiment file and in the results.
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::HalfRequest => "half_requests",
            Self::SlowReader => "slow_readers",
        }
    }

    fn of(self, hold: Hold) -> u32 {
        match self {
            Self::Idle => hold.idle,
            Self::HalfRequest => hold.half_requests,
            Self::SlowReader => hold.slow_readers,
        }
    }

    /// What it sends as soon as it is connected.
    fn opening(self) -> Vec<u8> {
        match self {
            Self::Idle => Vec::new(),
            Self::HalfRequest => HALF_REQUEST.to_vec(),
            Self::SlowReader => REQUEST.repeat(PIPELINED),
        }
    }
}

/// Gives this process, and what it starts from now on, the descriptors for so many held
/// connections, and says how many that are.
///
/// # Errors
///
/// When the hard limit is too low for them, and may not be raised.
pub(crate) fn make_room(held: u64) -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open descriptors")?;
    let wanted = hard.max(Hold::DESCRIPTORS);
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_ok() {
        return Ok(Hold::DESCRIPTORS);
    }
    ensure!(
        hard >= held + OTHER_DESCRIPTORS,
        "hold {held} connections: a process may open {hard} descriptors only; raise the hard limit, as by ulimit -Hn {}",
        Hold::DESCRIPTORS
    );
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open descriptors")?;
    Ok(hard)
}

/// Connections that are held by a thread of their own. Dropping it closes them.
#[derive(Debug)]
pub(crate) struct Holders {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Counts>>>,
}

/// By kind.
type Counts = BTreeMap<String, Held>;

impl Holders {
    /// Opens the connections, on the crowd's CPU; they are open when this returns, or refused again
    /// and again.
    ///
    /// # Errors
    ///
    /// When sockets cannot be made, or the run is to stop.
    pub(crate) fn start(hold: Hold, testbed: &Testbed, layout: &Layout, stop: &AtomicBool) -> Result<Self> {
        let namespace = netns::open(testbed.crowd.name())?;
        let (to, cpu) = (testbed.server_address(), layout.crowd_cpu);
        Self::spawn(stop, move |stop, ready| {
            netns::enter(&namespace, || {
                netns::pin_to_cpu(cpu)?;
                hold_all(hold, to, Some(HOLDER_INTERFACE), stop, ready)
            })?
        })
    }

    fn spawn(
        is_stopped: &AtomicBool,
        act: impl FnOnce(&AtomicBool, Sender<()>) -> Result<Counts> + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || act(&is_over, ready));
        let mut holders = Self { stop, thread: Some(thread) };
        loop {
            match is_ready.recv_timeout(STOP_EVERY) {
                Ok(()) => return Ok(holders),
                Err(RecvTimeoutError::Timeout) if is_stopped.load(Ordering::Relaxed) => bail!("stopped"),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    holders.end()?;
                    bail!("connections were not held");
                }
            }
        }
    }

    /// Counts what is held, and lets go.
    pub(crate) fn finish(mut self) -> Result<Counts> {
        self.end()
    }

    fn end(&mut self) -> Result<Counts> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Counts::new()) };
        thread.join().unwrap_or_else(|_| Err(anyhow!("the thread panicked"))).context("hold connections")
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        // Who lets go without asking has an error of its own to tell.
        let _ = self.end();
    }
}

/// Opens the connections and holds them until it is told to stop; `ready` hears when the crowd may
/// come.
fn hold_all(
    hold: Hold,
    to: SocketAddr,
    interface: Option<&str>,
    stop: &AtomicBool,
    ready: Sender<()>,
) -> Result<Counts> {
    let mut grip = Grip::new(hold, to, interface)?;
    let mut ready = Some(ready);
    while !stop.load(Ordering::Relaxed) {
        grip.turn()?;
        if let Some(ready) = ready.take_if(|_| grip.is_settled()) {
            grip.note_opened();
            // Nobody hears it who has stopped us meanwhile.
            let _ = ready.send(());
        }
    }
    Ok(grip.counts())
}

/// All connections of a policy.
struct Grip {
    to: SocketAddr,
    interface: Option<OsString>,
    epoll: Epoll,
    places: Vec<Place>,
    /// Places whose first connection is not yet tried.
    fresh: VecDeque<usize>,
    /// Places whose connection was refused, and is tried again.
    again: VecDeque<usize>,
    /// Handshakes under way, the oldest first.
    opening: VecDeque<(Instant, usize)>,
    /// Places of half requests, and whose turn is next.
    halves: Vec<usize>,
    next_half: usize,
    open: Drip,
    reopen: Drip,
    drip: Drip,
    start: Instant,
    last: Instant,
    /// When all had been tried once.
    tried: Option<Instant>,
    counts: [Held; KINDS.len()],
}

/// Where a connection is held, or is to be.
struct Place {
    kind: Kind,
    state: State,
}

enum State {
    /// Is to be opened, for the first time or again.
    Due,
    /// The handshake is under way since then.
    Opening(OwnedFd, Instant),
    Open(OwnedFd),
    /// The server has closed it.
    Closed,
}

impl Grip {
    fn new(hold: Hold, to: SocketAddr, interface: Option<&str>) -> Result<Self> {
        let kinds = KINDS.iter().flat_map(|kind| std::iter::repeat_n(*kind, kind.of(hold) as usize));
        let places: Vec<Place> = kinds.map(|kind| Place { kind, state: State::Due }).collect();
        let is_half = |(at, place): (usize, &Place)| (place.kind == Kind::HalfRequest).then_some(at);
        let halves: Vec<usize> = places.iter().enumerate().filter_map(is_half).collect();
        let now = Instant::now();
        Ok(Self {
            to,
            interface: interface.map(OsString::from),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("create an epoll")?,
            fresh: (0..places.len()).collect(),
            again: VecDeque::new(),
            opening: VecDeque::new(),
            open: Drip::new(OPEN_PER_S),
            reopen: Drip::new(AGAIN_PER_S),
            drip: Drip::new(halves.len() as f64),
            halves,
            next_half: 0,
            places,
            start: now,
            last: now,
            tried: None,
            counts: KINDS.map(|kind| Held { asked: kind.of(hold).into(), ..Held::default() }),
        })
    }

    /// Hears what became of connections, gives up handshakes that take too long, opens some, and
    /// sends some bytes.
    fn turn(&mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        std::thread::sleep(TURN);
        let heard = self.epoll.wait(&mut events, EpollTimeout::ZERO).context("wait for connections")?;
        for event in &events[..heard] {
            self.hear(usize::try_from(event.data()).expect("an index"))?;
        }
        let now = Instant::now();
        self.give_up(now);
        let elapsed = now.duration_since(self.last);
        self.last = now;
        for pace in [&mut self.open, &mut self.reopen, &mut self.drip] {
            pace.earn(elapsed);
        }
        while self.opening.len() < MOST_OPENING && !self.fresh.is_empty() && self.open.spend() {
            let at = self.fresh.pop_front().expect("some are left");
            self.connect(at, now)?;
        }
        while self.opening.len() < MOST_OPENING && !self.again.is_empty() && self.reopen.spend() {
            let at = self.again.pop_front().expect("some are left");
            self.connect(at, now)?;
        }
        while self.drip.spend() {
            if let State::Open(socket) = &self.places[self.halves[self.next_half]].state {
                // Of one that is gone, epoll will tell.
                let _ = send(socket.as_raw_fd(), b"a", MsgFlags::MSG_NOSIGNAL);
            }
            self.next_half = (self.next_half + 1) % self.halves.len();
        }
        if self.fresh.is_empty() && self.opening.is_empty() {
            self.tried.get_or_insert(now);
        }
        Ok(())
    }

    /// Whether the crowd may come: all are open, or as many as can be had.
    fn is_settled(&self) -> bool {
        let is_all = self.fresh.is_empty() && self.opening.is_empty() && self.again.is_empty();
        let is_enough = self.tried.is_some_and(|tried| tried.elapsed() >= PATIENCE);
        is_all || is_enough || self.start.elapsed() >= LONGEST
    }

    fn connect(&mut self, at: usize, now: Instant) -> Result<()> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let family = if self.to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = socket(family, SockType::Stream, flags, None).context("open a socket")?;
        if let Some(interface) = &self.interface {
            setsockopt(&socket, sockopt::BindToDevice, interface)
                .context("bind a socket to its interface")?;
        }
        if self.places[at].kind == Kind::SlowReader {
            // Before the handshake, so that no larger window is ever offered.
            setsockopt(&socket, sockopt::RcvBuf, &SMALL).context("set SO_RCVBUF")?;
        }
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(self.to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno).with_context(|| format!("connect to {}", self.to)),
        }
        let event = EpollEvent::new(EpollFlags::EPOLLOUT | EpollFlags::EPOLLET, at as u64);
        self.epoll.add(&socket, event).context("watch a connection")?;
        self.opening.push_back((now, at));
        self.places[at].state = State::Opening(socket, now);
        Ok(())
    }

    /// Something happened to a connection.
    fn hear(&mut self, at: usize) -> Result<()> {
        let place = &mut self.places[at];
        let counts = &mut self.counts[place.kind as usize];
        match std::mem::replace(&mut place.state, State::Due) {
            State::Opening(socket, since) => {
                self.opening.retain(|entry| *entry != (since, at));
                let error = getsockopt(&socket, sockopt::SocketError).context("read SO_ERROR")?;
                if error != 0 {
                    counts.refused += 1;
                    self.again.push_back(at);
                    return Ok(());
                }
                // Only its end is of interest from here on.
                let mut event = EpollEvent::new(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET, at as u64);
                self.epoll.modify(&socket, &mut event).context("watch a connection")?;
                let opening = place.kind.opening();
                if !opening.is_empty() {
                    // Of one that is gone already, epoll will tell.
                    let _ = send(socket.as_raw_fd(), &opening, MsgFlags::MSG_NOSIGNAL);
                }
                place.state = State::Open(socket);
            }
            State::Open(socket) => {
                let error = getsockopt(&socket, sockopt::SocketError).context("read SO_ERROR")?;
                if error == 0 {
                    counts.closed += 1;
                    place.state = State::Closed;
                } else {
                    counts.refused += 1;
                    self.again.push_back(at);
                }
            }
            // A second event of one turn.
            other => place.state = other,
        }
        Ok(())
    }

    fn give_up(&mut self, now: Instant) {
        while let Some(&(since, at)) = self.opening.front()
            && now.duration_since(since) >= ANSWER
        {
            self.opening.pop_front();
            let place = &mut self.places[at];
            place.state = State::Due;
            self.counts[place.kind as usize].unanswered += 1;
            self.again.push_back(at);
        }
    }

    fn note_opened(&mut self) {
        for place in self.places.iter().filter(|place| place.is_open()) {
            self.counts[place.kind as usize].opened += 1;
        }
    }

    /// What became of them, with those that are open now.
    fn counts(mut self) -> Counts {
        for place in self.places.iter().filter(|place| place.is_open()) {
            self.counts[place.kind as usize].held += 1;
        }
        let counts = KINDS.iter().zip(self.counts).filter(|(_, held)| held.asked > 0);
        counts.map(|(kind, held)| (kind.name().to_owned(), held)).collect()
    }
}

impl Place {
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }
}

/// So many a second, evenly.
struct Drip {
    per_s: f64,
    due: f64,
}

impl Drip {
    fn new(per_s: f64) -> Self {
        Self { per_s, due: 0.0 }
    }

    fn earn(&mut self, elapsed: Duration) {
        self.due += self.per_s * elapsed.min(LATEST).as_secs_f64();
        self.due = self.due.min((self.per_s * LATEST.as_secs_f64()).max(1.0));
    }

    /// Whether another one is due.
    fn spend(&mut self) -> bool {
        let is_due = self.due >= 1.0;
        if is_due {
            self.due -= 1.0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn grip(hold: Hold) -> (TcpListener, Grip) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = listener.local_addr().expect("bound");
        (listener, Grip::new(hold, to, None).expect("an epoll"))
    }

    #[track_caller]
    fn turn_until(grip: &mut Grip, holds: impl Fn(&Grip) -> bool) {
        let start = Instant::now();
        while !holds(grip) {
            grip.turn().expect("sockets");
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", grip.counts);
        }
    }

    /// What comes within a time.
    fn received(client: &mut TcpStream, span: Duration) -> Vec<u8> {
        let (mut all, mut buffer, start) = (Vec::new(), [0; 8192], Instant::now());
        while let Some(left) = span.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            client.set_read_timeout(Some(left)).expect("set");
            match client.read(&mut buffer) {
                Ok(got @ 1..) => all.extend_from_slice(&buffer[..got]),
                _ => break,
            }
        }
        all
    }

    #[test]
    fn each_kind_does_what_it_is_called() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = listener.local_addr().expect("bound");
        let hold = Hold { idle: 1, half_requests: 1, slow_readers: 1 };
        let act = move |stop: &AtomicBool, ready| hold_all(hold, to, None, stop, ready);
        let holders = Holders::spawn(&AtomicBool::new(false), act).expect("sockets");
        let mut clients: Vec<TcpStream> = (0..3).map(|_| listener.accept().expect("all come").0).collect();
        let mut sent: Vec<Vec<u8>> =
            clients.iter_mut().map(|client| received(client, Duration::from_millis(1200))).collect();
        sent.sort_by_key(Vec::len);
        assert_eq!(sent[0], b"", "an idle one sends nothing");
        let dripped = sent[1].strip_prefix(HALF_REQUEST).expect("the beginning of a request");
        assert!((1..=5).contains(&dripped.len()) && dripped.iter().all(|byte| *byte == b'a'), "{dripped:?}");
        assert_eq!(sent[2].len(), REQUEST.len() * PIPELINED);
        let counts = holders.finish().expect("counted");
        assert!(counts.values().all(|held| (held.asked, held.opened, held.held) == (1, 1, 1)), "{counts:?}");
    }

    #[test]
    fn run_that_is_stopped_waits_for_nobody() {
        let (listener, _) = grip(Hold::default());
        let to = listener.local_addr().expect("bound");
        drop(listener);
        let hold = Hold { idle: 1, ..Hold::default() };
        let act = move |stop: &AtomicBool, ready| hold_all(hold, to, None, stop, ready);
        let error = Holders::spawn(&AtomicBool::new(true), act).expect_err("stopped");
        assert_eq!(error.to_string(), "stopped");
    }

    #[test]
    fn what_is_open_at_the_end_is_counted_by_kind() {
        let (listener, mut grip) = grip(Hold { idle: 30, half_requests: 0, slow_readers: 20 });
        turn_until(&mut grip, Grip::is_settled);
        grip.note_opened();
        let clients: Vec<TcpStream> = (0..50).map(|_| listener.accept().expect("all come").0).collect();
        for client in &clients[..10] {
            client.shutdown(std::net::Shutdown::Write).expect("open");
        }
        turn_until(&mut grip, |grip| grip.counts.iter().map(|held| held.closed).sum::<u64>() == 10);
        let counts = grip.counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), ["idle", "slow_readers"]);
        assert!(counts.values().all(|held| held.asked == held.opened), "{counts:?}");
        assert_eq!(counts.values().map(|held| held.held).sum::<u64>(), 40, "{counts:?}");
    }

    #[test]
    fn refused_ones_come_again_and_not_too_often() {
        let (listener, mut grip) = grip(Hold { idle: 10, ..Hold::default() });
        drop(listener);
        let start = Instant::now();
        turn_until(&mut grip, |grip| grip.counts[0].refused > 100);
        let most = AGAIN_PER_S * start.elapsed().as_secs_f64() + 11.0;
        assert!(grip.counts[0].refused as f64 <= most, "{} of at most {most}", grip.counts[0].refused);
        grip.note_opened();
        assert_eq!((grip.counts[0].opened, grip.counts().remove("idle").map(|held| held.held)), (0, Some(0)));
    }

    #[test]
    fn one_that_was_reset_comes_again() {
        let (listener, mut grip) = grip(Hold { idle: 1, ..Hold::default() });
        turn_until(&mut grip, Grip::is_settled);
        let client = listener.accept().expect("it came").0;
        setsockopt(&client, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 }).expect("set");
        drop(client);
        turn_until(&mut grip, |grip| grip.counts[0].refused == 1);
        turn_until(&mut grip, Grip::is_settled);
        listener.accept().expect("it came again");
        assert_eq!(grip.counts()["idle"].held, 1);
    }

    #[test]
    fn slow_reader_has_a_small_buffer() {
        let (_listener, mut grip) = grip(Hold { slow_readers: 1, ..Hold::default() });
        turn_until(&mut grip, Grip::is_settled);
        let State::Open(socket) = &grip.places[0].state else { panic!("it is open") };
        assert_eq!(getsockopt(socket, sockopt::RcvBuf).expect("a socket"), 2 * SMALL);
    }

    #[test]
    fn pace_is_even_and_makes_up_for_little() {
        let mut pace = Drip::new(1000.0);
        pace.earn(Duration::from_millis(3));
        assert_eq!(std::iter::from_fn(|| pace.spend().then_some(())).count(), 3);
        pace.earn(Duration::from_secs(60));
        assert_eq!(std::iter::from_fn(|| pace.spend().then_some(())).count(), 100);
        assert!(!Drip::new(0.0).spend());
    }
}
