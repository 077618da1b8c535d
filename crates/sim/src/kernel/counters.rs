//! What the kernel counts, by the names of `nstat`.

/// Of the server's kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// `TcpExt.ListenOverflows`: a SYN or the end of a handshake found the accept queue full.
    pub listen_overflows: u64,
    /// `TcpExt.ListenDrops`: those, and SYNs that were dropped for another cause.
    pub listen_drops: u64,
    /// `TcpExt.EmbryonicRsts`: handshakes that ended by a RST of either end.
    pub embryonic_rsts: u64,
    /// `TcpExt.SyncookiesSent`.
    pub syncookies_sent: u64,
    /// `TcpExt.SyncookiesRecv`: cookies that came back and were ours.
    pub syncookies_recv: u64,
    /// `TcpExt.TCPReqQFullDoCookies`: SYNs that found the SYN queue full, and got a cookie.
    pub reqq_full_do_cookies: u64,
    /// `TcpExt.TCPReqQFullDrop`: the same, and were dropped.
    pub reqq_full_drop: u64,
    /// `TcpExt.TCPTimeWaitOverflow`: connections that should have been in TIME_WAIT, and found no
    /// bucket.
    pub time_wait_overflows: u64,
    /// `TcpExt.PAWSTimewait`: segments in TIME_WAIT whose timestamp was older than the last.
    pub paws_rejects: u64,
    /// `Tcp.OutRsts`.
    pub out_rsts: u64,
    /// Connections that came into the accept queue.
    pub established: u64,
    /// Of `listen_drops`, SYNs, for whatever cause.
    pub syns_dropped: u64,
    /// SYN/ACKs, the first ones and those sent again.
    pub syn_acks: u64,
}

impl Counters {
    /// With the names that `nstat` has for them.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("TcpExt.ListenOverflows", self.listen_overflows),
            ("TcpExt.ListenDrops", self.listen_drops),
            ("TcpExt.EmbryonicRsts", self.embryonic_rsts),
            ("TcpExt.SyncookiesSent", self.syncookies_sent),
            ("TcpExt.SyncookiesRecv", self.syncookies_recv),
            ("TcpExt.TCPReqQFullDoCookies", self.reqq_full_do_cookies),
            ("TcpExt.TCPReqQFullDrop", self.reqq_full_drop),
            ("TcpExt.TCPTimeWaitOverflow", self.time_wait_overflows),
            ("TcpExt.PAWSTimewait", self.paws_rejects),
            ("Tcp.OutRsts", self.out_rsts),
        ]
    }
}
