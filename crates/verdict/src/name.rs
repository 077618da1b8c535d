//! Policies by name: mechanisms of `[Shu05]` figure 4.1, joined by `+`.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::mechanism::Mechanism;
use crate::{Full, OnFin, Policy, Trigger, Verdict, WaitsFrom};

/// Fewer promises than places would leave some of the accept queue empty for ever; more than this
/// is no reservation.
const OVERBOOK_PERCENT: RangeInclusive<u32> = 100..=1000;
/// Shares that leave something of both.
const REFUSED_PERCENT: RangeInclusive<u32> = 1..=99;
/// Attempts/s; beyond, whole nanoseconds between two would round the rate by more than 1%.
const RATE_PER_S: RangeInclusive<u32> = 1..=10_000_000;
/// Connections that may wait for a server; more than a listener's queue can bring at once.
const UNSERVED: RangeInclusive<u32> = 1..=1_000_000;
/// Microseconds: from what a kernel needs to wake a process, to what no client waits for.
const SOJOURN_US: RangeInclusive<u32> = 50..=60_000_000;
/// Microseconds: from nothing to the ten seconds that `[Shu05]` section 6.1 tried.
const BURST_US: RangeInclusive<u32> = 0..=10_000_000;
/// Of a bucket for which none was said: what the rate brings in a tenth of a second.
const DEFAULT_BURSTS_PER_S: u32 = 10;

/// A policy that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No mechanism has that name.
    #[error("{0:?} is no mechanism{then}", then = instead_of(.0))]
    Unknown(String),
    /// There is one, and it has no such value, or needs one.
    #[error("{word:?}: it is written as {forms}")]
    Form {
        /// What was given.
        word: String,
        /// What would do.
        forms: String,
    },
    /// Two mechanisms answer the same question.
    #[error("{0} and {1} are two answers to one question ([Shu05] figure 4.1); choose one")]
    Contradiction(&'static str, &'static str),
    /// A question to which no mechanism gives an answer.
    #[error(
        "{0} says when the listener is full, and nothing here says what becomes of a SYN then; add rst-syn, as in rst-syn+{0}"
    )]
    Unanswered(&'static str),
    /// An answer to a question that no mechanism asks.
    #[error(
        "{0} says from when on a connection waits for the server, and nothing here asks who does; add unserved, as in rst-syn+unserved+{0}"
    )]
    Unasked(&'static str),
    /// Time for bursts where no limit is found.
    #[error(
        "burst says how much may wait beyond the limit that unserved finds, and nothing here finds one; say how it is full by unserved without a number, as in rst-syn+unserved+burst:{0}"
    )]
    Unfound(String),
    /// A number that the mechanism cannot work with.
    #[error("{mechanism}:{text}: {wanted}")]
    Number {
        /// Which mechanism.
        mechanism: &'static str,
        /// What was given.
        text: String,
        /// What would do.
        wanted: &'static str,
    },
}

fn instead_of(word: &str) -> String {
    let name = word.split(':').next().unwrap_or_default();
    spelling::did_you_mean(name, Mechanism::names(), "tidegate policies lists them")
}

impl Policy {
    /// Policies that people choose, and what for; the usual one is first.
    pub const CHOSEN: [(&str, &str); 11] = [
        ("abort+rst-syn+unserved", "the usual: refusals in a crowd only, by a limit that is found"),
        ("abort+rst-syn+unserved:64", "a limit of your own: so many wait"),
        ("abort+rst-syn+sojourn:20ms", "a limit of your own: they wait so long"),
        ("abort+rst-syn+unserved+burst:0s", "no client waits in a burst, as another server takes it"),
        ("abort+rst-syn+unserved+burst:10s", "refusals only in an overload that lasts"),
        ("abort+rst-syn", "by the accept queue alone, as a thesis does"),
        ("reserv+rst-syn", "no client is refused after its handshake"),
        ("early-syn-drop", "silence, as the kernel has it, but cheaper"),
        ("abort+rst-syn+unserved+cookies", "a flood of forged SYNs costs less"),
        ("no-syn-drop", "every SYN is answered"),
        ("observe", "to see only"),
    ];
}

/// The mechanisms that were named, one answer to each question at most.
#[derive(Default)]
pub(crate) struct Named {
    pub(crate) is_default: bool,
    pub(crate) is_observe: bool,
    pub(crate) is_abort: bool,
    pub(crate) is_rst_syn: bool,
    pub(crate) is_early: bool,
    pub(crate) has_cookies: bool,
    cookie: Option<Verdict>,
    on_fin: Option<OnFin>,
    full: Option<(&'static str, Full)>,
    trigger: Option<(&'static str, Trigger)>,
    waits_from: Option<(&'static str, WaitsFrom)>,
    burst_us: Option<u32>,
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut named = Named::default();
        for word in text.split('+') {
            let value = word.split_once(':').map_or("", |(_, value)| value);
            (Mechanism::of(word)?.add)(&mut named, value)?;
        }
        named.policy()
    }
}

impl Named {
    pub(crate) fn unserved(&mut self, limit: &str) -> Result<(), PolicyError> {
        let wanted = "how many connections may wait for the server, from 1 to 1000000, or nothing for a limit that is found";
        let limit = number("unserved", limit, limit, &UNSERVED, wanted)?;
        self.trigger("unserved", Trigger::Unserved(NonZeroU32::new(limit)))
    }

    pub(crate) fn sojourn(&mut self, target: &str) -> Result<(), PolicyError> {
        let wanted = "how long a connection may wait for the server, from 50us to 60s, as in 5ms";
        let target_us = time_us("sojourn", target, &SOJOURN_US, wanted)?;
        let target_us = NonZeroU32::new(target_us).expect("the range begins above 0");
        self.trigger("sojourn", Trigger::Sojourn(target_us))
    }

    pub(crate) fn burst(&mut self, time: &str) -> Result<(), PolicyError> {
        let wanted = "for how long a queue stands before anybody is refused, from 0s to 10s, as in 100ms";
        let us = time_us("burst", time, &BURST_US, wanted)?;
        match self.burst_us.replace(us) {
            Some(other) if other != us => Err(PolicyError::Contradiction("burst", "burst")),
            _ => Ok(()),
        }
    }

    pub(crate) fn reserve(&mut self, percent: &str) -> Result<(), PolicyError> {
        let wanted = "a percentage of promises for places, from 100 (exact) to 1000";
        let overbook_percent = number("reserv", percent, percent, &OVERBOOK_PERCENT, wanted)?;
        self.ask("reserv", Full::Reserved { overbook_percent })
    }

    /// By `RATE` or `RATE/BURST`.
    pub(crate) fn police(&mut self, text: &str) -> Result<(), PolicyError> {
        let wanted =
            "attempts per second, from 1, and after a slash how many may come at once, as in 20000/500";
        let (rate, burst) = text.split_once('/').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let rate = number("police", text, rate, &RATE_PER_S, wanted)?;
        let burst = match burst {
            Some(burst) => number("police", text, burst, &RATE_PER_S, wanted)?,
            None => rate.div_ceil(DEFAULT_BURSTS_PER_S),
        };
        let non_zero = |number| NonZeroU32::new(number).expect("the range begins at 1");
        self.ask("police", Full::Rate { per_s: non_zero(rate), burst: non_zero(burst) })
    }

    pub(crate) fn persistent_drop(&mut self, percent: &str) -> Result<(), PolicyError> {
        let wanted = "a percentage of attempts to refuse, from 1 to 99";
        let percent = number("persistent-drop", percent, percent, &REFUSED_PERCENT, wanted)?;
        self.ask("persistent-drop", Full::Class { refused_permille: percent * 10 })
    }

    /// The SYN stage asks one question only.
    fn ask(&mut self, name: &'static str, full: Full) -> Result<(), PolicyError> {
        match self.full.replace((name, full)) {
            Some((other, _)) => Err(PolicyError::Contradiction(other, name)),
            None => Ok(()),
        }
    }

    /// A listener is full by one measure only.
    pub(crate) fn trigger(&mut self, name: &'static str, trigger: Trigger) -> Result<(), PolicyError> {
        match self.trigger.replace((name, trigger)) {
            Some((other, _)) => Err(PolicyError::Contradiction(other, name)),
            None => Ok(()),
        }
    }

    pub(crate) fn waits_from(&mut self, name: &'static str, from: WaitsFrom) -> Result<(), PolicyError> {
        match self.waits_from.replace((name, from)) {
            Some((other, _)) if other != name => Err(PolicyError::Contradiction(other, name)),
            _ => Ok(()),
        }
    }

    /// One of the two kinds of rst-fin; twice the same is the same.
    pub(crate) fn on_fin(&mut self, on_fin: OnFin) -> Result<(), PolicyError> {
        match self.on_fin.replace(on_fin) {
            Some(other) if other != on_fin => Err(PolicyError::Contradiction("rst-fin", "rst-fin:always")),
            _ => Ok(()),
        }
    }

    /// no-syn-drop: when a queue is full, this cookie.
    pub(crate) fn answer_with(&mut self, cookie: Verdict) -> Result<(), PolicyError> {
        self.cookie = Some(cookie);
        self.ask("no-syn-drop", Full::AnyQueue)
    }

    fn policy(self) -> Result<Policy, PolicyError> {
        let Self { is_default, is_observe, is_abort, is_rst_syn, is_early, has_cookies, .. } = self;
        let Self { cookie, on_fin, full, trigger, waits_from, burst_us, .. } = self;
        let others = [
            full.map(|(name, _)| name),
            is_abort.then_some("abort"),
            is_rst_syn.then_some("rst-syn"),
            is_early.then_some("early-syn-drop"),
            has_cookies.then_some("cookies"),
            on_fin.map(|_| "rst-fin"),
            trigger.map(|(name, _)| name),
            waits_from.map(|(name, _)| name),
            burst_us.map(|_| "burst"),
        ];
        let other = others.into_iter().flatten().next();
        if let (true, Some(other)) = (is_observe, other.or(is_default.then_some("default"))) {
            return Err(PolicyError::Contradiction("observe", other));
        }
        if let (true, Some(other)) = (is_default, other) {
            return Err(PolicyError::Contradiction("default", other));
        }
        if is_abort && matches!(full, Some((_, Full::Reserved { .. }))) {
            return Err(PolicyError::Contradiction("abort", "reserv"));
        }
        // A handshake by cookie is in no queue, so that reserv could promise it no place; the
        // others take no notice of queues, or answer so themselves.
        if let (true, Some((name, _))) = (has_cookies, full) {
            return Err(PolicyError::Contradiction(name, "cookies"));
        }
        let other_answer = is_rst_syn.then_some("rst-syn").or(is_early.then_some("early-syn-drop"));
        if let (Some(_), Some(other)) = (cookie, other_answer) {
            return Err(PolicyError::Contradiction("no-syn-drop", other));
        }
        // no-syn-drop lets everyone in whom the queue has room for.
        if let (Some((name, Trigger::Queue)), None, None, false, None) =
            (trigger, other_answer, full, is_abort || has_cookies, on_fin)
        {
            return Err(PolicyError::Unanswered(name));
        }
        let trigger = trigger.filter(|(_, trigger)| *trigger != Trigger::Queue);
        let asks_itself = matches!(full, Some((_, Full::Rate { .. } | Full::Class { .. } | Full::AnyQueue)));
        match (trigger, full) {
            (Some((name, _)), Some((other, _))) if asks_itself => {
                return Err(PolicyError::Contradiction(other, name));
            }
            (Some((name, _)), None) if other_answer.is_none() => {
                return Err(PolicyError::Unanswered(name));
            }
            _ => {}
        }
        if let (None, Some((name, _))) = (trigger, waits_from) {
            return Err(PolicyError::Unasked(name));
        }
        if let (Some(us), true) = (burst_us, !matches!(trigger, Some((_, Trigger::Unserved(None))))) {
            return Err(PolicyError::Unfound(in_units(us)));
        }
        Ok(Policy {
            full: full.map_or(Full::AcceptQueue, |(_, full)| full),
            syn_when_full: match (cookie, is_rst_syn, is_early || full.is_some()) {
                (Some(cookie), _, _) => cookie,
                (None, true, _) => Verdict::Reset,
                (None, false, true) => Verdict::Drop,
                (None, false, false) => Verdict::Admit,
            },
            syn_when_syn_queue_full: if has_cookies { Verdict::Cookie } else { Verdict::Admit },
            // The kernel would answer a cookie that is not its own with RST, as abort does.
            ack_when_full: if is_abort || cookie.is_some() || has_cookies {
                Verdict::Reset
            } else {
                Verdict::Admit
            },
            on_fin: on_fin.unwrap_or(OnFin::Keep),
            trigger: trigger.map_or(Trigger::Queue, |(_, trigger)| trigger),
            waits_from: waits_from.map_or(WaitsFrom::Found, |(_, from)| from),
            burst_us,
            reserved_slots: 0,
            only_observes: is_observe,
        })
    }
}

/// Of times, from the shortest.
const UNITS_US: [(&str, u32); 3] = [("us", 1), ("ms", 1000), ("s", 1_000_000)];

/// Microseconds of a time such as `5ms`, `250us` or `1s`.
fn time_us(
    mechanism: &'static str,
    text: &str,
    range: &RangeInclusive<u32>,
    wanted: &'static str,
) -> Result<u32, PolicyError> {
    let whole = |time: Duration| time.subsec_nanos().is_multiple_of(1000).then_some(time.as_micros());
    let us = spelling::time(text).ok().and_then(whole).and_then(|us| u32::try_from(us).ok());
    us.filter(|us| range.contains(us)).ok_or_else(|| PolicyError::Number {
        mechanism,
        text: text.to_owned(),
        wanted,
    })
}

/// By the longest unit that it is a multiple of.
fn in_units(time_us: u32) -> String {
    let fits = UNITS_US.iter().rev().find(|(_, us)| time_us.is_multiple_of(*us));
    let (unit, us) = fits.expect("all are multiples of one");
    format!("{}{unit}", time_us / us)
}

fn number(
    mechanism: &'static str,
    text: &str,
    digits: &str,
    range: &RangeInclusive<u32>,
    wanted: &'static str,
) -> Result<u32, PolicyError> {
    let number = digits.trim_end_matches('%').parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| PolicyError::Number { mechanism, text: text.to_owned(), wanted })
}

/// As [`FromStr`] takes it.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        // Which has abort in it.
        let is_no_syn_drop = self.full == Full::AnyQueue;
        if self.ack_when_full == Verdict::Reset && !is_no_syn_drop {
            parts.push("abort".to_owned());
        }
        match self.full {
            Full::AcceptQueue if self.syn_when_full == Verdict::Drop => {
                parts.push("early-syn-drop".to_owned());
            }
            Full::AcceptQueue => {}
            Full::AnyQueue if self.syn_when_full == Verdict::KernelCookie => {
                parts.push("no-syn-drop:kernel".to_owned());
            }
            Full::AnyQueue => parts.push("no-syn-drop".to_owned()),
            Full::Reserved { overbook_percent: 100 } => parts.push("reserv".to_owned()),
            Full::Reserved { overbook_percent } => parts.push(format!("reserv:{overbook_percent}")),
            Full::Rate { per_s, burst } => parts.push(format!("police:{per_s}/{burst}")),
            Full::Class { refused_permille } => {
                parts.push(format!("persistent-drop:{}", refused_permille / 10));
            }
        }
        if self.syn_when_full == Verdict::Reset {
            parts.push("rst-syn".to_owned());
        }
        if self.syn_when_syn_queue_full == Verdict::Cookie {
            parts.push("cookies".to_owned());
        }
        match self.trigger {
            Trigger::Queue => {}
            Trigger::Unserved(None) => parts.push("unserved".to_owned()),
            Trigger::Unserved(Some(limit)) => parts.push(format!("unserved:{limit}")),
            Trigger::Sojourn(target_us) => parts.push(format!("sojourn:{}", in_units(target_us.get()))),
        }
        if let Some(us) = self.burst_us {
            parts.push(format!("burst:{}", in_units(us)));
        }
        match self.waits_from {
            WaitsFrom::Found => {}
            WaitsFrom::Request => parts.push("request".to_owned()),
            WaitsFrom::Handshake => parts.push("first-byte".to_owned()),
        }
        match self.on_fin {
            OnFin::Keep => {}
            OnFin::ResetIdle => parts.push("rst-fin".to_owned()),
            OnFin::Reset => parts.push("rst-fin:always".to_owned()),
        }
        if parts.is_empty() {
            parts.push(if self.only_observes { "observe" } else { "default" }.to_owned());
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
        assert_eq!(policy("abort+rst-syn+unserved"), Policy::UNSERVED);
        assert_eq!(policy("abort+queue"), Policy::ABORT);
        assert_eq!(policy("observe"), Policy::OBSERVE);
        assert_eq!(policy("abort"), Policy::ABORT);
        assert_eq!(policy("rst-syn"), Policy::RST_SYN);
        assert_eq!(policy("reserv"), Policy::RESERV);
        assert_eq!(policy("abort+rst-syn"), Policy { syn_when_full: Verdict::Reset, ..Policy::ABORT });
        assert_eq!(policy("reserv+rst-syn"), Policy { syn_when_full: Verdict::Reset, ..Policy::RESERV });
        assert_eq!(policy("no-syn-drop"), Policy::NO_SYN_DROP);
        assert_eq!(policy("rst-syn+abort"), policy("abort+rst-syn"));
        assert_eq!(policy("abort+no-syn-drop"), Policy::NO_SYN_DROP, "which rejects there anyway");
        assert_eq!(policy("early-syn-drop+rst-syn"), Policy::RST_SYN, "which answers as early");
        assert_eq!(
            policy("rst-syn+unserved+cookies"),
            policy("abort+rst-syn+unserved+cookies"),
            "which rejects there, too"
        );
        assert_eq!(policy("police:25"), policy("police:25/3"), "a tenth of a second, rounded up");
        assert_eq!(policy("rst-syn+unserved+burst:1.5s"), policy("rst-syn+unserved+burst:1500ms"));
    }

    #[test]
    fn policies_that_people_choose_are_some_and_the_usual_is_first() {
        assert_eq!(policy(Policy::CHOSEN[0].0), Policy::UNSERVED);
        for (name, _) in Policy::CHOSEN {
            policy(name);
        }
    }

    #[test]
    fn name_of_a_policy_gives_it_back() {
        let names = [
            "default",
            "observe",
            "abort",
            "reserv",
            "reserv:150",
            "rst-syn",
            "early-syn-drop",
            "abort+early-syn-drop",
            "abort+rst-syn",
            "reserv:1000+rst-syn",
            "police:20000/500",
            "abort+police:1/1+rst-syn",
            "persistent-drop:40+rst-syn",
            "no-syn-drop",
            "no-syn-drop:kernel",
            "rst-fin",
            "no-syn-drop+rst-fin",
            "abort+rst-syn+rst-fin:always",
            "rst-syn+unserved",
            "early-syn-drop+unserved:64",
            "reserv+rst-syn+sojourn:5ms",
            "early-syn-drop+sojourn:250us+rst-fin",
            "reserv+rst-syn+sojourn:2s",
            "rst-syn+unserved+burst:0s",
            "abort+rst-syn+cookies+unserved+burst:1500ms+first-byte",
            "rst-syn+unserved+request",
            "rst-syn+sojourn:5ms+first-byte",
            "abort+cookies",
            "abort+rst-syn+cookies+unserved",
        ];
        for name in names {
            assert_eq!(policy(name).to_string(), name);
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        let error = |text: &str| text.parse::<Policy>().expect_err(text).to_string();
        assert!(error("abrot").contains("\"abrot\" is no mechanism; did you mean abort?"));
        assert!(error("").contains("\"\" is no mechanism"));
        assert!(error("abort+reserv").starts_with("abort and reserv are two answers to one question"));
        assert!(error("default+rst-syn").starts_with("default and rst-syn"));
        assert!(error("rst-fin+observe").starts_with("observe and rst-fin"));
        assert!(error("observe+default").starts_with("observe and default"));
        assert!(error("rst-fin:always+rst-fin").starts_with("rst-fin and rst-fin:always are two"));
        for wrong in ["reserv:99", "reserv:1001", "reserv:", "reserv:many", "reserv:-5"] {
            assert!(error(wrong).contains("from 100 (exact) to 1000"), "{wrong}");
        }
        assert!(error("police:5+persistent-drop:5").starts_with("police and persistent-drop are two"));
        assert!(error("reserv+reserv:150").starts_with("reserv and reserv are two"));
        assert!(error("no-syn-drop+reserv").starts_with("no-syn-drop and reserv are two"));
        assert!(error("rst-syn+no-syn-drop").starts_with("no-syn-drop and rst-syn are two"));
        for other in ["reserv", "no-syn-drop", "police:5", "persistent-drop:5"] {
            let name = other.split(':').next().expect("a name");
            assert!(error(&format!("cookies+{other}")).starts_with(&format!("{name} and cookies are two")));
        }
        assert!(error("cookies+observe").starts_with("observe and cookies are two"));
        for wrong in ["police:0", "police:5/0", "police:5/", "police:/5", "police:fast"] {
            assert!(error(wrong).contains("as in 20000/500"), "{wrong}");
        }
        assert!(error("unserved").contains("add rst-syn, as in rst-syn+unserved"));
        assert!(error("abort+sojourn:5ms").contains("as in rst-syn+sojourn"));
        assert!(error("rst-syn+unserved+sojourn:5ms").starts_with("unserved and sojourn are two"));
        assert!(error("police:5+unserved").starts_with("police and unserved are two"));
        assert!(error("no-syn-drop+unserved").starts_with("no-syn-drop and unserved are two"));
        assert!(error("observe+unserved").starts_with("observe and unserved"));
        assert!(error("rst-syn+request").contains("as in rst-syn+unserved+request"));
        assert!(error("rst-syn+unserved+request+first-byte").starts_with("request and first-byte are two"));
        assert!(error("rst-syn+unserved+queue").starts_with("unserved and queue are two"));
        assert!(error("queue").contains("as in rst-syn+queue"));
        assert!(error("rst-syn+queue+request").contains("nothing here asks"));
        for wrong in ["unserved:0", "unserved:1000001", "unserved:99999999999", "unserved:"] {
            assert!(error(&format!("rst-syn+{wrong}")).contains("from 1 to 1000000, or nothing"), "{wrong}");
        }
        for wrong in ["sojourn:5", "sojourn:10us", "sojourn:2h", "sojourn:-1ms", "sojourn:100s"] {
            assert!(error(&format!("rst-syn+{wrong}")).contains("from 50us to 60s"), "{wrong}");
        }
        for wrong in ["burst:5", "burst:11s", "burst:-1s", "burst:", "burst:1.5us"] {
            assert!(error(&format!("rst-syn+unserved+{wrong}")).contains("from 0s to 10s"), "{wrong}");
        }
        assert!(error("rst-syn+unserved+burst:1s+burst:2s").starts_with("burst and burst are two"));
        assert!(error("observe+burst:1s").starts_with("observe and burst"));
        for other in ["rst-syn", "rst-syn+unserved:64", "rst-syn+sojourn:5ms", "rst-syn+queue"] {
            assert!(
                error(&format!("{other}+burst:1s")).contains("as in rst-syn+unserved+burst:1s"),
                "{other}"
            );
        }
        for wrong in ["persistent-drop:0", "persistent-drop:100", "persistent-drop:"] {
            assert!(error(wrong).contains("from 1 to 99"), "{wrong}");
        }
    }
}
