//! What a client's operating system chooses.

use units::Nanos;

/// The constants of a client's TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Maximum segment size that the SYN offers, bytes.
    pub mss: u16,
    /// Receive window that every segment offers, bytes.
    pub window: u16,
    /// Retransmission timeout before any round trip was measured.
    pub initial_rto: Nanos,
    /// Smallest retransmission timeout.
    pub min_rto: Nanos,
    /// How many SYN retransmissions follow each other at `initial_rto` before the timeout doubles
    /// (`tcp_syn_linear_timeouts`).
    pub linear_syn_timeouts: u32,
    /// SYN retransmissions before the attempt fails, linear ones included.
    pub syn_retries: u32,
    /// Retransmissions of data or FIN before the connection fails (`tcp_retries2`).
    pub data_retries: u32,
    /// How long the ACK of a single segment may wait for company.
    pub delayed_ack: Nanos,
}

/// Linux since 6.5, with its default sysctls.
///
/// SYNs leave at 0, 1, 2, 3, 4, 5, 7, 11, 19, 35 and 67 s; the attempt fails at 131 s. Source:
/// `Documentation/networking/ip-sysctl.rst` (v6.18: `tcp_syn_retries` 6, `tcp_syn_linear_timeouts` 4,
/// `tcp_retries2` 15), `include/net/tcp.h` (`TCP_RTO_MIN`, `TCP_DELACK_MIN`). Differs: the kernel's timer wheel fires up to
/// 2% late; ours does not.
pub const LINUX: Stack = Stack {
    mss: 1460,
    window: 64_240,
    initial_rto: Nanos::from_secs(1),
    min_rto: Nanos::from_millis(200),
    linear_syn_timeouts: 4,
    syn_retries: 10,
    data_retries: 15,
    delayed_ack: Nanos::from_millis(40),
};

impl Stack {
    /// How long to wait after the `n`-th SYN, counted from 1, before the next one or the end of the attempt.
    pub fn syn_timeout(&self, n: u32) -> Nanos {
        let doublings = n.saturating_sub(1 + self.linear_syn_timeouts).min(6);
        Nanos(self.initial_rto.0 << doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_sends_syns_on_its_documented_schedule() {
        let mut at = 0;
        let mut schedule = vec![0];
        for n in 1..=LINUX.syn_retries {
            at += LINUX.syn_timeout(n).0 / 1_000_000_000;
            schedule.push(at);
        }
        assert_eq!(schedule, [0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67]);
    }
}
