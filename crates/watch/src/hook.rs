//! Where the programs of `kernel/watch.bpf.c` look.

/// One place in the kernel's TCP. Each may be missing: the others work without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// A SYN for a new handshake, and what became of it.
    Syn,
    /// A segment for a handshake in progress.
    Request,
    /// The end of a handshake over IPv4.
    EndV4,
    /// The end of a handshake over IPv6.
    EndV6,
    /// A connection comes into the accept queue.
    Enqueue,
    /// accept(2) takes one out.
    Accept,
}

impl Hook {
    /// Each once.
    pub const ALL: [Self; 6] =
        [Self::Syn, Self::Request, Self::EndV4, Self::EndV6, Self::Enqueue, Self::Accept];

    /// Programs and the kernel's function that each looks at; all are needed.
    pub(crate) fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Syn => &[
                ("on_syn_decided", "tcp_conn_request"),
                ("on_syn_ack", "tcp_make_synack"),
                ("on_syn", "tcp_conn_request"),
            ],
            Self::Request => &[("on_request", "tcp_check_req")],
            Self::EndV4 => &[("on_end_v4", "tcp_v4_syn_recv_sock")],
            Self::EndV6 => &[("on_end_v6", "tcp_v6_syn_recv_sock")],
            Self::Enqueue => {
                &[("on_enqueue", "inet_csk_reqsk_queue_add"), ("on_hashdance", "inet_csk_complete_hashdance")]
            }
            Self::Accept => &[("on_accept", "inet_csk_accept")],
        }
    }

    /// What is not known without it.
    pub fn gives(self) -> &'static str {
        match self {
            Self::Syn => "SYNs and why they were dropped",
            Self::Request => "SYNs repeated for a handshake in progress",
            Self::EndV4 => "ListenQOverflow over IPv4",
            Self::EndV6 => "ListenQOverflow over IPv6",
            Self::Enqueue => "lengths of the accept queue",
            Self::Accept => "the accept rate",
        }
    }
}

/// A hook that this kernel has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub hook: Hook,
    /// Why, on one line.
    pub reason: String,
}
