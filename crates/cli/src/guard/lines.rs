//! What `tidegate guard` prints: a line for each listener, for people or as JSON.

use std::io::{self, IsTerminal};
use std::time::Duration;

use guard::{Attached, Guard, Listener, ListenerSample, ListenerStats, OnFin, Policy, Sample, Verdict};
use telemetry::per_s;
use watch::Counter;

use super::event::{GuardEvent, ListenerCounts, Other, Place};
use crate::output::{Timed, or_dash, printable};
use crate::printer::Printer;

/// Lines between two headers on a terminal.
const HEADER_EVERY: u64 = 20;

/// A word, and the counter that it stands for.
///
/// `None` where it does not count: a cause at a listener that is guarded, a hook that this kernel
/// lacks.
type Refusal = (&'static str, fn(&ListenerSample) -> Option<u64>);

/// For which reader lines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A person.
    Words,
    /// A program.
    Json,
    /// The screen; a person reads the sums after it.
    Screen,
}

/// Lines for a person, or JSON.
pub struct Lines {
    /// To which they go, and complaints with them.
    pub printer: Printer,
    form: Form,
    lines: u64,
    /// Words of the last header.
    columns: Vec<&'static str>,
}

impl Lines {
    /// None yet.
    pub fn new(printer: Printer, form: Form) -> Self {
        Self { printer, form, lines: 0, columns: Vec::new() }
    }

    /// Between two lines, of what was asked for: a screen does not wait.
    pub fn interval(&self, wanted: Duration) -> Duration {
        if self.form == Form::Screen { Duration::ZERO } else { wanted }
    }

    /// What is guarded, and where.
    pub fn attached(&mut self, guard: &Guard, sample: &Sample) {
        if self.form != Form::Words {
            return attached(guard, sample).iter().for_each(|event| self.object(event));
        }
        let hooks = hooks_of(guard);
        let hooks: Vec<String> =
            hooks.iter().map(|Place { interface, hook, .. }| format!("{interface} ({hook})")).collect();
        for ListenerSample { listener, .. } in &sample.listeners {
            let Listener { listen, policy, reserved, exempt, dry_run, .. } = listener;
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
            let left = match &exempt[..] {
                [] => String::new(),
                [source] => format!(", except from {source}"),
                sources => format!(", except from {} networks", sources.len()),
            };
            let hooks =
                if hooks.is_empty() { "no interface".to_owned() } else { printable(&hooks.join(", ")) };
            self.printer.say(format_args!("guarding {listen} with {policy}{dry} on {hooks}{kept}{left}"));
        }
    }

    /// What was counted, and how fast since `last`, `span` ago.
    pub fn sample(&mut self, elapsed: Duration, sample: &Sample, last: &Sample, span: Duration) {
        if self.form != Form::Words {
            return samples(elapsed, sample).iter().for_each(|event| self.object(event));
        }
        for now in &sample.listeners {
            let is_same = |before: &&ListenerSample| before.listener.listen == now.listener.listen;
            let before = last.listeners.iter().find(is_same);
            let is_alone = sample.listeners.len() == 1;
            let place = if is_alone { String::new() } else { format!("  {}", now.listener.listen) };
            let dry = if now.listener.dry_run { "  (dry run)" } else { "" };
            let columns = refusals(sample);
            let is_followed = sample.listeners.iter().any(|of| of.service.is_some());
            self.header(is_followed, &columns);
            let row = row(now, before, span, is_followed, &columns);
            let is_learning = now.service.is_some_and(|service| service.is_learning);
            let learning = if is_learning { "  (learning)" } else { "" };
            self.printer.say(format_args!("{row}{place}{dry}{learning}"));
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
            if self.form == Form::Json {
                self.object(&GuardEvent::Final(ListenerCounts::new(elapsed, listener, &sample.path)));
                continue;
            }
            let place = match sample.listeners.len() {
                1 => String::new(),
                _ => format!("{}: ", listener.listener.listen),
            };
            self.printer.say(format_args!("{place}{}", totals(elapsed, listener, &refusals(sample))));
        }
    }

    fn object(&self, event: &GuardEvent) {
        match self.form {
            Form::Screen => self.printer.show(Timed::json(event)),
            _ => self.printer.say(Timed::json(event)),
        }
    }
}

/// Where each listener is guarded.
pub fn attached(guard: &Guard, sample: &Sample) -> Vec<GuardEvent> {
    let hooks = hooks_of(guard);
    sample.listeners.iter().map(|of| GuardEvent::attached(&of.listener, &hooks)).collect()
}

/// What was counted at each listener.
pub fn samples(elapsed: Duration, sample: &Sample) -> Vec<GuardEvent> {
    let event = |of| GuardEvent::Sample(ListenerCounts::new(elapsed, of, &sample.path));
    sample.listeners.iter().map(event).collect()
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
            "{head}; {} found the accept queue full, {} the SYN queue",
            stats.accept_full, stats.syn_full
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

/// What the policies may do to SYNs, ends of handshakes and FINs, or the kernel where it is
/// observed: a word, and its counter.
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
    let all: [(bool, Refusal); 12] = [
        (drops || is_held_back, ("dropped", |of| of_guarded(of, |stats| stats.dropped))),
        (
            resets || (is_guarded && !(drops || cookies || is_held_back)),
            ("reset", |of| of_guarded(of, |stats| stats.reset)),
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

/// Behind the queues: how many wait for the server, how many it answered, and after what time.
fn in_server(now: &ListenerSample, before: Option<&ListenerSample>, span: Duration) -> String {
    let Some(service) = now.service else { return format!(" {:>9} {:>11} {:>9}", "-", "-", "-") };
    let earlier = before.and_then(|before| before.service).unwrap_or_default();
    let in_turn = service.answered_in_turn.saturating_sub(earlier.answered_in_turn);
    let spent = service.response_time.saturating_sub(earlier.response_time);
    let mean = match u32::try_from(in_turn) {
        Ok(count) if count > 0 => format!("{:.3} ms", (spent / count).as_secs_f64() * 1e3),
        _ => "-".to_owned(),
    };
    let answered_per_s = per_s(service.answered, earlier.answered, span).round();
    format!(
        " {:>9} {answered_per_s:>11} {mean:>9}",
        format!("{}/{}", service.waiting, or_dash(service.limit))
    )
}

/// Rates over `span`, which is longer than a second when a busy machine made the line late. One
/// that a reload brought has counted from zero.
fn row(
    now: &ListenerSample,
    before: Option<&ListenerSample>,
    span: Duration,
    is_followed: bool,
    columns: &[Refusal],
) -> String {
    let rate = |count: fn(&ListenerSample) -> Option<u64>| {
        let earlier = before.and_then(count).unwrap_or(0);
        or_dash(count(now).map(|now| per_s(now, earlier, span).round()))
    };
    let queue = |length: Option<(u32, u32)>| match length {
        Some((length, limit)) => format!("{length}/{limit}"),
        None => "no listener".to_owned(),
    };
    let accept = queue(now.load.map(|load| (load.accept_qlen, load.accept_limit)));
    let syn = queue(now.load.map(|load| (load.syn_qlen, load.syn_limit)));
    let refused: Vec<String> =
        columns.iter().map(|(word, count)| format!(" {:>1$}", rate(*count), width(word))).collect();
    let server = if is_followed { in_server(now, before, span) } else { String::new() };
    format!("{accept:>15} {syn:>15}{server} {:>10} {:>11}{}", rate(seen), rate(admitted), refused.concat())
}

/// Of a column with rates under this word.
fn width(word: &str) -> usize {
    (word.len() + "/s".len()).max(11)
}

/// Interfaces, and where on them.
pub fn hooks_of(guard: &Guard) -> Vec<Place> {
    let place = |attached: &Attached| Place {
        interface: attached.interface().to_owned(),
        hook: attached.hook().name(),
        before: attached.before().iter().map(Other::from).collect(),
    };
    guard.attached().iter().map(place).collect()
}
