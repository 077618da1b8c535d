//! Sends the shortest response first on the uplink of a server (`[SH06]`), with a stock kernel and
//! no change of the server.
//!
//! [`Uplink::start`] puts an HTB tree with a class for each band on an interface, and
//! `kernel/uplink.bpf.c` as its filter. The tree holds the rate, so the queue is here and not in
//! what comes after. Dropping the [`Uplink`] removes all of it.
//!
//! What this is not: a guard. It refuses no connection and drops no packet that a plain queue of
//! the rate would not drop. All of it concerns the calling thread's network namespace. It needs
//! root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
//!
//! # How it works
//!
//! ```text
//! application -> TCP -> TBF (the rate; cuts buffers into segments) -> HTB -> band 0 .. 7
//!                                     classify(): whose segment, how many bytes are left -> class
//! ```
//!
//! - `kernel/bands.h` decides by bytes left, cutoffs, the present band, and whether earlier
//!   segments of the connection still wait. While they do it is not moved up, because it would
//!   overtake itself.
//! - The program is a filter of HTB (`cls_bpf`), not one at tcx egress. So one way is for every
//!   kernel from 6.1 on, and the operator's `skb->priority` stays. The tree can go below a class of
//!   the operator's own, and the program goes with its qdisc.
//! - The floors of the lower bands are why it is HTB (`tree.rs`): prio and ets have none.
//! - After `kill -9` a lease ends, and all packets are in the top band: one FIFO of the rate. The
//!   next [`Uplink::start`] replaces the tree.
//! - A size comes from the best of five sources (`kernel/left.bpf.h`). What the program or
//!   sendfile(2) says is kept until the bytes are sent; Content-Length is read from the first
//!   segment. If more is sent than was said, the response goes on as one of unknown size.

mod error;
mod program;
mod setup;
mod sizes;
mod tree;

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bpf::{Hook, SoleLink};
use netlink::Interface;

pub use error::{Error, Result};
pub use kernel::SizeSource as Source;
pub use program::{BandCount, SentResponse};
pub use setup::{Endpoint, FLOOR, LEASE, Order, Setup};
pub use sizes::Sizes;
pub use tree::{TBF_LIMIT, burst_bytes};

use error::{Act, refused};
use program::Program;
use tree::Tree;

/// What a program asks the kernel for, to be named in an error.
const SOCKOPT: &str = "the socket option TIDEGATE_BYTES_TO_COME";

/// How long one that is ending may take, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(10);

/// An uplink that sends the shortest response first, until this is dropped.
pub struct Uplink {
    // In this order: the programs go before their tree.
    _links: Vec<OwnedFd>,
    _dry_run: Option<SoleLink>,
    tree: Option<Tree>,
    program: Program,
    setup: Setup,
    interface: Interface,
    cutoffs: Vec<u64>,
    missing: Vec<(Source, String)>,
    // Last: another may begin once all is gone.
    _place: UnixListener,
}

impl Uplink {
    /// Begins. If anything fails, the interface has what it had.
    ///
    /// # Errors
    ///
    /// One line: no such interface, a root queue discipline that somebody made, a kernel without
    /// HTB or `cls_bpf`, missing privileges.
    pub fn start(setup: &Setup) -> Result<Self> {
        setup.check()?;
        let interface =
            Interface::find(&setup.interface).act_with(|| format!("look for {}", setup.interface))?;
        let interface = interface.ok_or_else(|| {
            let then = Interface::instead_of(&setup.interface);
            refused(format!("{}: no such interface{then}", setup.interface))
        })?;
        if !interface.is_ethernet {
            return Err(refused(format!(
                "{} carries no Ethernet frames, which is all that the filter reads; name the interface below it",
                setup.interface
            )));
        }
        let place = take_place(&interface, setup)?;
        tree::check(setup)?;
        let mut program = Program::load(setup)?;
        let cutoffs = match setup.order {
            Order::Fair => Vec::new(),
            _ => setup.cutoffs.clone().unwrap_or_else(|| setup::FIRST_CUTOFFS.to_vec()),
        };
        program.set_cutoffs(&cutoffs)?;
        let (links, missing) = program.attach_sources(setup);
        let mut uplink = Self {
            _links: links,
            _dry_run: None,
            tree: None,
            program,
            setup: setup.clone(),
            interface,
            cutoffs,
            missing,
            _place: place,
        };
        if let Some((source, why)) = uplink.missing.iter().find(|(source, _)| setup.insisted == Some(*source))
        {
            return Err(refused(format!("{}: {why}", source.name())));
        }
        if setup.is_dry_run {
            let link = SoleLink::attach(uplink.program.only_count(), uplink.interface.index, Hook::TcxEgress);
            uplink._dry_run = Some(link.act("count what leaves, which takes Linux 6.6 for a dry run")?);
            uplink.renew()?;
            return Ok(uplink);
        }
        let tree = uplink.tree.insert(Tree::build(setup, uplink.interface.mtu)?);
        tree.filter(uplink.interface.index, uplink.program.classify())?;
        uplink.renew()?;
        Ok(uplink)
    }

    /// Keeps the filter at work for [`Setup::lease`] more: to be called many times in that.
    ///
    /// # Errors
    ///
    /// When the clock cannot be read.
    pub fn renew(&mut self) -> Result<()> {
        self.program.renew(self.setup.lease)
    }

    /// The responses that were sent since the last call, oldest first.
    ///
    /// # Errors
    ///
    /// When the ring cannot be read.
    pub fn take_sent(&mut self) -> Result<Vec<SentResponse>> {
        self.program.take_sent()
    }

    /// Follows what became of the interface, as a larger MTU.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn follow(&mut self) -> Result<()> {
        let name = &self.setup.interface;
        let now = Interface::find(name).act_with(|| format!("look for {name}"))?;
        let now = now.filter(|now| now.index == self.interface.index);
        let now = now.ok_or_else(|| {
            refused(format!("{name} is gone, or has another name; start again where responses leave now"))
        })?;
        if let Some(tree) = self.tree.as_ref().filter(|_| now.mtu > self.interface.mtu) {
            tree.follow_mtu(self.setup.rate_bps, now.mtu)?;
        }
        self.interface = now;
        Ok(())
    }

    /// What the bands have sent and hold, the top one first, and last what was not placed.
    ///
    /// # Errors
    ///
    /// When the interface or the tree is gone.
    pub fn bands(&self) -> Result<Vec<BandCount>> {
        let mut bands = self.program.band_counts(self.setup.bands())?;
        if self.tree.is_some() {
            let classes = netlink::classes(self.interface.index, tree::HANDLE);
            let classes = classes.act_with(|| format!("read what {} counts", self.setup.interface))?;
            if classes.is_empty() {
                return Err(refused(format!(
                    "somebody has removed the queue discipline {} of {}; start again to have it back",
                    tree::NAME,
                    self.setup.interface
                )));
            }
            for (number, band) in bands.iter_mut().enumerate() {
                if let Some(class) = classes.iter().find(|class| class.id == tree::class_of(number)) {
                    band.qlen_pkts = class.qlen_pkts;
                    band.qlen_bytes = class.qlen_bytes;
                    band.drops = class.drops;
                }
            }
        }
        Ok(bands)
    }

    /// Responses that were sent and not told, because nobody read in time.
    pub fn uncounted(&self) -> u64 {
        self.program.uncounted()
    }

    /// The cutoffs in force, bytes.
    pub fn cutoffs(&self) -> &[u64] {
        &self.cutoffs
    }

    /// Puts other cutoffs in force at once: bytes, ascending, as many as there were or fewer.
    ///
    /// # Errors
    ///
    /// When they do not ascend, or are too many.
    pub fn set_cutoffs(&mut self, cutoffs: &[u64]) -> Result<()> {
        self.program.set_cutoffs(cutoffs)?;
        self.cutoffs = cutoffs.to_vec();
        Ok(())
    }

    /// Sources of sizes that this host does not have, and why.
    pub fn missing(&self) -> &[(Source, String)] {
        &self.missing
    }
}

/// One uplink for an interface: the name of a socket that nobody can connect to, which goes with
/// this process.
fn take_place(interface: &Interface, setup: &Setup) -> Result<UnixListener> {
    let what = if setup.is_dry_run { "dry" } else { "uplink" };
    // Such names are of a network namespace, as interfaces are.
    let name = format!("tidegate-{what}-{}", interface.index);
    let address = SocketAddr::from_abstract_name(name).act("name what holds the interface")?;
    // A child that has just been forked holds what one that has ended had, until it begins its
    // program.
    let until = Instant::now() + PATIENCE;
    let bound = loop {
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => sleep(NAP),
            bound => break bound,
        }
    };
    bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            refused(format!("another tidegate uplink is at work on {}; end it first", setup.interface))
        }
        _ => refused(format!("hold {}: {error}", setup.interface)),
    })
}
