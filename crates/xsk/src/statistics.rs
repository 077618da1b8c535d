//! Where frames went, from the kernel's counters and our program's.

/// Frames since the socket was opened; of the program, since it was attached. The program's are
/// those of all queues of the interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The crowd's, handed to a socket. Of a single socket, those received are these less
    /// [`Statistics::lost`].
    pub steered: u64,
    /// Not the crowd's, left to the kernel.
    pub passed: u64,
    /// The crowd's, dropped because they came in on a queue without a socket, or before that was
    /// ready.
    pub unclaimed: u64,
    /// Lost for want of a free buffer, or larger than one ([`crate::MAX_RECEIVED`]).
    pub rx_dropped: u64,
    /// Lost because the receive ring was full. Ours has an entry for each buffer, so buffers run
    /// out first.
    pub rx_ring_full: u64,
    /// How often the kernel found no free buffer; these frames are in `rx_dropped` too.
    pub rx_no_buffer: u64,
    /// Buffers that we offered wrongly; always 0.
    pub rx_invalid: u64,
    /// Frames that we queued wrongly, so that the kernel did not send them; always 0.
    pub tx_invalid: u64,
    /// How often the kernel found nothing to send.
    pub tx_ring_empty: u64,
}

impl Statistics {
    /// The crowd's frames that reached the interface and were not received, whatever the cause.
    /// With several sockets on an interface these are [`Statistics::dropped`] of all but one, and
    /// this of that one.
    ///
    /// Frames lost before the program sees them are not here: see the peer's and the interface's
    /// own counters.
    pub fn lost(&self) -> u64 {
        self.dropped() + self.unclaimed
    }

    /// Of these, those that this socket had no room for.
    pub fn dropped(&self) -> u64 {
        self.rx_dropped + self.rx_ring_full
    }
}
