//! Advice for a host that runs out of ports, one line each.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::{Pair, Reuse, Settings, Survey};

/// A pair is short of ports below this share of them.
const FEW: f64 = 0.2;
/// Above this share of `tcp_max_tw_buckets` the kernel may soon forget closed connections at once.
const NEARLY_FULL: f64 = 0.9;
/// Ports that an unprivileged program may use.
const WIDEST: u32 = 65_535 - 1_023;

/// One thing that the operator of the host can do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "advice", rename_all = "kebab-case")]
pub enum Advice {
    /// Open fewer connections: keep them, and use them again.
    KeepAlive {
        /// Address of this host.
        from: IpAddr,
        /// Address and port of the other end.
        to: SocketAddr,
        /// Connections that this host closes first, 1/s.
        closes_per_s: f64,
    },
    /// Switch timestamps on: without them no port in TIME_WAIT is used again.
    Timestamps,
    /// Let connect(2) take a port in TIME_WAIT again: `net.ipv4.tcp_tw_reuse = 1`.
    Reuse {
        /// Ports that it would free now.
        ports: u32,
        /// Age at which a port is used again, s.
        after_s: f64,
    },
    /// Check that the other end has timestamps: without them ports stay taken for a minute.
    OtherEnd {
        /// Address and port of the other end.
        to: SocketAddr,
        /// Connections to it in TIME_WAIT.
        time_wait: u32,
    },
    /// Let connect(2) choose from more ports: `net.ipv4.ip_local_port_range`.
    Range {
        /// Ports that it chooses from now.
        ports: u32,
        /// Ports that it could choose from.
        most: u32,
    },
    /// Connect from more addresses: each has all ports.
    Addresses {
        /// Address and port of the other end.
        to: SocketAddr,
        /// Ports of each address.
        ports: u32,
    },
    /// Keep more closed connections: `net.ipv4.tcp_max_tw_buckets`.
    Buckets {
        /// Connections in TIME_WAIT.
        time_wait: u64,
        /// Limit of connections in TIME_WAIT.
        most: u64,
    },
}

/// Advice for a survey. Empty if no pair is short of ports and the buckets are not nearly full.
pub fn advise(survey: &Survey, settings: &Settings) -> Vec<Advice> {
    let size = settings.size();
    let is_short = |pair: &&Pair| pair.runs_out_s.is_some() || f64::from(pair.left) < FEW * f64::from(size);
    let short: Vec<&Pair> = survey.pairs.iter().filter(is_short).collect();
    let mut all = Vec::new();
    for pair in &short {
        if pair.time_wait > pair.open {
            let closes_per_s = pair.closes_per_s;
            all.push(Advice::KeepAlive { from: pair.from, to: pair.to, closes_per_s });
        }
    }
    let has_held = short.iter().any(|pair| pair.time_wait > 0);
    if has_held && !settings.has_timestamps {
        all.push(Advice::Timestamps);
    }
    let is_reused = |pair: &Pair| match settings.reuse {
        Reuse::Never => false,
        Reuse::Loopback => pair.from.is_loopback(),
        Reuse::Everywhere => true,
    };
    let held = short.iter().filter(|pair| !is_reused(pair)).map(|pair| pair.time_wait).max();
    if let Some(ports) = held.filter(|ports| *ports > 0) {
        all.push(Advice::Reuse { ports, after_s: settings.reuse_delay.as_secs_f64() });
    }
    for pair in survey.pairs.iter().filter(|pair| is_reused(pair) && settings.has_timestamps) {
        if f64::from(pair.open + pair.time_wait) > (1.0 - FEW) * f64::from(size) {
            all.push(Advice::OtherEnd { to: pair.to, time_wait: pair.time_wait });
        }
    }
    if (!short.is_empty() || size == 0) && size < WIDEST / 2 {
        all.push(Advice::Range { ports: size, most: WIDEST });
    }
    all.extend(short.iter().map(|pair| Advice::Addresses { to: pair.to, ports: size }));
    if survey.time_wait as f64 >= NEARLY_FULL * settings.most_time_waits as f64 {
        all.push(Advice::Buckets { time_wait: survey.time_wait, most: settings.most_time_waits });
    }
    all
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepAlive { from, to, closes_per_s } => write!(
                f,
                "{from} closes {closes_per_s:.0} connections a second to {to}: keep them open and use them again; an nginx proxy \
                 does so with `keepalive` in its upstream block and `proxy_http_version 1.1; proxy_set_header Connection \"\";`"
            ),
            Self::Timestamps => {
                write!(
                    f,
                    "sysctl -w net.ipv4.tcp_timestamps=1: without timestamps no port in TIME_WAIT is used again"
                )
            }
            Self::Reuse { ports, after_s } => write!(
                f,
                "sysctl -w net.ipv4.tcp_tw_reuse=1: a port in TIME_WAIT is used again after {after_s} s instead of 60; it would give \
                 back up to {ports}, if the other end has timestamps"
            ),
            Self::OtherEnd { to, time_wait } => write!(
                f,
                "{time_wait} ports towards {to} are in TIME_WAIT: if that end has no timestamps they are not left, whatever tcp_tw_reuse \
                 says"
            ),
            Self::Range { ports, most } => write!(
                f,
                "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\": connect(2) chooses from {ports} ports, and could from {most}; \
                 first put the ports of your servers in ip_local_reserved_ports"
            ),
            Self::Addresses { to, ports } => write!(
                f,
                "connect to {to} from more addresses of this host, as with nginx's `proxy_bind`, or to more ports of it: each has \
                 {ports} ports more"
            ),
            Self::Buckets { time_wait, most } => write!(
                f,
                "{time_wait} connections are in TIME_WAIT, and the host keeps {most} (net.ipv4.tcp_max_tw_buckets): those beyond are \
                 forgotten at once, so that an old segment may enter a new connection"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn settings() -> Settings {
        Settings {
            range: 32_768..=60_999,
            reserved: [].into(),
            reuse: Reuse::Loopback,
            reuse_delay: Duration::from_secs(1),
            has_timestamps: true,
            most_time_waits: 131_072,
        }
    }

    fn pair(open: u32, time_wait: u32) -> Pair {
        let left = 28_232_u32.saturating_sub(open + time_wait);
        let to = "10.0.0.2:80".parse().expect("address");
        Pair { from: [10, 0, 0, 1].into(), to, open, time_wait, left, closes_per_s: 400.0, runs_out_s: None }
    }

    fn kinds(pair: Pair, settings: &Settings) -> Vec<String> {
        let survey = Survey { time_wait: pair.time_wait.into(), pairs: vec![pair], served: Vec::new() };
        let all = advise(&survey, settings);
        all.iter()
            .map(|advice| advice.to_string().split([':', ' ']).next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn host_with_ports_is_told_nothing() {
        assert_eq!(
            advise(&Survey { pairs: vec![pair(500, 20_000)], served: vec![], time_wait: 0 }, &settings()),
            []
        );
    }

    #[test]
    fn what_helps_depends_on_who_has_the_ports() {
        assert_eq!(kinds(pair(100, 28_000), &settings()), ["10.0.0.1", "sysctl", "sysctl", "connect"]);
        let reused = Settings { reuse: Reuse::Everywhere, range: 1024..=65_535, ..settings() };
        let open = Pair { left: 9, ..pair(28_000, 0) };
        assert_eq!(kinds(open, &reused), ["connect"], "open connections: only addresses help");
        let without = Settings { has_timestamps: false, range: 1024..=65_535, ..settings() };
        let closed = Pair { left: 9, ..pair(0, 28_000) };
        assert_eq!(kinds(closed, &without), ["10.0.0.1", "sysctl", "sysctl", "connect"]);
    }

    #[test]
    fn buckets_are_a_matter_of_the_whole_host() {
        let survey = Survey { pairs: Vec::new(), served: Vec::new(), time_wait: 120_000 };
        let all = advise(&survey, &settings());
        assert!(matches!(all.as_slice(), [Advice::Buckets { most: 131_072, .. }]), "{all:?}");
    }
}
