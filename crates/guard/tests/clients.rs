//! A real kernel's client at the other end: it believes a RST only if every checksum is right, and
//! its own SYN comes with a checksum that is not finished yet.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use crate::common::*;
use guard::{Attach, Config, Listener, Policy};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

fn client_is_refused(listen: &str, attach: Attach) {
    let Some(world) = World::create_for(attach) else {
        return;
    };
    let _peer = world.peer_for(attach);
    let _listener = world.listen(listen);
    let guarded = world.guard(listen, Policy::RST_SYN, attach, false);
    let _streams = world.fill(&guarded);
    let error = world.connect(listen).expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let sample = guarded.sample();
    assert_eq!(sample.stats.reset, 1, "the first RST was believed, so no SYN came again");
}

#[test]
fn root_ipv4_client_is_refused_by_tcx() {
    client_is_refused("10.9.0.2:8080", Attach::Tcx);
}

#[test]
fn root_ipv6_client_is_refused_by_tcx() {
    client_is_refused("[fd09::2]:8080", Attach::Tcx);
}

#[test]
fn root_ipv4_client_is_refused_by_native_xdp() {
    client_is_refused("10.9.0.2:8080", Attach::Xdp);
}

#[test]
fn root_ipv6_client_is_refused_by_native_xdp() {
    client_is_refused("[fd09::2]:8080", Attach::Xdp);
}

#[test]
fn root_ipv4_client_is_refused_by_generic_xdp() {
    client_is_refused("10.9.0.2:8080", Attach::XdpGeneric);
}

#[test]
fn root_ipv6_client_is_refused_by_generic_xdp() {
    client_is_refused("[fd09::2]:8080", Attach::XdpGeneric);
}

/// Connects with IPv4 options or IPv6 extension headers in the SYN.
fn connect_with(address: SocketAddr, option: (i32, i32), value: &[u8]) -> std::io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: the kernel only reads `value`.
    let set = unsafe {
        libc::setsockopt(fd.as_raw_fd(), option.0, option.1, value.as_ptr().cast(), value.len() as u32)
    };
    assert_eq!(set, 0, "setsockopt: {}", std::io::Error::last_os_error());
    connect(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(TcpStream::from(fd))
}

/// With offload the TCP header stands where the sender put it; without, the stack of the server
/// finishes the sum: a wrong place or start value shows in the latter.
fn client_with_extras_is_refused(listen: &str, attach: Attach, option: (i32, i32), value: &[u8]) {
    let Some(world) = World::create_for(attach) else {
        return;
    };
    world.finish_checksums();
    let _peer = world.peer_for(attach);
    let _listener = world.listen(listen);
    let guarded = world.guard(listen, Policy::RST_SYN, attach, false);
    let _streams = world.fill(&guarded);
    let address = listen.parse().expect("address");
    let error = world
        .client
        .enter(|| connect_with(address, option, value))
        .expect("enter")
        .expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let sample = guarded.sample();
    assert_eq!((sample.stats.reset, sample.stats.unsent), (1, 0));
}

const NOPS: &[u8] = &[1, 1, 1, 1, 1, 1, 1, 1];
/// A destination options header of 16 bytes with an unknown option that is to be skipped.
const DESTINATION: &[u8] = &[0, 1, 0x3e, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const IP_OPTIONS: (i32, i32) = (libc::IPPROTO_IP, libc::IP_OPTIONS);
const IPV6_DSTOPTS: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS);

#[test]
fn root_client_with_ipv4_options_is_refused_by_every_hook() {
    for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
        client_with_extras_is_refused("10.9.0.2:8080", attach, IP_OPTIONS, NOPS);
    }
}

#[test]
fn root_client_with_ipv6_extension_headers_is_refused_by_every_hook() {
    for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
        client_with_extras_is_refused("[fd09::2]:8080", attach, IPV6_DSTOPTS, DESTINATION);
    }
}

#[test]
fn root_dual_stack_wildcard_refuses_ipv4_and_ipv6_clients() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen("[::]:8080");
    let guarded = world.guard("[::]:8080", Policy::RST_SYN, Attach::Auto, false);
    let _streams = world.fill(&guarded);
    for address in ["10.9.0.2:8080", "[fd09::2]:8080"] {
        let error = world.connect(address).expect_err("the queue is full");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}");
    }
    assert_eq!(guarded.sample().stats.reset, 2);
}

#[test]
fn root_client_on_the_host_itself_is_refused_through_loopback() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen("10.9.0.2:8080");
    let config = Config {
        listeners: vec![Listener::new("10.9.0.2:8080".parse().expect("address"), Policy::RST_SYN)],
        must_listen: true,
        ..Config::default()
    };
    let guarded = world.guard_with(&config).expect("start");
    let mut names: Vec<(&str, &str)> = guarded
        .guard
        .attached()
        .iter()
        .map(|attached| (attached.interface(), attached.hook().name()))
        .collect();
    names.sort_unstable();
    // Generic XDP on kernels without tcx.
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["lo", "s0"]);
    assert!(names.iter().all(|(_, hook)| ["tcx", "xdp-generic"].contains(hook)), "{names:?}");
    let _streams = world.fill(&guarded);
    let error = world
        .server
        .enter(|| TcpStream::connect("10.9.0.2:8080"))
        .expect("enter")
        .expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(guarded.sample().stats.reset, 1);
}
