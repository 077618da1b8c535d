//! States of connections, from procfs.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use procfs::net::{TcpNetEntries, TcpState};
use procfs::{FromReadSI, current_system_info};
use script::State;

/// State of the server's end of a connection, in the calling thread's network namespace. A request
/// socket is listed, too (`tcp4_seq_show()`, `get_openreq4()`).
pub fn state(server: SocketAddr, client: SocketAddr) -> Result<State> {
    let table = if server.is_ipv4() { "tcp" } else { "tcp6" };
    let path = format!("/proc/thread-self/net/{table}");
    let entries =
        TcpNetEntries::from_file(&path, current_system_info()).with_context(|| format!("read {path}"))?;
    let mut found = entries
        .0
        .into_iter()
        .filter(|entry| entry.local_address == server && entry.remote_address == client)
        .map(|entry| entry.state);
    Ok(match found.next() {
        None | Some(TcpState::Close) => State::Gone,
        Some(TcpState::SynRecv | TcpState::NewSynRecv) => State::SynRecv,
        Some(TcpState::Established) => State::Established,
        Some(TcpState::FinWait1) => State::FinWait1,
        Some(TcpState::FinWait2) => State::FinWait2,
        Some(TcpState::CloseWait) => State::CloseWait,
        Some(TcpState::Closing) => State::Closing,
        Some(TcpState::LastAck) => State::LastAck,
        Some(TcpState::TimeWait) => State::TimeWait,
        Some(state @ (TcpState::SynSent | TcpState::Listen)) => {
            bail!("{server} has a socket for {client} in {state:?}, which no server's end can be in")
        }
    })
}
