//! What things cost on a machine, CPU time.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::kernel::Work;

/// A machine: what each kind of work costs its CPU. TOML with times as numbers of microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// Where its numbers are from, and which published numbers were used to fit it.
    pub about: String,
    /// Work in softirq.
    pub softirq: Softirq,
    /// The server's program and its system calls.
    pub server: Server,
    /// How packets wait.
    pub receive: Receive,
}

/// Work in softirq, microseconds for each segment that comes; answers at once are part of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softirq {
    /// A SYN that is answered by SYN/ACK.
    pub syn_answered: f64,
    /// A SYN that the kernel drops.
    pub syn_dropped: f64,
    /// A SYN that the guard answers by RST.
    pub syn_reset: f64,
    /// A SYN that the guard drops.
    pub syn_held: f64,
    /// The end of a handshake that becomes a connection.
    pub established: f64,
    /// The end of a handshake that is dropped.
    pub end_dropped: f64,
    /// The end of a handshake that is reset.
    pub end_reset: f64,
    /// Data, and the wake-up of who waits for it.
    pub data: f64,
    /// A FIN.
    pub fin: f64,
    /// An acknowledgment.
    pub ack: f64,
    /// A RST.
    pub reset: f64,
    /// A segment of no connection, which is answered by RST.
    pub stray: f64,
    /// A SYN/ACK, FIN or data that a timer sends again.
    pub sent_again: f64,
}

/// The server's program and its system calls, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// To learn what is ready, once for all that is.
    pub poll: f64,
    /// accept(2) of one connection, and what the program does to keep it.
    pub accept: f64,
    /// accept(2) that finds nothing.
    pub accept_nothing: f64,
    /// A request: to read it, find its answer and write that.
    pub request: f64,
    /// Each KiB that is written beyond the first segment.
    pub kib: f64,
    /// To see that a client has closed, and to close.
    pub close: f64,
    /// To see that a connection was reset, and to close: work in vain.
    pub error: f64,
}

/// Between the wire and the kernel's TCP.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// Frames that the receive ring holds; more are lost.
    pub ring: u32,
    /// Longest time in softirq, microseconds, before programs get a turn (`MAX_SOFTIRQ_TIME`, ksoftirqd); 0 is for ever, as long as frames come.
    pub longest: f64,
    /// How long such a turn is, and then that of the softirq, microseconds.
    pub turn: f64,
}

fn micros(cost: f64) -> Nanos {
    Nanos((cost * 1e3).round() as u64)
}

/// A cost above a second is a slip of the pen.
const MOST: f64 = 1e6;

impl Profile {
    /// Reads a profile as TOML.
    ///
    /// # Errors
    ///
    /// One line: an unknown or missing key, a cost below zero or above a second, a ring that holds nothing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let profile: Self = toml::from_str(text).map_err(|error| error.message().replace('\n', " "))?;
        for (name, cost) in profile.costs() {
            if !(0.0..=MOST).contains(&cost) {
                return Err(format!("{name} = {cost} us is no cost; 0 to {MOST} us"));
            }
        }
        if profile.receive.ring == 0 {
            return Err("receive.ring = 0 holds no frame; 256 is usual".to_owned());
        }
        if profile.receive.longest > 0.0 && profile.receive.turn <= 0.0 {
            return Err(
                "receive.turn = 0 gives programs no turn; 4000 us is usual, or set receive.longest to 0"
                    .to_owned(),
            );
        }
        Ok(profile)
    }

    /// As [`Profile::parse`] reads it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and names")
    }

    fn costs(&self) -> [(&'static str, f64); 22] {
        let Self { softirq, server, receive, .. } = self;
        [
            ("softirq.syn_answered", softirq.syn_answered),
            ("softirq.syn_dropped", softirq.syn_dropped),
            ("softirq.syn_reset", softirq.syn_reset),
            ("softirq.syn_held", softirq.syn_held),
            ("softirq.established", softirq.established),
            ("softirq.end_dropped", softirq.end_dropped),
            ("softirq.end_reset", softirq.end_reset),
            ("softirq.data", softirq.data),
            ("softirq.fin", softirq.fin),
            ("softirq.ack", softirq.ack),
            ("softirq.reset", softirq.reset),
            ("softirq.stray", softirq.stray),
            ("softirq.sent_again", softirq.sent_again),
            ("server.poll", server.poll),
            ("server.accept", server.accept),
            ("server.accept_nothing", server.accept_nothing),
            ("server.request", server.request),
            ("server.kib", server.kib),
            ("server.close", server.close),
            ("server.error", server.error),
            ("receive.longest", receive.longest),
            ("receive.turn", receive.turn),
        ]
    }

    /// What a segment costs that made the kernel do this.
    pub fn segment(&self, work: Work) -> Nanos {
        let softirq = &self.softirq;
        micros(match work {
            Work::SynAnswered => softirq.syn_answered,
            Work::SynDropped => softirq.syn_dropped,
            Work::SynReset => softirq.syn_reset,
            Work::SynHeld => softirq.syn_held,
            Work::Established => softirq.established,
            Work::EndDropped => softirq.end_dropped,
            Work::EndReset => softirq.end_reset,
            Work::Data => softirq.data,
            Work::Fin => softirq.fin,
            Work::Ack => softirq.ack,
            Work::Reset => softirq.reset,
            Work::Stray => softirq.stray,
        })
    }

    /// What a timer costs that sends something again.
    pub fn timer(&self) -> Nanos {
        micros(self.softirq.sent_again)
    }

    /// Costs of the program's steps.
    pub(crate) fn steps(&self) -> Steps {
        let Server { poll, accept, accept_nothing, request, kib, close, error } = self.server;
        Steps {
            poll: micros(poll),
            accept: micros(accept),
            accept_nothing: micros(accept_nothing),
            request: micros(request),
            kib: micros(kib),
            close: micros(close),
            error: micros(error),
        }
    }

    /// Longest time in softirq, and the turns after it; `None` where programs never get one as long as frames come.
    pub(crate) fn turns(&self) -> Option<(Nanos, Nanos)> {
        (self.receive.longest > 0.0).then(|| (micros(self.receive.longest), micros(self.receive.turn)))
    }
}

/// [`Server`] as spans.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) poll: Nanos,
    pub(crate) accept: Nanos,
    pub(crate) accept_nothing: Nanos,
    pub(crate) request: Nanos,
    pub(crate) kib: Nanos,
    pub(crate) close: Nanos,
    pub(crate) error: Nanos,
}
