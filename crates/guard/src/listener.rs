//! Who listens, from the kernel's own list. The decision itself never reads this: it asks the
//! kernel for each SYN.

use std::net::SocketAddr;

use anyhow::{Context, Error, Result, anyhow};
use netlink::{TcpSocket, tcp_listeners};
use watch::Owners;

use crate::slots::{canonical, decides, may_serve};

/// Names in the error message; more would not fit on a line.
const MAX_NAMED: usize = 8;

/// The listening sockets of the calling thread's network namespace.
pub fn all() -> Result<Vec<TcpSocket>> {
    tcp_listeners().context("list who listens, by sock_diag (if that is a module here: modprobe tcp_diag)")
}

/// Fails when nothing listens that could serve `listen`.
pub fn require(listen: SocketAddr) -> Result<()> {
    if !serving(listen)?.is_empty() {
        return Ok(());
    }
    Err(missing(listen))
}

/// Addresses of this namespace's sockets that get what is sent to `listen`, or, of a wildcard, to
/// one of its addresses.
pub fn serving(listen: SocketAddr) -> Result<Vec<SocketAddr>> {
    let all = all()?.into_iter().map(|own| canonical(own.local));
    let is_of_its_family = |own: &SocketAddr| own.is_ipv4() == listen.is_ipv4();
    Ok(all
        .filter(|own| may_serve(*own, listen) || (may_serve(listen, *own) && is_of_its_family(own)))
        .collect())
}

/// Says what does listen, and what to do.
pub fn missing(listen: SocketAddr) -> Error {
    let mut near = all().unwrap_or_default();
    // The same port first, then what is near by number.
    near.sort_by_key(|own| (own.local.port().abs_diff(listen.port()), own.local));
    near.dedup_by_key(|own| own.local);
    near.truncate(MAX_NAMED);
    // Other users' processes need CAP_SYS_PTRACE, and have no name without.
    let owners = Owners::find(near.iter().map(|own| u64::from(own.inode))).unwrap_or_default();
    let names: Vec<String> = near.iter().map(|own| describe(own, &owners)).collect();
    let elsewhere = elsewhere(listen).map_or_else(String::new, |netns| {
        format!("; a socket of network namespace {netns} does: if that is meant, add --netns {netns}")
    });
    let listening = if names.is_empty() {
        "nothing else does either".to_owned()
    } else {
        format!("listening: {}", names.join(", "))
    };
    anyhow!(
        "guard {listen}: nothing listens there; {listening}{elsewhere}; start the server first or correct the address"
    )
}

/// Says why a listener that is there cannot be looked at.
pub fn unseen(listen: SocketAddr) -> Error {
    if serving(listen).is_ok_and(|all| all.is_empty()) {
        return missing(listen);
    }
    anyhow!(
        "guard {listen}: the socket there is bound to one device, or to an address of one, and cannot be looked at without a client's \
         SYN; name it in a --config file, which needs no look"
    )
}

/// What the operator may not have meant: listeners at which nothing listens yet, and sockets at the
/// same port that none of them covers. Empty where the kernel cannot be asked.
pub fn notes(listeners: &[crate::Listener]) -> Vec<String> {
    let Ok(mut all) = all() else { return Vec::new() };
    all.sort_by_key(|own| own.local);
    all.dedup_by_key(|own| own.local);
    let listens: Vec<SocketAddr> = listeners.iter().map(|of| canonical(of.listen)).collect();
    // A wildcard is a rule for each of its addresses, also where the server is bound to one.
    let is_for =
        |listen: SocketAddr, own: SocketAddr| may_serve(own, listen) || may_serve(listen, canonical(own));
    let is_there = |listen: SocketAddr| all.iter().any(|own| is_for(listen, own.local));
    let later = listens.iter().filter(|&&listen| !is_there(listen));
    let later = later.map(|listen| format!("nothing listens at {listen} yet; guarded from when it does"));

    let is_port_guarded = |own: &&TcpSocket| {
        let mut decided = listeners.iter().filter(|of| decides(of));
        decided.any(|of| of.listen.port() == own.local.port())
    };
    let is_covered = |own: &TcpSocket| listens.iter().any(|&listen| covers(listen, own.local));
    let local = |own: &TcpSocket| own.local.ip().to_canonical().is_loopback();
    let bare: Vec<&TcpSocket> =
        all.iter().filter(is_port_guarded).filter(|own| !is_covered(own) && !local(own)).collect();
    let inodes = bare.iter().map(|own| u64::from(own.inode));
    let owners = if bare.is_empty() { Owners::default() } else { Owners::find(inodes).unwrap_or_default() };
    let bare = bare.into_iter().map(|own| {
        let who = describe(own, &owners);
        format!("{who} has the same port and is not guarded, or not for both IPv4 and IPv6; give it an entry of its own")
    });
    later.chain(bare).collect()
}

/// Whether guarding `listen` is all that can be meant for a socket bound to `bound`: of a wildcard,
/// a single address may have been chosen, but not the one family and the other forgotten. `[::]`
/// stands for no socket of IPv4.
fn covers(listen: SocketAddr, bound: SocketAddr) -> bool {
    let bound = canonical(bound);
    let is_same_family = listen.is_ipv4() == bound.is_ipv4();
    (is_same_family && may_serve(listen, bound))
        || (may_serve(bound, listen) && (is_same_family || !listen.ip().is_unspecified()))
}

/// Another network namespace in which a socket is bound to that very address; the first, if there
/// are several.
fn elsewhere(listen: SocketAddr) -> Option<String> {
    let host = watch::Host::look().ok()?;
    let listeners = host.survey(None).listeners;
    let mut others = listeners.iter().filter(|listener| {
        listener.netns_inode != host.own() && canonical(listener.address) == canonical(listen)
    });
    others.find_map(|listener| host.handle(listener.netns_inode))
}

fn describe(listener: &TcpSocket, owners: &Owners) -> String {
    match owners.of(listener.inode.into()).first() {
        Some(process) => format!("{} ({})", listener.local, process.command),
        None => listener.local.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listener_is_found_by_its_address() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        require(socket.local_addr().expect("address")).expect("it listens");
    }

    #[test]
    fn wildcard_of_one_family_leaves_the_other_uncovered() {
        let covers = |listen: &str, bound: &str| {
            covers(listen.parse().expect("address"), bound.parse().expect("address"))
        };
        for (listen, bound) in [
            ("0.0.0.0:80", "10.0.0.1:80"),
            ("10.0.0.1:80", "0.0.0.0:80"),
            ("10.0.0.1:80", "[::]:80"),
            ("[::]:80", "[::]:80"),
        ] {
            assert!(covers(listen, bound), "{listen} {bound}");
        }
        for (listen, bound) in [
            ("0.0.0.0:80", "[::]:80"),
            ("[::]:80", "0.0.0.0:80"),
            ("10.0.0.1:80", "10.0.0.2:80"),
            ("10.0.0.1:80", "[fd00::1]:80"),
        ] {
            assert!(!covers(listen, bound), "{listen} {bound}");
        }
    }

    #[test]
    fn socket_at_the_same_port_and_listener_that_is_not_there_are_noted() {
        let any = TcpListener::bind("0.0.0.0:0").expect("bind");
        let port = any.local_addr().expect("address").port();
        let guarded = |listen: String, policy: &str| {
            crate::Listener::new(listen.parse().expect("address"), policy.parse().expect("policy"))
        };
        let notes = |listen: String, policy: &str| notes(&[guarded(listen, policy)]);
        assert_eq!(notes(format!("0.0.0.0:{port}"), "abort"), [""; 0]);
        let one = TcpListener::bind("127.0.0.1:0").expect("bind");
        let its_port = one.local_addr().expect("address").port();
        assert_eq!(
            notes(format!("0.0.0.0:{its_port}"), "abort"),
            [""; 0],
            "it is guarded by the wildcard's rule"
        );
        let other_family = notes(format!("[::1]:{port}"), "abort");
        assert_eq!(other_family.len(), 2, "{other_family:?}");
        assert!(
            other_family[0].starts_with(&format!("nothing listens at [::1]:{port} yet")),
            "{other_family:?}"
        );
        assert!(other_family[1].starts_with(&format!("0.0.0.0:{port} (")), "{other_family:?}");
        assert_eq!(
            notes(format!("[::1]:{port}"), "observe").len(),
            1,
            "what is only observed needs no guard"
        );
    }

    #[test]
    fn missing_listener_is_an_error_that_names_the_one_next_to_it() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut wrong = socket.local_addr().expect("address");
        wrong.set_ip([127, 0, 0, 77].into());
        let error = require(wrong).expect_err("nothing listens there").to_string();
        assert!(error.starts_with(&format!("guard {wrong}: nothing listens there; listening: 127.0.0.1:")));
        assert!(error.contains(&format!("{} (", socket.local_addr().expect("address"))), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
