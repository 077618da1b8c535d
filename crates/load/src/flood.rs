//! A flood of spoofed SYNs beside the crowd: every moment that the crowd leaves of its core.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crowd::Clients;
use ipnet::IpNet;
use port::Clock;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tcp::LINUX;
use units::Nanos;
use wire::{Ethernet, Flags, FourTuple, Segment, SeqNumber};
use xsk::{Mode, Socket, Steer};

use crate::next_hop;

/// SYNs between two looks at the clock: some 20 microseconds.
const BATCH: u32 = 16;
/// What comes back is dropped in the driver, for want of buffers to receive it into.
const RX_FRAMES: u32 = 64;
const TX_FRAMES: u32 = 1024;
/// How long the crowd's turns are apart at least: without a pause between them there would be no
/// flood.
pub const TURN: Duration = Duration::from_micros(50);
/// Where SYNs come from: addresses for benchmarks that no network routes (RFC 2544 appendix C.2.2,
/// RFC 5180 section 8).
const SOURCES: [&str; 2] = ["198.18.0.0/15", "2001:2::/48"];

/// What to send beside the crowd, to the same server.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Interface to the server, another than the crowd's. A veth: a flood leaves for no other
    /// machine.
    pub interface: String,
    /// SYNs per second; infinity is as many as there is time for.
    pub rate: f64,
}

/// A socket that sends SYNs from addresses that nobody has, and hears nothing.
pub struct Flood {
    socket: Socket,
    ethernet: Ethernet,
    server: SocketAddr,
    sources: Clients,
    random: Pcg64Mcg,
    pace: DueSyns,
}

impl Flood {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// An interface that is no veth or does not lead to the server, and those of AF_XDP.
    pub fn open(config: &Config, server: SocketAddr, seed: u64) -> Result<Self> {
        let Config { interface, rate } = config;
        ensure!(*rate > 0.0, "a flood of {rate} SYNs per second is none; above 0, or inf");
        let found = next_hop::interface(interface)?;
        ensure!(
            found.is_veth(),
            "a flood leaves only into a namespace of this machine, and {interface} is no veth"
        );
        let sources: IpNet = SOURCES[usize::from(server.is_ipv6())].parse().expect("a network");
        let socket = Socket::open(&xsk::Config {
            ifindex: found.index,
            interface: interface.clone(),
            mode: Mode::Native,
            rx_frames: RX_FRAMES,
            tx_frames: TX_FRAMES,
            steer: Steer { server, clients: (sources.network(), sources.prefix_len()) },
        })?;
        Ok(Self {
            socket,
            ethernet: next_hop::resolve(server, interface, &found)?,
            server,
            sources: Clients::new(sources),
            random: Pcg64Mcg::seed_from_u64(seed),
            pace: DueSyns { rate: *rate, settled: 0.0 },
        })
    }

    /// Sends until `moment`, and gives the time then.
    ///
    /// # Errors
    ///
    /// An interface that went away.
    pub fn send_until(&mut self, clock: &Clock, moment: Nanos) -> Result<Nanos> {
        loop {
            let now = clock.now();
            if now >= moment {
                return Ok(now);
            }
            self.send_due(now)?;
        }
    }

    fn send_due(&mut self, now: Nanos) -> Result<()> {
        let batch = self.pace.take(now);
        for _ in 0..batch {
            let (tuple, seq) = self.next();
            let segment = Segment {
                seq,
                ack: SeqNumber(0),
                flags: Flags::SYN,
                window: LINUX.window,
                options: LINUX.syn_options(self.random.random()),
                payload: &[],
            };
            let ethernet = self.ethernet;
            self.socket.tx.transmit(|buffer| wire::emit(buffer, &ethernet, &tuple, &segment));
        }
        if batch > 0 {
            self.socket.tx.flush().context("send the flood; did the interface go down?")?;
        }
        Ok(())
    }

    /// Addresses, ports and sequence numbers are random, as hping3 and most kits have them.
    fn next(&mut self) -> (FourTuple, SeqNumber) {
        let source = self.sources.address(self.random.random_range(0..self.sources.count()));
        let src = SocketAddr::new(source, self.random.random_range(1024..=u16::MAX));
        (FourTuple { src, dst: self.server }, SeqNumber(self.random.random()))
    }
}

/// How many SYNs are due.
#[derive(Debug, Clone, Copy)]
struct DueSyns {
    /// Per second; may be infinite.
    rate: f64,
    /// How many were sent, or given up.
    settled: f64,
}

impl DueSyns {
    /// So many are to be sent now, up to [`BATCH`]. What was due more than a millisecond ago is not
    /// made up for.
    fn take(&mut self, now: Nanos) -> u32 {
        if self.rate.is_infinite() {
            return BATCH;
        }
        let due = self.rate * now.as_secs_f64();
        let newest = (self.rate * 1e-3).max(1.0);
        self.settled = self.settled.max(due - newest);
        let batch = (due - self.settled).min(f64::from(BATCH)).floor();
        self.settled += batch;
        batch as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_kept_and_a_pause_is_not_made_up_for() {
        let mut pace = DueSyns { rate: 200_000.0, settled: 0.0 };
        let mut take_for = |from_us: u64, to_us: u64| -> u32 {
            (from_us..to_us).step_by(20).map(|us| pace.take(Nanos::from_micros(us))).sum()
        };
        let first = take_for(0, 10_000);
        assert!((1990..=2000).contains(&first), "{first} in 10 ms");
        let after_a_pause = take_for(1_000_000, 1_010_000);
        assert!((2190..=2200).contains(&after_a_pause), "a millisecond more than 10 ms: {after_a_pause}");
    }

    #[test]
    fn rate_below_one_a_millisecond_is_kept() {
        let mut pace = DueSyns { rate: 10.0, settled: 0.0 };
        let sent: u32 = (0..2_000).map(|ms| pace.take(Nanos::from_millis(ms))).sum();
        assert_eq!(sent, 19);
    }

    #[test]
    fn no_limit_is_a_batch_at_every_look() {
        assert_eq!(DueSyns { rate: f64::INFINITY, settled: 0.0 }.take(Nanos::ZERO), BATCH);
    }
}
