//! Packet scripts: what clients send, what the server must answer, and in which state it is then.
//!
//! [`parse`] reads a script, in the format of `tests/conformance/README.md`. [`run`] plays it to a
//! [`System`]: a kernel in a network namespace (crates/conformance), or the simulator's
//! (crates/corpus). The system says what time it is, and is handed frames.
//!
//! What it is not: a TCP. A client sends only what its lines say, acknowledges nothing by itself
//! and has no timers. Nothing here has a clock, a socket or a thread.
//!
//! ```
//! let text = "policy rst-syn\nfill\na: > S 0:0(0)\na: < R. 0:0(0) ack 1\ncount reset 1\n";
//! let script = script::parse("syn/refused.pkt", text).expect("a script");
//! assert_eq!(script.steps.len(), 4);
//!
//! let error = script::parse("syn/refused.pkt", "policy rst-sin\n").expect_err("no such policy");
//! assert!(error.to_string().starts_with("syn/refused.pkt:1: \"rst-sin\" is no mechanism"));
//! ```

mod parse;
mod pattern;
mod release;
mod run;
mod step;
mod system;

pub use parse::{ParseError, parse};
pub use pattern::Pattern;
pub use release::Series;
pub use run::{Failure, run};
pub use step::{Action, Claim, Family, Hook, Script, Setup, State, Step, UnknownName};
pub use system::{Arrival, Ends, Read, System};
