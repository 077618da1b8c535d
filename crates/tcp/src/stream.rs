//! What a connection sends: bytes that the caller keeps.

/// Bytes to send. A connection asks for those that a segment carries, and again for those that were
/// lost.
pub trait Stream {
    /// Bytes in all. More may be added while the stream is sent.
    fn length(&self) -> u64;

    /// So many bytes from `offset` on. All of them are within the stream, and they are no more than
    /// a segment carries: 65,535.
    fn bytes(&self, offset: u64, len: usize) -> &[u8];
}

impl Stream for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        &self[offset as usize..offset as usize + len]
    }
}

impl<const N: usize> Stream for [u8; N] {
    fn length(&self) -> u64 {
        N as u64
    }

    fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.as_slice().bytes(offset, len)
    }
}

impl Stream for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.as_slice().bytes(offset, len)
    }
}

/// So many zeros, of which none is kept: what a simulated transfer carries. With `u64::MAX` it does
/// not end in any run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeros(pub u64);

impl Stream for Zeros {
    fn length(&self) -> u64 {
        self.0
    }

    fn bytes(&self, _: u64, len: usize) -> &[u8] {
        &SEGMENT[..len]
    }
}

/// As many as the largest segment can carry.
static SEGMENT: [u8; 65_535] = [0; 65_535];
