//! Guards listeners: it finds them, loads `kernel/admit.bpf.c`, sets their policies, attaches to
//! interfaces and reads counters.
//!
//! The programs live as long as the [`Guard`] or its process. A [`Sample`] is taken when a caller
//! asks for it. What it is not: it pins nothing, keeps no thread, and does not start, stop or
//! configure the server. It acts in the network namespace of the calling thread, so start and
//! sample in the same one.
//!
//! ```no_run
//! use guard::{Config, Guard, Listener, Policy};
//!
//! let listener = Listener::new("10.0.0.1:80".parse()?, Policy::RST_SYN);
//! let config = Config { listeners: vec![listener], must_listen: true, ..Config::default() };
//! let guard = Guard::start(&config)?;
//! println!("{} reset", guard.sample()?.listeners[0].stats.reset);
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! # Where the programs hang, and how they change
//!
//! - tcx ingress (Linux 6.6), before the programs that are there. It can send an answer by any
//!   interface, and XDP only by the one that the SYN came by.
//! - Else generic XDP. A `clsact` filter would outlive `kill -9`, and a link does not.
//! - Native XDP on request. It is cheaper, but some drivers reset the link for it.
//! - tcx beside XDP for FINs and cookies of ours, which need a socket buffer.
//! - LSM `inet_conn_request` for *reserv*. It sees the queues when it is a SYN's turn, also in a
//!   batch or out of fragments. It can only drop, in silence.
//! - sockops at the root control group for waiting connections (`kernel/follow.bpf.h`).
//! - cgroup `setsockopt` for a server that asks for *rst-fin*.
//!
//! All three stages are in `admit.bpf.c`, because they share listeners, counters and one parse. A
//! handshake that ends without a place goes on with SYN set, so the kernel itself resets both ends.
//!
//! - Links are descriptors of the process, and a lease of one second covers a process that hangs.
//! - A take-over switches the old guard's links as its last step, all or none. It takes the key of
//!   cookies in flight, and what servers asked for. The old guard ends when the new one has renewed
//!   its lease; else it puts its own programs back.
//! - A listener keeps its index over reloads. Its addresses go before a rule becomes another
//!   listener's, and come after. So a SYN meets its own listener's rule, or the kernel.
//! - What was learnt of a server is kept in a file each second: the usual answer and rate. The
//!   limit is not, because a crowd shows it within seconds. Nor are waiting connections, because
//!   few of them are left when the next guard decides.

mod advice;
mod attach;
mod blind;
mod cookies;
mod file;
mod followers;
mod interface;
mod listener;
mod memory;
mod observe;
mod prepared;
mod program;
mod routes;
mod rules;
mod servers;
mod service;
mod slots;
mod surroundings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bpf::{Hook, cgroup};
use ipnet::IpNet;
use units::Nanos;

pub use attach::{Attach, Attached, Other};
pub use cookies::takes_own_cookies;
pub use file::{ConfigError, parse_listen, parse_network};
pub use kernel::{ListenerStats, PathStats};
pub use observe::Observed;
pub use pacer::{Second, Waiting, Weight};
pub use program::PROGRAM_NAMES;
pub use service::ServerSample;
pub use verdict::{Full, ListenerLoad, OnFin, Policy, PolicyError, Trigger, Verdict, WaitsFrom};

use advice::Advice;
use attach::Plan;
use blind::Blind;
use followers::Followers;
use memory::Memory;
use observe::Observer;
use pacer::{Demand, Learnt, Look, Pacer, Service};
use prepared::Prepared;
use program::Programs;
use routes::Ways;
use rules::{apply, check_places, set_own_addresses};
use servers::Servers;
use slots::{Slots, assign, decides, indexed};
use surroundings::Surroundings;

/// How often [`Guard::pace`] is to be called.
pub const LOOK_EVERY: Duration = Duration::from_nanos(pacer::LOOK_EVERY.0);

/// Several times what a crowd sends that one server could have served, and 300 Mb/s on the wire.
const DEFAULT_REFUSALS_PER_S: NonZeroU32 = NonZeroU32::new(500_000).expect("not zero");

/// A lease that was renewed so short a time ago is one of a guard that runs.
const YOUNG: Duration = Duration::from_millis(300);

/// What to guard, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// One or more, up to 64.
    pub listeners: Vec<Listener>,
    /// Interface names; none means every interface that holds an address.
    pub interfaces: Vec<String>,
    /// Where on the interfaces.
    pub attach: Attach,
    /// How long the decisions stand after [`Guard::renew`]; after that everything is left to the
    /// kernel, until the next. `None` is for as long as the guard lives.
    pub lease: Option<Duration>,
    /// Whether every listener must be there at the start. Others are guarded from the moment on at
    /// which they listen.
    pub must_listen: bool,
    /// Answers to SYNs, RSTs and cookies, per second and of all listeners together. Those above are
    /// dropped in silence. `None` is no limit.
    pub refusals_per_s: Option<NonZeroU32>,
    /// Whether servers may ask for rst-fin themselves, by a socket option (docs/sockopt.md).
    pub sockopt: bool,
    /// Whether sockets are followed at the control groups of the servers, and not at the root: for
    /// guards of containers, of which there may be many.
    pub follow_at_servers: bool,
    /// A guard in the same network namespace, by its process id, whose programs are replaced by
    /// ours, so that no segment passes without one; its cookies are taken back, and what servers
    /// asked of it stands. It finds out, see [`Guard::is_taken_over`].
    pub take_over: Option<u32>,
    /// A folder for what is learnt of servers, from which the next guard reads it; `None` keeps
    /// nothing.
    pub state: Option<PathBuf>,
}

impl Default for Config {
    /// No listener, every interface that holds an address, and a budget that only a flood reaches.
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            interfaces: Vec::new(),
            attach: Attach::Auto,
            lease: None,
            must_listen: false,
            refusals_per_s: Some(DEFAULT_REFUSALS_PER_S),
            sockopt: false,
            follow_at_servers: false,
            take_over: None,
            state: None,
        }
    }
}

/// A listener and its policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Destination of the SYNs to decide on. `0.0.0.0` and `[::]` stand for every address of the
    /// host.
    pub listen: SocketAddr,
    /// What to do with them.
    pub policy: Policy,
    /// Sources that get the last places of its accept queue, as many as the policy's
    /// `reserved_slots`.
    pub reserved: Vec<IpNet>,
    /// Sources about which the kernel decides alone: they are never reset. They need not be
    /// disjoint from `reserved`: the longest prefix counts.
    pub exempt: Vec<IpNet>,
    /// Listeners with the same name are one server's: they share a limit, whoever holds their
    /// sockets.
    pub server: Option<String>,
    /// Count what would be done, and do nothing.
    pub dry_run: bool,
    /// Whether balancers are told to send no new connections. The guard itself goes on as ever.
    pub drain: bool,
}

impl Listener {
    /// Without sources that are treated otherwise, and in earnest.
    pub fn new(listen: SocketAddr, policy: Policy) -> Self {
        Self {
            listen,
            policy,
            reserved: Vec::new(),
            exempt: Vec::new(),
            server: None,
            dry_run: false,
            drain: false,
        }
    }
}

/// Guarded listeners. Dropping it detaches everything.
#[derive(Debug)]
pub struct Guard {
    /// By index into the maps; a free one is `None`.
    slots: Slots,
    programs: Programs,
    attached: Vec<Attached>,
    /// Whether the programs are at interfaces, or would be if any were there: not where all was
    /// only observed at the start.
    is_attached: bool,
    /// Where the kernel makes request sockets, for reserv.
    requests: Option<OwnedFd>,
    _sockopt: Vec<OwnedFd>,
    /// Where the kernel tells of a socket's life.
    followers: Followers,
    servers: Servers,
    /// When that was found out; `None` if it should be, soon.
    servers_at: Option<Instant>,
    /// For them, anew.
    search: Option<JoinHandle<Result<Servers>>>,
    /// Whether that was just now, so that what was counted by then is by other policies.
    is_reloaded: bool,
    /// Of servers that are followed, by index.
    pacers: BTreeMap<u32, Pacer>,
    /// What is known of them outlives this guard there.
    memory: Option<Memory>,
    /// Which is written just now.
    writing: Option<JoinHandle<Result<()>>>,
    /// Whether that could not be kept, and it was said.
    is_forgetful: bool,
    /// To be said, one line each.
    notes: Vec<String>,
    /// There once a listener is only observed.
    observer: Option<Observer>,
    warnings: Vec<String>,
    /// Whether other guards were at its interfaces at the start.
    has_others: bool,
    surroundings: Surroundings,
    /// Of answers, as the programs have them.
    ways: Ways,
    advice: Advice,
    config: Config,
}

/// What has become of a guard whose programs another one has replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The other goes on, or nothing can be known of it.
    Gone,
    /// The other has renewed its lease, but not just now.
    Unknown,
    /// The other has not run for a lease: our programs are back in their place.
    Back,
    /// The other is the one whose place this guard had taken, and has it back.
    TakenBack,
}

impl Succession {
    /// By what is left of the other's lease, which is as long as ours. One that has ended since its
    /// last renewal looks alive until it has run out.
    fn by(left: Option<Duration>, lease: Duration) -> Self {
        match left {
            Some(Duration::ZERO) => Self::Back,
            Some(left) if left < lease.saturating_sub(YOUNG) => Self::Unknown,
            _ => Self::Gone,
        }
    }
}

/// Every interface that was named is gone: no error of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("every guarded interface is gone; nothing is guarded any more")]
pub struct NothingLeft;

/// What the guard sees at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Of each listener.
    pub listeners: Vec<ListenerSample>,
    /// Every frame since the start, and why those that were not decided on were passed.
    pub path: PathStats,
    /// Of the listeners, those whose address is not this host's: not guarded while it is so.
    pub away: BTreeSet<SocketAddr>,
}

/// What the guard sees of one listener.
#[derive(Debug, Clone)]
pub struct ListenerSample {
    /// Which, and its policy.
    pub listener: Listener,
    /// Its queues now; `None` when nothing listens there. Of a `SO_REUSEPORT` group, one member's.
    pub load: Option<ListenerLoad>,
    /// Its SYNs, ends of handshakes and FINs since it is guarded, by what became of them.
    pub stats: ListenerStats,
    /// Who waits for its server; `None` where no policy of the guard asks.
    pub service: Option<ServerSample>,
    /// Of a listener that is only observed; its `stats` are zero then, and its `load` is that of
    /// the whole `SO_REUSEPORT` group.
    pub observed: Option<Observed>,
    /// Whether connections of other hosts come to it, while the guard sees no SYN there.
    pub is_blind: bool,
}

/// What is counted of a listener and its server, as it is in the maps.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// By the clock of `service`.
    pub at: Nanos,
    /// As [`ListenerSample::load`].
    pub load: Option<ListenerLoad>,
    /// As [`ListenerSample::stats`].
    pub stats: ListenerStats,
    /// Connections that wait for its server, and sums.
    pub service: Service,
}

impl Guard {
    /// Finds the listeners, loads and attaches; on an error nothing stays behind.
    ///
    /// # Errors
    ///
    /// One line each that says what to do: nothing listens there, two listeners overlap, no such
    /// interface, no privileges, no BTF in this kernel, a driver without native XDP, an MTU too
    /// large for it.
    pub fn start(config: &Config) -> Result<Self> {
        let Prepared { slots, servers, programs, interfaces, ways, take_over, mut notes } =
            Prepared::new(config)?;
        let others = if take_over.is_empty() { attach::other_guards(&interfaces) } else { Vec::new() };
        let has_others = !others.is_empty();
        notes.extend(others);
        for interface in &interfaces {
            programs.add_interface(interface.index)?;
        }
        let sockopt =
            if config.sockopt { cgroup::attach(SOCKOPT, programs.for_sockopt())? } else { Vec::new() };
        let mut followers = Followers::default();
        followers.attach(&programs, &slots, config.follow_at_servers)?;
        let observer = start_observer(&slots)?;
        notes.extend(observer.iter().flat_map(Observer::warnings));
        // At last, because a guard that is taken over ends: from here on nothing may fail. The
        // lease is young then, too.
        if let Some(lease) = config.lease {
            programs.lease(lease)?;
        }
        let needs_tc = needs_tc(config, &slots);
        let attach = config.attach;
        let may_go = config.interfaces.is_empty();
        let attached =
            Plan { programs: &programs, attach, needs_tc, may_go, take_over }.attach_all(&interfaces)?;
        notes.extend(attach::lonely_xdp(&attached, &interfaces));
        notes.extend(attach::come_after(&attached));
        let decided = indexed(&slots).into_iter().map(|(listen, _)| listen).collect();
        let surroundings = Surroundings::new(&slots, Blind::new(decided));
        let memory = config.state.as_deref().map(Memory::open).transpose().unwrap_or_else(|error| {
            notes.push(format!("{error:#}; what is learnt of a server ends with this guard"));
            None
        });
        let mut guard = Self {
            slots,
            programs,
            is_attached: !interfaces.is_empty(),
            attached,
            observer,
            requests: None,
            _sockopt: sockopt,
            followers,
            servers,
            servers_at: Some(Instant::now()),
            is_reloaded: false,
            search: None,
            pacers: BTreeMap::new(),
            memory,
            writing: None,
            is_forgetful: false,
            notes: Vec::new(),
            warnings: notes,
            has_others,
            surroundings,
            ways,
            advice: Advice::default(),
            config: config.clone(),
        };
        let warning = guard.attach_requests();
        guard.warnings.extend(warning);
        // It is tried again in a moment.
        let warning = guard.pace().err().map(|error| format!("{error:#}; servers have no limit yet"));
        guard.warnings.extend(warning);
        guard.warnings.append(&mut guard.notes);
        Ok(guard)
    }

    /// Whether [`Guard::start`] would work as far as can be known without attaching anything; gives
    /// what it would warn of, but for programs that are at the interfaces already. The programs are
    /// loaded and let go.
    ///
    /// # Errors
    ///
    /// Those of the start, but for what only a hook itself refuses: a driver, an MTU, a kernel that
    /// forbids to observe.
    pub fn check(config: &Config) -> Result<Vec<String>> {
        Prepared::new(config).map(|prepared| prepared.notes)
    }

    /// Guards the listeners of this configuration from now on, and no others, within its budget of
    /// refusals; the counters of those that stay go on. Gives what the operator should know, one
    /// line each. Call it in the namespace where the guard was started.
    ///
    /// # Errors
    ///
    /// Interfaces, hook or socket option differ from those of the start, two listeners overlap,
    /// there are too many, or a policy has stages for which nothing is attached; then all stays as
    /// it was.
    pub fn reload(&mut self, config: &Config) -> Result<Vec<String>> {
        self.check_attachments(config)?;
        let listeners = &config.listeners[..];
        let slots = assign(&self.slots, listeners)?;
        cookies::check(listeners)?;
        check_places(&self.programs, listeners)?;
        let wants_tc = slots.iter().flatten().find(|listener| listener.policy.needs_socket_buffers());
        if let Some(listener) = wants_tc
            && !self.attached.iter().all(Attached::is_at_tcx)
        {
            bail!(
                "{} with {}: that acts at tcx, and the guard was started in XDP alone; restart it",
                listener.listen,
                listener.policy
            );
        }
        if let Some(listener) = slots.iter().flatten().find(|listener| decides(listener))
            && !self.is_attached
        {
            bail!(
                "{} with {}: the guard was started to observe only; restart it",
                listener.listen,
                listener.policy
            );
        }
        let mut notes = Vec::new();
        let mut followers = std::mem::take(&mut self.followers);
        let attached =
            self.while_renewing(|| followers.attach(&self.programs, &slots, config.follow_at_servers));
        self.followers = followers;
        attached?;
        if self.observer.is_none() {
            self.observer = start_observer(&slots)?;
            notes.extend(self.observer.iter().flat_map(Observer::warnings));
        }
        // They are kept up to date only while a wildcard stands for them.
        set_own_addresses(&self.programs, &slots)?;
        if config.refusals_per_s != self.config.refusals_per_s {
            self.programs.set_budget(config.refusals_per_s)?;
        }
        let servers = servers::keep(&self.slots, &self.servers.of, &slots);
        if let Err(error) = apply(&self.programs, &self.slots, &slots, &servers) {
            // What was there is what the kernel has had room for. Listeners that were in force go
            // on counting.
            apply(&self.programs, &self.slots, &self.slots, &self.servers.of)
                .and_then(|()| self.programs.set_budget(self.config.refusals_per_s))
                .context("restore the policies after a failed reload")?;
            return Err(error);
        }
        // What was learnt of another listener's server says nothing of this one's.
        let listens = |slots: &Slots, index: u32| slots[index as usize].as_ref().map(|of| of.listen);
        self.pacers.retain(|&index, _| listens(&self.slots, index) == listens(&slots, index));
        (self.slots, self.servers.of, self.servers_at) = (slots, servers, None);
        self.search = None;
        self.is_reloaded = true;
        notes.extend(self.surroundings.reloaded(&self.slots));
        self.config = Config { lease: self.config.lease, ..config.clone() };
        notes.extend(self.attach_requests());
        Ok(notes)
    }

    /// What is attached stays: a reload that wanted it elsewhere would not be one.
    fn check_attachments(&self, config: &Config) -> Result<(), ConfigError> {
        let Config { interfaces, attach, sockopt, .. } = &self.config;
        let changed = [
            ("interfaces", *interfaces != config.interfaces),
            ("attach", *attach != config.attach),
            ("sockopt", *sockopt != config.sockopt),
        ];
        match changed.into_iter().find(|(_, is_changed)| *is_changed) {
            Some((key, _)) => Err(ConfigError(format!(
                "{key} differs from what the guard was started with, and programs stay where they are; restart the service, or start \
                 another guard with --take-over of this one"
            ))),
            None => Ok(()),
        }
    }

    /// With reserv, looks again where the kernel makes request sockets. Gives why it cannot: reserv
    /// is nearly exact then.
    fn attach_requests(&mut self) -> Option<String> {
        let is_reserv = |listener: &Listener| matches!(listener.policy.full, Full::Reserved { .. });
        if self.requests.is_some() || !self.slots.iter().flatten().any(is_reserv) {
            return None;
        }
        match self.attach_lsm() {
            Ok(link) => {
                self.requests = Some(link);
                None
            }
            Err(error) => Some(format!("{error:#}")),
        }
    }

    fn attach_lsm(&self) -> Result<OwnedFd> {
        let why = "reserv may promise a few places too many to SYNs that are received in one batch";
        let program = self.programs.for_requests();
        let program = program.with_context(|| format!("{why}: BPF LSM is not to be had here"))?;
        bpf::lsm_is_active().with_context(|| why.to_owned())?;
        bpf::attach_lsm(program).context(why)
    }

    /// Does what may take the kernel as long as a lease, and renews it meanwhile.
    /// Without a thread for that it renews the lease before and after.
    fn while_renewing<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(lease) = self.config.lease else { return act() };
        let (end, is_over) = channel::<()>();
        self.programs.lease(lease)?;
        std::thread::scope(|scope| {
            let renew = move || {
                while is_over.recv_timeout(lease / 4) == Err(RecvTimeoutError::Timeout) {
                    self.programs.lease(lease).ok();
                }
            };
            let _renewing = Builder::new().spawn_scoped(scope, renew);
            let done = act();
            drop(end);
            self.programs.lease(lease).and(done)
        })
    }

    /// Lets the decisions stand for another lease. Call it from the loop that shows that the agent
    /// is alive, several times in each lease.
    pub fn renew(&self) -> Result<()> {
        self.config.lease.map_or(Ok(()), |lease| self.programs.lease(lease))
    }

    /// Finds out how the servers do whose sockets are followed, and sets their limits by it. Call
    /// it each [`LOOK_EVERY`].
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn pace(&mut self) -> Result<()> {
        let mut demands = BTreeMap::<u32, Demand>::new();
        for (index, (slot, &server)) in (0..).zip(self.slots.iter().zip(&self.servers.of)) {
            if let Some(listener) = slot.as_ref().filter(|slot| follows_sockets(slot)) {
                let stats = self.programs.stats(index)?;
                demands.entry(server).or_default().add(&listener.policy, listener.dry_run, &stats);
            }
        }
        self.pacers.retain(|server, _| demands.contains_key(server));
        let is_reloaded = self.is_reloaded;
        for (server, demand) in demands {
            let counts = self.programs.service(server)?;
            let look = Look { at: Nanos(program::now_ns()?), counts, demand };
            let learnt = if self.pacers.contains_key(&server) { None } else { self.recall(server) };
            let pacer = self.pacers.entry(server);
            let mut stops = false;
            let go_on = |pacer: &mut Pacer| {
                let had_stopped = pacer.has_stopped();
                if is_reloaded {
                    pacer.look_anew(look)
                } else {
                    pacer.tick(look)
                }
                stops = pacer.has_stopped() && !had_stopped;
            };
            let begin = || learnt.map_or_else(|| Pacer::new(look), |learnt| Pacer::knowing(look, &learnt));
            let pacer = pacer.and_modify(go_on).or_insert_with(begin);
            self.programs.set_pace(server, pacer.pace())?;
            if stops && let Some(listen) = self.listen_of(server) {
                self.notes.push(format!(
                    "{listen}: the server stood idle while others were refused; nobody is refused for ten seconds"
                ));
            }
        }
        self.is_reloaded = false;
        Ok(())
    }

    /// The first listener of a server.
    fn listen_of(&self, server: u32) -> Option<SocketAddr> {
        Some(self.slots.get(server as usize)?.as_ref()?.listen)
    }

    /// What a guard before this one has learnt of a server.
    fn recall(&mut self, server: u32) -> Option<Learnt> {
        let read = self.memory.as_ref()?.read(self.listen_of(server)?);
        read.unwrap_or_else(|error| {
            self.notes.push(format!("{error:#}"));
            None
        })
    }

    /// Keeps what is known of servers for the guard after this one. From a thread: a disk may take
    /// longer than a lease.
    fn remember(&mut self) {
        let Some(memory) = self.memory.clone() else { return };
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        let known: Vec<(SocketAddr, Learnt)> = self
            .pacers
            .iter()
            .filter_map(|(&server, pacer)| Some((self.listen_of(server)?, pacer.learnt()?)))
            .collect();
        let write = move || known.into_iter().try_for_each(|(listen, learnt)| memory.write(listen, learnt));
        let next = Builder::new().spawn(write).context("write what is known of servers");
        let written = self.writing.take().map_or(Ok(()), |writing| {
            writing.join().unwrap_or_else(|_| Err(anyhow!("what writes the state files has panicked")))
        });
        let written = written.and(next.map(|next| self.writing = Some(next)));
        let is_said = std::mem::replace(&mut self.is_forgetful, written.is_err());
        if let (Err(error), false) = (written, is_said) {
            self.notes.push(format!(
                "{error:#}; what is learnt of a server ends with this guard until it can be written"
            ));
        }
    }

    /// How long the program of a hook takes for a frame: the mean of `repeat` runs, in the calling
    /// thread's network namespace and as if it came in by its loopback. See [`bpf::test_run`]; the
    /// runs count in the statistics.
    ///
    /// # Panics
    ///
    /// When the guard may not try that hook.
    pub fn time(&self, hook: Hook, frame: &[u8], repeat: u32) -> Result<Duration> {
        bpf::test_run(self.programs.for_hook(hook), frame, repeat).context("run the program on a frame")
    }

    /// What is counted of the first listener and its server. Cheaper than [`Guard::sample`], for a
    /// caller that looks each [`LOOK_EVERY`].
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    ///
    /// # Panics
    ///
    /// Without a listener.
    pub fn read(&self) -> Result<Reading> {
        let (index, listener) = (0..)
            .zip(&self.slots)
            .find_map(|(index, slot)| Some((index, slot.as_ref()?)))
            .expect("a listener");
        Ok(Reading {
            load: rules::look(&self.programs, listener.listen)?,
            stats: self.programs.stats(index)?,
            service: self.programs.service(self.servers.of[index as usize])?,
            at: Nanos(program::now_ns()?),
        })
    }

    /// How long its programs at the interfaces and at the sockets have run, while a
    /// [`bpf::RunCounting`] was there.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn run_time(&self) -> Result<Duration> {
        self.programs.run_time()
    }

    /// Whether another guard has put its programs in the place of this one's; then there is nothing
    /// left to do but to end.
    pub fn is_taken_over(&self) -> bool {
        self.attached.iter().any(|attached| attached.is_taken_over(&self.programs))
    }

    /// What to do once [`Guard::is_taken_over`] has been true for longer than a lease: if the other
    /// guard has let its own run out since, puts our programs back. Ask again until it is known, in
    /// the namespace where the guard was started.
    ///
    /// # Errors
    ///
    /// When they cannot be put back.
    pub fn succession(&self) -> Result<Succession> {
        let least = self.attached.iter().filter_map(Attached::lease_left).min();
        let lease = self.config.lease.unwrap_or_default();
        let succession = Succession::by(least, lease);
        if succession == Succession::Back {
            let there = self.attached.iter().filter(|attached| !attached.is_detached());
            let results: Vec<_> = there.map(|attached| attached.take_back(&self.programs)).collect();
            results.into_iter().collect::<std::io::Result<()>>().context("put our programs back")?;
        }
        let is_held_by = |pid| self.attached.iter().any(|attached| attached.is_held_by(pid));
        if succession == Succession::Gone && self.config.take_over.is_some_and(is_held_by) {
            return Ok(Succession::TakenBack);
        }
        Ok(succession)
    }

    /// Interfaces and hooks in use.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// What the operator should know of the start although it is no error; one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether another guard was at an interface of this one at the start, as far as may be known.
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Reads the listeners' queues and all counters, and sees to it that a wildcard stands for the
    /// addresses that the host has now. Call it in the namespace where the guard was started, every
    /// second or so.
    ///
    /// # Errors
    ///
    /// [`NothingLeft`], or the kernel cannot be asked just now.
    pub fn sample(&self) -> Result<Sample> {
        let is_gone = !self.attached.is_empty() && self.attached.iter().all(Attached::is_detached);
        if is_gone && !self.follows_all() {
            return Err(NothingLeft.into());
        }
        self.programs.replace_idle_cookie_key()?;
        set_own_addresses(&self.programs, &self.slots)?;
        // A dual-stack listener may have come since, or have made room for one of IPv4 alone.
        let away = rules::away(&self.slots, self.surroundings.away());
        let keys = rules::keys(&self.programs, &self.slots, &away)?;
        self.programs.add_keys(&keys)?;
        self.programs.forget_keys_of(&away)?;
        self.programs.forget_others_listeners(&keys)?;
        let observation = self.observer.as_ref().map(Observer::look).transpose()?;
        let sample = |(listener, index): (&Listener, u32)| -> Result<ListenerSample> {
            let (listener, stats) = (listener.clone(), self.programs.stats(index)?);
            if let Some(observation) = observation.as_ref().filter(|_| !decides(&listener)) {
                let (load, observed) = observation.of(listener.listen);
                let observed = Some(observed);
                return Ok(ListenerSample {
                    listener,
                    load,
                    stats,
                    service: None,
                    observed,
                    is_blind: false,
                });
            }
            let load = rules::look(&self.programs, listener.listen)?;
            let server = self.servers.of[index as usize];
            let service = match self.pacers.get(&server).filter(|_| follows_sockets(&listener)) {
                Some(pacer) => {
                    let counts = self.programs.service(server)?;
                    Some(ServerSample::of(&counts, pacer, listener.policy.trigger))
                }
                None => None,
            };
            let is_blind = self.surroundings.blind().is_to(listener.listen);
            Ok(ListenerSample { listener, load, stats, service, observed: None, is_blind })
        };
        let slots = self.slots.iter().zip(0..).filter_map(|(slot, index)| Some((slot.as_ref()?, index)));
        Ok(Sample { listeners: slots.map(sample).collect::<Result<_>>()?, path: self.programs.path()?, away })
    }
}

/// Whether segments must come by at tcx wherever the other stages are.
fn needs_tc(config: &Config, slots: &[Option<Listener>]) -> bool {
    config.sockopt || slots.iter().flatten().any(|listener| listener.policy.needs_socket_buffers())
}

/// What the programs of a control group are for, in errors.
const SOCKOPT: &str = "allow the socket option";
const FOLLOW: &str =
    "follow the sockets of the server (for unserved and sojourn; rst-syn alone does without)";

/// Whether the policy asks who waits for the server.
fn follows_sockets(listener: &Listener) -> bool {
    listener.policy.trigger != Trigger::Queue
}

/// None where everything is decided.
fn start_observer(slots: &[Option<Listener>]) -> Result<Option<Observer>> {
    let is_observed = slots.iter().flatten().any(|listener| !decides(listener));
    is_observed.then(Observer::start).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_that_took_over_goes_on_if_it_has_just_renewed_its_lease() {
        let lease = Duration::from_secs(1);
        for (left_ms, then) in [
            (Some(0), Succession::Back),
            (Some(1), Succession::Unknown),
            (Some(690), Succession::Unknown),
            (Some(710), Succession::Gone),
            (None, Succession::Gone),
        ] {
            assert_eq!(Succession::by(left_ms.map(Duration::from_millis), lease), then, "{left_ms:?}");
        }
    }
}
