//! What `tidegate guard` prints: a line for each listener, for people or as JSON.

use std::io::{self, IsTerminal};
use std::time::Duration;

use guard::{
    Attached, Guard, Listener, ListenerSample, ListenerStats, OnFin, Policy, Sample, Service, Trigger,
    Verdict,
};
use serde_json::{Value, json};
use watch::Counter;

use crate::output::{or_dash, printable};
use crate::printer::Printer;

/// Lines between two headers on a terminal.
const HEADER_EVERY: u64 = 20;

/// A word, and the counter that it stands for.
///
/// `None` where it does not count: a cause at a listener that is guarded, a hook that this kernel lacks.
type Refusal = (&'static str, fn(&ListenerSample) -> Option<u64>);

/// Lines for a person, or JSON.
pub struct Lines {
    /// To which they go, and complaints with them.
    pub printer: Printer,
    json: bool,
    lines: u64,
    /// Words of the last header.
    columns: Vec<&'static str>,
}

impl Lines {
    /// None yet.
    pub fn new(printer: Printer, json: bool) -> Self {
        Self { printer, json, lines: 0, columns: Vec::new() }
    }

    /// What is guarded, and where.
    pub fn attached(&mut self, guard: &Guard, sample: &Sample) {
        let hooks = hooks_of(guard);
        if self.json {
            let hooks: Vec<Value> = hooks
                .iter()
                .map(|(interface, hook)| json!({ "interface": interface, "hook": hook }))
                .collect();
            return sample.listeners.iter().for_each(|ListenerSample { listener, .. }| {
                let mut line = object("attached", Duration::ZERO, listener);
                line["hooks"] = hooks.clone().into();
                self.printer.say(line);
            });
        }
        let hooks: Vec<String> =
            hooks.iter().map(|(interface, hook)| format!("{interface} ({hook})")).collect();
        for ListenerSample { listener, .. } in &sample.listeners {
            let Listener { listen, policy, reserved, dry_run } = listener;
            if policy.only_observes {
                self.printer.say(format_args!("observing {listen}"));
                continue;
            }
            let dry = if *dry_run { ", dry run" } else { "" };
            let kept = match (policy.reserved_slots, &reserved[..]) {
                (0, _) => String::new(),
                (slots, [source]) => format!(", {slots} places for {source}"),
                (slots, sources) => format!(", {slots} places for {} networks", sources.len()),
            };
            let hooks =
                if hooks.is_empty() { "no interface".to_owned() } else { printable(&hooks.join(", ")) };
            self.printer.say(format_args!("guarding {listen} with {policy}{dry} on {hooks}{kept}"));
        }
    }

    /// What was counted, and how fast since `last`, `span` ago.
    pub fn sample(&mut self, elapsed: Duration, sample: &Sample, last: &Sample, span: Duration) {
        for now in &sample.listeners {
            if self.json {
                self.printer.say(counters("sample", elapsed, now, sample));
                continue;
            }
            let is_same = |before: &&ListenerSample| before.listener.listen == now.listener.listen;
            let before = last.listeners.iter().find(is_same);
            let is_alone = sample.listeners.len() == 1;
            let place = if is_alone { String::new() } else { format!("  {}", now.listener.listen) };
            let dry = if now.listener.dry_run { "  (dry run)" } else { "" };
            let columns = columns(sample);
            let is_followed = sample.listeners.iter().any(|of| of.service.is_some());
            self.header(is_followed, &columns);
            let row = row(now, before, span, is_followed, &columns);
            self.printer.say(format_args!("{row}{place}{dry}"));
        }
    }

    fn header(&mut self, is_followed: bool, columns: &[Refusal]) {
        let is_due = io::stdout().is_terminal() && self.lines.is_multiple_of(HEADER_EVERY);
        let words: Vec<&str> = columns.iter().map(|(word, _)| *word).collect();
        let is_changed = self.columns != words;
        self.columns = words;
        self.lines += 1;
        if !is_changed && !is_due {
            return;
        }
        let columns: Vec<String> =
            columns.iter().map(|(word, _)| format!(" {:>1$}", format!("{word}/s"), width(word))).collect();
        let columns = columns.concat();
        let server = if is_followed { "   waiting  answered/s      mean" } else { "" };
        self.printer
            .say(format_args!("   accept queue       SYN queue{server}     seen/s  admitted/s{columns}"));
    }

    /// The sums.
    pub fn last(&self, elapsed: Duration, sample: &Sample) {
        for listener in &sample.listeners {
            if self.json {
                self.printer.say(counters("final", elapsed, listener, sample));
                continue;
            }
            let place = match sample.listeners.len() {
                1 => String::new(),
                _ => format!("{}: ", listener.listener.listen),
            };
            self.printer.say(format_args!("{place}{}", totals(elapsed, listener, &refusals(sample))));
        }
    }
}

fn totals(elapsed: Duration, sample: &ListenerSample, refusals: &[Refusal]) -> String {
    let ListenerSample { listener, stats, observed, .. } = sample;
    let would = if listener.dry_run && observed.is_none() { "would have been " } else { "" };
    let refused: Vec<String> = refusals
        .iter()
        .filter_map(|(word, count)| Some((word, count(sample)?)))
        .map(|(word, count)| match observed {
            Some(_) => format!("{word} {count}"),
            None => format!("{count} {would}{word}"),
        })
        .collect();
    let seen = or_dash(seen(sample));
    let admitted = or_dash(admitted(sample));
    let head = format!(
        "{seen} SYNs seen in {:.1} s: {admitted} admitted, {}",
        elapsed.as_secs_f64(),
        refused.join(", ")
    );
    match observed {
        Some(_) => head,
        None => format!(
            "{head}; {} found the accept queue full, {} the SYN queue; {} had been refused before",
            stats.accept_full, stats.syn_full, stats.returned
        ),
    }
}

/// SYNs that came to the listener, as far as is known.
fn seen(sample: &ListenerSample) -> Option<u64> {
    match &sample.observed {
        Some(observed) => observed.counters.get(Counter::Syns),
        None => Some(sample.stats.seen),
    }
}

/// Those that were answered; when guarded, those that were left to the kernel.
fn admitted(sample: &ListenerSample) -> Option<u64> {
    match &sample.observed {
        Some(observed) => {
            Some(observed.counters.get(Counter::Answered)? + observed.counters.get(Counter::Cookies)?)
        }
        None => Some(sample.stats.admitted),
    }
}

/// What is shown by the second: refusals, and SYNs of those who were refused before.
fn columns(sample: &Sample) -> Vec<Refusal> {
    let may_refuse = |of: &ListenerSample| {
        let verdict = of.listener.policy.syn_when_full;
        of.observed.is_none() && matches!(verdict, Verdict::Drop | Verdict::Reset)
    };
    let returned: Refusal = ("returned", |of| of_guarded(of, |stats| stats.returned));
    let is_shown = sample.listeners.iter().any(may_refuse);
    refusals(sample).into_iter().chain(is_shown.then_some(returned)).collect()
}

/// What the policies may do to SYNs, ends of handshakes and FINs, or the kernel where it is observed: a word, and its counter.
fn refusals(sample: &Sample) -> Vec<Refusal> {
    let guarded = || sample.listeners.iter().filter(|of| of.observed.is_none());
    let any = |has: fn(&Policy) -> bool| guarded().any(|of| has(&of.listener.policy));
    let is_observed = sample.listeners.iter().any(|of| of.observed.is_some());
    let drops = any(|policy| policy.syn_when_full == Verdict::Drop);
    let resets = any(|policy| policy.syn_when_full == Verdict::Reset);
    let cookies =
        any(|policy| policy.may_answer(Verdict::Cookie) || policy.may_answer(Verdict::KernelCookie));
    let is_held_back = any(|policy| policy.reserved_slots > 0);
    let is_guarded = guarded().next().is_some();
    let all: [(bool, Refusal); 13] = [
        (drops || is_held_back, ("dropped", |of| of_guarded(of, |stats| stats.dropped))),
        (
            resets || (is_guarded && !(drops || cookies || is_held_back)),
            ("reset", |of| of_guarded(of, |stats| stats.reset)),
        ),
        (
            any(|policy| policy.trigger == Trigger::Unserved(None)),
            ("deferred", |of| of_guarded(of, |stats| stats.deferred)),
        ),
        (cookies, ("cookie", |of| of_guarded(of, |stats| stats.cookies))),
        (is_held_back, ("ack-dropped", |of| of_guarded(of, |stats| stats.acks_dropped))),
        (
            any(|policy| policy.ack_when_full != Verdict::Admit),
            ("aborted", |of| of_guarded(of, |stats| stats.acks_reset)),
        ),
        (
            any(|policy| policy.on_fin != OnFin::Keep),
            ("rst-fin", |of| of_guarded(of, |stats| stats.fins_reset)),
        ),
        (is_observed, ("drops", |of| Some(of.observed.as_ref()?.drops))),
        (is_observed, (Counter::ListenQFullAtSyn.title(), |of| cause(of, Counter::ListenQFullAtSyn))),
        (is_observed, (Counter::ListenQOverflow.title(), |of| cause(of, Counter::ListenQOverflow))),
        (is_observed, (Counter::SynQ34Full.title(), |of| cause(of, Counter::SynQ34Full))),
        (is_observed, (Counter::SynQFullDropped.title(), |of| cause(of, Counter::SynQFullDropped))),
        (is_observed, (Counter::SynQFullCookie.title(), |of| cause(of, Counter::SynQFullCookie))),
    ];
    all.into_iter().filter_map(|(is_shown, refusal)| is_shown.then_some(refusal)).collect()
}

fn of_guarded(sample: &ListenerSample, count: fn(&ListenerStats) -> u64) -> Option<u64> {
    sample.observed.is_none().then(|| count(&sample.stats))
}

fn cause(sample: &ListenerSample, counter: Counter) -> Option<u64> {
    sample.observed.as_ref()?.counters.get(counter)
}

fn object(event: &str, elapsed: Duration, listener: &Listener) -> Value {
    json!({
        "event": event,
        "elapsed_s": (elapsed.as_secs_f64() * 1e3).round() / 1e3,
        "listen": listener.listen.to_string(),
        "policy": listener.policy.to_string(),
        "reserved_slots": listener.policy.reserved_slots,
        "dry_run": listener.dry_run,
    })
}

/// Absolute counters since the start; `passed` is of all listeners together. The queues are null when nothing listens. Of an
/// observed listener it is what the kernel did, and null what this kernel lacks the hook for.
fn counters(event: &str, elapsed: Duration, of: &ListenerSample, sample: &Sample) -> Value {
    let (ListenerSample { listener, load, stats, service, observed }, path) = (of, &sample.path);
    let mut object = object(event, elapsed, listener);
    object["accept_qlen"] = load.map(|load| load.accept_qlen).into();
    object["accept_limit"] = load.map(|load| load.accept_limit).into();
    object["syn_qlen"] = load.map(|load| load.syn_qlen).into();
    object["syn_limit"] = load.map(|load| load.syn_limit).into();
    if let Some(observed) = observed {
        object["drops"] = observed.drops.into();
        object["counters"] = crate::output::counters(&observed.counters);
        return object;
    }
    object["service"] = service.as_ref().map(waiting).into();
    object["syns"] = json!({
        "seen": stats.seen,
        "admitted": stats.admitted,
        "dropped": stats.dropped,
        "reset": stats.reset,
        "cookies": stats.cookies,
        "deferred": stats.deferred,
        "returned": stats.returned,
        "late": stats.late,
        "unsent": stats.unsent,
        "over_budget": stats.over_budget,
        "accept_full": stats.accept_full,
        "syn_full": stats.syn_full,
        "server_full": stats.server_full,
    });
    object["acks"] = json!({
        "full": stats.acks_full,
        "implied": stats.acks_implied,
        "dropped": stats.acks_dropped,
        "reset": stats.acks_reset,
        "cookies_back": stats.cookies_back,
    });
    object["fins"] = json!({ "seen": stats.fins, "reset": stats.fins_reset });
    object["passed"] = json!({
        "frames": path.frames,
        "not_ip": path.not_ip,
        "not_tcp": path.not_tcp,
        "fragment": path.fragment,
        "malformed": path.malformed,
        "not_syn": path.not_syn,
        "had_room": path.had_room,
        "syn_ack": path.syn_ack,
        "not_guarded": path.not_guarded,
        "other_host": path.other_host,
        "martian": path.martian,
        "no_listener": path.no_listener,
        "known": path.known,
        "unleased": path.unleased,
    });
    object
}

/// Who waits for the server now, and sums since the start.
fn waiting(service: &Service) -> Value {
    json!({
        "silent": service.silent,
        "waiting": service.waiting,
        "counted": service.counted,
        "limit": service.limit,
        "established": service.established,
        "answered": service.answered,
        "answered_in_turn": service.answered_in_turn,
        "answered_silent": service.answered_silent,
        "idle_time_s": service.idle_time.as_secs_f64(),
        "ended": service.ended,
        "response_time_s": service.response_time.as_secs_f64(),
        "response_floor_s": service.response_floor.as_secs_f64(),
        "handshake_median_s": service.handshake_median.as_secs_f64(),
        "handshake_slot_s": service.handshake_slot.as_secs_f64(),
        "completed_share": service.completed_share(),
    })
}

/// Behind the queues: how many wait for the server, how many it answered, and after what time.
fn in_server(now: &ListenerSample, before: Option<&ListenerSample>, span: Duration) -> String {
    let Some(service) = now.service else { return format!(" {:>9} {:>11} {:>9}", "-", "-", "-") };
    let earlier = before.and_then(|before| before.service).unwrap_or_default();
    let answered = service.answered.saturating_sub(earlier.answered);
    let in_turn = service.answered_in_turn.saturating_sub(earlier.answered_in_turn);
    let spent = service.response_time.saturating_sub(earlier.response_time);
    let mean = match u32::try_from(in_turn) {
        Ok(count) if count > 0 => format!("{:.3} ms", (spent / count).as_secs_f64() * 1e3),
        _ => "-".to_owned(),
    };
    let per_s = (answered as f64 / span.as_secs_f64()).round();
    format!(" {:>9} {per_s:>11} {mean:>9}", format!("{}/{}", service.waiting, or_dash(service.limit)))
}

/// Rates over `span`, which is longer than a second when a busy machine made the line late. One that a reload brought has
/// counted from zero.
fn row(
    now: &ListenerSample,
    before: Option<&ListenerSample>,
    span: Duration,
    is_followed: bool,
    columns: &[Refusal],
) -> String {
    let per_s = |count: fn(&ListenerSample) -> Option<u64>| {
        let earlier = before.and_then(count).unwrap_or(0);
        or_dash(count(now).map(|now| (now.saturating_sub(earlier) as f64 / span.as_secs_f64()).round()))
    };
    let queue = |length: Option<(u32, u32)>| match length {
        Some((length, limit)) => format!("{length}/{limit}"),
        None => "no listener".to_owned(),
    };
    let accept = queue(now.load.map(|load| (load.accept_qlen, load.accept_limit)));
    let syn = queue(now.load.map(|load| (load.syn_qlen, load.syn_limit)));
    let refused: Vec<String> =
        columns.iter().map(|(word, count)| format!(" {:>1$}", per_s(*count), width(word))).collect();
    let server = if is_followed { in_server(now, before, span) } else { String::new() };
    format!("{accept:>15} {syn:>15}{server} {:>10} {:>11}{}", per_s(seen), per_s(admitted), refused.concat())
}

/// Of a column with rates under this word.
fn width(word: &str) -> usize {
    (word.len() + "/s".len()).max(11)
}

/// Interfaces, and where on them.
pub fn hooks_of(guard: &Guard) -> Vec<(String, &'static str)> {
    let hook = |attached: &Attached| (attached.interface().to_owned(), attached.hook().name());
    guard.attached().iter().map(hook).collect()
}
