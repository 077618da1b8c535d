//! A listener's queues.

use crate::{ListenerLoad, functions};

impl ListenerLoad {
    /// Whether the accept queue holds as many as it may: one more than the limit, as
    /// `sk_acceptq_is_full()` has it.
    pub fn is_accept_queue_full(&self) -> bool {
        functions::accept_queue_is_full(self)
    }

    /// Whether the SYN queue is at its limit.
    pub fn is_syn_queue_full(&self) -> bool {
        functions::syn_queue_is_full(self)
    }
}
