//! Text to script.

use std::str::FromStr;

use units::Nanos;
use verdict::Policy;

use crate::pattern::{Pattern, number};
use crate::{Action, Claim, Family, Hook, Script, Series, Setup, Step};

const SETTINGS: &str = "policy, dry-run, backlog, family, hook, sysctl";
const STEPS: &str = "LABEL:, fill, server, state, queues, count, claim";
/// Words that a client cannot be named.
const RESERVED: [&str; 5] = ["fill", "server", "state", "queues", "count"];
/// Of listen(2), where the script does not say: two connections fill it.
const DEFAULT_BACKLOG: u32 = 1;

/// Why a text is no script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct ParseError {
    /// As it was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What is wrong, and what would do; one line.
    pub what: String,
}

/// Reads a script. `file` is for errors.
///
/// # Errors
///
/// The first line that cannot be understood; a script without a policy; or one whose policy is
/// never seen to act, so that it would pass without a guard.
pub fn parse(file: &str, text: &str) -> Result<Script, ParseError> {
    let at = |line: usize| move |what: String| ParseError { file: file.to_owned(), line, what };
    let mut settings = Settings::default();
    let (mut steps, mut claims) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (word, rest) = first_word(line);
        if word.is_empty() {
            continue;
        }
        if settings.set(word, rest).map_err(at(number))? {
            if !steps.is_empty() {
                return Err(at(number)(format!("{word} comes after the first step; move it to the top")));
            }
            continue;
        }
        if word == "claim" {
            claims.push(claim(number, rest, !steps.is_empty()).map_err(at(number))?);
            continue;
        }
        steps.push(step(number, line).map_err(at(number))?);
    }
    let script = Script { file: file.to_owned(), setup: settings.setup().map_err(at(1))?, steps, claims };
    check_proof(&script).map_err(at(1))?;
    Ok(script)
}

/// Settings as far as they were said.
#[derive(Default)]
struct Settings {
    policy: Option<Policy>,
    dry_run: bool,
    backlog: Option<u32>,
    families: Vec<Family>,
    hooks: Vec<Hook>,
    sysctls: Vec<(String, String)>,
    linux: Option<Series>,
}

impl Settings {
    /// Whether `word` is a setting, which it then is.
    fn set(&mut self, word: &str, rest: &str) -> Result<bool, String> {
        match word {
            "policy" => {
                let policy = rest.parse().map_err(|error| format!("{error}"))?;
                if self.policy.replace(policy).is_some() {
                    return Err("a second policy; write one script for each".to_owned());
                }
            }
            "dry-run" if rest.is_empty() => self.dry_run = true,
            "dry-run" => return Err(format!("dry-run takes no value; remove {rest:?}")),
            "backlog" => self.backlog = Some(number("backlog", rest)?),
            "family" => self.families = words(rest)?,
            "hook" => self.hooks = words(rest)?,
            "sysctl" => {
                let (name, value) = rest.split_once('=').ok_or_else(|| {
                    format!("sysctl {rest:?} has no value; write NAME=VALUE, as in net.ipv4.tcp_syncookies=2")
                })?;
                self.sysctls.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            "linux" => {
                let series = Series::parse(rest)
                    .ok_or_else(|| format!("linux {rest:?} is no version; write linux 6.12"))?;
                self.linux = Some(series);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn setup(self) -> Result<Setup, String> {
        let or = |default: Vec<Family>, said: Vec<Family>| if said.is_empty() { default } else { said };
        Ok(Setup {
            policy: self
                .policy
                .ok_or("the script names no policy; write policy default for the stock kernel")?,
            dry_run: self.dry_run,
            backlog: self.backlog.unwrap_or(DEFAULT_BACKLOG),
            families: or(vec![Family::Ipv4, Family::Ipv6], self.families),
            hooks: if self.hooks.is_empty() { vec![Hook::Auto] } else { self.hooks },
            sysctls: self.sysctls,
            linux: self.linux,
        })
    }
}

fn words<T: FromStr<Err = crate::UnknownName>>(text: &str) -> Result<Vec<T>, String> {
    let words: Result<Vec<T>, _> = text.split_whitespace().map(str::parse).collect();
    match words {
        Ok(words) if words.is_empty() => Err("a setting without a value; add one, or remove it".to_owned()),
        words => words.map_err(|error| error.to_string()),
    }
}

fn claim(line: usize, text: &str, has_steps: bool) -> Result<Claim, String> {
    if text.is_empty() {
        return Err("claim says nothing; write claim SENTENCE below the lines that show it".to_owned());
    }
    if !has_steps {
        return Err("claim comes before the first step, and nothing shows it; move it down".to_owned());
    }
    Ok(Claim { line, text: text.to_owned() })
}

fn step(line: usize, text: &str) -> Result<Step, String> {
    let (after, text) = match text.strip_prefix('+') {
        Some(rest) => {
            let (span, text) = first_word(rest);
            (Some(seconds(span)?), text)
        }
        None => (None, text),
    };
    Ok(Step { line, after, action: action(text)? })
}

fn action(text: &str) -> Result<Action, String> {
    let (word, rest) = first_word(text);
    if let Some(client) = word.strip_suffix(':') {
        return of_client(&label(client)?, rest);
    }
    let parts: Vec<&str> = rest.split_whitespace().collect();
    match (word, &parts[..]) {
        ("fill", []) => Ok(Action::Fill),
        ("server", ["accept", "fill"]) => Ok(Action::Accept("fill".to_owned())),
        ("server", parts) => of_server(parts),
        ("state", [client, state]) => {
            let state = state.parse().map_err(|error: crate::UnknownName| error.to_string())?;
            Ok(Action::State(label(client)?, state))
        }
        ("state", _) => Err("write state LABEL STATE, as in state a SYN_RECV".to_owned()),
        ("queues", ["accept", accept, "syn", syn]) => {
            Ok(Action::Queues { accept: number("accept", accept)?, syn: number("syn", syn)? })
        }
        ("queues", _) => Err("write queues accept CONNECTIONS syn CONNECTIONS".to_owned()),
        ("count", parts) => counters(parts),
        _ => Err(format!("{word:?} is neither a setting ({SETTINGS}) nor a step ({STEPS})")),
    }
}

fn of_client(client: &str, text: &str) -> Result<Action, String> {
    let (word, rest) = first_word(text);
    let client = client.to_owned();
    match (word, rest) {
        (">", segment) => Ok(Action::Send(client, Pattern::parse(segment)?)),
        ("<", segment) => Ok(Action::Expect(client, Pattern::parse(segment)?)),
        ("silence", "") => Ok(Action::Silence(client, Nanos::ZERO)),
        ("silence", span) => Ok(Action::Silence(client, seconds(span)?)),
        ("connect", "") => Ok(Action::Connect(client)),
        ("search", counter) if !counter.is_empty() => Ok(Action::Search(client, counter.to_owned())),
        _ => Err(format!(
            "a client does not {text:?}; it can: > SEGMENT, < SEGMENT, silence [SECONDS], connect, search COUNTER"
        )),
    }
}

fn of_server(parts: &[&str]) -> Result<Action, String> {
    match *parts {
        ["accept", client] => Ok(Action::Accept(label(client)?)),
        ["read", client, "EOF"] => Ok(Action::ReadEof(label(client)?)),
        ["read", client, "RESET"] => Ok(Action::ReadReset(label(client)?)),
        ["read", client, bytes] => Ok(Action::Read(label(client)?, number("bytes", bytes)?)),
        ["write", client, bytes] => Ok(Action::Write(label(client)?, number("bytes", bytes)?)),
        ["shutdown", client] => Ok(Action::Shutdown(label(client)?)),
        ["close", client] => Ok(Action::Close(label(client)?)),
        _ => Err(format!(
            "the server does not {:?}; it can: accept, read (BYTES, EOF or RESET), write BYTES, shutdown, close, each with a LABEL \
             first",
            parts.join(" ")
        )),
    }
}

fn counters(parts: &[&str]) -> Result<Action, String> {
    let pairs = parts.chunks(2).map(|pair| match pair {
        [name, value] => Ok(((*name).to_owned(), number(name, value)?)),
        _ => Err(format!("counter {:?} has no number; write count NAME NUMBER", pair[0])),
    });
    Ok(Action::Count(pairs.collect::<Result<_, String>>()?))
}

fn label(word: &str) -> Result<String, String> {
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_word || RESERVED.contains(&word) {
        return Err(format!("{word:?} cannot be a client; name it by letters and digits, as a"));
    }
    Ok(word.to_owned())
}

fn seconds(word: &str) -> Result<Nanos, String> {
    let seconds: f64 = number("the time", word)?;
    if !(0.0..1e6).contains(&seconds) {
        return Err(format!("the time {word} is none to wait for; write seconds, as in 1.5"));
    }
    Ok(Nanos::from_secs_f64(seconds))
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// A script that a stock kernel passes, too, says nothing about a policy.
fn check_proof(script: &Script) -> Result<(), String> {
    let is_proof = |(name, value): &(String, u64)| *value > 0 && !name.contains('.');
    let is_counted = script.steps.iter().any(|step| match &step.action {
        Action::Count(counters) => counters.iter().any(is_proof),
        Action::Search(..) => true,
        _ => false,
    });
    if script.setup.policy == Policy::DEFAULT || is_counted {
        return Ok(());
    }
    let policy = script.setup.policy;
    Err(format!(
        "nothing proves that {policy} acts; count what the guard counts, above 0, as in count reset 1"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_steps_and_comments_are_read() {
        let text = "# what it shows\npolicy reserv:150+rst-syn\ndry-run\nbacklog 3 # four connections\nfamily ipv6\n\
                    hook tcx xdp\nlinux 6.9\nsysctl net.ipv4.tcp_syncookies = 2\nfill\na: > S 0:0(0)\n+0.5 a: < R. 0:0(0) ack 1\n\
                    a: silence 2\nserver accept fill\nstate a gone\nqueues accept 4 syn 0\ncount\ncount seen 0 reset 1\n";
        let script = parse("x.pkt", text).expect("a script");
        let Setup { policy, dry_run, backlog, families, hooks, sysctls, linux } = &script.setup;
        assert_eq!(*linux, Some(Series(6, 9)));
        assert_eq!((policy.to_string().as_str(), *dry_run, *backlog), ("reserv:150+rst-syn", true, 3));
        assert_eq!((&families[..], &hooks[..]), (&[Family::Ipv6][..], &[Hook::Tcx, Hook::Xdp][..]));
        assert_eq!(sysctls[..], [("net.ipv4.tcp_syncookies".to_owned(), "2".to_owned())]);
        let lines: Vec<usize> = script.steps.iter().map(|step| step.line).collect();
        assert_eq!(lines, [9, 10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(script.steps[2].after, Some(Nanos::from_millis(500)));
        assert_eq!(script.steps[7].action, Action::Count(Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_one_line_with_its_place_and_what_would_do() {
        for (text, wanted) in [
            ("polcy abort", "x.pkt:1: \"polcy\" is neither a setting (policy, dry-run"),
            ("\npolicy abrot", "x.pkt:2: \"abrot\" is no mechanism; did you mean abort?"),
            ("policy default\npolicy default", "x.pkt:2: a second policy"),
            ("fill", "x.pkt:1: the script names no policy"),
            ("policy default\nclaim it works\nfill", "x.pkt:2: claim comes before the first step"),
            ("policy default\nfill\nclaim # nothing", "x.pkt:3: claim says nothing"),
            ("policy default\nfill\nbacklog 1", "x.pkt:3: backlog comes after the first step"),
            ("policy default\nbacklog many", "x.pkt:2: backlog \"many\" is no number"),
            ("policy default\nfamily ipv5", "x.pkt:2: family \"ipv5\" is not known; known are ipv4, ipv6"),
            ("policy default\nhook", "x.pkt:2: a setting without a value"),
            ("policy default\nhook tc", "known are auto, tcx, xdp, xdp-generic"),
            ("policy default\nsysctl net.ipv4.tcp_rfc1337", "write NAME=VALUE"),
            ("policy default\ndry-run no", "dry-run takes no value"),
            ("policy default\nfill 3", "x.pkt:2: \"fill\" is neither"),
            ("policy default\nfill: > S 0:0(0)", "\"fill\" cannot be a client"),
            ("policy default\n: > S 0:0(0)", "\"\" cannot be a client"),
            ("policy default\na: >", "write a segment as FLAGS"),
            ("policy default\na: >S 0:0(0)", "a client does not \">S 0:0(0)\""),
            ("policy default\n+x a: > S 0:0(0)", "the time \"x\" is no number"),
            ("policy default\n+-1 a: > S 0:0(0)", "the time -1 is none to wait for"),
            ("policy default\nserver reads a 3", "the server does not \"reads a 3\""),
            ("policy default\nserver read a three", "bytes \"three\" is no number"),
            ("policy default\nstate a LISTENING", "state \"LISTENING\" is not known; known are SYN_RECV"),
            ("policy default\nqueues 1 1", "write queues accept"),
            ("policy default\ncount reset", "counter \"reset\" has no number"),
            ("policy abort\nfill", "x.pkt:1: nothing proves that abort acts"),
            ("policy abort\ncount acks_reset 0", "nothing proves"),
            ("policy abort\ncount Tcp.OutRsts 1", "nothing proves"),
        ] {
            let error = parse("x.pkt", text).expect_err(text).to_string();
            assert!(error.contains(wanted), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
