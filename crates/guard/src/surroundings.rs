//! What changes around a running guard: interfaces come and go, and other programs come before its
//! own.

use std::collections::BTreeMap;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::attach::{self, Attached, Plan};
use crate::blind::Blind;
use crate::interface::{self, Interface};
use crate::rules::{self, Away};
use crate::servers::Servers;
use crate::{Guard, Listener, Sample, needs_tc, servers};
use crate::{followers, routes};

/// To look who holds the listeners takes milliseconds on a host with many processes.
const SERVERS_EVERY: Duration = Duration::from_secs(10);
/// What a note of [`Surroundings::say_once`] is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    /// One that is not guarded, by its name.
    Interface(String),
    /// The list of them.
    Interfaces,
    Routes,
    /// The control groups of servers.
    Groups,
    /// Which listeners are one server's.
    Servers,
}

/// What was found there before, so that what lasts is said once.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// The last note on each.
    said: BTreeMap<About, String>,
    /// Listeners whose address is not this host's.
    away: Away,
    /// Connections that come by elsewhere.
    blind: Blind,
}

impl Surroundings {
    /// The note, unless it was the last one on this, too.
    fn say_once(&mut self, about: About, note: String) -> Option<String> {
        let before = self.said.insert(about, note.clone());
        (before.as_ref() != Some(&note)).then_some(note)
    }

    /// The same of an act that may go well again.
    fn say_failure(&mut self, about: About, act: Result<()>, then: &str) -> Option<String> {
        match act {
            Ok(()) => {
                self.said.remove(&about);
                None
            }
            Err(error) => self.say_once(about, format!("{error:#}; {then}")),
        }
    }

    /// The interfaces could be listed, and these are there: what was said of others is over.
    fn listed(&mut self, chosen: &[Interface]) {
        self.said.retain(|about, _| match about {
            About::Interface(name) => chosen.iter().any(|interface| interface.name == *name),
            About::Interfaces => false,
            About::Routes | About::Groups | About::Servers => true,
        });
    }

    /// Of what was so at the start, and was said.
    pub fn new(slots: &[Option<Listener>], blind: Blind) -> Self {
        Self { away: rules::away(slots, &Away::new()), blind, ..Self::default() }
    }

    /// Connections that come by elsewhere.
    pub fn blind(&self) -> &Blind {
        &self.blind
    }

    /// Listeners whose address was not this host's at the last look.
    pub fn away(&self) -> &Away {
        &self.away
    }

    /// Notes on addresses that have come or gone since the last look.
    fn moves(&mut self, away: &Away) -> Vec<String> {
        let gone = away
            .difference(&self.away)
            .map(|listen| format!("{listen} is no address of this host any more; guarded again once it is"));
        let back = self
            .away
            .difference(away)
            .map(|listen| format!("{listen} is an address of this host, and guarded"));
        let notes = gone.chain(back).collect();
        self.away.clone_from(away);
        notes
    }

    /// After a reload: of the listeners that are new, which are away.
    pub fn reloaded(&mut self, slots: &[Option<Listener>]) -> Vec<String> {
        let away = rules::away(slots, &self.away);
        let new = away.difference(&self.away).map(rules::say_away).collect();
        self.away = away;
        new
    }
}

impl Guard {
    /// Keeps to the interfaces that were chosen at the start: those that were named, when they are
    /// back, or without names all that are up and have an address now. Gives what has changed and
    /// what the operator should know, one line each; call it with each sample, in the namespace
    /// where the guard was started.
    pub fn follow(&mut self, sample: &Sample) -> Vec<String> {
        let mut notes = match (self.is_attached, self.follows_all()) {
            (false, _) => Vec::new(),
            (true, true) => self.follow_all(),
            (true, false) => self.follow_named(),
        };
        let followed = self.follow_routes();
        let then = "answers go by the routes of before";
        notes.extend(self.surroundings.say_failure(About::Routes, followed, then));
        notes.extend(self.surroundings.moves(&sample.away));
        notes.extend(self.surroundings.blind.notes(sample, &self.attached));
        let others = |listen| followers::others(&self.programs, listen).unwrap_or_default();
        notes.extend(self.advice.notes(sample, others));
        if self.config.follow_at_servers {
            let followed = self.followers.attach(&self.programs, &self.slots, true);
            let then = "connections of a server count as served";
            notes.extend(self.surroundings.say_failure(About::Groups, followed, then));
        }
        self.remember();
        notes.append(&mut self.notes);
        if let Some(found) = self.find_servers() {
            let followed = found.and_then(|found| self.follow_servers(found));
            let then = "a limit may be kept apart from its server";
            notes.extend(self.surroundings.say_failure(About::Servers, followed, then));
        }
        notes
    }

    fn follow_routes(&mut self) -> Result<()> {
        let ways = routes::ways()?;
        self.programs.set_routes(&self.ways, &ways)?;
        self.ways = ways;
        Ok(())
    }

    /// Now and then: listeners may become one server's, or another's, when that restarts. Who holds
    /// them is read beside: with many processes it takes longer than a lease.
    fn find_servers(&mut self) -> Option<Result<Servers>> {
        if self.servers_at.is_some_and(|at| at.elapsed() < SERVERS_EVERY) {
            return None;
        }
        let search = match self.search.take().map_or_else(|| self.search_servers(), Ok) {
            Ok(search) if !search.is_finished() => {
                self.search = Some(search);
                return None;
            }
            done => done,
        };
        self.servers_at = Some(Instant::now());
        let panicked = |_| Err(anyhow!("the search for the listeners' processes panicked"));
        Some(search.and_then(|search| search.join().unwrap_or_else(panicked)))
    }

    fn follow_servers(&mut self, found: Servers) -> Result<()> {
        if found.unseen != self.servers.unseen {
            self.notes.extend(servers::say_unseen(&found.unseen));
        }
        for (index, (slot, (&now, &before))) in
            (0..).zip(self.slots.iter().zip(found.of.iter().zip(&self.servers.of)))
        {
            if let Some(listener) = slot.as_ref().filter(|_| now != before) {
                self.programs.set_rule(index, listener, now)?;
                // What they have counted is not what the others have.
                self.pacers.remove(&now);
                self.pacers.remove(&before);
            }
        }
        self.servers = found;
        Ok(())
    }

    fn search_servers(&self) -> Result<JoinHandle<Result<Servers>>> {
        let slots = self.slots.clone();
        let search = Builder::new().spawn(move || servers::find(&slots));
        search.context("start a thread that looks for the listeners' processes")
    }

    /// Whether it guards every interface with an address, whichever these are.
    pub(crate) fn follows_all(&self) -> bool {
        self.config.interfaces.is_empty()
    }

    fn follow_named(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        for place in 0..self.attached.len() {
            let name = self.attached[place].interface().to_owned();
            // One that is guarded by another name may have this one now.
            let is_new =
                |interface: &Interface| !self.attached.iter().any(|attached| attached.is_on(interface));
            let found = match interface::find(&name) {
                Ok(Some(found)) if self.attached[place].is_on(&found) => {
                    notes.extend(self.look_before(place, &found));
                    continue;
                }
                Ok(found) => found.filter(is_new),
                Err(error) => {
                    let note = format!("{error:#}; it is tried again");
                    notes.extend(self.surroundings.say_once(About::Interface(name), note));
                    continue;
                }
            };
            // A renamed one stays guarded until another has its name.
            let is_detached = self.attached[place].is_detached();
            if !is_detached && found.is_none() {
                continue;
            }
            if is_detached {
                self.attached[place].leave();
            }
            // First: another interface may have the same number.
            self.programs.forget_interface(self.attached[place].index());
            let note = match found.map(|found| self.attach_to(&found)) {
                None => format!("interface {name} is gone; guarded again once it is back"),
                Some(Err(error)) => format!("{error:#}; interface {name} is not guarded"),
                Some(Ok((again, warnings))) => {
                    self.attached[place] = again;
                    self.surroundings.said.remove(&About::Interface(name.clone()));
                    notes.push(match is_detached {
                        true => format!("interface {name} is back, and guarded again"),
                        false => format!("interface {name} is another one now, and guarded; the one that had the name is not any more"),
                    });
                    notes.extend(warnings);
                    continue;
                }
            };
            notes.extend(self.surroundings.say_once(About::Interface(name), note));
        }
        notes
    }

    fn follow_all(&mut self) -> Vec<String> {
        let chosen = match interface::with_address() {
            Ok(chosen) => chosen,
            Err(error) => {
                let note = format!("{error:#}; interfaces that come are not guarded");
                return self.surroundings.say_once(About::Interfaces, note).into_iter().collect();
            }
        };
        let mut notes = Vec::new();
        for interface in &chosen {
            let name = &interface.name;
            if let Some(place) = self.attached.iter().position(|attached| attached.is_on(interface)) {
                notes.extend(self.look_before(place, interface));
                continue;
            }
            match self.attach_to(interface) {
                Err(error) => {
                    let note = format!("{error:#}; interface {name} is not guarded");
                    notes.extend(self.surroundings.say_once(About::Interface(name.clone()), note));
                }
                Ok((attached, warnings)) => {
                    self.attached.push(attached);
                    notes.push(format!("interface {name} has come up, and is guarded, too"));
                    notes.extend(warnings);
                }
            }
        }
        // Last, so that an address that moves from one to another is guarded all the while.
        let is_chosen = |attached: &Attached| chosen.iter().any(|interface| attached.is_on(interface));
        let (kept, left): (Vec<Attached>, Vec<Attached>) =
            std::mem::take(&mut self.attached).into_iter().partition(is_chosen);
        self.attached = kept;
        for attached in left {
            self.programs.forget_interface(attached.index());
            let name = attached.interface();
            let now = interface::find(name).ok().flatten();
            let is_port = now.is_some_and(|now| now.hands_to.is_some() && attached.is_on(&now));
            let why =
                if is_port { "a port of a guarded one" } else { "gone, or down, or without an address" };
            notes.push(format!("interface {name} is {why}: guarded no more"));
        }
        self.surroundings.listed(&chosen);
        notes
    }

    /// A note if other programs than before see its frames first. They are left there, because one
    /// that is put first for a reason would come back.
    fn look_before(&mut self, place: usize, interface: &Interface) -> Option<String> {
        if !self.attached[place].look_before(interface, &self.programs) {
            return None;
        }
        self.surroundings.blind.say_again();
        Some(self.attached[place].say_before())
    }

    /// And what to say about it.
    fn attach_to(&self, interface: &Interface) -> Result<(Attached, Vec<String>)> {
        let interfaces = std::slice::from_ref(interface);
        let plan = Plan {
            programs: &self.programs,
            attach: self.config.attach,
            needs_tc: needs_tc(&self.config, &self.slots),
            may_go: false,
            take_over: Vec::new(),
        };
        let mut warnings = attach::other_guards(interfaces);
        self.programs.add_interface(interface.index)?;
        let attached = plan.attach_all(interfaces);
        let mut attached = attached.inspect_err(|_| self.programs.forget_interface(interface.index))?;
        warnings.extend(attach::lonely_xdp(&attached, interfaces));
        warnings.extend(attach::come_after(&attached));
        Ok((attached.pop().expect("one for each interface"), warnings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_said_once_until_the_act_goes_well_again() {
        let mut surroundings = Surroundings::default();
        let mut say = |act: Result<()>| {
            surroundings.listed(&[]);
            surroundings.say_failure(About::Routes, act, "as before")
        };
        let failed = || Err(anyhow!("read the routes"));
        assert_eq!(say(failed()).as_deref(), Some("read the routes; as before"));
        assert_eq!(say(failed()), None, "it lasts");
        assert_eq!(say(Ok(())), None);
        assert!(say(failed()).is_some(), "it has come again");
    }
}
