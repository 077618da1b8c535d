//! Sockets, counted by their other end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlink::{TcpSocket, TcpState};
use serde::Serialize;

use crate::{Result, Reuse, Settings};

/// Linux keeps a connection in TIME_WAIT for this long: `TCP_TIMEWAIT_LEN` of `include/net/tcp.h`.
const TIME_WAIT: Duration = Duration::from_secs(60);
/// Window of the rates: closes in the last one, ends of TIME_WAIT in the next.
const SPAN: Duration = Duration::from_secs(5);

/// Connections from one local address to one address and port. Only ports that connect(2) chooses
/// from count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Address of this host.
    pub from: IpAddr,
    /// Address and port of the other end.
    pub to: SocketAddr,
    /// Connections not in TIME_WAIT.
    pub open: u32,
    /// Connections in TIME_WAIT.
    pub time_wait: u32,
    /// Ports that connect(2) can still choose, as far as this end can tell.
    pub left: u32,
    /// Connections that this host closed first, 1/s over the last 5 s.
    pub closes_per_s: f64,
    /// Time until no port is left at this rate, s; null if they do not run out.
    pub runs_out_s: Option<f64>,
}

/// Connections that one listener accepted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Served {
    /// Address and port of the listener.
    pub listen: SocketAddr,
    /// Connections not in TIME_WAIT.
    pub open: u32,
    /// Connections in TIME_WAIT.
    pub time_wait: u32,
    /// Connections that this host closed first, 1/s over the last 5 s.
    pub closes_per_s: f64,
}

/// All TCP connections of a network namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// Connections of clients here, fewest ports left first.
    pub pairs: Vec<Pair>,
    /// Connections of listeners here, most in TIME_WAIT first.
    pub served: Vec<Served>,
    /// All connections in TIME_WAIT.
    pub time_wait: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    open: u32,
    time_wait: u32,
    /// Ports that connect(2) cannot choose.
    taken: u32,
    /// Connections that this host closed first in the last [`SPAN`].
    closed: u32,
    /// Connections whose TIME_WAIT ends in the next [`SPAN`].
    ending: u32,
}

impl Count {
    fn add(&mut self, socket: &TcpSocket) {
        if socket.state != TcpState::TimeWait {
            self.open += 1;
            return;
        }
        self.time_wait += 1;
        self.closed += u32::from(socket.expires + SPAN > TIME_WAIT);
        self.ending += u32::from(socket.expires <= SPAN);
    }

    fn closes_per_s(&self) -> f64 {
        f64::from(self.closed) / SPAN.as_secs_f64()
    }
}

impl Survey {
    /// Surveys the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The sockets cannot be listed.
    pub fn take(settings: &Settings) -> Result<Self> {
        let mut sockets = Vec::new();
        netlink::each_tcp_socket(|socket| sockets.push(socket))?;
        Ok(Self::of(&sockets, settings))
    }

    fn of(sockets: &[TcpSocket], settings: &Settings) -> Self {
        let listeners: BTreeSet<SocketAddr> = sockets
            .iter()
            .filter(|socket| socket.state == TcpState::Listen)
            .map(|socket| socket.local)
            .collect();
        let mut pairs = BTreeMap::<(IpAddr, SocketAddr), Count>::new();
        let mut served = BTreeMap::<SocketAddr, Count>::new();
        let mut time_wait = 0;
        for socket in sockets.iter().filter(|socket| is_connection(socket)) {
            time_wait += u64::from(socket.state == TcpState::TimeWait);
            if let Some(listener) = listener_of(socket.local, &listeners) {
                served.entry(listener).or_default().add(socket);
                continue;
            }
            // connect(2) does not choose this port, so it takes none away.
            if !settings.chooses(socket.local.port()) {
                continue;
            }
            let count = pairs.entry((socket.local.ip(), socket.remote)).or_default();
            count.add(socket);
            let taken_for = taken_for(socket.local.ip(), socket.remote.ip(), settings);
            let is_free = socket.state == TcpState::TimeWait && socket.expires + taken_for <= TIME_WAIT;
            count.taken += u32::from(!is_free);
        }
        let mut pairs: Vec<Pair> =
            pairs.into_iter().map(|(ends, count)| pair(ends, count, settings)).collect();
        pairs.sort_by_key(|pair| pair.left);
        let mut served: Vec<Served> =
            served.into_iter().map(|(listen, count)| listener(listen, count)).collect();
        served.sort_by_key(|served| std::cmp::Reverse(served.time_wait));
        Self { pairs, served, time_wait }
    }
}

/// A socket that was bound and has neither connected nor listened has no other end.
fn is_connection(socket: &TcpSocket) -> bool {
    socket.state != TcpState::Listen && socket.remote.port() != 0
}

/// The listener that accepted the connection, if any.
fn listener_of(local: SocketAddr, listeners: &BTreeSet<SocketAddr>) -> Option<SocketAddr> {
    let any = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
    let candidates = [local.ip()].into_iter().chain(any).map(|ip| SocketAddr::new(ip, local.port()));
    candidates.into_iter().find(|candidate| listeners.contains(candidate))
}

/// Time for which a closed connection takes its port: `tcp_twsk_unique()` of net/ipv4/tcp_ipv4.c,
/// v6.18. Only the kernel knows whether the connection had timestamps.
fn taken_for(from: IpAddr, to: IpAddr, settings: &Settings) -> Duration {
    let is_reused = match settings.reuse {
        Reuse::Never => false,
        Reuse::Everywhere => true,
        Reuse::Loopback => from.is_loopback() || to.is_loopback(),
    };
    if is_reused && settings.has_timestamps { settings.reuse_delay } else { TIME_WAIT }
}

fn pair((from, to): (IpAddr, SocketAddr), count: Count, settings: &Settings) -> Pair {
    let left = settings.size().saturating_sub(count.taken);
    let closes_per_s = count.closes_per_s();
    let growth_per_s = closes_per_s - f64::from(count.ending) / SPAN.as_secs_f64();
    let taken_for = taken_for(from, to.ip(), settings).as_secs_f64();
    let is_too_fast = f64::from(count.open) + closes_per_s * taken_for > f64::from(settings.size());
    Pair {
        from,
        to,
        open: count.open,
        time_wait: count.time_wait,
        left,
        closes_per_s,
        runs_out_s: (is_too_fast && growth_per_s > 0.0).then(|| f64::from(left) / growth_per_s),
    }
}

fn listener(listen: SocketAddr, count: Count) -> Served {
    Served { listen, open: count.open, time_wait: count.time_wait, closes_per_s: count.closes_per_s() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(reuse: Reuse) -> Settings {
        Settings {
            range: 1000..=1199,
            reserved: [1000, 5].into(),
            reuse,
            reuse_delay: Duration::from_secs(1),
            has_timestamps: true,
            most_time_waits: 1000,
        }
    }

    /// A connection from `port`, in TIME_WAIT for `since_s` seconds.
    fn closed(port: u16, to: &str, since_s: u64) -> TcpSocket {
        let expires = TIME_WAIT - Duration::from_secs(since_s);
        let local = SocketAddr::new([10, 0, 0, 1].into(), port);
        TcpSocket {
            state: TcpState::TimeWait,
            local,
            remote: to.parse().expect("address"),
            expires,
            inode: 0,
            cgroup: None,
        }
    }

    fn of(sockets: &[TcpSocket], reuse: Reuse) -> Pair {
        Survey::of(sockets, &settings(reuse)).pairs.remove(0)
    }

    #[test]
    fn port_is_taken_towards_one_destination_and_only_for_the_range() {
        let sockets = [
            closed(1001, "10.0.0.2:80", 30),
            closed(1002, "10.0.0.2:80", 30),
            closed(1001, "10.0.0.2:81", 30),
            closed(999, "10.0.0.2:80", 30),
            closed(1000, "10.0.0.2:80", 30),
        ];
        let survey = Survey::of(&sockets, &settings(Reuse::Never));
        let left: Vec<_> =
            survey.pairs.iter().map(|pair| (pair.to.port(), pair.time_wait, pair.left)).collect();
        assert_eq!(left, [(80, 2, 197), (81, 1, 198)], "200 ports less a reserved one");
        assert_eq!(survey.time_wait, 5);
    }

    #[test]
    fn port_in_time_wait_is_left_where_the_kernel_takes_it_again() {
        let sockets = [closed(1001, "10.0.0.2:80", 0), closed(1002, "10.0.0.2:80", 1)];
        assert_eq!(of(&sockets, Reuse::Never).left, 197);
        assert_eq!(of(&sockets, Reuse::Loopback).left, 197);
        assert_eq!(of(&sockets, Reuse::Everywhere).left, 198, "one is older than a second");
        let without = Settings { has_timestamps: false, ..settings(Reuse::Everywhere) };
        assert_eq!(Survey::of(&sockets, &without).pairs[0].left, 197);
        let near = [closed(1001, "127.0.0.1:80", 30)];
        assert_eq!(of(&near, Reuse::Loopback).left, 199);
    }

    #[test]
    fn ports_run_out_if_more_are_closed_in_a_minute_than_there_are() {
        // Ten a second for five seconds: a minute needs 600 ports, and there are 199.
        let fast: Vec<_> = (0..50).map(|n| closed(1001 + n, "10.0.0.2:80", u64::from(n / 10))).collect();
        let pair = of(&fast, Reuse::Never);
        assert_eq!((pair.closes_per_s, pair.left, pair.runs_out_s), (10.0, 149, Some(14.9)));
        assert_eq!(of(&fast, Reuse::Everywhere).runs_out_s, None, "they come back after a second");
        let slow: Vec<_> = (0..10).map(|n| closed(1001 + n, "10.0.0.2:80", 0)).collect();
        assert_eq!(of(&slow, Reuse::Never).runs_out_s, None, "2/s need 120 ports");
    }

    #[test]
    fn connection_of_a_listener_takes_no_port() {
        let listener = |address: &str| TcpSocket {
            state: TcpState::Listen,
            local: address.parse().expect("address"),
            remote: "0.0.0.0:0".parse().expect("address"),
            expires: Duration::ZERO,
            inode: 0,
            cgroup: None,
        };
        let bound = TcpSocket { state: TcpState::Other, ..listener("10.0.0.1:1100") };
        let sockets =
            [listener("0.0.0.0:1001"), closed(1001, "10.0.0.2:80", 1), closed(1002, "10.0.0.2:80", 1), bound];
        let survey = Survey::of(&sockets, &settings(Reuse::Never));
        assert_eq!((survey.pairs.len(), survey.pairs[0].time_wait), (1, 1));
        let served = &survey.served[0];
        assert_eq!((served.listen.to_string().as_str(), served.time_wait), ("0.0.0.0:1001", 1));
    }
}
