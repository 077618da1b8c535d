//! What can go wrong when a port is opened.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use nix::errno::Errno;

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// By AF_XDP.
    #[error(transparent)]
    Xdp(#[from] xsk::Error),
    /// By a packet socket.
    #[error("{tried}open a packet socket on {interface}, which needs CAP_NET_RAW and Linux 4.20: {error}")]
    Packet {
        /// Why there is no AF_XDP, if that was tried.
        tried: String,
        /// Of that name.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// An interface has fewer queues than it would take.
    #[error(
        "{interface} has {}, so at most {most} worker{}; take fewer, raise the queues (ethtool -L {interface} combined {workers}), or take \
         packet sockets",
        say(*queues),
        if *most == 1 { "" } else { "s" }
    )]
    Workers {
        /// That were asked for.
        workers: u32,
        /// Of that name.
        interface: String,
        /// That it has.
        queues: xsk::Queues,
        /// Workers that it could have.
        most: u32,
    },
    /// A kernel would answer the replies.
    #[error(
        "{own} is among the clients {clients} and this host's own: its kernel sees what a packet socket receives, and would reset \
         the replies; name a network that it is not in"
    )]
    Own {
        /// The address.
        own: IpAddr,
        /// That were asked for.
        clients: IpNet,
    },
    /// No network has such a prefix.
    #[error(transparent)]
    Prefix(#[from] ipnet::PrefixLenError),
    /// This host's addresses are not to be had.
    #[error(transparent)]
    Addresses(Errno),
}

/// What this crate's functions give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn say(xsk::Queues { receive, transmit }: xsk::Queues) -> String {
    if transmit < receive {
        format!("{receive} receive and {transmit} transmit queues")
    } else {
        format!("{receive} receive queue{}", if receive == 1 { "" } else { "s" })
    }
}
