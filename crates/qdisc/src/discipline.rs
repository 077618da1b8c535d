//! What differs from one queue discipline to another. One more is one more value of [`ALL`].

use aqm::Config;

use crate::device::Device;
use crate::pins::Pins;
use crate::ranked::{LAS, SRPT};
use crate::redfavor::RedFavor;
use crate::{Event, Result, Setup, Status};

/// A queue discipline that there is a program for.
///
/// The program has maps of these names, with one value each: `configs`, its parameters, and
/// `queues`, its state and what it counts; and for a replay `trace`, and `random_numbers` if it
/// draws some. Its `struct Qdisc_ops` has the discipline's name.
pub(crate) trait Discipline: Sync {
    /// By which tc shows it.
    fn name(&self) -> &'static str;

    /// With what the folders of its maps begin: an installed version may have made some.
    fn pins(&self) -> &'static str;

    /// Whether these are parameters of it.
    fn takes(&self, config: &Config) -> bool;

    /// Makes it the root of an interface, by [`crate::program::start`].
    fn start(&self, making: &mut Making<'_>) -> Result<()>;

    /// Whether the qdisc is still there, as its state says; `None` if that is of another version.
    fn is_attached(&self, queue: &[u8]) -> Option<bool>;

    /// What its maps say; `None` if they are of another version.
    fn state(&self, interface: &str, config: &[u8], queue: &[u8]) -> Option<State>;

    /// An event of its trace; `None` for what this version does not know.
    fn event(&self, raw: &[u8]) -> Option<Event>;
}

/// All of them.
pub(crate) static ALL: [&dyn Discipline; 3] = [&RedFavor, &SRPT, &LAS];

/// The one that has these parameters.
pub(crate) fn that_takes(config: &Config) -> Option<&'static dyn Discipline> {
    ALL.into_iter().find(|discipline| discipline.takes(config))
}

/// The one that tc shows by this name.
pub(crate) fn named(kind: &str) -> Option<&'static dyn Discipline> {
    ALL.into_iter().find(|discipline| discipline.name() == kind)
}

/// A qdisc that is about to be made.
pub(crate) struct Making<'a> {
    pub(crate) device: &'a Device,
    pub(crate) setup: &'a Setup,
    /// What tc says of the qdisc that somebody made before.
    pub(crate) replaced: Option<&'a str>,
    pub(crate) pins: &'a mut Pins,
}

/// What the maps of a qdisc say.
pub(crate) struct State {
    /// Events, kept or not.
    pub(crate) traced: u64,
    pub(crate) status: Status,
}
