//! The server's kernel: one listener, its two queues, what became of its clients, and the guard
//! before them. Told the time, handed segments and system calls; it costs nothing here (`cpu.rs`
//! says what its work costs).
//!
//! The rules are those of [`Generation`], each with its source. What it is not: no routing, no
//! memory limits, no urgent data, one listener.

mod cookies;
mod counters;
mod ends;
mod follow;
mod guard;
mod outgoing;
mod request;
mod socket;
mod time_wait;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use slotmap::{SlotMap, new_key_type};
use tcp::{Handshake, LINUX, Stack, reset_for};
use units::Nanos;
use verdict::{ListenerLoad, Policy, Verdict};
use wire::{Flags, Segment, SeqNumber};

use cookies::Cookies;
pub use counters::Counters;
use ends::Ends;
use follow::Followed;
pub use follow::Waiting;
use guard::Guard;
pub use guard::GuardStats;
pub(crate) use guard::Looks;
use outgoing::Outgoing;
pub use outgoing::{Mark, Sending};
use request::Request;
use socket::Socket;
pub use socket::{Read, SocketState, WriteError};
use time_wait::TimeWaits;

/// A client: the number of its address among all clients', and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub(crate) u64);

impl Peer {
    /// Of a client's address and port.
    pub fn new(address: u32, port: u16) -> Self {
        Self(u64::from(address) << 16 | u64::from(port))
    }

    /// Its address, by number.
    pub fn address(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Its port.
    pub fn port(self) -> u16 {
        self.0 as u16
    }

    /// Its number in [`Pages`]: of 64 addresses that follow each other four ports are together,
    /// since attempts go from address to address, and from port to port where there are few.
    fn number(self) -> u64 {
        let (address, port) = (u64::from(self.address()), u64::from(self.port()));
        (address >> 6) << 22 | (port >> 2) << 8 | (port & 0x3) << 6 | address & 0x3f
    }
}

new_key_type! {
    /// A connection that the server's program may accept, or has.
    pub struct SocketId;
    /// A handshake under way.
    pub struct RequestId;
    /// A connection that is over.
    pub(crate) struct TimeWaitId;
}

/// Whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// SYN/ACK again, or the end of a handshake.
    Request(RequestId),
    /// A delayed ACK, a retransmission, or the end of a connection.
    Socket(SocketId),
    /// The agent looks who waits for the server.
    Agent,
    /// A program waits for the client's end no longer ([`Kernel::linger`]).
    Linger(SocketId),
    /// Another server answers a program ([`Kernel::ask_another`]).
    Backend(SocketId),
}

/// What the kernel does to the rest of the world.
pub trait Outside {
    /// A segment leaves for a client.
    fn send(&mut self, to: Peer, segment: &Segment<'_>);
    /// The same where responses are long ([`Config::sending`]), with what a queue discipline may
    /// know of it.
    fn send_marked(&mut self, to: Peer, segment: &Segment<'_>, _: Mark) {
        self.send(to, segment);
    }
    /// [`Kernel::on_timer`] is to be called then.
    fn wake(&mut self, at: Nanos, timer: Timer);
    /// There is something for the server's program.
    fn tell(&mut self, news: News);
}

/// What a server's program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A connection can be accepted.
    Acceptable,
    /// Data, an end or an error can be read.
    Readable(SocketId),
    /// There is room for what was written ([`Kernel::wait_for_room`]).
    Writable(SocketId),
    /// Another server has answered for this connection ([`Kernel::ask_another`]).
    Answered(SocketId),
}

/// What a segment made the kernel do: what it costs depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// A SYN that the kernel answered by SYN/ACK, with a request socket or a cookie.
    SynAnswered,
    /// A SYN that the guard answered by SYN/ACK with a cookie.
    SynCookie,
    /// A SYN that the kernel dropped.
    SynDropped,
    /// A SYN that the guard answered by RST.
    SynReset,
    /// A SYN that the guard dropped.
    SynHeld,
    /// The end of a handshake that became a connection.
    Established,
    /// The end of a handshake that was dropped.
    EndDropped,
    /// The end of a handshake that was reset, and forgotten.
    EndReset,
    /// Data of a connection.
    Data,
    /// A FIN of a connection.
    Fin,
    /// An acknowledgment of a connection.
    Ack,
    /// A RST of a client.
    Reset,
    /// A segment of no connection; among them the end of a handshake by cookie that was reset.
    Stray,
}

impl Work {
    /// All kinds, in their order.
    pub(crate) const ALL: [Self; 13] = [
        Self::SynAnswered,
        Self::SynCookie,
        Self::SynDropped,
        Self::SynReset,
        Self::SynHeld,
        Self::Established,
        Self::EndDropped,
        Self::EndReset,
        Self::Data,
        Self::Fin,
        Self::Ack,
        Self::Reset,
        Self::Stray,
    ];

    /// Of a segment that may end a handshake, as far as one can see who has looked up no socket,
    /// and goes on to the kernel.
    pub(crate) fn is_acknowledgment(self) -> bool {
        matches!(self, Self::Established | Self::EndDropped | Self::Data | Self::Fin | Self::Ack)
    }

    /// Whose code and data it needs.
    pub(crate) fn path(self) -> WorkPath {
        match self {
            Self::SynCookie
            | Self::SynDropped
            | Self::SynReset
            | Self::SynHeld
            | Self::EndDropped
            | Self::EndReset
            | Self::Stray => WorkPath::Refusals,
            Self::SynAnswered | Self::Established | Self::Data | Self::Fin | Self::Ack | Self::Reset => {
                WorkPath::Connections
            }
        }
    }
}

/// Work that keeps the same in the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkPath {
    /// Segments of those who are, or will be, connected.
    Connections,
    /// Segments that nothing comes of, or nothing yet.
    Refusals,
}

/// Whose rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generation {
    /// Linux 2.2, that of `[SH06]`: as 2.4, but a SYN is answered as long as the SYN queue has
    /// room, which is as long as `net.ipv4.tcp_max_syn_backlog` says, however full the accept queue
    /// is (2.2.16 `net/ipv4/tcp_ipv4.c`, `tcp_v4_conn_request()`).
    #[serde(rename = "2.2")]
    Linux22,
    /// Linux 2.4, that of the other papers: `tcp_v4_conn_request()`, `tcp_synack_timer()` (2.4.20
    /// `net/ipv4/tcp_ipv4.c`, `tcp_timer.c`).
    #[serde(rename = "2.4")]
    Linux24,
    /// Since 4.10: `tcp_conn_request()`, `reqsk_timer_handler()` (6.18 `net/ipv4/tcp_input.c`,
    /// `inet_connection_sock.c`).
    #[serde(rename = "4.10")]
    Linux410,
}

/// A server's listener and its kernel's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whose rules.
    pub generation: Generation,
    /// `min(backlog, somaxconn)`: one connection more fills the accept queue.
    pub backlog: u32,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub max_syn_backlog: u32,
    /// `net.ipv4.tcp_syncookies`.
    pub syncookies: u8,
    /// `net.ipv4.tcp_abort_on_overflow`.
    pub abort_on_overflow: bool,
    /// `net.ipv4.tcp_synack_retries`.
    pub synack_retries: u8,
    /// `net.ipv4.tcp_max_tw_buckets`.
    pub max_tw_buckets: u32,
    /// `net.ipv4.tcp_rfc1337`.
    pub rfc1337: bool,
    /// Ends of connections are in a list, which is searched from its head on (`[FTY97]`).
    pub searches_list: bool,
    /// Of such a list, entries of nobody that are before all others: the extra TIME_WAITs of
    /// `[FTY97]` table 1.
    pub dummies: u32,
    /// How many ends of connections there is memory for; no bound, unless it says one.
    pub most_ends: Option<u32>,
    /// The TCP of its connections.
    pub stack: &'static Stack,
    /// How they send long responses; without, each has the initial window for ever, and a send
    /// buffer of twenty segments.
    pub sending: Option<Sending>,
    /// First wait for the end of a handshake, if it is not the generation's: `TCP_TIMEOUT_INIT`.
    pub initial_rto: Option<Nanos>,
    /// What the guard does; [`Policy::DEFAULT`] is nothing.
    pub policy: Policy,
    /// The guard only counts.
    pub dry_run: bool,
    /// Of sequence numbers and secrets.
    pub seed: u64,
}

impl Default for Config {
    /// Linux as it comes, with a backlog of 128.
    fn default() -> Self {
        Self {
            generation: Generation::Linux410,
            backlog: 128,
            max_syn_backlog: 4096,
            syncookies: 1,
            abort_on_overflow: false,
            synack_retries: 5,
            max_tw_buckets: 131_072,
            rfc1337: false,
            searches_list: false,
            dummies: 0,
            most_ends: None,
            stack: &LINUX,
            sending: None,
            initial_rto: None,
            policy: Policy::DEFAULT,
            dry_run: false,
            seed: 1,
        }
    }
}

impl Config {
    /// Sets a sysctl by its name, as `sysctl -w` does.
    ///
    /// # Errors
    ///
    /// Of one that is not simulated its name, and which are; of a value that the kernel does not
    /// take both.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = value.trim().parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok());
        let refused = || format!("sysctl {name} = {value}");
        // Of one byte each but for the backlog (Linux 6.18 net/ipv4/sysctl_net_ipv4.c).
        let byte = || number.and_then(|number| u8::try_from(number).ok()).ok_or_else(refused);
        match name {
            "net.ipv4.tcp_syncookies" => self.syncookies = byte()?,
            "net.ipv4.tcp_abort_on_overflow" => self.abort_on_overflow = byte()? != 0,
            "net.ipv4.tcp_max_syn_backlog" => self.max_syn_backlog = number.ok_or_else(refused)?,
            "net.ipv4.tcp_synack_retries" => self.synack_retries = byte()?,
            "net.ipv4.tcp_max_tw_buckets" => self.max_tw_buckets = number.ok_or_else(refused)?,
            "net.ipv4.tcp_rfc1337" => self.rfc1337 = byte()? != 0,
            _ => {
                return Err(format!(
                    "sysctl {name} (unlike net.ipv4.tcp_syncookies, tcp_abort_on_overflow, tcp_max_syn_backlog, tcp_synack_retries, \
                     tcp_max_tw_buckets and tcp_rfc1337)"
                ));
            }
        }
        Ok(())
    }
}

/// What the kernel has of a client.
#[derive(Debug, Clone, Copy)]
enum End {
    Request(RequestId),
    Socket(SocketId),
    TimeWait(TimeWaitId),
}

/// The server's kernel.
#[derive(Debug)]
pub struct Kernel {
    config: Config,
    /// What it has of each client.
    ends: Ends,
    requests: SlotMap<RequestId, Request>,
    /// Of these, those whose SYN/ACK was sent once.
    young: u32,
    sockets: SlotMap<SocketId, Socket>,
    time_waits: TimeWaits,
    /// Entries of a list that the last segment made it look at.
    examined: u32,
    /// Waits for accept(2).
    accept_queue: VecDeque<SocketId>,
    cookies: Cookies,
    guard: Guard,
    /// Who waits for the server, where the policy asks.
    followed: Option<Followed>,
    counters: Counters,
    handshakes: u64,
}

impl Kernel {
    /// It listens.
    pub fn new(config: Config) -> Self {
        Self {
            guard: Guard::new(config.policy, config.dry_run, config.seed),
            cookies: Cookies::new(config.seed),
            followed: Followed::of(&config.policy),
            ends: Ends::new(config.searches_list, config.dummies),
            config,
            requests: SlotMap::with_key(),
            young: 0,
            sockets: SlotMap::with_key(),
            time_waits: TimeWaits::default(),
            examined: 0,
            accept_queue: VecDeque::new(),
            counters: Counters::default(),
            handshakes: 0,
        }
    }

    /// From now on its agent looks at the server several times a second, if the policy asks who
    /// waits for it.
    pub fn start(&mut self, now: Nanos, out: &mut impl Outside) {
        if self.followed.is_some() {
            self.agent_looks(now, out);
        }
    }

    /// Whether its connections send into an uplink.
    pub(crate) fn has_uplink(&self) -> bool {
        self.config.sending.is_some()
    }

    /// The listener's queues.
    pub fn load(&self) -> ListenerLoad {
        ListenerLoad {
            accept_qlen: self.accept_queue.len() as u32,
            accept_limit: self.config.backlog,
            syn_qlen: self.requests.len() as u32,
            syn_limit: self.syn_limit(),
            ..ListenerLoad::default()
        }
    }

    /// Connections that have a socket and do not wait for accept(2): those that a program has, and
    /// those whose end is awaited.
    pub fn connections(&self) -> u32 {
        (self.sockets.len() - self.accept_queue.len()) as u32
    }

    /// Ends of connections that take memory: handshakes, connections, TIME_WAITs, and of these the
    /// last.
    pub fn kept(&self) -> (u32, u32) {
        (self.ends.all() as u32, self.time_waits.len() as u32 + self.config.dummies)
    }

    /// How many ends the kernel looked at for the last segment; 0 where it finds them by a hash.
    pub(crate) fn examined(&self) -> u32 {
        self.examined
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the guard has counted.
    pub fn guard(&self) -> &GuardStats {
        &self.guard.stats
    }

    /// What the guard's programs look into, for a segment that has come to this.
    pub(crate) fn guard_looks(&mut self, work: Work, now: Nanos) -> Looks {
        self.guard.looks(work, now)
    }

    /// In debug builds: no queue is over its limit, and what is kept of each client is one thing.
    pub(crate) fn check(&self) {
        debug_assert!(self.accept_queue.len() <= self.config.backlog as usize + 1, "the accept queue");
        debug_assert!(self.requests.len() <= self.syn_limit() as usize + 1, "the SYN queue");
        debug_assert!(self.young as usize <= self.requests.len(), "handshakes that are young");
        let open = self.sockets.values().filter(|socket| socket.state() != SocketState::Gone).count();
        let kept = self.requests.len() + open + self.time_waits.len();
        debug_assert_eq!(self.ends.len(), kept, "every client has one end here");
    }

    /// State of its end of a client's connection.
    pub fn state(&self, peer: Peer, now: Nanos) -> SocketState {
        match self.ends.get(peer) {
            None => SocketState::Gone,
            Some(End::TimeWait(id)) if self.time_waits.is_over(id, now) => SocketState::Gone,
            Some(End::TimeWait(_)) => SocketState::TimeWait,
            Some(End::Request(_)) => SocketState::SynRecv,
            Some(End::Socket(id)) => self.sockets[id].state(),
        }
    }

    /// A segment has come from a client. Gives what it made the kernel do, by which it costs.
    pub fn receive(&mut self, from: Peer, segment: &Segment<'_>, now: Nanos, out: &mut impl Outside) -> Work {
        self.end_time_waits(now);
        self.examined = self.ends.look_for(from);
        match self.ends.get(from) {
            None => self.receive_at_listener(from, segment, now, out),
            Some(End::Request(id)) => {
                self.guard.known(segment);
                self.receive_for_request(id, segment, now, out)
            }
            Some(End::Socket(id)) => {
                self.guard.known(segment);
                self.receive_for_socket(id, segment, now, out)
            }
            Some(End::TimeWait(id)) => self.receive_in_time_wait(from, id, segment, now, out),
        }
    }

    /// A segment of a client of whom nothing is known.
    fn receive_at_listener(
        &mut self,
        from: Peer,
        segment: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let flags = segment.flags;
        if flags.has(Flags::RST) {
            return Work::Reset;
        }
        if flags.has(Flags::ACK) {
            return self.receive_end_by_cookie(from, segment, now, out);
        }
        if !flags.has(Flags::SYN) {
            return Work::Stray; // tcp_rcv_state_process(), TCP_LISTEN: discarded
        }
        self.receive_syn(from, segment, None, now, out)
    }

    /// A SYN that may begin a connection; what it is behind is let go of when the guard leaves it
    /// to the kernel.
    fn receive_syn(
        &mut self,
        from: Peer,
        segment: &Segment<'_>,
        behind: Option<TimeWaitId>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let mut load = self.load();
        if self.is_spared() && self.guard.follows_the_kernel() {
            load.accept_qlen = load.accept_qlen.min(load.accept_limit);
        }
        let verdict =
            self.guard.on_syn((from, segment.seq), behind.is_some(), &load, now, &mut self.followed);
        match verdict {
            Verdict::Admit => {
                let iss = behind.map(|id| self.time_waits.next_number(id));
                self.forget_time_wait(from);
                self.request(from, segment, iss, now, out)
            }
            Verdict::Drop => Work::SynHeld,
            Verdict::Reset => {
                let reset = reset_for(segment).expect("a SYN is no RST");
                out.send(from, &reset);
                Work::SynReset
            }
            Verdict::Cookie => {
                let iss = self.cookies.make_own(from, segment, now);
                self.send_syn_ack(from, &Handshake::begin(segment, iss, now), now, out);
                Work::SynCookie
            }
            Verdict::KernelCookie => {
                self.send_kernel_cookie(from, segment, now, out);
                Work::SynCookie
            }
        }
    }

    /// A RST of the kernel's own.
    fn send_reset(&mut self, to: Peer, segment: &Segment<'_>, out: &mut impl Outside) {
        if let Some(reset) = reset_for(segment) {
            self.counters.out_rsts += 1;
            out.send(to, &reset);
        }
    }

    /// Whether somebody still waits for a timer. A kernel takes those out that are not waited for
    /// any more; here they stay, and cost nothing.
    pub fn is_due(&self, timer: Timer, now: Nanos) -> bool {
        match timer {
            Timer::Request(id) => self.requests.get(id).is_some_and(|request| request.is_due(now)),
            Timer::Socket(id) => self.sockets.get(id).is_some_and(|socket| socket.is_due(now)),
            Timer::Agent => true,
            Timer::Linger(id) => self.sockets.get(id).is_some_and(|socket| socket.lingers_until(now)),
            Timer::Backend(id) => self.sockets.contains_key(id),
        }
    }

    /// A timer has come up.
    pub fn on_timer(&mut self, timer: Timer, now: Nanos, out: &mut impl Outside) {
        match timer {
            Timer::Request(id) => self.request_timed_out(id, now, out),
            Timer::Socket(id) => self.socket_timed_out(id, now, out),
            Timer::Agent => self.agent_looks(now, out),
            Timer::Linger(id) => out.tell(News::Readable(id)),
            Timer::Backend(id) => out.tell(News::Answered(id)),
        }
    }
}

/// What is sent of a connection that has no socket: where it is.
fn acknowledgment(seq: SeqNumber, ack: SeqNumber) -> Segment<'static> {
    Segment { seq, ack, flags: Flags::ACK, window: 0, options: wire::Options::NONE, payload: &[] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What left, and what is to be woken when.
    #[derive(Default)]
    struct Wire {
        sent: Vec<(Flags, SeqNumber)>,
        timers: BTreeMap<(Nanos, u32), Timer>,
        set: u32,
    }

    impl Outside for Wire {
        fn send(&mut self, _to: Peer, segment: &Segment<'_>) {
            self.sent.push((segment.flags, segment.seq));
        }

        fn wake(&mut self, at: Nanos, timer: Timer) {
            self.set += 1;
            self.timers.insert((at, self.set), timer);
        }

        fn tell(&mut self, _news: News) {}
    }

    fn from_client(flags: Flags, seq: u32, ack: SeqNumber, payload: &[u8]) -> Segment<'_> {
        Segment { seq: SeqNumber(seq), ack, flags, window: 65_535, options: wire::Options::NONE, payload }
    }

    #[test]
    fn who_is_closed_without_an_answer_waits_no_more() {
        let policy = Policy::UNSERVED;
        let (mut kernel, mut wire) = (Kernel::new(Config { policy, ..Config::default() }), Wire::default());
        let (peer, now) = (Peer::new(1, 1), Nanos::from_secs(1));
        kernel.receive(peer, &from_client(Flags::SYN, 100, SeqNumber(0), b""), now, &mut wire);
        let (_, iss) = wire.sent[0];
        kernel.receive(peer, &from_client(Flags::ACK, 101, iss + 1, b"a question"), now, &mut wire);
        let (id, _) = kernel.accept().expect("it is there");
        kernel.read(id, 100, &mut Vec::new());
        assert_eq!(kernel.waiting().expect("it is followed").waiting, 1);
        kernel.close(id, now, &mut wire);
        let after = kernel.waiting().expect("it is followed");
        assert_eq!((after.waiting, after.ended, after.answered), (0, 1, 0), "its FIN is on its way");
    }

    #[test]
    fn handshake_by_cookie_is_timed_if_it_is_the_guards() {
        for (policy, syncookies, timed) in [("rst-syn+unserved+cookies", 1, 1), ("rst-syn+unserved", 2, 0)] {
            let policy = policy.parse().expect("a policy");
            let config = Config { policy, syncookies, backlog: 2, ..Config::default() };
            let (mut kernel, mut wire) = (Kernel::new(config), Wire::default());
            let at = |ms| Nanos::from_secs(1) + Nanos::from_millis(ms);
            let mut last = None;
            for client in 0..3 {
                let syn = from_client(Flags::SYN, 100, SeqNumber(0), b"");
                last =
                    Some(kernel.receive(Peer::new(client, 1), &syn, at(100 * u64::from(client)), &mut wire));
            }
            let of_the_kernel = kernel.counters().syncookies_sent;
            assert_eq!(
                (last == Some(Work::SynCookie), of_the_kernel),
                (timed == 1, 3 * (1 - timed)),
                "{policy}"
            );
            let (_, iss) = *wire.sent.last().expect("a cookie");
            let end = from_client(Flags::ACK, 101, iss + 1, b"");
            assert_eq!(kernel.receive(Peer::new(2, 1), &end, at(240), &mut wire), Work::Established);
            let service = &kernel.followed.as_ref().expect("its policy asks").service;
            // 40 ms are between 2^15 and 2^16 us.
            let of_40_ms: u64 = service.handshakes_us[16];
            assert_eq!((service.established, of_40_ms), (1, timed), "{policy}");
        }
    }

    #[test]
    fn queue_of_2_4_that_is_half_full_sends_old_handshakes_fewer_syn_acks() {
        // Of one that is not answered; the limit is 64, and whoever goes leaves the queue less than
        // half full.
        let [all, fewer] = [1 + 5, 1 + 2];
        for (handshakes, expected) in [(31, 31 * all), (32, 31 * all + fewer)] {
            let generation = Generation::Linux24;
            let config = Config { generation, max_syn_backlog: 64, syncookies: 0, ..Config::default() };
            let (mut kernel, mut wire) = (Kernel::new(config), Wire::default());
            for number in 0..handshakes {
                let syn = from_client(Flags::SYN, 100, SeqNumber(0), b"");
                kernel.receive(Peer::new(number, 1), &syn, Nanos::ZERO, &mut wire);
            }
            while let Some(((at, _), timer)) = wire.timers.pop_first() {
                kernel.on_timer(timer, at, &mut wire);
            }
            assert_eq!(wire.sent.len(), expected, "{handshakes} handshakes");
        }
    }

    #[test]
    fn sysctl_takes_what_the_kernels_takes() {
        let mut config = Config::default();
        let mut set = |name: &str, value: &str| config.set_sysctl(&format!("net.ipv4.{name}"), value);
        for (name, most) in [("tcp_syncookies", "255"), ("tcp_synack_retries", "255")] {
            assert_eq!(set(name, most), Ok(()));
            assert_eq!(set(name, "256"), Err(format!("sysctl net.ipv4.{name} = 256")));
        }
        assert_eq!(set("tcp_max_syn_backlog", "2147483647"), Ok(()));
        assert!(set("tcp_max_syn_backlog", "2147483648").is_err());
        assert!(set("tcp_abort_on_overflow", "-1").is_err());
        assert_eq!((config.syncookies, config.max_syn_backlog), (255, i32::MAX.cast_unsigned()));
    }
}
