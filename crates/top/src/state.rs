//! One word for how a listener does: on the screen, in metrics and for balancers.

use schemars::JsonSchema;
use serde::Serialize;

/// How a listener does, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody came in the last second.
    Idle,
    /// Clients were answered in the last second.
    Busy,
    /// The guard has seen too few answers to know the usual one, and leaves all to the kernel.
    Learning,
    /// As many wait as may, and nobody is refused: a burst is let pass.
    Burst,
    /// The kernel dropped clients of a listener that nobody guards.
    Dropping,
    /// The guard refused clients in the last second.
    Refusing,
    /// Clients come, and the guard sees no SYN of theirs.
    Blind,
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
    /// Whether clients come of which the guard sees no SYN.
    pub is_blind: bool,
    /// Whether a guard decides here, dry run or not.
    pub is_guarded: bool,
    /// Clients, by the guard or else by the kernel.
    pub refused: u64,
    /// Whether as many connections wait now as may.
    pub is_full: bool,
    /// Now.
    pub is_learning: bool,
    /// Clients that were answered, or where that is not known, SYNs that were let through.
    pub answered: u64,
}

impl State {
    /// Each once, the worst last.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::Busy,
        Self::Learning,
        Self::Burst,
        Self::Dropping,
        Self::Refusing,
        Self::Blind,
        Self::NoListener,
        Self::LeaseLost,
    ];

    /// The worst that is so.
    pub fn of(signs: &Signs) -> Self {
        match signs {
            Signs { is_lease_lost: true, .. } => Self::LeaseLost,
            Signs { listens: false, .. } => Self::NoListener,
            Signs { is_blind: true, .. } => Self::Blind,
            Signs { refused: 1.., is_guarded: true, .. } => Self::Refusing,
            Signs { refused: 1.., .. } => Self::Dropping,
            Signs { is_full: true, .. } => Self::Burst,
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
            Self::Blind => "blind",
            Self::NoListener => "no listener",
            Self::LeaseLost => "lease lost",
        }
    }

    /// As JSON and Prometheus name it.
    pub fn name(self) -> String {
        self.word().replace(' ', "_")
    }

    /// The word in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Idle => "nobody came in the last second",
            Self::Busy => "clients are answered",
            Self::Learning => "too few answers were seen yet; the kernel decides",
            Self::Burst => "as many wait as may, and a burst is let pass",
            Self::Dropping => "no guard here: the kernel drops clients in silence",
            Self::Refusing => "the guard refuses clients",
            Self::Blind => "clients come by where the guard sees no SYN: its log says more",
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
        let idle = Signs { listens: true, is_guarded: true, ..Signs::default() };
        let full = Signs { is_full: true, answered: 5, ..idle };
        let crowd = Signs { refused: 1, ..full };
        for (signs, state) in [
            (idle, State::Idle),
            (Signs { answered: 1, ..idle }, State::Busy),
            (Signs { is_learning: true, ..idle }, State::Learning),
            (Signs { is_learning: true, answered: 5, ..idle }, State::Learning),
            (full, State::Burst),
            (Signs { is_learning: true, ..full }, State::Burst),
            (crowd, State::Refusing),
            (Signs { is_full: false, ..crowd }, State::Refusing),
            (Signs { is_learning: true, ..crowd }, State::Refusing),
            (Signs { is_guarded: false, ..crowd }, State::Dropping),
            (Signs { is_guarded: false, refused: 0, ..crowd }, State::Burst),
            (Signs { is_blind: true, ..idle }, State::Blind),
            (Signs { is_blind: true, listens: false, ..idle }, State::NoListener),
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
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).expect("JSON"), state.name());
        }
    }
}
