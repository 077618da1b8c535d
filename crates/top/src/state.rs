//! One word for how a listener does.

/// How a listener does, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nobody came in the last second.
    Idle,
    /// Clients were answered in the last second.
    Busy,
    /// The guard has seen too few answers to know the usual one, and leaves all to the kernel.
    Learning,
    /// More wait than may, and nobody is refused: a burst is let pass.
    Burst,
    /// The kernel dropped clients of a listener that nobody guards.
    Dropping,
    /// The guard refused clients in the last second.
    Refusing,
    /// Nothing listens at the address.
    NoListener,
    /// The guard's process did not run, so the kernel decided alone.
    LeaseLost,
}

/// What a state is told from: of the last second, but for what is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signs {
    /// The guard's process did not run, or has not been heard of for two seconds.
    pub is_lease_lost: bool,
    /// Now; of a listener that is not guarded always.
    pub listens: bool,
    /// Whether a guard decides here, dry run or not.
    pub is_guarded: bool,
    /// Clients, by the guard or else by the kernel.
    pub refused: u64,
    /// Connections now.
    pub waiting: u64,
    /// Connections that may wait; `None` if no number is known.
    pub limit: Option<u64>,
    /// Now.
    pub is_learning: bool,
    /// Clients that were answered, or where that is not known, SYNs that were let through.
    pub answered: u64,
}

impl State {
    /// Each once, the worst last.
    pub const ALL: [Self; 8] = [
        Self::Idle,
        Self::Busy,
        Self::Learning,
        Self::Burst,
        Self::Dropping,
        Self::Refusing,
        Self::NoListener,
        Self::LeaseLost,
    ];

    /// The worst that is so.
    pub fn of(signs: &Signs) -> Self {
        let is_above = signs.limit.is_some_and(|limit| signs.waiting > limit);
        match signs {
            Signs { is_lease_lost: true, .. } => Self::LeaseLost,
            Signs { listens: false, .. } => Self::NoListener,
            Signs { refused: 1.., is_guarded: true, .. } => Self::Refusing,
            Signs { refused: 1.., .. } => Self::Dropping,
            _ if is_above => Self::Burst,
            Signs { is_learning: true, .. } => Self::Learning,
            Signs { answered: 1.., .. } => Self::Busy,
            _ => Self::Idle,
        }
    }

    /// Eleven characters at most.
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Learning => "learning",
            Self::Burst => "burst",
            Self::Dropping => "dropping",
            Self::Refusing => "refusing",
            Self::NoListener => "no listener",
            Self::LeaseLost => "lease lost",
        }
    }

    /// The word in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Idle => "nobody came in the last second",
            Self::Busy => "clients are answered",
            Self::Learning => "too few answers were seen yet; the kernel decides",
            Self::Burst => "more wait than may, and a burst is let pass",
            Self::Dropping => "no guard here: the kernel drops clients in silence",
            Self::Refusing => "the guard refuses clients",
            Self::NoListener => "nothing listens at this address",
            Self::LeaseLost => "the guard's process does not run: the kernel decides",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_the_worst_that_is_so() {
        let idle = Signs { listens: true, is_guarded: true, limit: Some(10), ..Signs::default() };
        let full = Signs { waiting: 11, answered: 5, ..idle };
        let crowd = Signs { refused: 1, ..full };
        for (signs, state) in [
            (idle, State::Idle),
            (Signs { waiting: 3, ..idle }, State::Idle),
            (Signs { answered: 1, ..idle }, State::Busy),
            (Signs { answered: 1, waiting: 10, ..idle }, State::Busy),
            (Signs { is_learning: true, ..idle }, State::Learning),
            (Signs { is_learning: true, answered: 5, ..idle }, State::Learning),
            (full, State::Burst),
            (Signs { is_learning: true, ..full }, State::Burst),
            (Signs { limit: None, ..full }, State::Busy),
            (crowd, State::Refusing),
            (Signs { waiting: 0, limit: None, ..crowd }, State::Refusing),
            (Signs { is_guarded: false, ..crowd }, State::Dropping),
            (Signs { is_guarded: false, refused: 0, ..crowd }, State::Burst),
            (Signs { listens: false, ..crowd }, State::NoListener),
            (Signs { is_lease_lost: true, ..crowd }, State::LeaseLost),
            (Signs { is_lease_lost: true, listens: false, ..idle }, State::LeaseLost),
        ] {
            assert_eq!(State::of(&signs), state, "{signs:?}");
        }
    }

    #[test]
    fn words_fit_their_column_and_the_worst_is_last() {
        assert!(State::ALL.iter().all(|state| state.word().len() <= 11));
        assert!(State::ALL.is_sorted());
    }
}
