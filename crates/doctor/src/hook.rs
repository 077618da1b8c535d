//! Where programs can be attached: tried on a veth pair of our own, asked of the host's interfaces.

use std::io;
use std::os::fd::AsFd;

use bpf::{Hook, SoleLink};
use netns::{Namespace, VethPair};
use nix::net::if_::if_nameindex;

use crate::probe::Answer;
use crate::{privilege, tiny};

/// Pass on, in either language: TCX_NEXT and XDP_PASS.
const TCX_NEXT: i32 = -1;
const XDP_PASS: i32 = 2;
/// Of `enum netdev_xdp_act`, include/uapi/linux/netdev.h.
const NETDEV_XDP_ACT_BASIC: u64 = 1;

/// Whether tcx, native and generic XDP take a program on a veth.
pub(crate) fn on_own_veth() -> [Answer; 3] {
    let hooks = [Hook::TcxIngress, Hook::XdpNative, Hook::XdpGeneric];
    let may_try = privilege::to_make_namespaces().and_then(|()| privilege::to_load());
    let answers = may_try.and_then(|()| try_hooks(hooks).map_err(|error| error.to_string()));
    answers.unwrap_or_else(|why| hooks.map(|_| Answer::Unknown(why.clone())))
}

/// Whether the kernel has what `tidegate uplink` builds on an interface, tried on a loopback of our
/// own.
pub(crate) fn uplink_tree() -> Answer {
    /// As crates/uplink builds them, each by an act of its own.
    const ACTS: [&str; 3] = [
        "qdisc add dev lo root handle 1: tbf rate 10mbit burst 1600 limit 10000",
        "qdisc add dev lo parent 1:1 handle 2: htb",
        "filter add dev lo parent 2: bpf bytecode",
    ];
    if let Err(why) = privilege::to_make_namespaces() {
        return Answer::Unknown(why);
    }
    /// Of the last one: return 0, in classic BPF.
    const PROGRAM: &str = "1,6 0 0 0";
    let tried = Namespace::create("doctor").and_then(|own| {
        ACTS.iter().try_for_each(|act| {
            let program = act.ends_with("bytecode").then_some(PROGRAM);
            own.tc(&act.split(' ').chain(program).collect::<Vec<_>>())
        })
    });
    Answer::of(tried.map_err(|error| error.to_string()))
}

fn try_hooks(hooks: [Hook; 3]) -> netns::Result<[Answer; 3]> {
    let near = Namespace::create("doctor")?;
    let far = Namespace::create("doctor")?;
    let pair = VethPair::create(&near, "d0", &far, "d1")?;
    near.enter(|| hooks.map(|hook| Answer::of(try_hook(hook, pair.a.ifindex).map_err(tiny::reason))))
}

fn try_hook(hook: Hook, ifindex: u32) -> io::Result<()> {
    let value = if hook == Hook::TcxIngress { TCX_NEXT } else { XDP_PASS };
    let program = bpf::constant_program(hook, value)?;
    SoleLink::attach(program.as_fd(), ifindex, hook).map(drop).map_err(|error| error.error)
}

/// Whether the drivers of the host's interfaces have native XDP, as they say themselves: to attach
/// a program would stop some of them for a moment. `can_say` is whether the kernel knows what a
/// driver says. Without loopbacks.
pub(crate) fn native_on_host(can_say: bool) -> Vec<(String, Answer)> {
    let Ok(interfaces) = if_nameindex() else { return Vec::new() };
    let named = interfaces.iter().map(|one| (one.name().to_string_lossy().into_owned(), one.index()));
    named.filter(|(name, _)| name != "lo").map(|(name, index)| (name, has_native(index, can_say))).collect()
}

fn has_native(ifindex: u32, can_say: bool) -> Answer {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options outlive the call and say their own size.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex.cast_signed(), 0, &raw mut options) };
    match result {
        0 if options.feature_flags & NETDEV_XDP_ACT_BASIC != 0 => Answer::Yes,
        0 if can_say => Answer::No("its driver has none".to_owned()),
        0 => Answer::Unknown("this kernel cannot say it without trying (Linux 6.3 can)".to_owned()),
        error => Answer::Unknown(tiny::reason(io::Error::from_raw_os_error(-error))),
    }
}
