//! What a script is played to.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use units::Nanos;
use verdict::ListenerLoad;
use wire::Ethernet;

use crate::State;

/// A guarded server and the wire to it. Errors are what the system cannot do, never what a script
/// expects in vain.
///
/// Of the server's sockets each is named by its client's address.
pub trait System {
    /// What it cannot do; its alternate form is all of it in one line.
    type Error: Display;

    /// Addresses on the wire.
    fn ends(&self) -> Ends;
    /// The time; in a simulator a virtual one.
    fn now(&self) -> Nanos;
    /// Puts a client's frame on the wire.
    fn send(&mut self, frame: &[u8]) -> Result<(), Self::Error>;
    /// The next frame that came to the clients, or `None` when none has come by `until`. Time
    /// passes meanwhile.
    fn receive(&mut self, until: Nanos) -> Result<Option<Arrival>, Self::Error>;
    /// Has everything that was sent do its work: answers that it causes at once can be received,
    /// counters have counted it.
    fn settle(&mut self) -> Result<(), Self::Error>;
    /// accept(2): the client of the next connection, or `None` when none waits.
    fn accept(&mut self) -> Result<Option<SocketAddr>, Self::Error>;
    /// read(2) of at most `max` bytes.
    fn read(&mut self, peer: SocketAddr, max: usize) -> Result<Read, Self::Error>;
    /// write(2).
    fn write(&mut self, peer: SocketAddr, bytes: &[u8]) -> Result<(), Self::Error>;
    /// shutdown(2) of the server's half.
    fn shutdown(&mut self, peer: SocketAddr) -> Result<(), Self::Error>;
    /// close(2).
    fn close(&mut self, peer: SocketAddr) -> Result<(), Self::Error>;
    /// State of the server's end.
    fn state(&mut self, peer: SocketAddr) -> Result<State, Self::Error>;
    /// The listener's queues.
    fn load(&mut self) -> Result<ListenerLoad, Self::Error>;
    /// Counters by name, those of the guard plain and those of the kernel with a dot, as
    /// `TcpExt.ListenOverflows`.
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, Self::Error>;
}

/// Addresses on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Of a frame to the server.
    pub ethernet: Ethernet,
    /// Of every client; they differ by port.
    pub client: IpAddr,
    /// Where the server listens.
    pub server: SocketAddr,
}

/// A frame that came to the clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When it came, however late it is received.
    pub at: Nanos,
    /// From its Ethernet header on.
    pub frame: Vec<u8>,
}

/// What a read gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The client has sent FIN.
    Eof,
    /// ECONNRESET: the connection is destroyed.
    Reset,
    /// There is nothing to read.
    Nothing,
}
