//! Claims of the papers, held against measured cells.
//!
//! A [`Claim`] is a `[[claim]]` of an experiment file: what to compute from the cells, the paper's
//! number, and the bounds within which it holds. It is checked against the experiment before
//! anything runs, and answered when all has been measured. Nothing here measures, reads a file or
//! knows the time.
//!
//! What it is not: no language. One measure of one policy, or its ratio to another's, over one or
//! several loads.

mod estimate;
mod measure;

use results::{Answer, Cell, ClaimAnswer, Estimate, GroupCount, Unit};
use serde::Deserialize;

pub(crate) use measure::Measure;

/// A claim, as the experiment file says it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// Where it stands, as `[Shu05] figure 4.7(a)`.
    pub source: String,
    /// The claim, in a sentence.
    pub text: String,
    /// What is compared.
    pub measure: Measure,
    /// Of which server, or scenario of a dumbbell; of every one, unless given.
    #[serde(alias = "scenario")]
    pub server: Option<String>,
    /// Of which policy, or queue discipline.
    #[serde(alias = "aqm")]
    pub policy: String,
    /// Divided by the same of this policy; without it, and without `against_loads`, the measure
    /// itself.
    pub against: Option<String>,
    /// Of one group of clients, from 0, where `[path]` has several; with `user_mean` only.
    pub group: Option<usize>,
    /// Divided by the same before this server; the group of clients is of the first alone.
    pub against_server: Option<String>,
    /// Arithmetic mean over these loads, multiples of the saturation rate.
    #[serde(default)]
    pub loads: Vec<f64>,
    /// Loads of what it is divided by, if they are others.
    #[serde(default)]
    pub against_loads: Vec<f64>,
    /// The largest of all loads of the grid, instead of a mean over some.
    #[serde(default)]
    pub peak: bool,
    /// The paper's number, where it prints one: ratios, shares 0 to 1, milliseconds.
    pub paper: Option<f64>,
    /// When the claim holds.
    pub holds: Bounds,
    /// Why it does not hold in virtual time, on the machine of its paper; see [`Claim::why_not`].
    pub why: Option<String>,
}

/// Bounds, both included; at least one is given.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    /// From here on.
    pub at_least: Option<f64>,
    /// Up to here.
    pub at_most: Option<f64>,
}

/// What an experiment measures, as far as claims depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// Loads of the grid.
    pub loads: &'a [f64],
    /// Names of the policies, and whether each has a guard whose counters there are.
    pub policies: &'a [(&'a str, bool)],
    /// Names of the servers.
    pub servers: &'a [&'a str],
    /// Groups of clients; 1 where all are alike.
    pub groups: usize,
}

/// What was to be measured of each policy before each server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned<'a> {
    /// Loads of the grid.
    pub loads: &'a [f64],
    /// How often each.
    pub repetitions: u32,
}

impl Claim {
    /// Whether it can be answered once the experiment has been measured.
    ///
    /// # Errors
    ///
    /// One line: why not, and what would do.
    pub(crate) fn check(&self, scope: &Scope<'_>) -> Result<(), String> {
        for (key, text) in
            [("source", Some(&self.source)), ("text", Some(&self.text)), ("why", self.why.as_ref())]
        {
            if let Some(text) = text.filter(|text| text.contains(char::is_control)) {
                return Err(format!("{key} {text:?} is no line of text: take out what is escaped"));
            }
        }
        if let Some(number) = self.paper.filter(|number| !number.is_finite()) {
            return Err(format!("paper = {number} is no number that a paper prints"));
        }
        self.check_loads(scope)?;
        for policy in [Some(&self.policy), self.against.as_ref()].into_iter().flatten() {
            let Some((_, has_guard)) = scope.policies.iter().find(|(name, _)| name == policy) else {
                let names: Vec<&str> = scope.policies.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "no [[policy]] or [[aqm]] is called {policy:?}; there are {}",
                    names.join(", ")
                ));
            };
            if self.measure.needs_guard() && !has_guard {
                return Err(format!(
                    "{} is counted by a guard, and policy {policy:?} has none; guard = \"abort\" with dry_run = true counts only",
                    self.measure
                ));
            }
        }
        if let Some(server) = self.server.as_deref().filter(|server| !scope.servers.contains(server)) {
            let names = scope.servers.join(", ");
            return Err(format!("no [[server]] or [[scenario]] is called {server:?}; there are {names}"));
        }
        if let Some(other) = &self.against_server
            && (self.server.is_none() || !scope.servers.contains(&other.as_str()))
        {
            let names = scope.servers.join(", ");
            return Err(format!("against_server = {other:?} wants server, too, and both of {names}"));
        }
        match self.group {
            Some(group) if self.measure != Measure::UserMean => {
                Err(format!("group = {group} is for measure = \"user_mean\", which is known of each group"))
            }
            Some(group) if scope.groups < 2 || group >= scope.groups => {
                Err(format!("group = {group} is none of the {} of [path], from 0", scope.groups))
            }
            _ => self.holds.check(),
        }
    }

    /// Whether it is answered for this server.
    pub(crate) fn is_of(&self, server: &str) -> bool {
        self.server.as_deref().is_none_or(|own| own == server)
    }

    fn check_loads(&self, scope: &Scope<'_>) -> Result<(), String> {
        match (self.peak, self.loads.is_empty()) {
            (true, false) => return Err("peak and loads are two questions; give one".to_owned()),
            (false, true) => {
                return Err("give loads = [...], or peak = true for the largest of all".to_owned());
            }
            _ => {}
        }
        if self.peak && self.measure != Measure::Goodput {
            return Err("peak is the largest goodput: give measure = \"goodput\"".to_owned());
        }
        if self.peak && !self.against_loads.is_empty() {
            return Err("peak is the largest of all loads on both sides: leave out against_loads".to_owned());
        }
        let mut loads = self.loads.iter().chain(&self.against_loads);
        match loads.find(|load| !scope.loads.contains(load)) {
            Some(load) => Err(format!("load {load} is not measured; grid.loads are {:?}", scope.loads)),
            None => Ok(()),
        }
    }

    /// What the cells of one server say. Where some of those are missing that it rests on, since
    /// the run ended early, a number of the others decides nothing.
    pub(crate) fn answer(
        &self,
        experiment: &str,
        server: &str,
        planned: Planned<'_>,
        cells: &[Cell],
    ) -> ClaimAnswer {
        let before =
            |server: &str| -> Vec<&Cell> { cells.iter().filter(|cell| cell.server == server).collect() };
        let own = before(server);
        let others = self.against_server.as_deref().map(before);
        let rests_on = self.rests_on(planned.loads);
        let ours = self.estimate(planned.loads, &own, others.as_ref().unwrap_or(&own));
        let both = [Some(&own), others.as_ref()].into_iter().flatten();
        let missing = both.clone().find_map(|cells| missing(&rests_on, planned.repetitions, cells));
        let marked = both.flat_map(|cells| marks(&rests_on, cells)).collect();
        let (answer, marks) = match (&ours, missing) {
            (Err(reason), _) => (Answer::NotMeasured, vec![reason.clone()]),
            (Ok(ours), None) => (self.holds.judge(ours), marked),
            (Ok(_), Some(missing)) => {
                let mut marks = marked;
                marks.push(missing);
                (Answer::Undecided, marks)
            }
        };
        ClaimAnswer {
            experiment: experiment.to_owned(),
            server: server.to_owned(),
            source: self.source.clone(),
            text: self.text.clone(),
            measured: self.measured(),
            unit: if self.is_ratio() { Unit::Ratio } else { self.measure.unit() },
            paper: self.paper,
            at_least: self.holds.at_least,
            at_most: self.holds.at_most,
            answer,
            marks,
            why: None,
            ours: ours.ok(),
        }
    }

    /// What the file says of an answer that is not *holds*: why. It is of a simulated run; a real
    /// machine may have other reasons.
    pub(crate) fn why_not(&self, answer: Answer) -> Option<String> {
        self.why.clone().filter(|_| matches!(answer, Answer::Fails | Answer::Undecided))
    }

    /// What is computed, in words.
    fn measured(&self) -> String {
        let at = |loads: &[f64]| {
            let loads: Vec<String> = loads.iter().map(|load| format!("{load}x")).collect();
            if self.peak { "at its peak".to_owned() } else { format!("at {}", loads.join(", ")) }
        };
        let group = self.group.map_or(String::new(), |group| format!(" to group {group}"));
        let measure = format!("{}{group}", self.measure);
        let own = format!("{measure} of {} {}", self.policy, at(&self.loads));
        if let Some(server) = &self.against_server {
            let policy = self.against.as_ref().unwrap_or(&self.policy);
            let loads = if self.against_loads.is_empty() { &self.loads } else { &self.against_loads };
            return format!("{own} over {} of {policy} {} before {server}", self.measure, at(loads));
        }
        if !self.is_ratio() {
            return own;
        }
        match (&self.against, self.against_loads.is_empty()) {
            (Some(other), true) => {
                format!("{measure} of {} over {other} {}", self.policy, at(&self.loads))
            }
            (Some(other), false) => format!("{own} over {other} {}", at(&self.against_loads)),
            (None, _) => format!("{own} over that {}", at(&self.against_loads)),
        }
    }

    fn is_ratio(&self) -> bool {
        self.against.is_some() || self.against_server.is_some() || !self.against_loads.is_empty()
    }

    /// One value for each repetition that has all cells.
    fn estimate(&self, loads: &[f64], cells: &[&Cell], others: &[&Cell]) -> Result<Estimate, String> {
        let most = cells.iter().map(|cell| cell.repetition).max().unwrap_or(0);
        let values: Vec<Result<f64, String>> = (0..=most)
            .map(|repetition| {
                self.value(loads, &of_repetition(cells, repetition), &of_repetition(others, repetition))
            })
            .collect();
        let known: Vec<f64> = values.iter().filter_map(|value| value.as_ref().ok().copied()).collect();
        let estimate = if self.is_ratio() { estimate::of_ratios(&known) } else { estimate::of(&known) };
        match estimate {
            Some(estimate) => Ok(estimate),
            None => Err(values.into_iter().find_map(Result::err).expect("a value for each repetition")),
        }
    }

    fn value(&self, loads: &[f64], cells: &[&Cell], others: &[&Cell]) -> Result<f64, String> {
        let of = |policy: &str, at: &[f64], cells: &[&Cell], group: Option<usize>| {
            let values = at.iter().map(|&load| self.measured_at(policy, load, cells, group));
            let values = values.collect::<Result<Vec<f64>, String>>()?;
            Ok::<f64, String>(if self.peak {
                values.into_iter().fold(0.0, f64::max)
            } else {
                values.iter().sum::<f64>() / values.len() as f64
            })
        };
        let own_loads = if self.peak { loads } else { &self.loads };
        let own = of(&self.policy, own_loads, cells, self.group)?;
        if !self.is_ratio() {
            return Ok(own);
        }
        let other_loads = if self.against_loads.is_empty() { own_loads } else { &self.against_loads };
        let group = self.group.filter(|_| self.against_server.is_none());
        let other = of(self.against.as_ref().unwrap_or(&self.policy), other_loads, others, group)?;
        if other > 0.0 { Ok(own / other) } else { Err("what it is divided by is 0".to_owned()) }
    }

    fn measured_at(
        &self,
        policy: &str,
        load: f64,
        cells: &[&Cell],
        group: Option<usize>,
    ) -> Result<f64, String> {
        let cell = cells.iter().find(|cell| cell.policy == policy && cell.load == load);
        let cell = cell.ok_or_else(|| format!("{policy} was not measured at {load} times saturation"))?;
        let value = match group {
            Some(group) => cell.crowd.groups.get(group).and_then(GroupCount::mean_ms),
            None => self.measure.of(cell),
        };
        let value = value.filter(|value| value.is_finite());
        value.ok_or_else(|| format!("{policy} has no {} at {load} times saturation", self.measure))
    }

    /// The points of the grid that the answer needs: policies and loads.
    fn rests_on(&self, loads: &[f64]) -> Vec<(&str, f64)> {
        let own_loads = if self.peak { loads } else { &self.loads };
        let mut points: Vec<(&str, f64)> = own_loads.iter().map(|&load| (&*self.policy, load)).collect();
        if self.is_ratio() {
            let other = self.against.as_ref().unwrap_or(&self.policy);
            let other_loads = if self.against_loads.is_empty() { own_loads } else { &self.against_loads };
            points.extend(other_loads.iter().map(|&load| (&**other, load)));
        }
        points
    }
}

fn of_repetition<'a>(cells: &[&'a Cell], repetition: u32) -> Vec<&'a Cell> {
    cells.iter().copied().filter(|cell| cell.repetition == repetition).collect()
}

/// How many cells of these points there should be, and are not.
fn missing(points: &[(&str, f64)], repetitions: u32, cells: &[&Cell]) -> Option<String> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.cmp(b.0).then(a.1.total_cmp(&b.1)));
    points.dedup();
    let all = points.len() * repetitions as usize;
    let is_there = |cell: &&&Cell| points.contains(&(&*cell.policy, cell.load));
    let missing = all.saturating_sub(cells.iter().filter(is_there).count());
    (missing > 0)
        .then(|| format!("{missing} of the {all} cells that it rests on are missing: the run ended early"))
}

/// A word for each marked cell of these points.
fn marks(points: &[(&str, f64)], cells: &[&Cell]) -> Vec<String> {
    let is_used = |cell: &&&Cell| points.contains(&(&*cell.policy, cell.load));
    let marked = cells.iter().filter(is_used).filter(|cell| !cell.marks.is_empty());
    let mut words: Vec<String> =
        marked.map(|cell| format!("{} at {}x is marked", cell.policy, cell.load)).collect();
    words.sort();
    words.dedup();
    words
}

impl Bounds {
    fn check(&self) -> Result<(), String> {
        match (self.at_least, self.at_most) {
            (None, None) => Err("holds says nothing; give at_least, at_most or both".to_owned()),
            (Some(least), Some(most)) if least > most => {
                Err(format!("holds can never be: at least {least} and at most {most}"))
            }
            (least, most) if [least, most].into_iter().flatten().any(|bound| !bound.is_finite()) => {
                Err("holds has NaN or an infinity, which nothing is compared with; leave that bound out"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The whole interval must be on one side of each bound; if a part of it is, nobody knows.
    fn judge(&self, ours: &Estimate) -> Answer {
        let least = self.at_least.unwrap_or(f64::NEG_INFINITY);
        let most = self.at_most.unwrap_or(f64::INFINITY);
        if ours.high < least || ours.low > most {
            Answer::Fails
        } else if ours.low >= least && ours.high <= most {
            Answer::Holds
        } else {
            Answer::Undecided
        }
    }
}

#[cfg(test)]
mod tests;
