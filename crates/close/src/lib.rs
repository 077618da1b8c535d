//! Who keeps TIME_WAIT when a server closes first (`[FTY97]`): its client, by programs at the
//! client's interfaces.
//!
//! [`Closing::start`] loads `kernel/close.bpf.c` and attaches it. Dropping the [`Closing`] takes it
//! off again, and lets in what is held. If the process is killed, the programs go, too; a FIN that
//! was held just then comes again from the server.
//!
//! [`Way`] says what there is to choose from, and `docs/closing.md` who should use what.
//!
//! All of it concerns the calling thread's network namespace. It needs root, or CAP_BPF,
//! CAP_PERFMON and CAP_NET_ADMIN.

mod backoff;
mod destination;
mod error;
mod held;
mod program;
mod setup;

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

/// A segment is looked for behind a last FIN for two to three of these.
const GENERATION: Duration = Duration::from_secs(30);
/// A process that is stopped or hangs changes nothing after this.
const LEASE: Duration = Duration::from_secs(5);

/// Programs at the client's interfaces, until this is dropped.
pub struct Closing {
    at: Vec<At>,
    /// What hears sockets ask.
    _asked: Vec<OwnedFd>,
    program: Program,
    interfaces: Vec<(u32, String)>,
    next_generation: Instant,
    /// Of each destination.
    back_offs: Vec<BackOff>,
}

impl Closing {
    /// Begins. If anything fails, nothing is attached.
    ///
    /// # Errors
    ///
    /// One line: what makes no sense, no such interface, a kernel without tcx and clsact, missing
    /// privileges.
    pub fn start(setup: &Setup) -> Result<Self> {
        setup.check()?;
        let interfaces = interfaces(setup)?;
        let program = Program::load(setup)?;
        program.lease(LEASE)?;
        let asked = match setup.sockets {
            Sockets::ThatAsk => program.let_sockets_ask()?,
            _ => Vec::new(),
        };
        let at = interfaces.iter().map(|interface| At::attach(&program, interface)).collect::<Result<_>>()?;
        let interfaces = interfaces
            .iter()
            .map(|interface| (interface.index, name_of(interface.index).unwrap_or_default()))
            .collect();
        Ok(Self {
            at,
            _asked: asked,
            program,
            interfaces,
            next_generation: Instant::now() + GENERATION,
            back_offs: vec![BackOff::default(); setup.destinations.len()],
        })
    }

    /// To be called about once a second: goes on, and forgets what is over. Gives the destinations,
    /// by their place, where FINs were held in vain and are not held for the next minute.
    ///
    /// # Errors
    ///
    /// When a map cannot be read or written.
    pub fn renew(&mut self) -> Result<Vec<usize>> {
        self.program.sweep()?;
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

    /// An error if an interface is gone, and its programs with it.
    ///
    /// # Errors
    ///
    /// One line: which.
    pub fn check_interfaces(&self) -> Result<()> {
        match self.interfaces.iter().find(|(index, _)| name_of(*index).is_none()) {
            Some((_, name)) => Err(refused(format!("{name} is gone; start again when it is back"))),
            None => Ok(()),
        }
    }

    /// What was counted of each destination, in their order.
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        self.program.counts()
    }

    /// How long a program takes for a frame of a connection that has no socket here, in so many
    /// runs; for a bench.
    ///
    /// # Errors
    ///
    /// As `BPF_PROG_TEST_RUN`.
    pub fn time(&self, hook: Hook, frame: &[u8], runs: u32) -> Result<Duration> {
        let program = match hook {
            Hook::TcxEgress => self.program.leaving(),
            _ => self.program.arriving(),
        };
        bpf::test_run(program, frame, runs).act("time a program")
    }

    /// Connections whose addresses and ports are kept from use at this moment; under [`Way::Swap`].
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub fn quarantined(&self) -> Result<usize> {
        self.program.quarantined()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Nothing more is held, and then nothing at all.
        self.at.clear();
        let _ = self.program.let_in(None);
    }
}

/// The programs at an interface.
enum At {
    Tcx { _links: [SoleLink; 2] },
    Clsact { _filters: Clsact },
}

impl At {
    fn attach(program: &Program, interface: &Interface) -> Result<Self> {
        // First what sees a last FIN leave: nothing is held that nobody would let in.
        let programs = [(program.leaving(), Hook::TcxEgress), (program.arriving(), Hook::TcxIngress)];
        let leaving = match SoleLink::attach(program.leaving(), interface.index, Hook::TcxEgress) {
            Err(AttachError { error, .. }) if is_unknown(&error) => {
                let filters = Clsact::attach(interface.index, programs);
                return Ok(Self::Clsact { _filters: filters.act("attach as filters of clsact")? });
            }
            leaving => leaving.act("attach")?,
        };
        let arriving = SoleLink::attach(program.arriving(), interface.index, Hook::TcxIngress);
        Ok(Self::Tcx { _links: [leaving, arriving.act("attach")?] })
    }
}

/// Before Linux 6.6 the kernel knows no tcx.
fn is_unknown(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EINVAL | Errno::EOPNOTSUPP))
}

/// Those that were named, or by which the destinations are reached.
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
            .ok_or_else(|| refused(format!("{name}: no such interface; ip link shows which there are")))?);
    }
    if setup.interfaces.is_empty() {
        for destination in &setup.destinations {
            let address = destination.network.addr();
            let route = netlink::route(address, None).act_with(|| format!("find the way to {address}"))?;
            let name = if route.is_local { Some("lo".to_owned()) } else { route.interface.and_then(name_of) };
            let name =
                name.ok_or_else(|| refused(format!("no way leads to {address}; name an interface")))?;
            add(Interface::find(&name)
                .act_with(|| format!("look for {name}"))?
                .ok_or_else(|| refused(format!("{name} has gone")))?);
        }
    }
    match all.iter().find(|interface| !interface.is_ethernet && !interface.is_loopback) {
        Some(_) => {
            Err(refused("an interface carries no Ethernet frames, which is all that the programs read"))
        }
        None => Ok(all),
    }
}

fn name_of(index: u32) -> Option<String> {
    nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
}
