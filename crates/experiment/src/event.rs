//! What a watcher of a run hears.

use results::{Cell, Saturation, Trace};

use crate::servers::ServerSpec;

/// Something happened that a watcher would like to know.
#[derive(Debug)]
pub enum Event<'a> {
    /// A word to the reader, such as a server that was left out.
    Note(&'a str),
    /// A probe for a server's saturation: offered and goodput, per second.
    Probe(&'a ServerSpec, f64, f64),
    /// A server's saturation rate was found.
    Saturated(&'a Saturation),
    /// A cell was measured, and will be again, as the machine disturbed it.
    SetAside(&'a Cell),
    /// A cell was measured; so many of so many are done.
    Cell(&'a Cell, usize, usize),
    /// A packet script was played.
    Trace(&'a Trace),
}
