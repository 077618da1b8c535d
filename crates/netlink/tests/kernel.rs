//! What the kernel says, in namespaces where it is known.

use std::net::IpAddr;

use netlink::{Error, Interface, Route};
use netns::{Lan, Namespace};

/// A client whose router to other networks is the server; `None` without root.
fn lan() -> Option<Lan> {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("{reason}");
        return None;
    }
    let lan = Lan::create().expect("create");
    lan.client.ip(&["route", "add", "10.50.0.0/16", "via", Lan::SERVER[0]]).expect("route");
    Some(lan)
}

fn find(namespace: &Namespace, name: &str) -> Option<Interface> {
    namespace.enter(|| Interface::find(name)).expect("enter").expect("ask")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("address")
}

#[test]
fn root_interface_is_what_it_was_made_as() {
    let Some(lan) = lan() else { return };
    lan.client.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]).expect("veth");
    lan.client.ip(&["link", "set", "v1", "mtu", "1234"]).expect("mtu");
    let c0 = find(&lan.client, "c0").expect("it is there");
    assert!(c0.is_veth() && c0.is_up && c0.is_ethernet && !c0.is_loopback, "{c0:?}");
    assert_eq!((c0.address, c0.index), (Some(lan.c0.mac), lan.c0.ifindex));
    assert_eq!(c0.lower, None, "its other end is in another namespace");
    let [v0, v1] = ["v0", "v1"].map(|name| find(&lan.client, name).expect("it is there"));
    assert!(v0.is_peer_of(&v1) && v1.is_peer_of(&v0) && !v0.is_peer_of(&c0));
    assert_eq!(v1.mtu, 1234);
    let lo = find(&lan.client, "lo").expect("it is there");
    assert!(lo.is_loopback && !lo.is_ethernet && lo.kind.is_none());
    assert_eq!(find(&lan.client, "nosuch0"), None);
}

#[test]
fn root_port_has_its_master() {
    let Some(lan) = lan() else { return };
    lan.client.ip(&["link", "add", "br0", "type", "bridge"]).expect("bridge");
    let alone = find(&lan.client, "c0").expect("it is there");
    assert_eq!((alone.master, alone.master_kind), (None, None));
    lan.client.ip(&["link", "set", "c0", "master", "br0"]).expect("a port");
    let bridge = find(&lan.client, "br0").expect("it is there");
    let port = find(&lan.client, "c0").expect("it is there");
    assert_eq!((port.master, port.master_kind.as_deref()), (Some(bridge.index), Some("bridge")));
    assert_eq!((bridge.master, bridge.kind.as_deref()), (None, Some("bridge")));
}

#[test]
fn root_route_has_its_gateway_and_its_interface() {
    let Some(lan) = lan() else { return };
    let c0 = lan.c0.ifindex;
    let ask = |to: &str, through| {
        let to = address(to);
        lan.client.enter(|| netlink::route(to, through)).expect("enter")
    };
    let direct = Route { is_local: false, gateway: None, interface: Some(c0) };
    let behind = Route { gateway: Some(address(Lan::SERVER[0])), ..direct.clone() };
    for (to, wanted) in [(Lan::SERVER[0], &direct), (Lan::SERVER[1], &direct), ("10.50.0.7", &behind)] {
        assert_eq!(ask(to, Some(c0)).expect("a route"), *wanted, "{to}");
        assert_eq!(ask(to, None).expect("a route"), *wanted, "{to}");
    }
    assert!(ask(Lan::CLIENT[0], None).expect("a route").is_local);
    let error = ask("192.0.2.7", None).expect_err("no route leads there");
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert_eq!(error.to_string(), "network is unreachable");
}

#[test]
fn root_neighbour_is_known_by_its_link_and_address() {
    let Some(lan) = lan() else { return };
    let ask = |of: &str, interface| {
        let of = address(of);
        lan.client.enter(|| netlink::neighbour(of, interface)).expect("enter").expect("ask")
    };
    for server in Lan::SERVER {
        assert_eq!(ask(server, lan.c0.ifindex), Some(lan.s0.mac), "{server}");
    }
    assert_eq!(ask("10.9.0.99", lan.c0.ifindex), None);
    assert_eq!(ask(Lan::SERVER[0], 1), None, "not on lo");
}
