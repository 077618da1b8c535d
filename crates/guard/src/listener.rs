//! Who listens, from procfs. The decision itself never reads this: it asks the kernel for each SYN.

use std::net::SocketAddr;

use anyhow::{Error, Result, anyhow};
use watch::{Listener, Owners};

/// Names in the error message; more would not fit on a line.
const MAX_NAMED: usize = 8;

/// Fails when nothing listens that could serve `listen`.
pub fn require(listen: SocketAddr) -> Result<()> {
    if watch::own_listeners()?.iter().any(|own| crate::slots::may_serve(own.address, listen)) {
        return Ok(());
    }
    Err(missing(listen))
}

/// Says what does listen, and what to do.
pub fn missing(listen: SocketAddr) -> Error {
    let mut near = watch::own_listeners().unwrap_or_default();
    // The same port first, then what is near by number.
    near.sort_by_key(|own| (own.address.port().abs_diff(listen.port()), own.address));
    near.dedup_by_key(|own| own.address);
    near.truncate(MAX_NAMED);
    // Other users' processes need CAP_SYS_PTRACE, and have no name without.
    let owners = Owners::find(near.iter().map(|own| own.socket_inode)).unwrap_or_default();
    let names: Vec<String> = near.iter().map(|own| describe(own, &owners)).collect();
    if let Some(netns) = elsewhere(listen) {
        return anyhow!(
            "guard {listen}: nothing listens there in this network namespace, but in {netns}; add --netns {netns}"
        );
    }
    let listening = if names.is_empty() {
        "nothing else does either".to_owned()
    } else {
        format!("listening: {}", names.join(", "))
    };
    anyhow!(
        "guard {listen}: nothing listens there; {listening}; start the server first or correct the address"
    )
}

/// Says why a listener that is there cannot be looked at.
pub fn unseen(listen: SocketAddr) -> Error {
    let is_there = watch::own_listeners().is_ok_and(|all| all.iter().any(|own| own.address == listen));
    if !is_there {
        return missing(listen);
    }
    anyhow!(
        "guard {listen}: the socket there is bound to one device, or to an address of one, and cannot be looked at without a client's \
         SYN; name it in a --config file, which needs no look"
    )
}

/// Another network namespace in which a socket listens there; the first, if there are several.
fn elsewhere(listen: SocketAddr) -> Option<String> {
    let host = watch::Host::look().ok()?;
    let listeners = host.survey(None).listeners;
    let mut others = listeners.iter().filter(|listener| {
        listener.netns_inode != host.own() && crate::slots::may_serve(listener.address, listen)
    });
    others.find_map(|listener| host.handle(listener.netns_inode))
}

fn describe(listener: &Listener, owners: &Owners) -> String {
    match owners.of(listener.socket_inode).first() {
        Some(process) => format!("{} ({})", listener.address, process.command),
        None => listener.address.to_string(),
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
