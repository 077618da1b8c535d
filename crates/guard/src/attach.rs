//! Where the programs go on each interface.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use bpf::{AttachError, Before, HeldLink, Hook, Link};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use crate::interface::Interface;
use crate::program::{self, Programs};

/// What the operator asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attach {
    /// tcx, or generic XDP on a kernel without it.
    #[default]
    Auto,
    /// tcx ingress.
    Tcx,
    /// The driver's own XDP hook: cheaper than tcx, but some drivers reset the link when a program
    /// comes or goes.
    Xdp,
    /// XDP in the stack, where `Auto` ends up on kernels without tcx.
    XdpGeneric,
}

impl Attach {
    /// Every choice that has a name.
    pub const NAMED: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("tcx", Self::Tcx), ("xdp", Self::Xdp), ("xdp-generic", Self::XdpGeneric)];

    /// The choice with that name.
    pub fn by_name(name: &str) -> Option<Self> {
        let found = Self::NAMED.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, attach)| attach)
    }

    /// Hooks that are tried, in this order.
    ///
    /// Kernels before 6.6 have no tcx. There it is generic XDP and no clsact filter, because a
    /// filter would outlive `kill -9` of the guard.
    pub fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Auto => &[Hook::TcxIngress, Hook::XdpGeneric],
            Self::Tcx => &[Hook::TcxIngress],
            Self::Xdp => &[Hook::XdpNative],
            Self::XdpGeneric => &[Hook::XdpGeneric],
        }
    }
}

/// Where a guard's program may be.
pub const HOOKS: [Hook; 3] = [Hook::TcxIngress, Hook::XdpNative, Hook::XdpGeneric];

/// Another program that sees the frames of an interface before the guard's does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// What people call its hook: `xdp`, `tcx`.
    pub hook: &'static str,
    /// Its number, as `bpftool prog` has it.
    pub id: u32,
    /// Its name, which the kernel cuts at 15 characters; `None` without CAP_SYS_ADMIN.
    pub name: Option<String>,
}

impl Other {
    fn new(hook: Hook, id: u32) -> Self {
        Self { hook: hook.name(), id, name: bpf::program_name(id).ok() }
    }
}

impl fmt::Display for Other {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("a program");
        write!(to, "{name} (id {}, {})", self.id, self.hook)
    }
}

/// A program on an interface, until this is dropped.
#[derive(Debug)]
pub struct Attached {
    interface: String,
    index: u32,
    link: Link,
    /// The FIN stage and cookies, where the other stages are in XDP.
    beside: Option<Link>,
    before: Vec<Other>,
}

impl Attached {
    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Index of the interface when it was attached.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether it is there, by whatever name.
    pub fn is_on(&self, interface: &Interface) -> bool {
        self.index == interface.index && !self.is_detached()
    }

    /// Whether segments come by at tcx, too.
    pub fn is_at_tcx(&self) -> bool {
        self.hook() == Hook::TcxIngress || self.beside.is_some()
    }

    /// Where on it.
    pub fn hook(&self) -> Hook {
        self.link.hook()
    }

    /// Programs that saw the interface's frames before these at the last look, in their order.
    pub fn before(&self) -> &[Other] {
        &self.before
    }

    /// Looks which these are now. True if they are others than at the last look.
    pub fn look_before(&mut self, interface: &Interface, programs: &Programs) -> bool {
        self.look_before_but(interface, |id| programs.has(id))
    }

    /// `is_ours`: also of a guard that is taken over, until it has ended.
    fn look_before_but(&mut self, interface: &Interface, is_ours: impl Fn(u32) -> bool) -> bool {
        // Where it is in XDP itself, nothing comes before that.
        let xdp = interface.xdp_program.filter(|_| self.hook() == Hook::TcxIngress);
        let at_tcx = self.beside.as_ref().unwrap_or(&self.link).programs_before().unwrap_or_default();
        let at_xdp = xdp.into_iter().map(|id| (Hook::XdpNative, id));
        let now = at_xdp.chain(at_tcx.into_iter().map(|id| (Hook::TcxIngress, id)));
        let ids: Vec<(Hook, u32)> = now.collect();
        let known = |&(hook, id): &(Hook, u32)| {
            self.before.iter().find(|known| (known.hook, known.id) == (hook.name(), id)).cloned()
        };
        let others = ids.iter().filter(|(_, id)| !is_ours(*id));
        let before: Vec<Other> =
            others.map(|of| known(of).unwrap_or_else(|| Other::new(of.0, of.1))).collect();
        let is_changed = before != self.before;
        self.before = before;
        is_changed
    }

    /// To the operator: who is before it.
    pub fn say_before(&self) -> String {
        let interface = &self.interface;
        if self.before.is_empty() {
            return format!("no other program is before the guard's at {interface} any more");
        }
        let names: Vec<String> = self.before.iter().map(Other::to_string).collect();
        format!(
            "before the guard's program at {interface}: {}; it sees what is let through",
            names.join(", ")
        )
    }

    /// Whether its interface is known to be gone, or in another network namespace than the calling
    /// thread's.
    pub fn is_detached(&self) -> bool {
        matches!(self.link.is_at(self.index), Ok(false))
    }

    /// Takes the programs off an interface that has gone elsewhere: they would decide there.
    pub fn leave(&self) {
        for link in [Some(&self.link), self.beside.as_ref()].into_iter().flatten() {
            // One that is gone is left already.
            let _ = link.detach();
        }
    }

    /// Whether another process holds this link, too: the guard whose place was taken, or that has
    /// taken it.
    pub fn is_held_by(&self, pid: u32) -> bool {
        let held = bpf::link_ids_of_process(pid).unwrap_or_default();
        self.link.id().is_ok_and(|id| held.contains(&id))
    }

    /// Puts the programs back where another guard's have taken their place.
    pub fn take_back(&self, programs: &Programs) -> std::io::Result<()> {
        self.link.update(programs.for_hook(self.hook()))?;
        self.beside.as_ref().map_or(Ok(()), |link| link.update(programs.for_beside()))
    }

    /// What is left of the lease of the guard whose programs these are now; `None` if that cannot
    /// be known, for want of CAP_SYS_ADMIN.
    pub fn lease_left(&self) -> Option<Duration> {
        let maps = self.link.map_ids().ok()?;
        let (_, lease) = maps.into_iter().find(|(name, _)| name == "lease")?;
        program::lease_left(lease).ok()
    }

    /// Whether another guard's programs have taken the place of these.
    pub fn is_taken_over(&self, programs: &Programs) -> bool {
        let is_ours = self.link.leads_to(programs.for_hook(self.hook()));
        is_ours.is_ok_and(|is_ours| !is_ours)
    }
}

/// What to attach, and where to.
pub struct Plan<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// What the operator asked for.
    pub attach: Attach,
    /// Whether segments must come by at tcx, too.
    pub needs_tc: bool,
    /// Whether an interface that is gone by now is left out, as nobody named it.
    pub may_go: bool,
    /// Links that another guard holds, whose programs are replaced.
    pub take_over: Vec<HeldLink>,
}

/// Links that were taken over. Unless all is well at the end, they lead to what they did before.
#[derive(Default)]
struct Taken(Vec<Before>);

impl Drop for Taken {
    fn drop(&mut self) {
        for before in &self.0 {
            // An interface that is gone needs none.
            let _ = before.restore();
        }
    }
}

impl Plan<'_> {
    /// Attaches to every interface, or to none; then the guard that is taken over is as it was.
    pub fn attach_all(&self, interfaces: &[Interface]) -> Result<Vec<Attached>> {
        ensure!(
            self.take_over.is_empty() || self.take_over.iter().any(HeldLink::is_here),
            "take over: that guard's interfaces are none of this network namespace; name its own with --netns"
        );
        let mut taken = Taken::default();
        let mut attached = Vec::new();
        for interface in interfaces {
            match self.attach_one(interface, &mut taken) {
                Ok(one) => attached.push(one),
                Err(_) if is_gone(interface) && self.may_go => {
                    self.programs.forget_interface(interface.index)
                }
                Err(_) if is_gone(interface) => bail!("attach to {}: the interface is gone", interface.name),
                Err(error) => return Err(error),
            }
        }
        self.retire(&mut taken)?;
        taken.0.clear();
        Ok(attached)
    }

    /// The other guard's links that we have no use for lead to our programs, too, until it notices
    /// and ends, and they with it.
    fn retire(&self, taken: &mut Taken) -> Result<()> {
        let is_taken = |held: &&HeldLink| taken.0.iter().any(|before| before.link_id() == held.id());
        let others: Vec<&HeldLink> =
            self.take_over.iter().filter(|held| !is_taken(held) && held.is_here()).collect();
        let mut refused = None;
        for held in others {
            let hook = if held.is_xdp() { Hook::XdpNative } else { Hook::TcxIngress };
            match held.update(self.programs.for_hook(hook)) {
                Ok(before) => taken.0.push(before),
                Err(error) => refused = Some(error), // its interface is gone, or it is no guard's
            }
        }
        match refused.filter(|_| taken.0.is_empty()) {
            Some(error) => Err(error).context("none of the other guard's links can be taken over"),
            None => Ok(()),
        }
    }

    fn attach_one(&self, interface: &Interface, taken: &mut Taken) -> Result<Attached> {
        let mut last_error = None;
        for &hook in self.attach.hooks() {
            match self.link(self.programs.for_hook(hook), interface, hook, taken) {
                Ok(link) => {
                    let beside = (self.needs_tc && hook != Hook::TcxIngress)
                        .then(|| self.attach_beside(interface, taken));
                    let (index, name) = (interface.index, interface.name.clone());
                    let (beside, before) = (beside.transpose()?, Vec::new());
                    let mut attached = Attached { interface: name, index, link, beside, before };
                    let is_taken = |id| self.take_over.iter().any(|held| held.program_id() == id);
                    attached.look_before_but(interface, |id| is_taken(id) || self.programs.has(id));
                    return Ok(attached);
                }
                Err(error) => last_error = Some(error),
            }
        }
        // The last candidate asks least of driver and kernel, so its error says what is really
        // wrong.
        let error = last_error.expect("there is at least one candidate");
        Err(explain(interface, &error))
    }

    fn attach_beside(&self, interface: &Interface, taken: &mut Taken) -> Result<Link> {
        self.link(self.programs.for_beside(), interface, Hook::TcxIngress, taken).map_err(|error| {
            anyhow!(
                "attach tcx to {}: {}; rst-fin, no-syn-drop and cookies act there, on segments after the SYN, and need Linux 6.6 or newer: \
                 leave them out, as in abort+rst-syn",
                interface.name,
                error.error
            )
        })
    }

    /// In the place of the other guard's program, if it has one there.
    fn link(
        &self,
        program: BorrowedFd<'_>,
        interface: &Interface,
        hook: Hook,
        taken: &mut Taken,
    ) -> Result<Link, AttachError> {
        let ifindex = interface.index;
        let found = Link::take_over(program, ifindex, hook, &self.take_over);
        if let Some((link, before)) = found.map_err(|error| AttachError { hook, ifindex, error })? {
            taken.0.push(before);
            return Ok(link);
        }
        Link::attach_first(program, ifindex, hook)
    }
}

/// Known to be: without a file descriptor left nothing is known.
fn is_gone(interface: &Interface) -> bool {
    match if_nametoindex(&*interface.name) {
        Ok(index) => index != interface.index,
        Err(error) => error == Errno::ENODEV,
    }
}

/// One line: what, where, why, what next.
fn explain(interface: &Interface, error: &AttachError) -> Error {
    let Interface { name, driver, mtu, .. } = interface;
    let hook = error.hook.name();
    let errno = Errno::from_raw(error.error.raw_os_error().unwrap_or_default());
    let large_mtu = format!(
        "its MTU of {mtu} may be too large for native XDP; lower it (ip link set {name} mtu 1500) or use --attach tcx"
    );
    let why = match (error.hook, errno) {
        (_, Errno::EPERM) => "not permitted; run as root, or with CAP_BPF and CAP_NET_ADMIN".to_owned(),
        (_, Errno::EMFILE) => "this process may open no more files; raise its limit (ulimit -n)".to_owned(),
        (Hook::XdpNative, _) if interface.is_loopback => {
            "a loopback has no native XDP; name the NIC with --interface, or use --attach tcx".to_owned()
        }
        (Hook::XdpNative, Errno::ERANGE) => large_mtu,
        (Hook::XdpNative, Errno::EINVAL | Errno::EOPNOTSUPP) if *mtu > 1500 => large_mtu,
        (Hook::XdpNative, Errno::EOPNOTSUPP) if driver.is_empty() => {
            "it has no native XDP; use --attach tcx".to_owned()
        }
        (Hook::XdpNative, Errno::EOPNOTSUPP) => {
            format!("its driver {driver} has no native XDP; use --attach tcx")
        }
        (Hook::XdpNative | Hook::XdpGeneric, Errno::EBUSY | Errno::EEXIST) => {
            format!(
                "another XDP program is there; remove it (ip link set {name} xdp off) or use --attach tcx"
            )
        }
        (Hook::TcxIngress, Errno::EINVAL) => {
            "this kernel has no tcx (Linux 6.6 and newer); use --attach auto".to_owned()
        }
        _ => format!("{}; try another --attach", error.error),
    };
    anyhow!("attach {hook} to {name}: {why}")
}

/// Interfaces at which another guard's program is already: what that one would refuse, this one
/// may refuse first. Nothing is known without CAP_SYS_ADMIN.
pub fn other_guards(interfaces: &[Interface]) -> Vec<String> {
    let is_guards = |name: &String| program::PROGRAM_NAMES.contains(&name.as_str());
    let has_one = |interface: &&Interface| {
        bpf::names_at_tcx_ingress(interface.index).is_ok_and(|names| names.iter().any(is_guards))
    };
    let taken = interfaces.iter().filter(has_one);
    taken
        .map(|Interface { name, .. }| {
            format!("another guard is at tcx of {name}, and comes after this one; is the port guarded twice?")
        })
        .collect()
}

/// Where other programs see the frames first.
pub fn come_after(attached: &[Attached]) -> Vec<String> {
    let after = attached.iter().filter(|attached| !attached.before.is_empty());
    after.map(Attached::say_before).collect()
}

/// Native XDP on veth, where a reset may not come through.
pub fn lonely_xdp(attached: &[Attached], interfaces: &[Interface]) -> Vec<String> {
    let is_lonely = |attached: &&Attached| {
        attached.hook() == Hook::XdpNative
            && interfaces
                .iter()
                .any(|interface| interface.name == attached.interface() && interface.is_veth())
    };
    attached
        .iter()
        .filter(is_lonely)
        .map(|attached| {
            format!(
                "xdp on veth {}: a reset reaches the peer only if the peer has an XDP program too; --attach tcx has no such need",
                attached.interface()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(driver: &str, mtu: u32) -> Interface {
        let (name, driver) = ("eth0".to_owned(), driver.to_owned());
        let of = netlink::Interface { index: 2, mtu, ..netlink::Interface::default() };
        Interface { driver, ..Interface::of(&name, &of) }
    }

    fn explained(hook: Hook, errno: Errno, interface: &Interface) -> String {
        let error = AttachError { hook, ifindex: 2, error: std::io::Error::from_raw_os_error(errno as i32) };
        explain(interface, &error).to_string()
    }

    #[test]
    fn refused_xdp_names_driver_or_mtu_and_what_to_do() {
        let dummy = interface("dummy", 1500);
        let text = explained(Hook::XdpNative, Errno::EOPNOTSUPP, &dummy);
        assert_eq!(text, "attach xdp to eth0: its driver dummy has no native XDP; use --attach tcx");
        let jumbo = interface("veth", 9000);
        let text = explained(Hook::XdpNative, Errno::ERANGE, &jumbo);
        assert!(text.contains("MTU of 9000") && text.contains("mtu 1500"), "{text}");
    }
}
