//! The TCP sockets of a network namespace (sock_diag(7)): also those that no process has, as in
//! TIME_WAIT.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::Duration;

use neli::consts::socket::NlFamily;

use crate::ask::{Error, INET, INET6, dump, find};

/// `include/uapi/linux/sock_diag.h`; libc has none of them.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `include/uapi/linux/inet_diag.h`: what is asked for, and where in the answer the socket's fields
/// are, bytes.
const QUESTION_BYTES: usize = 56;
const LOCAL_PORT: usize = 4;
const REMOTE_PORT: usize = 6;
const LOCAL: usize = 8;
const REMOTE: usize = 24;
const COOKIE: usize = 44;
const EXPIRES: usize = 52;
const RECEIVE_QUEUE: usize = 56;
const SEND_QUEUE: usize = 60;
const INODE: usize = 68;
const ANSWER_BYTES: usize = 72;
/// An attribute: the socket's control group, in the hierarchy of version 2.
const CGROUP_ID: u16 = 21;
/// Another, which is to be asked for: words of `SK_MEMINFO_*`, and which of them.
const MEMORY: u16 = 7;
const DROPS: usize = 8;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// All that have a place in the kernel's tables. Bits of `include/net/tcp_states.h`.
const ALL_STATES: u32 = 0xfff;
const LISTEN: u32 = 1 << 10;

/// A TCP socket, as it is at this moment. What an IPv6 socket has with an IPv4 address is said as
/// IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its state.
    pub state: TcpState,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end; port 0 of a listener.
    pub remote: SocketAddr,
    /// Until its timer ends: in TIME_WAIT, until its ports are free.
    pub expires: Duration,
    /// Its inode number, as in `/proc/PID/fd`; 0 if no process has it.
    pub inode: u32,
    /// The control group in which it was made, by the inode number of its folder; `None` in
    /// TIME_WAIT, and for a kernel without control groups.
    pub cgroup: Option<u64>,
}

/// State of a socket: `include/net/tcp_states.h`, as far as anybody here asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    /// It takes connections.
    Listen,
    /// It is closed, and keeps its ports from being used again.
    TimeWait,
    /// All others.
    Other,
}

/// Hands over all TCP sockets of the calling thread's network namespace, in no order. What opens or
/// closes meanwhile may be missing. Anybody may ask.
///
/// # Errors
///
/// ENOENT where the kernel has no `inet_diag`.
pub fn each_tcp_socket(take: impl FnMut(TcpSocket)) -> Result<(), Error> {
    each_in(ALL_STATES, take)
}

/// The listening ones alone. The kernel has a table of them, so this takes no longer where there
/// are many connections.
///
/// # Errors
///
/// As [`each_tcp_socket`].
pub fn tcp_listeners() -> Result<Vec<TcpSocket>, Error> {
    let mut listeners = Vec::new();
    each_in(LISTEN, |socket| listeners.push(socket))?;
    Ok(listeners)
}

/// A listener's queue and losses, as they are at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenQueue {
    /// The kernel's number for the socket, never used again.
    pub cookie: u64,
    /// Connections that wait for accept(2).
    pub accept_qlen: u32,
    /// `min(listen backlog, somaxconn)`.
    pub accept_limit: u32,
    /// SYNs and ends of handshakes that the kernel dropped; it counts modulo 2^32.
    pub drops: u32,
}

/// The queues of the listeners of the calling thread's network namespace, for a small part of what
/// a BPF iterator takes: that goes on through the table of connections.
///
/// # Errors
///
/// As [`each_tcp_socket`].
pub fn listen_queues() -> Result<Vec<ListenQueue>, Error> {
    let mut queues = Vec::new();
    each_answer(LISTEN, 1 << (MEMORY - 1), |answer| queues.extend(read_queue(answer)))?;
    Ok(queues)
}

fn each_in(states: u32, mut take: impl FnMut(TcpSocket)) -> Result<(), Error> {
    each_answer(states, 0, |answer| read(answer).into_iter().for_each(&mut take))
}

/// With these attributes, as bits.
fn each_answer(states: u32, attributes: u8, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    for family in [INET, INET6] {
        let mut question = vec![0; QUESTION_BYTES];
        question[..3].copy_from_slice(&[family, TCP, attributes]);
        question[4..8].copy_from_slice(&states.to_ne_bytes());
        dump(NlFamily::SockOrInetDiag, SOCK_DIAG_BY_FAMILY, question, |answer| {
            take(answer);
            ControlFlow::Continue(())
        })?;
    }
    Ok(())
}

/// `struct inet_diag_msg`.
fn read(bytes: &[u8]) -> Option<TcpSocket> {
    let (family, state) = (*bytes.first()?, *bytes.get(1)?);
    let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let address = |at: usize| {
        let octets: &[u8; 16] = bytes.get(at..)?.first_chunk()?;
        Some(match family {
            INET => IpAddr::from(*octets.first_chunk::<4>()?),
            _ => IpAddr::from(*octets).to_canonical(),
        })
    };
    let expires_ms = u32::from_ne_bytes(*bytes.get(EXPIRES..)?.first_chunk()?);
    Some(TcpSocket {
        state: match state {
            6 => TcpState::TimeWait,
            10 => TcpState::Listen,
            _ => TcpState::Other,
        },
        local: SocketAddr::new(address(LOCAL)?, port(LOCAL_PORT)?),
        remote: SocketAddr::new(address(REMOTE)?, port(REMOTE_PORT)?),
        expires: Duration::from_millis(expires_ms.into()),
        inode: u32::from_ne_bytes(*bytes.get(INODE..)?.first_chunk()?),
        cgroup: find(bytes.get(ANSWER_BYTES..)?, CGROUP_ID)
            .and_then(|value| Some(u64::from_ne_bytes(*value.first_chunk()?))),
    })
}

/// The same, of a listener.
fn read_queue(bytes: &[u8]) -> Option<ListenQueue> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let [low, high] = [word(bytes, COOKIE)?, word(bytes, COOKIE + 4)?].map(u64::from);
    Some(ListenQueue {
        cookie: high << 32 | low,
        accept_qlen: word(bytes, RECEIVE_QUEUE)?,
        accept_limit: word(bytes, SEND_QUEUE)?,
        drops: word(find(bytes.get(ANSWER_BYTES..)?, MEMORY)?, 4 * DROPS)?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn listener_has_the_control_group_of_the_process_that_made_it() {
        let Ok(groups) = std::fs::read_to_string("/proc/self/cgroup") else { return };
        let (Some(path), Ok(mounts)) = (
            groups.lines().find_map(|line| line.strip_prefix("0::")),
            std::fs::read_to_string("/proc/self/mounts"),
        ) else {
            return;
        };
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let Some(root) = mount.and_then(|line| line.split(' ').nth(1)) else {
            return eprintln!("skipped: no cgroup2 is mounted");
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let found = tcp_listeners().expect("ask").into_iter().find(|socket| socket.local == address);
        let folder = std::fs::metadata(format!("{root}{path}")).expect("our group's folder");
        assert_eq!(found.expect("it listens").cgroup, Some(folder.ino()));
    }

    fn all() -> Vec<TcpSocket> {
        let mut all = Vec::new();
        each_tcp_socket(|socket| all.push(socket)).expect("ask");
        all
    }

    #[test]
    fn listener_connection_and_who_closed_first_are_there() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let server = listener.local_addr().expect("address");
            let client = TcpStream::connect(server).expect("connect");
            let (accepted, _) = listener.accept().expect("accept");
            let ends = (client.local_addr().expect("address"), server);
            let state = |of: (SocketAddr, SocketAddr)| {
                all().into_iter().find(|socket| (socket.local, socket.remote) == of)
            };
            assert_eq!(state(ends).expect("it is open").state, TcpState::Other);
            drop(client);
            drop(accepted);
            let closed = std::iter::repeat_with(|| state(ends)).flatten();
            let closed = closed.filter(|socket| socket.state == TcpState::TimeWait);
            let first = closed.take(1).next().expect("it goes on for ever");
            assert!(first.expires <= Duration::from_secs(60) && first.expires > Duration::from_secs(50));
            let listening = all().into_iter().find(|socket| socket.local == server);
            assert!(listening.is_some_and(|socket| socket.state == TcpState::Listen && socket.inode > 0));
            assert!(tcp_listeners().expect("ask").contains(&listening.expect("it listens")));
            assert!(tcp_listeners().expect("ask").iter().all(|socket| socket.state == TcpState::Listen));
        }
    }

    #[test]
    fn queue_of_a_listener_is_what_waits_of_how_many() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        // A number by which it is known.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(77).expect("small"))
            .expect("listen");
        let queue = || listen_queues().expect("ask").into_iter().find(|queue| queue.accept_limit == 77);
        let before = queue().expect("it listens");
        let _client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        assert_eq!((before.accept_qlen, before.drops), (0, 0));
        assert_eq!(queue(), Some(ListenQueue { accept_qlen: 1, ..before }));
    }

    #[test]
    fn message_that_is_cut_is_none() {
        assert_eq!(read_queue(&[2, 10, 0, 0]), None);
        assert_eq!(read(&[2, 6, 0, 0]), None);
        assert_eq!(read(&[]), None);
    }
}
