//! What the screen shows, without the screen: listeners with their last minute, messages, and what
//! was chosen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use watch::{Entry, Inventory, Process};

use crate::keys::Key;
use crate::line::{Attached, Head, Hello, Line, Place, Sample};
use crate::reading::{Reading, Second, Times};
use crate::reason::Reason;
use crate::state::{Signs, State};

/// Seconds of which something is kept.
pub(crate) const MINUTE: usize = 60;
/// After so long without a line a guard does not run, seconds: its lease is one.
const SILENCE_S: f64 = 2.0;
/// After so long a listener that its guard speaks of no more was taken out of its file, seconds.
const FORGOTTEN_S: f64 = 2.5;
/// Messages that are kept.
const MESSAGES: usize = 200;

/// What there is to show. It has no clock: [`Model::tick`] says when.
#[derive(Debug)]
pub struct Model {
    pub(crate) version: String,
    /// Of whoever looks: listeners elsewhere are shown with their namespace.
    pub(crate) netns: u64,
    pub(crate) source: Source,
    pub(crate) guards: BTreeMap<u32, Guard>,
    pub(crate) rows: Vec<Row>,
    pub(crate) messages: VecDeque<String>,
    pub(crate) sort: Sort,
    pub(crate) view: View,
    /// Which listener is chosen in the list.
    pub(crate) chosen: Option<Id>,
    /// First line that is shown.
    pub(crate) scroll: usize,
    /// Lines that fit, as of the last drawing.
    pub(crate) page: usize,
    pub(crate) now_s: f64,
    pub(crate) is_over: bool,
}

/// Where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nowhere yet; what is waited for.
    Loading(&'static str),
    /// Guards tell.
    Guards,
    /// The kernel tells: there is no guard.
    Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    List,
    Listener,
    Help,
    Messages,
}

/// In which order listeners are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Load,
    Answered,
    Refused,
    Waiting,
    Name,
}

#[derive(Debug)]
pub(crate) struct Guard {
    pub hello: Hello,
    /// When it was heard of last.
    heard_s: f64,
    /// By its own clock.
    at_s: f64,
    /// Interfaces, and where on them.
    pub hooks: Vec<String>,
}

/// Which listener.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    /// Process of the guard that tells of it.
    pub guard: Option<u32>,
    pub netns: u64,
    pub listen: String,
}

/// A listener with its last minute.
#[derive(Debug)]
pub(crate) struct Row {
    pub id: Id,
    pub about: About,
    pub now: Reading,
    /// The one before `now`.
    pub before: Option<Reading>,
    pub second: Option<Second>,
    /// Times at the first reading: what came since is what somebody saw.
    pub first_times: Option<Times>,
    pub minute: VecDeque<Point>,
    /// The last refusal, and when.
    pub refused: Option<(Reason, f64)>,
    is_lease_lost: bool,
}

/// What changes seldom; empty where it is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub netns_name: String,
    pub policy: String,
    pub reserved_slots: u32,
    pub is_dry_run: bool,
    /// Command and process.
    pub owners: Vec<String>,
    pub cgroup: String,
    /// That share the address.
    pub sockets: usize,
}

/// A second of the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Point {
    pub answered: f64,
    pub refused: f64,
    pub waiting: f64,
}

/// A line that no guard of this program would send.
#[derive(Debug, thiserror::Error)]
#[error("it speaks another language")]
pub struct NotALine;

impl Model {
    /// Nothing yet, for a program of this version in the network namespace with this inode number.
    pub fn new(version: impl Into<String>, netns: u64, source: Source) -> Self {
        Self {
            version: version.into(),
            netns,
            source,
            guards: BTreeMap::new(),
            rows: Vec::new(),
            messages: VecDeque::new(),
            sort: Sort::Load,
            view: View::List,
            chosen: None,
            scroll: 0,
            page: 1,
            now_s: 0.0,
            is_over: false,
        }
    }

    /// It is so late now, seconds since the start: what has not been heard of for long is lost.
    pub fn tick(&mut self, now_s: f64) {
        self.now_s = now_s;
        let guards = &self.guards;
        let guard_of = |row: &Row| row.id.guard.and_then(|pid| guards.get(&pid));
        self.rows.retain(|row| guard_of(row).is_none_or(|guard| row.now.at_s + FORGOTTEN_S > guard.at_s));
        for row in &mut self.rows {
            let is_silent = guard_of(row).is_some_and(|guard| now_s - guard.heard_s > SILENCE_S);
            row.is_lease_lost = is_silent || row.second.as_ref().is_some_and(|second| second.is_unleased);
        }
    }

    /// From where what comes next is.
    pub fn set_source(&mut self, source: Source) {
        if self.source != source {
            self.source = source;
            self.rows.clear();
        }
    }

    /// Takes what the guard with this process id says.
    ///
    /// # Errors
    ///
    /// It is no line of a guard.
    pub fn line(&mut self, guard: u32, line: &str) -> Result<(), NotALine> {
        match serde_json::from_str(line).map_err(|_| NotALine)? {
            Line::Hello(hello) => self.hello(guard, hello),
            Line::Attached(attached) => self.attached(guard, attached),
            Line::Sample(sample) => self.sample(guard, *sample),
            // Of a later version.
            Line::Unknown => {}
        }
        Ok(())
    }

    /// A guard tells nothing any more.
    pub fn forget(&mut self, guard: u32) {
        self.guards.remove(&guard);
        self.rows.retain(|row| row.id.guard != Some(guard));
    }

    /// Takes what the kernel says, at `at_s` by one clock.
    pub fn listeners(&mut self, inventory: &Inventory, at_s: f64) {
        self.set_source(Source::Kernel);
        let mut before: Vec<Option<Row>> = std::mem::take(&mut self.rows).into_iter().map(Some).collect();
        let id = |row: &Option<Row>| row.as_ref().expect("not taken yet").id.clone();
        let places: BTreeMap<Id, usize> = before.iter().map(id).zip(0..).collect();
        for group in &inventory.groups {
            let sum;
            let entry = match &group[..] {
                [one] => one,
                _ => {
                    sum = Entry::sum(group);
                    &sum
                }
            };
            let listen = entry.listener.address.to_string();
            let id = Id { guard: None, netns: entry.listener.netns_inode, listen };
            let known = places.get(&id).and_then(|&place| before[place].take());
            let mut row = known.unwrap_or_else(|| Row::new(id));
            row.about = About {
                netns_name: entry.netns.clone().unwrap_or_default(),
                owners: entry.owners.iter().map(owner).collect(),
                cgroup: entry.cgroup.clone().unwrap_or_default(),
                sockets: group.len(),
                ..About::default()
            };
            row.take(Reading::of_kernel(entry, at_s), self.now_s);
            self.rows.push(row);
        }
    }

    /// A message, unless it is the last one.
    pub fn say(&mut self, message: impl Into<String>) {
        let message = message.into();
        if self.messages.back() == Some(&message) {
            return;
        }
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// Does what a key asks for.
    pub fn key(&mut self, key: Key) {
        match (key, self.view) {
            (Key::Quit, _) => self.is_over = true,
            (Key::Help, View::Help) | (Key::Messages, View::Messages) | (Key::Back, _) => {
                self.show(View::List)
            }
            (Key::Help, _) => self.show(View::Help),
            (Key::Messages, _) => self.show(View::Messages),
            (Key::Sort, View::List) => {
                self.sort = self.sort.next();
                // A new order begins at its top.
                self.chosen = None;
            }
            (Key::Enter, View::List) => {
                self.chosen = self.chosen_id();
                if self.chosen.is_some() {
                    self.show(View::Listener);
                }
            }
            (key, View::List) => self.choose(key),
            (key, _) => self.scroll = moved(self.scroll, key, self.page, usize::MAX),
        }
    }

    /// Whether `q` or Ctrl-C was typed.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Indices of listeners in their order.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        // As a whole number a rate is ordered: it is never negative, nor that large.
        let whole = |value: Option<f64>| Reverse((value.unwrap_or(0.0) * 1e3) as u64);
        let key = |index: &usize| {
            let row = &self.rows[*index];
            let second = row.second.as_ref();
            let answered = whole(second.and_then(|second| second.answered));
            let refused = whole(second.map(|second| second.refused));
            let waiting = row.now.waiting.map_or(0, |queue| queue.length);
            match self.sort {
                Sort::Load => (Reverse(row.state()), Reverse(waiting), answered),
                Sort::Answered => (Reverse(State::Idle), Reverse(0), answered),
                Sort::Refused => (Reverse(State::Idle), Reverse(0), refused),
                Sort::Waiting => (Reverse(State::Idle), Reverse(waiting), answered),
                Sort::Name => (Reverse(State::Idle), Reverse(0), Reverse(0)),
            }
        };
        order.sort_by_cached_key(|index| (key(index), self.rows[*index].id.clone()));
        order
    }

    /// The listener that is chosen, the first one if none is, or if it is gone.
    pub(crate) fn chosen_row(&self) -> Option<&Row> {
        let chosen = self.chosen.as_ref().and_then(|id| self.rows.iter().find(|row| row.id == *id));
        chosen.or_else(|| self.rows.get(*self.order().first()?))
    }

    fn chosen_id(&self) -> Option<Id> {
        self.chosen_row().map(|row| row.id.clone())
    }

    fn choose(&mut self, key: Key) {
        let order = self.order();
        let Some(last) = order.len().checked_sub(1) else { return };
        let chosen = self.chosen_id();
        let place = order.iter().position(|&index| Some(&self.rows[index].id) == chosen.as_ref());
        let place = moved(place.unwrap_or(0), key, self.page, last);
        self.chosen = Some(self.rows[order[place]].id.clone());
    }

    fn show(&mut self, view: View) {
        (self.view, self.scroll) = (view, 0);
    }

    fn hello(&mut self, guard: u32, hello: Hello) {
        if hello.version != self.version {
            self.say(format!(
                "guard {guard} is tidegate {}, and this is {}: what it does not tell is shown as -; /proc/{guard}/exe top shows all",
                hello.version, self.version
            ));
        }
        self.guards.insert(guard, Guard { hello, heard_s: self.now_s, at_s: 0.0, hooks: Vec::new() });
    }

    fn attached(&mut self, guard: u32, attached: Attached) {
        let hooks = attached.hooks.iter().map(Place::to_string).collect();
        if let Some(guard) = self.guards.get_mut(&guard) {
            guard.hooks = hooks;
        }
        self.row_of(guard, &attached.head);
    }

    fn sample(&mut self, guard: u32, sample: Sample) {
        let now_s = self.now_s;
        if let Some(guard) = self.guards.get_mut(&guard) {
            guard.heard_s = now_s;
            guard.at_s = guard.at_s.max(sample.head.elapsed_s);
        }
        self.row_of(guard, &sample.head).take(Reading::of_guard(sample), now_s);
    }

    fn row_of(&mut self, guard: u32, head: &Head) -> &mut Row {
        self.set_source(Source::Guards);
        let hello = self.guards.get(&guard).map(|guard| &guard.hello);
        let netns = hello.map_or(self.netns, |hello| hello.netns);
        let netns_name = hello.and_then(|hello| hello.netns_name.clone()).unwrap_or_default();
        let id = Id { guard: Some(guard), netns, listen: head.listen.clone() };
        let place = self.rows.iter().position(|row| row.id == id);
        let place = place.unwrap_or_else(|| {
            self.rows.push(Row::new(id));
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        row.about.netns_name = netns_name;
        row.about.policy = head.policy.clone().unwrap_or_default();
        row.about.reserved_slots = head.reserved_slots;
        row.about.is_dry_run = head.dry_run;
        row
    }
}

impl Row {
    fn new(id: Id) -> Self {
        Self {
            id,
            about: About::default(),
            now: Reading::default(),
            before: None,
            second: None,
            first_times: None,
            minute: VecDeque::new(),
            refused: None,
            is_lease_lost: false,
        }
    }

    /// How it does.
    pub fn state(&self) -> State {
        let second = self.second.as_ref();
        // Rates of nothing are none: a rate above zero is one client at least.
        let some = |rate: Option<f64>| u64::from(rate.is_some_and(|rate| rate > 0.0));
        State::of(&Signs {
            is_lease_lost: self.is_lease_lost,
            listens: self.now.accept.is_some(),
            is_blind: self.now.is_blind,
            is_guarded: self.now.is_guarded,
            refused: some(second.map(|second| second.refused)),
            is_full: self.now.is_full(),
            is_learning: self.now.is_learning,
            answered: some(second.and_then(|second| second.answered)),
        })
    }

    fn take(&mut self, now: Reading, now_s: f64) {
        let before = std::mem::replace(&mut self.now, now);
        let now = &self.now;
        if before == Reading::default() {
            self.first_times.clone_from(&now.times);
            return;
        }
        // A listener that was there before the guard was started anew has counted from zero.
        if now.at_s <= before.at_s {
            return;
        }
        let second = Second::between(&before, now);
        let point = Point {
            answered: second.answered.unwrap_or(0.0),
            refused: second.refused,
            waiting: now.waiting.map_or(0.0, |queue| queue.length as f64),
        };
        for _ in 0..(second.span_s.round() as usize).clamp(1, MINUTE) {
            if self.minute.len() == MINUTE {
                self.minute.pop_front();
            }
            self.minute.push_back(point);
        }
        if let Some(reason) = second.reason {
            self.refused = Some((reason, now_s));
        }
        self.before = Some(before);
        self.second = Some(second);
    }
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Load => Self::Answered,
            Self::Answered => Self::Refused,
            Self::Refused => Self::Waiting,
            Self::Waiting => Self::Name,
            Self::Name => Self::Load,
        }
    }

    /// What comes first.
    pub fn word(self) -> &'static str {
        match self {
            Self::Load => "the worst first",
            Self::Answered => "most answers first",
            Self::Refused => "most refusals first",
            Self::Waiting => "most waiting first",
            Self::Name => "by address",
        }
    }
}

fn owner(process: &Process) -> String {
    format!("{}[{}]", process.command, process.pid)
}

/// A place after a key, from 0 to `last`.
fn moved(place: usize, key: Key, page: usize, last: usize) -> usize {
    let place = match key {
        Key::Up => place.saturating_sub(1),
        Key::Down => place.saturating_add(1),
        Key::PageUp => place.saturating_sub(page),
        Key::PageDown => place.saturating_add(page),
        Key::Home => 0,
        Key::End => last,
        _ => place,
    };
    place.min(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::tests::line;

    fn model() -> Model {
        let mut model = Model::new("1.0", 7, Source::Loading("the guard"));
        let hello = Hello { version: "1.0".into(), pid: 812, netns: 7, netns_name: None };
        hear(&mut model, serde_json::json!({ "event": "hello", "version": "1.0", "pid": 812, "netns": 7 }));
        assert_eq!(model.guards[&812].hello, hello);
        model
    }

    fn hear(model: &mut Model, line: serde_json::Value) {
        model.line(812, &line.to_string()).expect("a line");
    }

    fn at(model: &mut Model, at_s: f64, change: impl FnOnce(&mut serde_json::Value)) {
        model.tick(at_s);
        hear(model, line(at_s, change));
        model.tick(at_s);
    }

    #[test]
    fn guard_that_is_silent_for_two_seconds_has_lost_its_lease_until_it_speaks() {
        let mut model = model();
        at(&mut model, 1.0, |_| {});
        at(&mut model, 2.0, |_| {});
        assert_eq!(model.rows[0].state(), State::Idle);
        model.tick(4.1);
        assert_eq!(model.rows[0].state(), State::LeaseLost);
        at(&mut model, 5.0, |line| line["passed"]["unleased"] = 3.into());
        assert_eq!(model.rows[0].state(), State::LeaseLost, "frames were left to the kernel");
        at(&mut model, 6.0, |line| line["passed"]["unleased"] = 3.into());
        assert_eq!(model.rows[0].state(), State::Idle);
        at(&mut model, 7.0, |line| line["blind"] = true.into());
        assert_eq!(model.rows[0].state(), State::Blind);
        assert_eq!(model.rows[0].minute.len(), 6, "a late line stands for each second since the last");
    }

    #[test]
    fn listener_that_a_reload_took_out_goes_and_one_without_a_server_stays() {
        let mut model = model();
        for at_s in 1..5 {
            at(&mut model, at_s.into(), |line| line["accept_qlen"] = serde_json::Value::Null);
            if at_s == 1 {
                at(&mut model, at_s.into(), |line| line["listen"] = "192.0.2.9:80".into());
            }
        }
        let left: Vec<(&str, State)> =
            model.rows.iter().map(|row| (row.id.listen.as_str(), row.state())).collect();
        assert_eq!(left, [("192.0.2.1:443", State::NoListener)]);
        model.forget(812);
        assert!(model.rows.is_empty() && model.guards.is_empty());
    }

    #[test]
    fn refusal_is_remembered_with_its_reason_after_it_has_passed() {
        let mut model = model();
        at(&mut model, 1.0, |_| {});
        let refused = |line: &mut serde_json::Value| {
            line["syns"]["reset"] = 1500.into();
            line["syns"]["server_full"] = 1500.into();
        };
        at(&mut model, 2.0, refused);
        assert_eq!(model.rows[0].state(), State::Refusing);
        at(&mut model, 3.0, refused);
        assert_eq!((model.rows[0].state(), model.rows[0].refused), (State::Idle, Some((Reason::Limit, 2.0))));
    }

    #[test]
    fn order_follows_the_chosen_listener() {
        let mut model = model();
        for at_s in 1..3 {
            for (port, answered) in [(1, 0), (2, 500), (3, 900)] {
                at(&mut model, at_s.into(), |line| {
                    line["listen"] = format!("192.0.2.1:{port}").into();
                    line["service"]["answered"] = (1000 + at_s * answered).into();
                    line["service"]["counted"] = (10 - port).into();
                });
            }
        }
        let ports = |model: &Model| -> Vec<char> {
            let last = |index: usize| model.rows[index].id.listen.chars().last().expect("a port");
            model.order().into_iter().map(last).collect()
        };
        assert_eq!(ports(&model), ['2', '3', '1'], "the idle one is last");
        model.key(Key::Down);
        model.key(Key::Enter);
        assert_eq!(model.chosen_row().map(|row| row.id.listen.as_str()), Some("192.0.2.1:3"));
        model.key(Key::Back);
        model.key(Key::Sort);
        assert_eq!(ports(&model), ['3', '2', '1']);
        model.key(Key::End);
        assert_eq!(model.chosen_row().map(|row| row.id.listen.as_str()), Some("192.0.2.1:1"));
        model.key(Key::Quit);
        assert!(model.is_over());
    }

    #[test]
    fn other_version_is_said_in_one_line_and_no_language_is_an_error() {
        let mut model = model();
        assert!(model.messages.is_empty());
        let hello =
            serde_json::json!({ "event": "hello", "version": "0.9", "pid": 812, "netns": 7, "new": 1 });
        hear(&mut model, hello);
        assert_eq!(model.messages.len(), 1);
        assert!(
            model.messages[0].contains("guard 812 is tidegate 0.9, and this is 1.0"),
            "{:?}",
            model.messages
        );
        hear(&mut model, serde_json::json!({ "event": "of a later version" }));
        for other in ["HTTP/1.1 400 Bad Request", "{}", "", "{\"event\":\"sample\"}"] {
            assert!(model.line(812, other).is_err(), "{other}");
        }
    }
}
