//! What changes around a running guard: interfaces come and go, and a crowd may come where no program is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;

use crate::attach::{Attached, Plan};
use crate::interface::{self, Interface};
use crate::slots::indexed;
use crate::{Guard, needs_tc};

/// How often in a row a queue is full and no SYN was ever seen before that is said.
const LOOKS: u32 = 5;

/// What was found before, so that it is said once.
#[derive(Debug, Default)]
pub struct Memory {
    /// The last note on each interface.
    said: BTreeMap<String, String>,
    /// Looks in a row at which a listener was full and unseen.
    unseen: BTreeMap<SocketAddr, u32>,
}

impl Memory {
    /// The note, unless it was the last one on this interface, too.
    fn say_once(&mut self, interface: &str, note: String) -> Option<String> {
        let before = self.said.insert(interface.to_owned(), note.clone());
        (before.as_ref() != Some(&note)).then_some(note)
    }
}

impl Guard {
    /// Attaches to interfaces that were gone and are back, by their names, and, if none were named at the start, to those that have come
    /// up since. Gives what has changed and what the operator should know, one line each; call it every second or so, in the
    /// namespace where the guard was started.
    pub fn look_around(&mut self) -> Vec<String> {
        let mut notes = self.follow_gone_interfaces();
        if self.config.interfaces.is_empty() && !self.attached.is_empty() {
            notes.extend(self.follow_new_interfaces());
        }
        notes.extend(self.find_unseen_crowds());
        notes
    }

    fn follow_gone_interfaces(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        for index in 0..self.attached.len() {
            if !self.attached[index].is_detached() {
                continue;
            }
            let name = self.attached[index].interface().to_owned();
            let note = match interface::find(&name).map(|interface| self.attach_to(&interface)) {
                None => format!("interface {name} is gone; guarded again once it is back"),
                Some(Err(error)) => format!("{error:#}; interface {name} is not guarded"),
                Some(Ok(again)) => {
                    self.attached[index] = again;
                    format!("interface {name} is back, and guarded again")
                }
            };
            notes.extend(self.memory.say_once(&name, note));
        }
        notes
    }

    fn follow_new_interfaces(&mut self) -> Vec<String> {
        // An error is that there is none at all, and of those that were guarded and are gone that was said.
        let interfaces = interface::choose(&[]).unwrap_or_default();
        let mut notes = Vec::new();
        for interface in interfaces {
            let name = &interface.name;
            let is_known = |attached: &Attached| attached.is_on(&interface) || attached.interface() == name;
            if self.attached.iter().any(is_known) {
                continue;
            }
            let note = match self.attach_to(&interface) {
                Err(error) => format!("{error:#}; interface {name} is not guarded"),
                Ok(attached) => {
                    self.attached.push(attached);
                    format!("interface {name} has come up, and is guarded, too")
                }
            };
            notes.extend(self.memory.say_once(name, note));
        }
        notes
    }

    fn attach_to(&self, interface: &Interface) -> Result<Attached> {
        let plan = Plan {
            programs: &self.programs,
            attach: self.config.attach,
            needs_tc: needs_tc(&self.config, &self.slots),
            take_over: Vec::new(),
        };
        let mut attached = plan.attach_all(std::slice::from_ref(interface))?;
        self.programs.add_interface(interface.index)?;
        Ok(attached.pop().expect("one for each interface"))
    }

    /// Listeners that are full although none of their SYNs ever came by the guard.
    fn find_unseen_crowds(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        for (listen, index) in indexed(&self.slots) {
            let load = self.programs.ask(listen).ok().flatten();
            let is_full = load.is_some_and(|load| load.accept_qlen > load.accept_limit);
            let is_unseen = self.programs.stats(index).is_ok_and(|stats| stats.seen == 0);
            let looks = self.memory.unseen.entry(listen).or_default();
            *looks = if is_full && is_unseen { looks.saturating_add(1) } else { 0 };
            if *looks == LOOKS {
                let interfaces: Vec<&str> = self.attached.iter().map(Attached::interface).collect();
                notes.push(format!(
                    "warning: the accept queue of {listen} is full, and no SYN for it has come by {}; if clients come, then by an \
                     interface that is not guarded",
                    interfaces.join(", ")
                ));
            }
        }
        notes
    }
}
