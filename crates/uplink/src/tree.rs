//! The tree of the bands, by iproute2's `tc`: what it did can be read back and repeated by hand.
//!
//! One arrangement is for every kernel. TBF is on top and holds the rate; it cuts large buffers
//! (GSO) into segments, of which no other one must wait for more than one. Below is HTB with a leaf
//! for each band, which serves a leaf of a lower `prio` number first. A leaf with tokens of its own
//! rate goes before all that borrow: that is the floor of the lowest band. The class above the
//! lower bands has tokens, too, before the top band: that is the floor of them together. prio and
//! ets are strict, too, but have no floor, and are on fewer kernels.

use std::os::fd::BorrowedFd;

use qdisc::tc;

use crate::error::{Act, Error, Result, refused};
use crate::setup::Setup;

/// Of the queue discipline, `0x7467` for "tg": nobody else's is likely to have it.
pub(crate) const HANDLE: u32 = 0x7467_0000;
/// The same, as tc writes it.
const BANDS: &str = "7467:";
/// Of what holds the rate, above.
pub(crate) const NAME: &str = "7466:";
/// Class of the top band; those of the others follow.
pub(crate) const TOP: u32 = HANDLE | 0x10;
/// Of a leaf without a floor, bit/s: HTB's least.
const NOTHING: u64 = 8;
/// What is above holds the rate, bit/s.
const UNBOUNDED: u64 = 100_000_000_000;
/// Of a leaf, bytes that it sends in a turn among leaves of its band: there are none, and tc wants
/// a number.
const QUANTUM: u32 = 1514;
/// Of TBF's own queue, bytes, for which HTB takes the place at once.
pub const TBF_LIMIT: u32 = 1_000_000;
/// Packets that a band holds. Many near clients may fill it; TCP is told of the drop.
const LIMIT: &str = "1000";

/// The class of a band.
pub(crate) fn class_of(band: usize) -> u32 {
    TOP + band as u32
}

/// Where the tree goes, as tc writes it.
fn place_of(parent: Option<&str>) -> String {
    parent.map_or_else(|| "root".to_owned(), |parent| format!("parent {parent}"))
}

/// What TBF may send at once, bytes: of a link's time a millisecond, so that no more than that is
/// lost to a late timer, and a segment at least.
pub fn burst_bytes(rate_bps: u64, mtu: u32) -> u64 {
    /// Ethernet's header, and two VLAN tags.
    const HEADER: u64 = 14 + 8;
    (rate_bps / 8 / 1_000).max(u64::from(mtu) + HEADER)
}

/// A tree on an interface, until this is dropped.
pub(crate) struct Tree {
    interface: String,
    parent: Option<String>,
}

/// What is where the tree should go, if anybody made it.
fn present(interface: &str, parent: Option<&str>) -> Result<Option<tc::Root>> {
    match parent {
        Some(class) => tc::below(interface, class),
        None => tc::root(interface).map(|root| root.filter(|root| !root.is_default())),
    }
    .act("ask tc")
}

fn is_ours(root: &tc::Root) -> bool {
    [NAME, BANDS].contains(&root.handle.as_str())
}

/// An error if the tree cannot go where it should.
pub(crate) fn check(setup: &Setup) -> Result<()> {
    if setup.is_dry_run {
        return Ok(());
    }
    let Setup { interface, parent, .. } = setup;
    let theirs = present(interface, parent.as_deref())?.filter(|root| !is_ours(root));
    theirs.map_or(Ok(()), |root| {
        Err(refused(format!(
            "{interface} has a queue discipline already: {}; name a class of it that has none with --parent, as 1:10, to go below that, or remove it with: \
             tc qdisc del dev {interface} {}",
            root.text,
            place_of(parent.as_deref())
        )))
    })
}

impl Tree {
    /// Builds the tree. It replaces one that was left behind, at once.
    pub(crate) fn build(setup: &Setup, mtu: u32) -> Result<Self> {
        let Setup { interface, parent, .. } = setup;
        // Not by replace: on a tree of ours that would change nothing.
        if present(interface, parent.as_deref())?.is_some_and(|root| is_ours(&root)) {
            let place = place_of(parent.as_deref());
            tc::run(&[format!("qdisc del dev {interface} {place}")]).act("remove what was left behind")?;
        }
        let mut commands = Vec::new();
        let mut place = place_of(parent.as_deref());
        if let Some(rate) = setup.rate_bps {
            let burst = burst_bytes(rate, mtu);
            commands.push(format!(
                "qdisc replace dev {interface} {place} handle {NAME} tbf rate {rate}bit burst {burst} limit {TBF_LIMIT}"
            ));
            place = format!("parent {NAME}1");
        }
        commands.push(format!("qdisc replace dev {interface} {place} handle {BANDS} htb default 10"));
        commands.push(format!(
            "class add dev {interface} parent {BANDS} classid {BANDS}1 htb rate {UNBOUNDED}bit quantum {QUANTUM}"
        ));
        let floor = setup.rate_bps.map_or(0.0, |rate| setup.floor * rate as f64) as u64;
        let floor = floor.max(NOTHING);
        commands.push(format!(
            "class add dev {interface} parent {BANDS}1 classid {BANDS}2 htb rate {floor}bit ceil {UNBOUNDED}bit quantum {QUANTUM}"
        ));
        for band in 0..setup.bands() {
            let above = if band == 0 { 1 } else { 2 };
            // Of the others none may have tokens: a leaf that does overtakes the bands above, and
            // its connection's own earlier segments there.
            let rate = if band > 0 && band + 1 == setup.bands() { floor } else { NOTHING };
            let class = class_of(band) & 0xffff;
            commands.push(format!(
                "class add dev {interface} parent {BANDS}{above} classid {BANDS}{class:x} htb rate {rate}bit ceil {UNBOUNDED}bit prio {band} quantum {QUANTUM}"
            ));
            commands.push(format!("qdisc add dev {interface} parent {BANDS}{class:x} pfifo limit {LIMIT}"));
        }
        // The first command changes something or fails. From then on an error removes what is
        // there.
        tc::run(&commands[..1]).act("build the bands")?;
        let tree = Self { interface: interface.clone(), parent: parent.clone() };
        tc::run(&commands[1..]).act("build the bands")?;
        Ok(tree)
    }

    /// Follows a larger MTU, or TBF would drop the segments that it cannot cut.
    pub(crate) fn follow_mtu(&self, rate: Option<u64>, mtu: u32) -> Result<()> {
        let Some(rate) = rate else { return Ok(()) };
        let (interface, place) = (&self.interface, place_of(self.parent.as_deref()));
        let burst = burst_bytes(rate, mtu);
        tc::run(&[format!(
            "qdisc change dev {interface} {place} handle {NAME} tbf rate {rate}bit burst {burst} limit {TBF_LIMIT}"
        )])
        .act("follow the MTU")
    }

    /// Makes a program its filter.
    pub(crate) fn filter(&self, interface: u32, program: BorrowedFd<'_>) -> Result<()> {
        netlink::add_bpf_filter(interface, HANDLE, program, "tidegate").map_err(|error| Error::Failed {
            act: format!(
                "make the program the filter of {}, which takes a kernel with cls_bpf",
                self.interface
            ),
            error: error.into(),
        })
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let Self { interface, parent } = self;
        let place = place_of(parent.as_deref());
        // Where the interface is gone, so is the tree; and what somebody else put there since is
        // not ours.
        let is_ours =
            present(interface, parent.as_deref()).is_ok_and(|root| root.is_some_and(|root| is_ours(&root)));
        if is_ours {
            let _ = tc::run(&[format!("qdisc del dev {interface} {place}")]);
        }
    }
}
