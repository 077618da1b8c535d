//! Everything that is known of one listener.

use crate::list::{name, state};
use crate::model::{Model, Point, Row};
use crate::reading::{Queue, Times};
use crate::sparkline::{Glyphs, most, widest};
use crate::words::{count, or_dash, percent, seconds, start_of, wrapped};

/// Of the words before a value.
const LABEL: usize = 14;

/// Of what a counter counts; on a narrower terminal it is cut off.
const NARROWEST: usize = 20;

/// Its lines, of this width.
pub(crate) fn lines(row: &Row, model: &Model, width: usize, glyphs: Glyphs) -> Vec<String> {
    let mut page = Page { lines: Vec::new(), width, glyphs };
    page.head(row, model);
    page.minute(row);
    page.now(row, model);
    page.times(row);
    page.counts(row);
    page.lines
}

struct Page {
    lines: Vec<String>,
    width: usize,
    glyphs: Glyphs,
}

impl Page {
    fn head(&mut self, row: &Row, model: &Model) {
        let (word, meaning) = state(row);
        self.text("", &format!("{}  {word}: {meaning}", name(row, model)));
        if let Some((pid, guard)) = row.id.guard.and_then(|pid| Some((pid, model.guards.get(&pid)?))) {
            self.text("guard", &format!("process {pid}, tidegate {}", guard.hello.version));
            let hooks = match &guard.hooks[..] {
                [] => "no interface".to_owned(),
                hooks => hooks.join(", "),
            };
            self.text("hooks", &hooks);
        }
        let about = &row.about;
        let dry_run = if about.is_dry_run { "; a dry run: nothing is refused" } else { "" };
        self.text_if("policy", &format!("{}{dry_run}", about.policy), !about.policy.is_empty());
        let reserved = format!("{} places of the accept queue for reserved sources", about.reserved_slots);
        self.text_if("reserved", &reserved, about.reserved_slots > 0);
        self.text_if("held by", &about.owners.join(", "), !about.owners.is_empty());
        self.text_if("sockets", &about.sockets.to_string(), about.sockets > 1);
        self.text_if("control group", &about.cgroup, !about.cgroup.is_empty());
        self.blank();
    }

    fn minute(&mut self, row: &Row) {
        let room = self.width.saturating_sub(LABEL + "  now 999999, most 999999".len());
        let width = widest(room);
        let what = if row.now.is_guarded { ["answered/s", "refused/s"] } else { ["accepted/s", "dropped/s"] };
        let values: [fn(&Point) -> f64; 3] =
            [|point| point.answered, |point| point.refused, |point| point.waiting];
        for (label, value) in [what[0], what[1], "waiting"].into_iter().zip(values) {
            let now = or_dash(row.minute.back().map(value), count);
            let most = count(most(&row.minute, value));
            let line = width
                .map_or_else(String::new, |width| self.glyphs.sparkline(&row.minute, value, width) + "  ");
            self.put(&format!("{label:LABEL$}{line}now {now}, most {most}"));
        }
        self.blank();
    }

    fn now(&mut self, row: &Row, model: &Model) {
        let second = row.second.as_ref();
        let share = or_dash(second.and_then(|second| second.refused_share), percent);
        let last = match row.refused {
            Some((reason, at_s)) => {
                format!("the last {:.0} s ago: {}", model.now_s - at_s, reason.meaning())
            }
            None => "none seen".to_owned(),
        };
        let refused = if row.now.is_guarded { "refused" } else { "dropped" };
        self.text(refused, &format!("{share} of the SYNs; {last}"));
        let queue = |queue: Option<Queue>| {
            let limit = |limit: Option<u64>| or_dash(limit, |limit| limit.to_string());
            or_dash(queue, |queue| format!("{} of {}", queue.length, limit(queue.limit)))
        };
        let queues = format!("accept {}, SYN {}", queue(row.now.accept), queue(row.now.syn));
        self.text("queues", &queues);
        let Some(service) = &row.now.service else { return self.blank() };
        let number = |value: Option<u64>| or_dash(value, |value| value.to_string());
        let time = |value: Option<f64>| or_dash(value, seconds);
        self.text(
            "server",
            &format!(
                "{} wait for it, of {} that may; {} with a request, {} without a byte yet",
                number(service.counted),
                number(service.limit),
                number(service.waiting),
                number(service.silent)
            ),
        );
        self.text(
            "",
            &format!(
                "quickest answers take {}, handshakes {}; {} of the SYNs become connections",
                time(service.response_floor_s),
                time(service.handshake_median_s),
                or_dash(service.completed_share, percent)
            ),
        );
        self.text(
            "",
            &format!(
                "{} answered, {} ended without an answer; idle for {}",
                number(service.answered),
                number(service.ended),
                time(service.idle_time_s)
            ),
        );
        self.text_if("learning", "too few answers were seen to know the usual one", service.learning);
        let one_in = service.follows_one_in.unwrap_or(1);
        let estimate = format!("one connection in {one_in} is followed: these numbers are estimates");
        self.text_if("", &estimate, one_in > 1);
        self.blank();
    }

    fn times(&mut self, row: &Row) {
        let Some(now) = &row.now.times else { return };
        let what = if row.now.is_guarded { "from request to answer" } else { "from handshake to accept(2)" };
        let all = row.first_times.as_ref().map_or_else(|| now.clone(), |first| now.since(first));
        let spread = |times: &Times| {
            let quantile = |share| times.quantile(share).unwrap_or_else(|| "-".to_owned());
            format!(
                "mean {}, p50 {}, p99 {} of {}",
                or_dash(times.mean_s(), seconds),
                quantile(0.5),
                quantile(0.99),
                times.count
            )
        };
        self.text("time", &format!("{what}, since this view began:"));
        let second = row.second.as_ref().and_then(|second| second.times.as_ref());
        self.text("all", &spread(&all));
        self.text("last second", &or_dash(second, spread));
        let counts = counts_of(&all);
        let used = counts.iter().position(|(_, count)| *count > 0);
        let Some(begin) = used else { return self.blank() };
        let end = counts.iter().rposition(|(_, count)| *count > 0).expect("one is");
        let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
        for (bound, count) in &counts[begin..=end] {
            let room = self.width.saturating_sub(LABEL + 11).min(60);
            let bar = self.glyphs.bar(*count as f64, most as f64, room);
            self.put(&format!("{bound:>12}  {count:>9}  {bar}"));
        }
        self.blank();
    }

    fn counts(&mut self, row: &Row) {
        if row.now.counts.is_empty() {
            return;
        }
        self.put(&format!("{:22}{:>8}{:>12}  {}", "counter", "a second", "in all", "what it counts"));
        let span_s = row.second.as_ref().map_or(1.0, |second| second.span_s);
        for (name, total) in &row.now.counts {
            let before = row.before.as_ref().and_then(|before| before.get(name));
            let rate = or_dash(before, |before| count(total.saturating_sub(before) as f64 / span_s));
            let head = format!("{name:22}{rate:>8}{total:>12}  ");
            let indent = head.chars().count();
            let meaning = wrapped(&help(name), self.width.saturating_sub(indent).max(NARROWEST));
            let mut meaning = meaning.into_iter();
            self.put(&format!("{head}{}", meaning.next().unwrap_or_default()));
            meaning.for_each(|line| self.put(&format!("{:indent$}{line}", "")));
        }
    }

    fn text_if(&mut self, label: &str, text: &str, is_known: bool) {
        if is_known {
            self.text(label, text);
        }
    }

    /// Over as many lines as it takes.
    fn text(&mut self, label: &str, text: &str) {
        let is_first = self.lines.is_empty();
        let indent = if is_first { 0 } else { LABEL };
        let lines = wrapped(text, self.width.saturating_sub(indent));
        for (index, line) in lines.into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            self.lines.push(format!("{label:indent$}{line}"));
        }
    }

    /// On one line.
    fn put(&mut self, line: &str) {
        self.lines.push(start_of(line, self.width, self.glyphs.cut()));
    }

    fn blank(&mut self) {
        if self.lines.last().is_some_and(|line| !line.is_empty()) {
            self.lines.push(String::new());
        }
    }
}

/// Bounds in words, and how many there were between two.
fn counts_of(times: &Times) -> Vec<(String, u64)> {
    let mut before = 0;
    let mut counts: Vec<(String, u64)> = Vec::new();
    for (bound_s, below) in &times.below {
        counts.push((format!("<{}", seconds(*bound_s)), below.saturating_sub(before)));
        before = *below;
    }
    if let Some((bound_s, below)) = times.below.last() {
        counts.push((format!(">{}", seconds(*bound_s)), times.count.saturating_sub(*below)));
    }
    counts
}

/// What a counter counts; nothing of one that only another version knows.
fn help(name: &str) -> String {
    if let Some(entry) = telemetry::catalogue().find(|entry| entry.name == name) {
        return format!("{}: {}", entry.unit, entry.help);
    }
    let of_kernel = watch::Counter::ALL.into_iter().find(|counter| counter.name() == name);
    of_kernel.map_or_else(String::new, |counter| counter.help().to_owned())
}
