//! What was counted longer ago counts less.

use units::Nanos;

/// Of what is noise in a moment.
pub(crate) const SECOND: Nanos = Nanos::from_secs(1);

/// What is left of something after so long, if after `memory` it is one over e of it.
pub(crate) fn remembered(elapsed: Nanos, memory: Nanos) -> f64 {
    (-elapsed.as_secs_f64() / memory.as_secs_f64().max(1e-9)).exp()
}
