//! Connections that come to a listener, and of which the guard sees no SYN.
//!
//! They come by an interface that is not guarded, or another program takes their frames before the
//! guard's. The kernel counts connections of a whole network namespace (`PassiveOpens`). Which
//! listener they came to, only the list of its sockets tells. So the list is read when that count
//! has grown, and the guard has seen no SYN of some listener meanwhile.
//!
//! What it is not: a count. It leaves out connections of the host with itself. Of those that come
//! and go between two lists it knows nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use netlink::TcpState;

use crate::attach::Attached;
use crate::slots::{canonical, may_serve};
use crate::{Sample, interface};

/// Connections without a SYN that say enough: a cookie's SYN may have come long before it.
const ENOUGH: usize = 2;
/// To read the list takes a thousandth of a CPU at most.
const REST: u32 = 1000;

/// The addresses of the host, and of the other, as the host has them.
type Connection = (SocketAddr, SocketAddr);
type Connections = BTreeMap<SocketAddr, BTreeSet<Connection>>;
/// And how long it took to list them.
type Search = JoinHandle<Result<(Connections, Duration)>>;

/// What is known of each listener.
#[derive(Debug, Default)]
pub struct Blind {
    of: BTreeMap<SocketAddr, Known>,
    /// Connections to any listener of the host, when the list was last asked for.
    opens: u64,
    /// Segments that were left to the kernel, at the last look.
    unleased: u64,
    search: Option<Search>,
    /// Not before this is it asked for again.
    due: Option<Instant>,
}

/// Since the guard last saw a SYN there.
#[derive(Debug, Default)]
struct Known {
    seen: u64,
    /// Connections that were there by the first list.
    before: Option<BTreeSet<Connection>>,
    /// Whether the list that is being read is for this one, too.
    is_asked: bool,
    /// How many have come, and from where one did. Certain at the next look, without a SYN by then.
    come: Option<(usize, IpAddr)>,
    /// Whether such have come for certain.
    is_blind: bool,
    /// Whether that was said, be it before the guard saw others.
    has_said: bool,
}

impl Blind {
    /// Of a guard that is attached by now. Asks for the first list, so that those that come later
    /// are new.
    pub fn new(listens: Vec<SocketAddr>) -> Self {
        let asked = || Known { is_asked: true, ..Known::default() };
        let of = listens.iter().map(|&listen| (listen, asked())).collect();
        // Without procfs or a thread it begins with the first list that can be had.
        let opens = passive_opens().unwrap_or_default();
        let search = if listens.is_empty() { None } else { list(listens).ok() };
        Self { of, opens, search, ..Self::default() }
    }

    /// Whether connections come to this listener that the guard does not see.
    pub fn is_to(&self, listen: SocketAddr) -> bool {
        self.of.get(&listen).is_some_and(|known| known.is_blind)
    }

    /// Says anew what was said before: other programs come first now.
    pub fn say_again(&mut self) {
        self.of.values_mut().for_each(|known| known.has_said = false);
    }

    /// Notes on such listeners, one line each and once.
    pub fn notes(&mut self, sample: &Sample, attached: &[Attached]) -> Vec<String> {
        let blind = self.look(sample);
        // Without procfs or a thread nothing is known, and nothing is said of it each second.
        let _ = self.read_list().and_then(|()| self.ask_for_list());
        let places: Vec<&str> = attached.iter().map(Attached::interface).collect();
        let note = |(listen, count, from)| {
            format!(
                "{count} connections have come to {listen}, one of them from {from}, and no SYN of theirs by {}: they come by another \
                 interface, or a program before the guard's keeps their frames",
                places.join(", ")
            )
        };
        blind.into_iter().map(note).collect()
    }

    /// Begins anew where SYNs were seen; gives the listeners of which it is certain by now.
    fn look(&mut self, sample: &Sample) -> Vec<(SocketAddr, usize, IpAddr)> {
        let is_leased = self.unleased == sample.path.unleased;
        self.unleased = sample.path.unleased;
        let decided = sample.listeners.iter().filter(|of| of.observed.is_none());
        let here = decided.filter(|of| !sample.away.contains(&of.listener.listen));
        let seen: BTreeMap<SocketAddr, u64> =
            here.map(|of| (of.listener.listen, of.stats.seen + of.stats.cookies_back)).collect();
        self.of.retain(|listen, _| seen.contains_key(listen));
        let mut blind = Vec::new();
        for (listen, seen) in seen {
            let known = self.of.entry(listen).or_default();
            if known.seen != seen || !is_leased {
                *known = Known { seen, has_said: known.has_said, ..Known::default() };
            } else if let Some((count, from)) = known.come.take() {
                (known.is_blind, known.before) = (true, None);
                if !std::mem::replace(&mut known.has_said, true) {
                    blind.push((listen, count, from));
                }
            }
        }
        blind
    }

    /// Takes the list that was asked for, if it is there.
    fn read_list(&mut self) -> Result<()> {
        let Some(search) = self.search.take_if(|search| search.is_finished()) else { return Ok(()) };
        let (connections, took) = search.join().map_err(|_| anyhow!("the search panicked"))??;
        self.due = Some(Instant::now() + REST * took);
        for (listen, now) in connections {
            let Some(known) = self.of.get_mut(&listen).filter(|known| known.is_asked) else { continue };
            known.is_asked = false;
            let Some(before) = &known.before else {
                known.before = Some(now);
                continue;
            };
            let mut new = now.difference(before);
            let first = new.next().map(|(_, remote)| remote.ip());
            let count = usize::from(first.is_some()) + new.count();
            known.come = first.filter(|_| count >= ENOUGH).map(|from| (count, from));
        }
        Ok(())
    }

    fn ask_for_list(&mut self) -> Result<()> {
        let is_due = self.due.is_none_or(|due| due <= Instant::now());
        let is_open = |(_, known): &(&SocketAddr, &mut Known)| !known.is_blind;
        let mut open: Vec<(&SocketAddr, &mut Known)> = self.of.iter_mut().filter(is_open).collect();
        if self.search.is_some() || !is_due || open.is_empty() {
            return Ok(());
        }
        let opens = passive_opens()?;
        if opens == self.opens {
            return Ok(());
        }
        open.iter_mut().for_each(|(_, known)| known.is_asked = true);
        let listens: Vec<SocketAddr> = open.into_iter().map(|(&listen, _)| listen).collect();
        self.search = Some(list(listens)?);
        self.opens = opens;
        Ok(())
    }
}

/// Beside, because with many sockets it takes longer than a lease.
fn list(listens: Vec<SocketAddr>) -> Result<Search> {
    let search = Builder::new().spawn(move || {
        let start = Instant::now();
        Ok((connections(&listens)?, start.elapsed()))
    });
    search.context("start a thread that looks for connections")
}

/// Connections of others to these listeners, also those that are closing or not open yet.
fn connections(listens: &[SocketAddr]) -> Result<Connections> {
    let mut connections: Connections = listens.iter().map(|&listen| (listen, BTreeSet::new())).collect();
    let own = interface::own_addresses()?;
    netlink::each_tcp_socket(|socket| {
        let (local, remote) = (canonical(socket.local), canonical(socket.remote));
        let is_from_here = remote.ip().is_loopback() || own.contains(&remote.ip());
        if socket.state == TcpState::Listen || is_from_here {
            return;
        }
        if let Some(of) = listener_of(listens, local).and_then(|listen| connections.get_mut(&listen)) {
            of.insert((local, remote));
        }
    })?;
    Ok(connections)
}

/// The one that gets what is sent to `local`: the address itself, the wildcard of its family, or
/// `[::]`.
fn listener_of(listens: &[SocketAddr], local: SocketAddr) -> Option<SocketAddr> {
    let serving = listens.iter().copied().filter(|&listen| may_serve(listen, local));
    serving.min_by_key(|listen| (listen.ip().is_unspecified(), listen.is_ipv4() != local.is_ipv4()))
}

/// How many connections the listeners of the calling thread's network namespace have got.
fn passive_opens() -> Result<u64> {
    const FILE: &str = "/proc/thread-self/net/snmp";
    let text = fs::read_to_string(FILE).with_context(|| format!("read {FILE}"))?;
    // A line of names, and a line of their counts.
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let place = lines.next().and_then(|mut names| names.position(|name| name == "PassiveOpens"));
    let count = place.zip(lines.next()).and_then(|(place, mut counts)| counts.nth(place)?.parse().ok());
    count.with_context(|| format!("find PassiveOpens in {FILE}"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::{Listener, ListenerSample, ListenerStats, PathStats, Policy};

    const LISTEN: &str = "192.0.2.1:80";

    fn sample(seen: u64, unleased: u64) -> Sample {
        let listener = Listener::new(LISTEN.parse().expect("address"), Policy::RST_SYN);
        let stats = ListenerStats { seen, ..ListenerStats::default() };
        let of =
            ListenerSample { listener, load: None, stats, service: None, observed: None, is_blind: false };
        let path = PathStats { unleased, ..PathStats::default() };
        Sample { listeners: vec![of], path, away: BTreeSet::new() }
    }

    fn of(ports: std::ops::Range<u16>) -> Connections {
        let listen: SocketAddr = LISTEN.parse().expect("address");
        let from = |port| (listen, SocketAddr::from(([198, 51, 100, 7], port)));
        Connections::from([(listen, ports.map(from).collect())])
    }

    /// What a list of these connections leads to, asked for after the first sample.
    fn said(before: &[Sample], connections: Connections, after: &[Sample]) -> Vec<Vec<String>> {
        let known = Known { before: of(0..3).into_values().next(), ..Known::default() };
        let of_all = BTreeMap::from([(LISTEN.parse().expect("address"), known)]);
        let mut blind = Blind { of: of_all, ..Blind::default() };
        for sample in before {
            blind.look(sample);
            blind.of.values_mut().for_each(|known| known.is_asked = true);
        }
        let search = std::thread::spawn(move || Ok((connections, Duration::from_secs(9))));
        while !search.is_finished() {
            std::thread::yield_now();
        }
        blind.search = Some(search);
        after.iter().map(|sample| blind.notes(sample, &[])).collect()
    }

    #[test]
    fn new_connections_without_a_syn_are_said_once_at_the_look_after_they_were_listed() {
        let quiet = || sample(0, 0);
        let notes = said(&[quiet()], of(0..5), &[quiet(), quiet(), quiet()]);
        assert!(notes[0].is_empty() && notes[2].is_empty(), "{notes:?}");
        let note = "2 connections have come to 192.0.2.1:80, one of them from 198.51.100.7, and no SYN";
        assert!(notes[1].len() == 1 && notes[1][0].starts_with(note), "{notes:?}");
    }

    #[test]
    fn nothing_is_said_of_old_connections_of_one_or_after_a_syn_or_a_lapse() {
        let quiet = || sample(0, 0);
        for (case, before, connections, after) in [
            ("those that were there", quiet(), of(0..3), quiet()),
            ("a cookie's", quiet(), of(0..4), quiet()),
            ("its SYN is counted by the next look", quiet(), of(0..5), sample(2, 0)),
            ("others than the list was asked for", sample(1, 0), of(0..5), sample(1, 0)),
            ("the guard did not run", quiet(), of(0..5), sample(0, 1)),
        ] {
            let notes = said(&[quiet(), before], connections, &[after, sample(2, 1), sample(2, 1)]);
            assert!(notes.iter().all(Vec::is_empty), "{case}: {notes:?}");
        }
    }

    #[test]
    fn connection_belongs_to_the_nearest_listener() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("address");
        let all = ["[::]:80", "0.0.0.0:80", "10.0.0.1:80", "[::]:81"].map(address);
        for (local, listen) in [
            ("10.0.0.1:80", Some("10.0.0.1:80")),
            ("10.0.0.2:80", Some("0.0.0.0:80")),
            ("[fd00::1]:80", Some("[::]:80")),
            ("10.0.0.1:81", Some("[::]:81")),
            ("10.0.0.1:82", None),
        ] {
            assert_eq!(listener_of(&all, address(local)), listen.map(address), "{local}");
        }
    }

    #[test]
    fn connections_of_this_host_with_itself_are_left_out_but_counted_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let listen = listener.local_addr().expect("address");
        let opens = passive_opens().expect("read");
        let _client = TcpStream::connect(listen).expect("connect");
        let _server = listener.accept().expect("accept");
        assert!(passive_opens().expect("read") > opens);
        assert_eq!(connections(&[listen]).expect("ask"), Connections::from([(listen, BTreeSet::new())]));
    }
}
