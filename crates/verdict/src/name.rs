//! Policies by name: mechanisms of `[Shu05]` figure 4.1, joined by `+`.

use std::fmt;
use std::str::FromStr;

use crate::{Full, Policy, Verdict};

/// Fewer promises than places would leave some of the accept queue empty for ever; more than this is no reservation.
const OVERBOOK_PERCENT: std::ops::RangeInclusive<u32> = 100..=1000;

/// A policy that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No mechanism has that name.
    #[error(
        "{0:?} is no mechanism; known are default, abort, reserv, reserv:150 (overbooked) and rst-syn, joined as in abort+rst-syn"
    )]
    Unknown(String),
    /// Two mechanisms answer the same question.
    #[error("{0} and {1} are two answers to one question ([Shu05] figure 4.1); choose one")]
    Contradiction(&'static str, &'static str),
    /// A number that is no overbooking.
    #[error("reserv:{0} is not a percentage of 100 (exact) to 1000")]
    Overbook(String),
}

impl Policy {
    /// What the command line and the experiment file take; every combination is joined by `+`.
    pub const NAMES: &str = "default, abort, reserv, rst-syn, abort+rst-syn, reserv+rst-syn";
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut policy = Self::DEFAULT;
        let (mut is_default, mut is_abort, mut is_reserv, mut is_rst_syn) = (false, false, false, false);
        for part in text.split('+') {
            match part.split_once(':').map_or((part, None), |(name, value)| (name, Some(value))) {
                ("default", None) => is_default = true,
                ("abort", None) => is_abort = true,
                ("rst-syn", None) => is_rst_syn = true,
                ("reserv", percent) => {
                    is_reserv = true;
                    policy.full = Full::Reserved { overbook_percent: overbook(percent)? };
                }
                _ => return Err(PolicyError::Unknown(part.to_owned())),
            }
        }
        if is_abort && is_reserv {
            return Err(PolicyError::Contradiction("abort", "reserv"));
        }
        let others = [(is_abort, "abort"), (is_reserv, "reserv"), (is_rst_syn, "rst-syn")];
        if let Some((_, other)) = others.iter().find(|(is_set, _)| is_default && *is_set) {
            return Err(PolicyError::Contradiction("default", other));
        }
        policy.ack_when_full = if is_abort { Verdict::Reset } else { Verdict::Admit };
        policy.syn_when_full = match (is_rst_syn, is_reserv) {
            (true, _) => Verdict::Reset,
            (false, true) => Verdict::Drop,
            (false, false) => Verdict::Admit,
        };
        Ok(policy)
    }
}

fn overbook(percent: Option<&str>) -> Result<u32, PolicyError> {
    let Some(text) = percent else {
        return Ok(100);
    };
    let percent = text.trim_end_matches('%').parse().ok();
    percent
        .filter(|percent| OVERBOOK_PERCENT.contains(percent))
        .ok_or_else(|| PolicyError::Overbook(text.to_owned()))
}

/// As [`FromStr`] takes it.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.ack_when_full == Verdict::Reset {
            parts.push("abort".to_owned());
        }
        match self.full {
            Full::AcceptQueue => {}
            Full::Reserved { overbook_percent: 100 } => parts.push("reserv".to_owned()),
            Full::Reserved { overbook_percent } => parts.push(format!("reserv:{overbook_percent}")),
        }
        if self.syn_when_full == Verdict::Reset {
            parts.push("rst-syn".to_owned());
        }
        if parts.is_empty() {
            parts.push("default".to_owned());
        }
        f.write_str(&parts.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn names_are_the_mechanisms_of_figure_4_1() {
        assert_eq!(policy("default"), Policy::DEFAULT);
        assert_eq!(policy("abort"), Policy::ABORT);
        assert_eq!(policy("rst-syn"), Policy::RST_SYN);
        assert_eq!(policy("reserv"), Policy::RESERV);
        assert_eq!(policy("abort+rst-syn"), Policy { syn_when_full: Verdict::Reset, ..Policy::ABORT });
        assert_eq!(policy("reserv+rst-syn"), Policy { syn_when_full: Verdict::Reset, ..Policy::RESERV });
        assert_eq!(policy("rst-syn+abort"), policy("abort+rst-syn"));
    }

    #[test]
    fn name_of_a_policy_gives_it_back() {
        for name in Policy::NAMES.split(", ").chain(["reserv:150", "reserv:1000+rst-syn"]) {
            assert_eq!(policy(name).to_string(), name);
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        let error = |text: &str| text.parse::<Policy>().expect_err(text).to_string();
        assert!(error("abrot").contains("\"abrot\" is no mechanism; known are default"));
        assert!(error("").contains("\"\" is no mechanism"));
        assert!(error("abort:3").contains("no mechanism"));
        assert!(error("abort+reserv").starts_with("abort and reserv are two answers to one question"));
        assert!(error("default+rst-syn").starts_with("default and rst-syn"));
        for wrong in ["reserv:99", "reserv:1001", "reserv:", "reserv:many", "reserv:-5"] {
            assert!(error(wrong).contains("is not a percentage"), "{wrong}");
        }
    }
}
