//! Which listeners can be guarded together, and the index that each has in the maps.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::program::{MAX_LISTENERS, MAX_SOURCES};
use crate::{ConfigError, Listener};

/// Listeners by their index into the maps.
pub type Slots = Vec<Option<Listener>>;

/// Gives each listener an index; one that was there keeps its own.
pub fn assign(before: &[Option<Listener>], listeners: &[Listener]) -> Result<Slots, ConfigError> {
    check(listeners)?;
    let mut slots = vec![None; MAX_LISTENERS];
    let mut new = Vec::new();
    for listener in listeners {
        let listener = Listener { listen: canonical(listener.listen), ..listener.clone() };
        let is_same =
            |slot: &Option<Listener>| slot.as_ref().is_some_and(|known| known.listen == listener.listen);
        match before.iter().position(is_same) {
            Some(index) => slots[index] = Some(listener),
            None => new.push(listener),
        }
    }
    for listener in new {
        // An index that nobody has now, if there is one: SYNs may still be led to those of
        // listeners that go.
        let is_free = |&index: &usize| slots[index].is_none();
        let was_free = |&index: &usize| before.get(index).is_none_or(Option::is_none);
        let free = (0..MAX_LISTENERS).filter(is_free);
        let index = free.clone().find(was_free).or_else(|| free.clone().next());
        slots[index.expect("there is room for as many as were named")] = Some(listener);
    }
    Ok(slots)
}

/// Those that something is decided for, with their indices.
pub fn indexed(slots: &[Option<Listener>]) -> Vec<(SocketAddr, u32)> {
    indexed_where(slots, decides)
}

/// The others.
pub fn observed(slots: &[Option<Listener>]) -> Vec<(SocketAddr, u32)> {
    indexed_where(slots, |listener| !decides(listener))
}

fn indexed_where(slots: &[Option<Listener>], is_meant: impl Fn(&Listener) -> bool) -> Vec<(SocketAddr, u32)> {
    let slots = slots.iter().zip(0..).filter_map(|(slot, index)| Some((slot.as_ref()?, index)));
    let meant = slots.filter(|(listener, _)| is_meant(listener));
    meant.map(|(listener, index)| (listener.listen, index)).collect()
}

/// Whether anything is decided for it; otherwise it is only observed.
pub fn decides(listener: &Listener) -> bool {
    !listener.policy.only_observes
}

/// Whether these listeners can be guarded together.
fn check(listeners: &[Listener]) -> Result<(), ConfigError> {
    let refuse = |what: String| Err(ConfigError(what));
    if listeners.is_empty() {
        return refuse("no listener is named, so there is nothing to guard".to_owned());
    }
    if listeners.len() > MAX_LISTENERS {
        let count = listeners.len();
        return refuse(format!(
            "{count} listeners are named; one guard has room for {MAX_LISTENERS}: start a second one"
        ));
    }
    let sources: usize =
        listeners.iter().map(|listener| listener.reserved.len() + listener.exempt.len()).sum();
    if sources > MAX_SOURCES {
        return refuse(format!(
            "{sources} sources are named as reserved or exempt; one guard has room for {MAX_SOURCES}: name larger networks"
        ));
    }
    for (number, listener @ Listener { listen, .. }) in listeners.iter().enumerate() {
        if listen.port() == 0 {
            return refuse(format!("listener {listen}: port 0 is no port that can be guarded"));
        }
        if canonical(*listen).ip().is_multicast() {
            return refuse(format!(
                "listener {listen}: no TCP connection has a multicast address; name one of this host"
            ));
        }
        check_sources(listener)?;
        let mut others = listeners[..number].iter().map(|other| other.listen);
        if let Some(other) = others.find(|&other| overlap(canonical(other), canonical(*listen))) {
            return refuse(format!(
                "listeners {other} and {listen} overlap, and a SYN has one policy; name each address once, or the wildcard alone"
            ));
        }
    }
    Ok(())
}

fn check_sources(listener: &Listener) -> Result<(), ConfigError> {
    let Listener { listen, policy, reserved, exempt, .. } = listener;
    let refuse = |what: String| Err(ConfigError(format!("listener {listen}: {what}")));
    if (policy.reserved_slots == 0) != reserved.is_empty() {
        return refuse("places are reserved for sources: name both, or neither".to_owned());
    }
    if policy.only_observes && !(reserved.is_empty() && exempt.is_empty()) {
        return refuse("nothing is decided for it, also not for some sources; choose a policy".to_owned());
    }
    if let Some(net) = exempt.iter().find(|net| reserved.iter().any(|other| other.trunc() == net.trunc())) {
        return refuse(format!("{net} is both reserved for and exempt; an exempt source needs no place"));
    }
    let mut named = reserved.iter().chain(exempt);
    match named.find(|net| matches!(net, IpNet::V6(_)) && canonical(*listen).is_ipv4()) {
        Some(net) => refuse(format!("no client from {net} can reach it; name IPv4 networks")),
        None => Ok(()),
    }
}

/// Whether a SYN could be for both. `[::]` beside an IPv4 address is for IPv6 only, as two sockets
/// of a server are.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.is_ipv4() == other.is_ipv4() && (may_serve(one, other) || may_serve(other, one))
}

/// Whether a listener bound to `bound` can get a SYN that is sent to `listen`.
///
/// `[::]` may serve IPv4, too; only the kernel's lookup knows.
pub fn may_serve(bound: SocketAddr, listen: SocketAddr) -> bool {
    let same_address = bound.ip().to_canonical() == listen.ip();
    let wildcard = match bound.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && listen.is_ipv4(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    bound.port() == listen.port() && (same_address || wildcard)
}

/// `[::ffff:10.0.0.1]:80` is 10.0.0.1:80 on the wire.
pub fn canonical(listen: SocketAddr) -> SocketAddr {
    SocketAddr::new(listen.ip().to_canonical(), listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    fn serves(bound: &str, listen: &str) -> bool {
        may_serve(bound.parse().expect("address"), canonical(listen.parse().expect("address")))
    }

    fn named(listen: &str) -> Listener {
        Listener::new(listen.parse().expect("address"), Policy::DEFAULT)
    }

    #[test]
    fn listener_that_stays_keeps_its_index() {
        let [a, b, c, d] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "[::]:4"].map(named);
        let before = assign(&[], &[a, b, c.clone()]).expect("they differ");
        let changed = Listener { dry_run: true, ..c };
        let after = assign(&before, &[d.clone(), changed.clone()]).expect("they differ");
        assert_eq!(after[..4], [None, None, Some(changed), Some(d)]);
    }

    #[test]
    fn overlap_and_too_many_are_refused() {
        let error = |listeners: &[&str]| {
            let listeners: Vec<Listener> = listeners.iter().map(|listen| named(listen)).collect();
            assign(&[], &listeners).expect_err("cannot be").to_string()
        };
        assert!(error(&[]).contains("nothing to guard"));
        for pair in [["10.0.0.1:80", "10.0.0.1:80"], ["0.0.0.0:80", "10.0.0.1:80"], ["[::1]:80", "[::]:80"]] {
            assert!(error(&pair).contains("overlap"), "{pair:?}");
        }
        assert!(error(&["10.0.0.1:0"]).contains("port 0"));
        assert!(
            error(&["224.0.0.1:80"]).contains("multicast") && error(&["[ff02::1]:80"]).contains("multicast")
        );
        assert!(assign(&[], &[named("0.0.0.0:80"), named("[::]:80")]).is_ok(), "a server's two sockets");
        let many: Vec<String> = (1..=65).map(|port| format!("10.0.0.1:{port}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(error(&many).contains("65 listeners"));
    }

    #[test]
    fn reserved_places_and_sources_go_together_and_sources_can_reach_the_listener() {
        let error = |slots: u32, source: &str| {
            let mut listener = named("10.0.0.1:80");
            listener.policy.reserved_slots = slots;
            listener.reserved = source.parse().into_iter().collect();
            check(&[listener]).expect_err("cannot be").to_string()
        };
        assert!(error(4, "").contains("name both"));
        assert!(error(0, "10.0.0.0/8").contains("name both"));
        assert!(error(4, "fd00::/64").contains("no client from fd00::/64"));
        let mut both = named("10.0.0.1:80");
        both.policy.reserved_slots = 1;
        both.reserved = vec!["10.1.0.0/16".parse().expect("net")];
        both.exempt = vec!["10.1.2.3/16".parse().expect("net")];
        assert!(check(&[both]).expect_err("cannot be").to_string().contains("both reserved for and exempt"));
        let many = Listener { reserved: vec!["10.0.0.0/8".parse().expect("net"); 1025], ..named("[::]:80") };
        assert!(check(&[many]).expect_err("cannot be").to_string().contains("room for 1024"));
    }

    #[test]
    fn listener_serves_its_own_address_and_wildcards_serve_all() {
        assert!(serves("10.0.0.1:80", "10.0.0.1:80"));
        assert!(serves("0.0.0.0:80", "10.0.0.1:80"));
        assert!(serves("[::]:80", "10.0.0.1:80"));
        assert!(serves("[::]:80", "[fd00::1]:80"));
        assert!(serves("10.0.0.1:80", "[::ffff:10.0.0.1]:80"));
        assert!(!serves("0.0.0.0:80", "[fd00::1]:80"));
        assert!(!serves("10.0.0.2:80", "10.0.0.1:80"));
        assert!(!serves("10.0.0.1:80", "0.0.0.0:80"));
        assert!(!serves("10.0.0.1:81", "10.0.0.1:80"));
    }
}
