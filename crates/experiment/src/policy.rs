//! What protects the server, as the experiment file says it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crowd::{Abort, Stacks};
use serde::Deserialize;
use tcp::Close;

use crate::clients::{CrowdSpec, check_abort, some_abort, some_close};
use crate::hold::Hold;
use crate::ports::First;
use crate::time::some_duration;
use crate::uplink::UplinkText;

/// Where an nft rule or a guard's rate has the server's saturation rate, up to the closing brace.
const SATURATION: &str = "{saturation";
/// Shares of it that a rule can mean.
const SHARES: RangeInclusive<f64> = 0.001..=1000.0;

/// What protects the server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Name in tables.
    pub name: String,
    /// Policy of `tidegate guard`; none for a server without a guard. `{saturation}` stands for the
    /// server's rate, `{saturation*0.8}` for that share of it.
    pub guard: Option<String>,
    /// Where the guard's programs go, as `tidegate guard --attach` has it.
    pub attach: Option<String>,
    /// Has the guard only count what it would do.
    #[serde(default)]
    pub dry_run: bool,
    /// Sysctls of the server's namespace, name to value.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Rules of the server's namespace, as `nft -f` takes them; `{saturation}` as above. Left out,
    /// with a word, where nft is not installed.
    pub nft: Option<String>,
    /// What the clients do otherwise.
    #[serde(default)]
    pub crowd: Change,
    /// What is different of the server's uplink, where the file has one.
    pub uplink: Option<UplinkText>,
    /// Entries of nobody in the list of a kernel that has one, before all others (`[FTY97]` table
    /// 1); simulated only.
    #[serde(default)]
    pub extra_time_waits: u32,
}

/// What the clients of one policy do otherwise than those of the others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// How they close.
    #[serde(default, deserialize_with = "some_close")]
    pub(crate) close: Option<Close>,
    /// Their systems.
    pub(crate) stacks: Option<Stacks>,
    /// When users stop waiting.
    #[serde(default, deserialize_with = "some_abort")]
    pub(crate) abort: Option<Abort>,
    /// Who closes first.
    pub(crate) first: Option<First>,
    /// How long a port is in TIME_WAIT at the client.
    #[serde(default, deserialize_with = "some_duration")]
    pub(crate) time_wait: Option<Duration>,
    /// From when on it is used again all the same.
    #[serde(default, deserialize_with = "some_duration")]
    pub(crate) tw_reuse_after: Option<Duration>,
    /// A flood of SYNs from addresses that nobody has comes beside them: so many per second, `inf`
    /// for as many as one core sends beside the crowd.
    pub flood_per_s: Option<f64>,
    /// Connections are opened before the crowd comes, and held to its end.
    pub hold: Option<Hold>,
}

impl Policy {
    /// The kernel as it is: what the others are held against, and what saturation is searched
    /// under.
    pub fn stock() -> Self {
        Self {
            name: "stock".to_owned(),
            guard: None,
            attach: None,
            dry_run: false,
            sysctls: BTreeMap::new(),
            nft: None,
            crowd: Change::default(),
            uplink: None,
            extra_time_waits: 0,
        }
    }

    /// Whether it can be run.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and why.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.name == "stock" && *self != Self::stock() {
            return Err("policy \"stock\" is what the others are held against: a name alone".to_owned());
        }
        if self.dry_run && self.guard.is_none() {
            return Err(format!("policy {:?}: dry_run is of a guard, and there is none", self.name));
        }
        if let Some(hook) = &self.attach {
            self.check_attach(hook)?;
        }
        if let Some(rate) = self.crowd.flood_per_s.filter(|rate| !is_flood(*rate)) {
            return Err(format!(
                "policy {:?}: crowd.flood_per_s = {rate} is no flood: from 1 to 100 million, or inf",
                self.name
            ));
        }
        check_abort("crowd.abort", self.crowd.abort)
            .map_err(|what| format!("policy {:?}: {what}", self.name))?;
        if let Some(hold) = self.crowd.hold {
            hold.check().map_err(|what| format!("policy {:?}: {what}", self.name))?;
        }
        for text in self.guard.iter().chain(&self.nft) {
            fill(text, 1.0).map_err(|what| format!("policy {:?}: {what}", self.name))?;
        }
        let guard = self.for_saturation(1.0).guard;
        if let Some(Err(error)) = guard.as_deref().map(str::parse::<verdict::Policy>) {
            return Err(format!("policy {:?}: guard: {error}", self.name));
        }
        match self.sysctls.keys().find(|key| !key.starts_with("net.")) {
            Some(key) => {
                Err(format!("sysctl {key:?} is not a network namespace's own; only net.* can be set"))
            }
            None => Ok(()),
        }
    }

    fn check_attach(&self, hook: &str) -> Result<(), String> {
        if self.guard.is_none() {
            return Err(format!("policy {:?}: attach is of a guard, and there is none", self.name));
        }
        hook.parse::<script::Hook>().map(drop).map_err(|why| format!("policy {:?}: attach: {why}", self.name))
    }

    /// The policy with the server's saturation rate, requests/s, where it is meant. What is no rate
    /// stays as it is.
    pub fn for_saturation(&self, rate_per_s: f64) -> Self {
        let filled = |text: &String| fill(text, rate_per_s).unwrap_or_else(|_| text.clone());
        Self { guard: self.guard.as_ref().map(filled), nft: self.nft.as_ref().map(filled), ..self.clone() }
    }

    /// The clients of this policy.
    pub(crate) fn crowd(&self, crowd: &CrowdSpec) -> CrowdSpec {
        let Change { close, stacks, abort, first, time_wait, tw_reuse_after, .. } = &self.crowd;
        CrowdSpec {
            abort: abort.or(crowd.abort),
            close: close.unwrap_or(crowd.close),
            first: first.unwrap_or(crowd.first),
            time_wait: time_wait.unwrap_or(crowd.time_wait),
            tw_reuse_after: tw_reuse_after.or(crowd.tw_reuse_after),
            stacks: stacks.as_ref().or(crowd.stacks.as_ref()).cloned(),
            ..crowd.clone()
        }
    }
}

/// `text` with whole requests/s where the saturation rate, or a share of it, is meant.
fn fill(text: &str, rate_per_s: f64) -> Result<String, String> {
    let mut pieces = text.split(SATURATION);
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (share, rest) = piece
            .split_once('}')
            .and_then(|(share, rest)| match share.strip_prefix('*') {
                Some(number) => Some((number.trim().parse().ok()?, rest)),
                None => share.is_empty().then_some((1.0, rest)),
            })
            .filter(|(share, _)| SHARES.contains(share))
            .ok_or_else(|| {
                let place: String = piece.chars().take_while(|&c| c != '}').collect();
                format!("{SATURATION}{place}}} is no rate: {{saturation}}, or a share as {{saturation*0.8}}")
            })?;
        if filled.ends_with(is_digit) || rest.starts_with(is_digit) {
            return Err(format!("{SATURATION}}} beside a digit: both would be read as one number"));
        }
        filled.push_str(&format!("{:.0}", (share * rate_per_s).max(1.0)));
        filled.push_str(rest);
    }
    Ok(filled)
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn is_flood(rate: f64) -> bool {
    rate == f64::INFINITY || (1.0..=traffic::MAX_RATE).contains(&rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        toml::from_str(text).expect("a policy")
    }

    #[test]
    fn saturation_is_filled_in_where_it_is_meant() {
        let policy = policy(
            "name = \"x\"\nguard = \"police:{saturation}/9\"\nnft = \"limit rate over {saturation}/second\"",
        );
        assert_eq!(policy.check(), Ok(()));
        let filled = policy.for_saturation(41_234.6);
        assert_eq!(filled.guard.as_deref(), Some("police:41235/9"));
        assert_eq!(filled.nft.as_deref(), Some("limit rate over 41235/second"));
    }

    #[test]
    fn share_of_saturation_is_filled_in_and_nonsense_is_named() {
        let nft = |rate: &str| policy(&format!("name = \"x\"\nnft = \"a {rate} b {{saturation}}\""));
        let filled = |rate| nft(rate).for_saturation(10_000.0).nft;
        assert_eq!(filled("{saturation*0.8}").as_deref(), Some("a 8000 b 10000"));
        assert_eq!(filled("{saturation* 1.25}").as_deref(), Some("a 12500 b 10000"));
        for bad in [
            "{saturation*}",
            "{saturation*x}",
            "{saturation*0}",
            "{saturation*-1}",
            "{saturation*nan}",
            "{saturation/2}",
        ] {
            let error = nft(bad).check().expect_err(bad);
            assert!(error.contains(bad) && error.contains("{saturation*0.8}"), "{error}");
        }
        for two in ["{saturation}{saturation}", "{saturation}0", "1{saturation*0.8}"] {
            let error = nft(two).check().expect_err(two);
            assert!(error.contains("beside a digit"), "{error}");
        }
    }

    #[test]
    fn hook_is_a_guards_and_has_a_name() {
        let error = |text: &str| policy(&format!("name = \"x\"\n{text}")).check().expect_err("no policy");
        assert!(error("attach = \"xdp\"").contains("there is none"));
        assert!(
            error("guard = \"rst-syn\"\nattach = \"clsact\"")
                .contains("known are auto, tcx, xdp, xdp-generic")
        );
        assert_eq!(policy("name = \"x\"\nguard = \"rst-syn\"\nattach = \"xdp\"").check(), Ok(()));
    }

    #[test]
    fn clients_of_one_policy_may_close_otherwise() {
        let crowd: CrowdSpec =
            toml::from_str("timeout = \"1s\"\nclose = \"fin\"\narrivals = \"poisson\"").expect("a crowd");
        assert_eq!(policy("name = \"x\"").crowd(&crowd).close, Close::Fin);
        assert_eq!(policy("name = \"x\"\ncrowd = { close = \"rst\" }").crowd(&crowd).close, Close::Reset);
        let windows = policy("name = \"x\"\ncrowd = { stacks = { windows-xp = 1 } }").crowd(&crowd).stacks;
        assert_eq!(windows.map(|stacks| stacks.to_string()).as_deref(), Some("windows-xp:1"));
    }

    #[test]
    fn flood_has_a_rate_or_is_as_fast_as_can_be() {
        let check = |rate| policy(&format!("name = \"x\"\ncrowd = {{ flood_per_s = {rate} }}")).check();
        assert_eq!((check("inf"), check("1e5")), (Ok(()), Ok(())));
        for bad in ["0", "-1", "nan", "-inf", "1e9"] {
            assert!(check(bad).expect_err(bad).contains("flood_per_s"), "{bad}");
        }
    }

    #[test]
    fn hold_has_some_connections_and_not_too_many() {
        let read = |hold: &str| {
            toml::from_str::<Policy>(&format!("name = \"x\"\ncrowd = {{ hold = {{ {hold} }} }}"))
                .map_err(|error| error.to_string())
        };
        let policy = read("idle = 5000, slow_readers = 9").expect("a policy");
        assert_eq!(policy.crowd.hold, Some(Hold { idle: 5000, half_requests: 0, slow_readers: 9 }));
        assert_eq!(policy.check(), Ok(()));
        for (hold, why) in [("", "policy \"x\": crowd.hold holds nothing"), ("idle = 11001", "at most 11000")]
        {
            let error = read(hold).expect("numbers").check().expect_err(hold);
            assert!(error.contains(why), "{error}");
        }
        for (hold, why) in [("idle = -1", "expected u32"), ("busy = 1", "unknown field `busy`")] {
            let error = read(hold).expect_err(hold);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn stock_is_a_name_alone_and_only_a_guard_runs_dry() {
        for more in [
            "guard = \"abort\"",
            "nft = \"\"",
            "crowd = { close = \"rst\" }",
            "crowd = { hold = { idle = 1 } }",
            "dry_run = true",
        ] {
            assert!(policy(&format!("name = \"stock\"\n{more}")).check().is_err(), "{more}");
        }
        let error = policy("name = \"x\"\ndry_run = true").check().expect_err("no guard");
        assert!(error.contains("dry_run is of a guard"), "{error}");
    }
}
