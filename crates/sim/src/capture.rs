//! Frames of the server's link, as a capture at the server's end of it sees them.

use std::net::SocketAddr;

use crowd::{Clients, Endpoint};
use units::Nanos;
use wire::{Ethernet, FourTuple, Segment, emit, frame_len};

/// Addresses of the two ends, administered locally.
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const CROWD: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Frames in the order of time, up to a number of them.
///
/// Those that come to the server are there when they arrive, also if the receive ring loses them;
/// its own when they leave.
#[derive(Debug)]
pub struct Capture {
    server: SocketAddr,
    clients: Clients,
    most: usize,
    /// When, and where in `bytes` it ends.
    frames: Vec<(Nanos, usize)>,
    bytes: Vec<u8>,
    left_out: u64,
}

/// Which way a segment goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

impl Capture {
    pub(crate) fn new(server: SocketAddr, clients: Clients, most: usize) -> Self {
        Self { server, clients, most, frames: Vec::new(), bytes: Vec::new(), left_out: 0 }
    }

    pub(crate) fn add(&mut self, at: Nanos, way: Way, endpoint: Endpoint, segment: &Segment<'_>) {
        if self.frames.len() >= self.most {
            self.left_out += 1;
            return;
        }
        let client = SocketAddr::new(self.clients.address(endpoint.client), endpoint.port);
        let (ethernet, tuple) = match way {
            Way::ToServer => {
                (Ethernet { src: CROWD, dst: SERVER }, FourTuple { src: client, dst: self.server })
            }
            Way::ToClient => {
                (Ethernet { src: SERVER, dst: CROWD }, FourTuple { src: self.server, dst: client })
            }
        };
        let start = self.bytes.len();
        self.bytes.resize(start + frame_len(&tuple, segment), 0);
        emit(&mut self.bytes[start..], &ethernet, &tuple, segment);
        self.frames.push((at, self.bytes.len()));
    }

    /// The frames, in the order of time, with when each was seen since the start of the run.
    pub fn frames(&self) -> impl Iterator<Item = (Nanos, &[u8])> {
        let starts = std::iter::once(0).chain(self.frames.iter().map(|(_, end)| *end));
        let mut frames: Vec<(Nanos, &[u8])> = self
            .frames
            .iter()
            .zip(starts)
            .map(|((at, end), start)| (*at, &self.bytes[start..*end]))
            .collect();
        // What the server sends is known when the CPU begins with it, and leaves when that is done.
        frames.sort_by_key(|(at, _)| *at);
        frames.into_iter()
    }

    /// Frames that came after as many as are kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
