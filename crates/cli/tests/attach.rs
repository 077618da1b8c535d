//! Where the programs of `tidegate guard` hang.

use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;

use crate::common::*;

#[test]
fn root_hook_is_tcx_unless_another_is_named() {
    let Some(world) = World::create() else { return };
    // Its driver has native XDP, and is no veth.
    if !world.makes("tap", "tuntap add mode tap name t0") {
        return;
    }
    world.server.ip(&["link", "set", "t0", "up"]).expect("up");
    let at_t0 = || bpf::count_tcx_ingress(if_nametoindex("t0").expect("t0"));
    if world.server.enter(at_t0).expect("enter").is_err() {
        return eprintln!("skipped: no tcx in this kernel (Linux 6.6 and newer)");
    }
    for (arguments, hook) in [(&[][..], "tcx"), (&["--attach", "xdp"], "xdp")] {
        let mut guard = world.guard(&[&["--interface", "t0", "--json"], arguments].concat());
        let mut child = guard.stdout(std::process::Stdio::piped()).spawn().expect("start");
        let mut lines = std::io::BufReader::new(child.stdout.take().expect("piped"));
        assert_eq!(next_event(&mut lines)["hooks"][0]["hook"], hook, "{arguments:?}");
        ended_in_order(child, Signal::SIGTERM);
    }
}
