//! Where a RST goes: not to the balancer that handed the SYN on, but by the host's own route.

use crate::common::frame::{CLIENT_MAC, SERVER_MAC, Segment, is_reset_to};
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, Policy};
use netns::VethPair;

/// Addresses behind a router, for IPv4 and IPv6.
const FAR: [(&str, &str, &str, &str, &str); 2] = [
    ("10.9.0.2:8080", "198.51.100.7", SERVER4, "198.51.100.0/24", CLIENT4),
    ("[fd09::2]:8080", "2001:db8::7", SERVER6, "2001:db8::/32", "fd09::1"),
];
/// Of the balancer, from which SYNs come and to which nothing must go.
const BALANCER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0c];

/// As the balancer hands it on.
fn handed_on(syn: &Segment) -> Vec<u8> {
    let mut frame = syn.to_bytes();
    frame[6..12].copy_from_slice(&BALANCER_MAC);
    frame
}

fn reset_at(tap: &Tap, syn: &Segment) -> Vec<u8> {
    tap.receive("a RST", |frame| is_reset_to(frame, syn))
}

#[test]
fn root_reset_goes_to_the_clients_router_and_not_to_the_balancer() {
    for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
        for (listen, client, server, network, router) in FAR {
            let Some(world) = World::create_for(attach) else { return };
            world.server.ip(&["route", "add", network, "via", router]).expect("route");
            let _peer = world.peer_for(attach);
            let _listener = world.listen(listen);
            let guarded = world.guard(listen, Policy::RST_SYN, attach, false);
            let _streams = world.fill(&guarded);
            let tap = world.tap();
            let syn = Segment::syn("behind a balancer", client, server, PORT);
            tap.send(&handed_on(&syn));
            let reset = reset_at(&tap, &syn);
            assert_eq!(reset[..12], [CLIENT_MAC, SERVER_MAC].concat(), "{attach:?} {client}");
            assert_eq!(guarded.sample().stats.reset, 1);
        }
    }
}

#[test]
fn root_reset_leaves_by_the_interface_of_the_route() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let pair = VethPair::create(&world.client, "c1", &world.server, "s1").expect("a second link");
    for line in [
        "addr add 10.10.0.2/24 dev s1",
        "neigh replace 10.10.0.1 lladdr 02:00:00:00:00:0a dev s1",
        "route add 198.51.100.0/24 via 10.10.0.1",
    ] {
        world.server.ip(&line.split(' ').collect::<Vec<_>>()).expect(line);
    }
    let (listen, client, server, ..) = FAR[0];
    let _listener = world.listen(listen);
    let guarded = world.guard(listen, Policy::RST_SYN, Attach::Tcx, false);
    let _streams = world.fill(&guarded);
    let elsewhere = Tap(netns::Tap::open(&world.client, pair.a.ifindex).expect("open a tap"));
    let syn = Segment::syn("by another way", client, server, PORT);
    world.tap().send(&handed_on(&syn));
    reset_at(&elsewhere, &syn);
    // A SYN with a tag of a VLAN comes back without it there.
    let tagged = syn.with("tagged", |syn| {
        syn.source_port += 1;
        syn.tags = vec![(0x8100, 7)];
    });
    world.tap().send(&handed_on(&tagged));
    let reset = reset_at(&elsewhere, &tagged);
    assert_eq!(reset[12..14], [0x08, 0x00]);
}

#[test]
fn root_reset_by_a_router_has_no_tag_of_the_way_that_its_syn_came_by() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let (listen, client, server, network, router) = FAR[0];
    world.server.ip(&["route", "add", network, "via", router]).expect("route");
    let _listener = world.listen(listen);
    let guarded = world.guard(listen, Policy::RST_SYN, Attach::Tcx, false);
    let _streams = world.fill(&guarded);
    let tap = world.tap();
    let tagged =
        Segment::syn("of a VLAN", client, server, PORT).with("tagged", |syn| syn.tags = vec![(0x8100, 7)]);
    tap.send(&handed_on(&tagged));
    assert_eq!(reset_at(&tap, &tagged)[..14], [&CLIENT_MAC[..], &SERVER_MAC, &[0x08, 0x00]].concat());
}

#[test]
fn root_syn_without_a_way_back_is_left_to_the_kernel() {
    for attach in [Attach::Tcx, Attach::XdpGeneric] {
        let Some(world) = World::create_for(attach) else { return };
        world.server.ip(&["route", "add", "blackhole", "203.0.113.0/24"]).expect("route");
        let (listen, client, server, ..) = FAR[0];
        let _listener = world.listen(listen);
        let guarded = world.guard(listen, Policy::RST_SYN, attach, false);
        let _streams = world.fill(&guarded);
        let tap = world.tap();
        for (number, source) in [(1, client), (2, "203.0.113.7")] {
            tap.send(&handed_on(&Segment::syn("from nowhere", source, server, PORT)));
            let sample = guarded.wait("the SYN", |sample| sample.stats.unsent == number);
            assert_eq!(sample.stats.reset, 0, "{attach:?} {source}");
        }
        let near = Segment::syn("from the link", GHOST4, server, PORT);
        tap.send(&handed_on(&near));
        assert_eq!(reset_at(&tap, &near)[..6], BALANCER_MAC, "{attach:?}: its neighbour has sent it");
    }
}

#[test]
fn root_route_that_changes_is_followed_and_policy_rules_send_resets_back() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let (listen, client, server, network, router) = FAR[0];
    let _listener = world.listen(listen);
    let mut guarded = world.guard(listen, Policy::RST_SYN, Attach::Tcx, false);
    let _streams = world.fill(&guarded);
    let tap = world.tap();
    let mut source_port = 1000;
    let mut to = |guarded: &mut Guarded<'_>| {
        let sample = world.server.enter(|| guarded.guard.sample()).expect("enter").expect("sample");
        let notes = world.server.enter(|| guarded.guard.follow(&sample)).expect("enter");
        assert_eq!(notes, [""; 0]);
        source_port += 1;
        let syn = Segment::syn("one more", client, server, PORT)
            .with("one more", |syn| syn.source_port = source_port);
        tap.send(&handed_on(&syn));
        reset_at(&tap, &syn)[..6].to_vec()
    };
    world.server.ip(&["route", "add", network, "via", router]).expect("route");
    assert_eq!(to(&mut guarded), CLIENT_MAC);
    world.server.ip(&["rule", "add", "fwmark", "7", "table", "77"]).expect("rule");
    assert_eq!(to(&mut guarded), BALANCER_MAC);
    world.server.ip(&["rule", "del", "fwmark", "7", "table", "77"]).expect("rule");
    assert_eq!(to(&mut guarded), CLIENT_MAC);
    // For some packets only; the kernel lists it before the one for all others.
    world.server.ip(&["route", "add", network, "tos", "0x10", "via", GHOST4]).expect("route");
    assert_eq!(to(&mut guarded), BALANCER_MAC);
    world.server.ip(&["route", "del", network, "tos", "0x10", "via", GHOST4]).expect("route");
    assert_eq!(to(&mut guarded), CLIENT_MAC);
    let for_one_source = ["2001:db8::/32", "from", "fd09::/64", "via", "fd09::1"];
    world.server.ip(&[&["-6", "route", "add"][..], &for_one_source].concat()).expect("route");
    assert_eq!(to(&mut guarded), BALANCER_MAC);
    world.server.ip(&[&["-6", "route", "del"][..], &for_one_source].concat()).expect("route");
    assert_eq!(to(&mut guarded), CLIENT_MAC);
    world.server.ip(&["route", "del", network]).expect("route");
    world.server.ip(&["route", "add", "default", "via", GHOST4]).expect("route");
    assert_eq!(to(&mut guarded), CLIENT_MAC, "the ghost has the same");
}
