//! Memory of the frames that are inside.

/// Buffers of one size. Memory that was never used is not taken from the system.
pub(crate) struct Pool {
    bytes: Vec<u8>,
    buffer_len: usize,
    /// The one last used on top: its bytes are the likeliest to be in the cache.
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(buffers: u32, buffer_len: usize) -> Self {
        Self { bytes: vec![0; buffers as usize * buffer_len], buffer_len, free: (0..buffers).rev().collect() }
    }

    /// Longest frame that a buffer holds.
    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// A buffer with this frame, which is no longer than one; `None` when all are in use.
    pub(crate) fn keep(&mut self, frame: &[u8]) -> Option<u32> {
        let buffer = self.free.pop()?;
        let at = buffer as usize * self.buffer_len;
        self.bytes[at..at + frame.len()].copy_from_slice(frame);
        Some(buffer)
    }

    /// The first bytes of a buffer.
    pub(crate) fn get_mut(&mut self, buffer: u32, len: usize) -> &mut [u8] {
        let at = buffer as usize * self.buffer_len;
        &mut self.bytes[at..at + len]
    }

    pub(crate) fn release(&mut self, buffer: u32) {
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_keep_what_was_put_there_until_they_are_released() {
        let mut pool = Pool::new(2, 8);
        let (one, two) = (pool.keep(b"one"), pool.keep(b"two"));
        assert_eq!(pool.keep(b"three"), None);
        assert_eq!(one.map(|one| pool.get_mut(one, 3).to_vec()), Some(b"one".to_vec()));
        pool.release(one.expect("a buffer"));
        assert!(pool.keep(b"12345678").is_some());
        assert_eq!(two.map(|two| pool.get_mut(two, 3).to_vec()), Some(b"two".to_vec()));
    }
}
