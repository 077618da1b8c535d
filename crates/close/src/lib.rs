//! Moves TIME_WAIT from a server that closes first to its client (`[FTY97]`), by programs at the
//! client's interfaces.
//!
//! [`Closing::start`] loads `kernel/close.bpf.c` and attaches it. Dropping the [`Closing`] detaches
//! the programs and lets held FINs in.
//!
//! If the process is killed, the server repeats a held FIN. From Linux 6.6 on the kernel detaches
//! the programs. Before, they stay, but hold no FIN and answer no last ACK after their lease.
//!
//! [`Way`] lists the ways, and `docs/closing.md` says who should use which.
//!
//! A [`Closing`] acts in the network namespace in which it was started. The server stays as it is.
//!
//! It needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
//!
//! # How it works
//!
//! ```text
//! server's FIN -> arriving() at tc ingress -> kernel     hold: without its FIN
//! client's FIN -> leaving() at tc egress -> interface    hold: before it, the server's comes in
//! server's ACK of that -> arriving() -> a clone to the kernel, a RST back    hold, swap
//! ```
//!
//! - `kernel/close.h` decides. What is held is in the client's socket (storage). A last FIN is
//!   noted in a map by addresses and ports, because TIME_WAIT has no storage.
//! - A FIN that we let in acknowledges no more than the server has. So the client's kernel is in
//!   CLOSING, and sends again what is lost. The FIN comes in only if all that the server sent
//!   before it is here.
//! - Nobody acknowledges the server's FIN. Once the server has acknowledged ours, the client is in
//!   TIME_WAIT, and a RST takes the server out of CLOSING.
//! - *swap* needs a quarantine of our own, because the kernel has forgotten the ports. The kernel
//!   walks through its ports from another place every 10 s, so it may come to one in quarantine,
//!   and its SYN is dropped. So the quarantine is 1 s with timestamps, as for `tcp_tw_reuse`, and
//!   not twice the segment lifetime as in `[FTY97]`. *hold* has the kernel's own TIME_WAIT.
//! - The agent hears of a held FIN by a ring. If nobody has asked for it after a second, the
//!   server's host may be gone. Then the agent makes the FIN anew, and lets it in by a test run of
//!   `overdue()`.
//! - A program that waits for the end, or sends more, pays for hold. So swap is the default.
//! - Before Linux 6.6 the programs are filters of clsact, because there is no tcx. A lease of 5 s
//!   ends their work if the process is killed.

mod backoff;
mod destination;
mod error;
mod held;
mod program;
mod setup;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bpf::{AttachError, Clsact, Hook, SoleLink};
use netlink::Interface;
use nix::errno::Errno;

pub use destination::Destination;
pub use error::{Error, Result};
pub use program::Counts;
pub use setup::{QUARANTINE, Setup, Sockets, Way};

use backoff::BackOff;
use error::{Act, refused};
use program::Program;

/// The programs look for a server's last ACK for one to three generations after the client's FIN.
const GENERATION: Duration = Duration::from_secs(30);
/// A process that is stopped or hangs holds no FIN and answers no last ACK after this.
const LEASE: Duration = Duration::from_secs(5);

/// The programs at the client's interfaces, until this is dropped.
pub struct Closing {
    /// Network namespace of the start.
    home: File,
    at: Vec<Attachment>,
    /// Links of the setsockopt programs.
    _asked: Vec<OwnedFd>,
    program: Program,
    interfaces: Vec<(u32, String)>,
    sockets: Sockets,
    next_generation: Instant,
    /// One for each destination, in their order.
    back_offs: Vec<BackOff>,
}

impl Closing {
    /// Loads the programs and attaches them. If anything fails, none stays attached.
    ///
    /// # Errors
    ///
    /// The setup makes no sense, an interface does not exist, privileges are missing, or the kernel
    /// has neither tcx nor clsact.
    pub fn start(setup: &Setup) -> Result<Self> {
        setup.check()?;
        let interfaces = interfaces(setup)?;
        let program = Program::load(setup)?;
        program.lease(LEASE)?;
        let asked = match setup.sockets {
            Sockets::ThatAsk => program.let_sockets_ask()?,
            _ => Vec::new(),
        };
        let home = File::open("/proc/thread-self/ns/net").act("open the network namespace")?;
        let attach = |interface| Attachment::attach(&program, interface);
        let at = interfaces.iter().map(attach).collect::<Result<_>>()?;
        let interfaces = interfaces
            .iter()
            .map(|interface| (interface.index, name_of(interface.index).unwrap_or_default()))
            .collect();
        Ok(Self {
            home,
            at,
            _asked: asked,
            program,
            interfaces,
            sockets: setup.sockets.clone(),
            next_generation: Instant::now() + GENERATION,
            back_offs: vec![BackOff::default(); setup.destinations.len()],
        })
    }

    /// Renews the lease, ends old quarantines and lets in FINs held too long. Call it every second.
    ///
    /// Returns the places of the destinations that begin to back off: for a minute no FIN is held
    /// there.
    ///
    /// # Errors
    ///
    /// A map cannot be read or written.
    pub fn renew(&mut self) -> Result<Vec<usize>> {
        let program = &mut self.program;
        netns::enter(&self.home, || program.sweep()).act("enter the network namespace")??;
        if Instant::now() >= self.next_generation {
            self.next_generation += GENERATION;
            self.program.begin_generation();
        }
        let (now, counts) = (Instant::now(), self.counts()?);
        let looks = self.back_offs.iter_mut().zip(&counts).enumerate();
        let begun =
            looks.filter_map(|(place, (back_off, counts))| back_off.look(counts, now).then_some(place));
        let begun = begun.collect();
        let bit = |(place, back_off): (usize, &BackOff)| u64::from(back_off.is_on()) << place;
        self.program.back_off(self.back_offs.iter().enumerate().map(bit).sum());
        self.program.lease(LEASE)?;
        Ok(begun)
    }

    /// Names of the interfaces at which the programs are.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.iter().map(|(_, name)| name.as_str())
    }

    /// An error if an interface or the control group is gone.
    ///
    /// # Errors
    ///
    /// Which of them is gone.
    pub fn check(&self) -> Result<()> {
        let gone = self
            .interfaces
            .iter()
            .find(|(index, _)| Interface::name_of(*index).is_ok_and(|name| name.is_none()));
        if let Some((_, name)) = gone {
            return Err(refused(format!("{name} is gone; start again when it is back")));
        }
        match &self.sockets {
            Sockets::Of(folder)
                if self.program.cgroup() != program::cgroup_id(folder).unwrap_or_default() =>
            {
                let shown = folder.display();
                Err(refused(format!(
                    "control group {shown} is gone or was made anew; start again when it is there"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Counters of each destination, in their order.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        self.program.counts()
    }

    /// Mean time of a program for `frame` over `runs` runs, for a bench. The frame must have no
    /// socket here.
    ///
    /// # Errors
    ///
    /// The kernel refuses `BPF_PROG_TEST_RUN`.
    pub fn time(&self, hook: Hook, frame: &[u8], runs: u32) -> Result<Duration> {
        let program = match hook {
            Hook::TcxEgress => self.program.leaving(),
            _ => self.program.arriving(),
        };
        bpf::test_run(program, frame, runs).act("time a program")
    }

    /// Connections whose addresses and ports are in quarantine now. Only [`Way::Swap`] has any.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn quarantined(&self) -> Result<usize> {
        self.program.quarantined()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let (at, program) = (&mut self.at, &mut self.program);
        // The programs go first: they must not hold another FIN after this lets the last one in.
        let detach = || {
            at.clear();
            program.let_in(None)
        };
        let _ = netns::enter(&self.home, detach);
    }
}

/// The programs attached to one interface.
enum Attachment {
    Tcx { _links: [SoleLink; 2] },
    Clsact { _filters: Clsact },
}

impl Attachment {
    fn attach(program: &Program, interface: &Interface) -> Result<Self> {
        // Egress comes first: it must be there to let in what ingress holds.
        let programs = [(program.leaving(), Hook::TcxEgress), (program.arriving(), Hook::TcxIngress)];
        let act = || {
            let name = name_of(interface.index).unwrap_or_else(|| "an interface that has gone".to_owned());
            format!("attach the programs to {name}; run as root and look at tidegate doctor")
        };
        let leaving = match SoleLink::attach(program.leaving(), interface.index, Hook::TcxEgress) {
            Err(AttachError { error, .. }) if is_unknown(&error) => {
                let filters = Clsact::attach(interface.index, programs);
                return Ok(Self::Clsact { _filters: filters.act_with(act)? });
            }
            leaving => leaving.act_with(act)?,
        };
        let arriving = SoleLink::attach(program.arriving(), interface.index, Hook::TcxIngress);
        Ok(Self::Tcx { _links: [leaving, arriving.act_with(act)?] })
    }
}

/// True if the kernel has no tcx, as before Linux 6.6.
fn is_unknown(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EINVAL | Errno::EOPNOTSUPP))
}

/// The interfaces that the setup names, or those by which the destinations are reached.
fn interfaces(setup: &Setup) -> Result<Vec<Interface>> {
    let mut all = Vec::<Interface>::new();
    let mut add = |interface: Interface| {
        if all.iter().all(|known| known.index != interface.index) {
            all.push(interface);
        }
    };
    for name in &setup.interfaces {
        let interface = Interface::find(name).act_with(|| format!("look for {name}"))?;
        add(interface
            .ok_or_else(|| refused(format!("{name}: no such interface{}", Interface::instead_of(name))))?);
    }
    if setup.interfaces.is_empty() {
        for destination in &setup.destinations {
            let address = destination.network.addr();
            let way = || format!("find the way to {address}; name an interface with --interface");
            let route = netlink::route(address, None).act_with(way)?;
            let name = if route.is_local { Some("lo".to_owned()) } else { route.interface.and_then(name_of) };
            let name = name.ok_or_else(|| {
                refused(format!("no way leads to {address}; name an interface with --interface"))
            })?;
            add(Interface::find(&name)
                .act_with(|| format!("look for {name}"))?
                .ok_or_else(|| refused(format!("{name} has gone; start again when it is back")))?);
        }
    }
    match all.iter().find(|interface| !interface.is_ethernet && !interface.is_loopback) {
        Some(other) => {
            let name = name_of(other.index).unwrap_or_default();
            let why = "carries no Ethernet frames, which is all that the programs read";
            Err(refused(format!("{name} {why}; name the interface below it")))
        }
        None => Ok(all),
    }
}

fn name_of(index: u32) -> Option<String> {
    Interface::name_of(index).ok().flatten()
}
