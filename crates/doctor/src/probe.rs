//! What the kernel can do, one question each.

use std::io::ErrorKind;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Struct, Typedef};
use nix::errno::Errno;
use serde::Serialize;

use crate::{hook, tiny};

/// A question, its answer and what hangs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// What was tried.
    pub name: String,
    /// What came of it.
    #[serde(flatten)]
    pub answer: Answer,
    /// What needs it.
    pub enables: &'static str,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", content = "because", rename_all = "lowercase")]
pub enum Answer {
    /// It worked.
    Yes,
    /// It did not, and why.
    No(String),
    /// It could not be tried, and why.
    Unknown(String),
}

impl Answer {
    /// Of something that could be tried.
    pub(crate) fn of(result: Result<(), impl ToString>) -> Self {
        result.map_or_else(|why| Self::No(why.to_string()), |()| Self::Yes)
    }
}

/// Of the probes that the verdict asks for.
pub(crate) mod name {
    pub(crate) const BTF: &str = "BTF";
    pub(crate) const LOOKUP_TC: &str = "listener lookup at tc";
    pub(crate) const LOOKUP_XDP: &str = "listener lookup in XDP";
    pub(crate) const TCX: &str = "tcx";
    pub(crate) const XDP_GENERIC: &str = "generic XDP";
    pub(crate) const RAW_COOKIE: &str = "SYN cookie without a listener";
    pub(crate) const ASSIGN_REQUEST: &str = "request socket from a cookie";
    pub(crate) const LSM: &str = "BPF LSM";
    pub(crate) const CGROUP2: &str = "cgroup2, all of it, mounted";
    pub(crate) const SOCKETS: &str = "cgroup sockops hook";
    pub(crate) const SOCKOPT: &str = "cgroup sockopt hook";
    pub(crate) const FENTRY: &str = "fentry";
    pub(crate) const UPLINK: &str = "TBF, HTB, BPF filters";
    pub(crate) const QDISC: &str = "BPF qdisc";
}

/// The kernel's own types.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

pub(crate) fn all() -> Vec<Probe> {
    let btf = Btf::from_vmlinux().map_err(|error| error.to_string());
    let has_btf = Path::new(BTF_PATH).exists().then_some(()).ok_or(format!("no {BTF_PATH}"));
    let probe = |name: &str, answer: Answer, enables| Probe { name: name.to_owned(), answer, enables };
    let mut probes = vec![
        probe(name::BTF, Answer::of(has_btf), "guard, load, lab: every program reads kernel structs by it"),
        probe(name::LOOKUP_TC, tiny::helper(tiny::LOOKUP, tiny::Kind::Tc), "guard at tcx"),
        probe(name::LOOKUP_XDP, tiny::helper(tiny::LOOKUP, tiny::Kind::Xdp), "guard in XDP"),
    ];
    let [tcx, native, generic] = hook::on_own_veth();
    probes.extend([
        probe(name::TCX, tcx, "guard, with rst-fin and cookies of our own"),
        probe("native XDP on veth", native, "lab: the crowd receives there"),
        probe(name::XDP_GENERIC, generic, "guard without tcx, load without native XDP"),
    ]);
    let can_say = named::<Typedef>(&btf, "xdp_features_t") == Answer::Yes;
    probes.extend(hook::native_on_host(can_say).into_iter().map(|(interface, answer)| Probe {
        name: format!("native XDP on {interface}"),
        answer,
        enables: "load at its fastest, guard --attach xdp",
    }));
    probes.extend([
        probe("AF_XDP", af_xdp(), "load, lab, bench"),
        probe(
            "SYN cookie of a listener",
            tiny::helper(tiny::COOKIE, tiny::Kind::Tc),
            "nothing yet: it makes none while the accept queue is full",
        ),
        probe(name::RAW_COOKIE, tiny::helper(tiny::RAW_COOKIE, tiny::Kind::Xdp), "no-syn-drop:kernel"),
        probe(
            name::ASSIGN_REQUEST,
            named::<Func>(&btf, "bpf_sk_assign_tcp_reqsk"),
            "no-syn-drop and cookies, with the client's TCP options",
        ),
        probe(name::LSM, lsm(), "reserv, exact for every SYN of a batch"),
        probe(name::CGROUP2, cgroup2(), "guard without --policy, and --sockopt: where their programs hang"),
        probe(name::SOCKETS, tiny::sockets(), "guard without --policy: unserved, and sojourn"),
        probe(
            name::SOCKOPT,
            tiny::sockopt(),
            "guard --sockopt: a server asks for rst-fin itself; uplink: sizes told",
        ),
        probe(
            name::FENTRY,
            tiny::fentry(),
            "listeners --watch, guard --policy observe: drops, times in queues; uplink: sizes by sendfile",
        ),
        probe(name::UPLINK, hook::uplink_tree(), "uplink: the shortest response first"),
        probe(
            name::QDISC,
            named::<Struct>(&btf, "bpf_struct_ops_Qdisc_ops"),
            "qdisc: REDFavor, SRPT or LAS as an interface's queue discipline",
        ),
    ]);
    probes
}

/// Whether the kernel's types have one of this name and kind.
fn named<'btf, K>(btf: &'btf Result<Btf<'static>, String>, name: &str) -> Answer
where
    K: TryFrom<libbpf_rs::btf::BtfType<'btf>>,
{
    match btf {
        Ok(btf) if btf.type_by_name::<K>(name).is_some() => Answer::Yes,
        Ok(_) => Answer::No(format!("the kernel's BTF has no {name}")),
        Err(why) => Answer::Unknown(why.clone()),
    }
}

/// nix has no name for the family.
fn af_xdp() -> Answer {
    // SAFETY: a system call without pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    match Errno::result(fd) {
        Ok(fd) => {
            // SAFETY: socket gave a descriptor that nothing else owns.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Answer::Yes
        }
        Err(Errno::EPERM) => Answer::Unknown("needs CAP_NET_RAW".to_owned()),
        Err(errno) => Answer::No(errno.desc().to_lowercase()),
    }
}

/// `ip netns exec` hides it, and a container has a part of it.
fn cgroup2() -> Answer {
    let mounts = match bpf::cgroup::mounts() {
        Ok(mounts) => mounts,
        Err(error) => return Answer::Unknown(error.to_string()),
    };
    let mut roots = mounts.into_iter().map(|mount| mount.root);
    match roots.next() {
        None => Answer::No("none is mounted here; mount -t cgroup2 none /sys/fs/cgroup".to_owned()),
        Some(root) if root == "/" || roots.any(|root| root == "/") => Answer::Yes,
        Some(root) => Answer::No(format!("only {root} of it is mounted here")),
    }
}

/// Loading shows that the kernel has the hook; that it is ever called takes `bpf` among the active
/// modules, too.
fn lsm() -> Answer {
    match tiny::lsm() {
        Answer::Yes => {}
        other => return other,
    }
    match bpf::lsm_is_active() {
        Ok(()) => Answer::Yes,
        Err(error) if error.kind() == ErrorKind::Unsupported => Answer::No(error.to_string()),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}
