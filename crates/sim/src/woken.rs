//! When somebody is to look at something next.

use units::Nanos;

/// The moment of which somebody was told. An earlier one may come in between; then the later comes
/// to nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Woken(Nanos);

impl Default for Woken {
    /// Nobody was told of any.
    fn default() -> Self {
        Self(Nanos::MAX)
    }
}

impl Woken {
    /// The moment, if somebody must be told of it: nobody was of one as early.
    pub(crate) fn tell(&mut self, next: Option<Nanos>) -> Option<Nanos> {
        let next = next.filter(|next| *next < self.0)?;
        self.0 = next;
        Some(next)
    }

    /// Whether this is the moment of which somebody was told last; then nobody is any more.
    pub(crate) fn is_now(&mut self, now: Nanos) -> bool {
        let is_now = self.0 == now;
        if is_now {
            *self = Self::default();
        }
        is_now
    }
}
