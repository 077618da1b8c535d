//! All that can be refused before a packet is touched: listeners looked up, programs and rules
//! loaded, nothing attached.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result, anyhow, ensure};
use bpf::{HeldLink, cgroup};

use crate::attach::HOOKS;
use crate::interface::{self, Interface};
use crate::program::{self, Inherited, MAX_INTERFACES, MAX_OWN_ADDRESSES, Programs};
use crate::routes::{self, Way, Ways};
use crate::rules::{Away, apply, away, check_places, look, say_away, set_own_addresses};
use crate::servers::Servers;
use crate::slots::{Slots, assign, decides};
use crate::{Config, FOLLOW, SOCKOPT, cookies, follows_sockets, listener, servers};

/// What [`crate::Guard::start`] then attaches.
pub struct Prepared {
    pub slots: Slots,
    pub servers: Servers,
    pub programs: Programs,
    /// None where all is only observed.
    pub interfaces: Vec<Interface>,
    /// Of answers.
    pub ways: Ways,
    /// Links of the guard whose place is taken.
    pub take_over: Vec<HeldLink>,
    /// What the operator should know, one line each.
    pub notes: Vec<String>,
}

impl Prepared {
    pub fn new(config: &Config) -> Result<Self> {
        let slots = assign(&[], &config.listeners)?;
        cookies::check(&config.listeners)?;
        let listens = || slots.iter().flatten().map(|listener| listener.listen);
        if config.must_listen {
            listens().try_for_each(listener::require)?;
        }
        if config.sockopt {
            cgroup::root(SOCKOPT)?;
        }
        if slots.iter().flatten().any(follows_sockets) {
            cgroup::root(FOLLOW)?;
        }
        let decides = slots.iter().flatten().any(decides);
        let chosen = decides.then(|| interface::choose(&config.interfaces)).transpose()?;
        let (interfaces, left_out) = chosen.unwrap_or_default();
        ensure!(
            interfaces.len() <= MAX_INTERFACES,
            "{} interfaces are to be guarded, and one guard has room for {MAX_INTERFACES}; name those by which clients come with --interface",
            interfaces.len()
        );
        if decides {
            check_clock()?;
        }
        let take_over = config.take_over.map_or(Ok(Vec::new()), links_of)?;
        // The other guard's links may be at any hook, and lead to our programs until it has ended.
        let hooks = if take_over.is_empty() { config.attach.hooks() } else { &HOOKS };
        let has_dry_run = slots.iter().flatten().any(|listener| listener.dry_run);
        let programs = Programs::load(hooks, has_dry_run, &inherited(&take_over)?)?;
        if slots.iter().flatten().any(follows_sockets) {
            programs.for_sockets()?;
        }
        if config.must_listen {
            for listen in listens() {
                if look(&programs, listen)?.is_none() {
                    return Err(listener::unseen(listen));
                }
            }
        }
        check_places(&programs, &config.listeners)?;
        let is_complete = set_own_addresses(&programs, &slots)?;
        programs.set_budget(config.refusals_per_s)?;
        // A second later the guard asks again, and says so if it still cannot know.
        let ways = routes::ways().unwrap_or_else(|_| routes::all(Way::Back));
        programs.set_routes(&Ways::new(), &ways)?;
        let apart = |_| Servers { of: servers::apart(&slots), unseen: Vec::new() };
        let servers = servers::find(&slots).unwrap_or_else(apart);
        apply(&programs, &[], &slots, &servers.of)?;
        let mut notes = listener::notes(&config.listeners);
        notes.extend(servers::say_unseen(&servers.unseen));
        notes.extend(left_out);
        notes.extend(away(&slots, &Away::new()).iter().map(say_away));
        if !is_complete {
            notes.push(format!(
                "this host has more than {MAX_OWN_ADDRESSES} addresses; SYNs to the last of them are left to the kernel where the \
                 listener is a wildcard"
            ));
        }
        Ok(Self { slots, servers, programs, interfaces, ways, take_over, notes })
    }
}

/// The lease is a time, and programs have the host's clock.
fn check_clock() -> Result<()> {
    // Without the file the kernel has no time namespaces.
    let Ok(offsets) = fs::read_to_string("/proc/self/timens_offsets") else { return Ok(()) };
    let is_zero = |line: &str| line.split_whitespace().skip(1).all(|number| number == "0");
    ensure!(
        offsets.lines().filter(|line| line.starts_with("monotonic")).all(is_zero),
        "guard: this process is in a time namespace whose monotonic clock is not the host's, by which its lease is measured; start it outside"
    );
    Ok(())
}

/// Links of the guard with this process id.
fn links_of(pid: u32) -> Result<Vec<HeldLink>> {
    let links = bpf::links_of_process(pid).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow!("take over from process {pid}: {error}; is it a guard, and does this one have CAP_SYS_ADMIN, which it takes?")
        }
        _ => anyhow!("take over from process {pid}: {error}; is there such a process?"),
    })?;
    let is_guards = |link: &HeldLink| {
        link.program_name().is_ok_and(|name| program::PROGRAM_NAMES.contains(&name.as_str()))
    };
    let links: Vec<HeldLink> = links.into_iter().filter(is_guards).collect();
    ensure!(
        !links.is_empty(),
        "take over from process {pid}: it has no programs of a guard at any interface; is it one, and has it said what it guards?"
    );
    Ok(links)
}

fn inherited(take_over: &[HeldLink]) -> Result<Inherited> {
    // Each program has the maps that it uses: at XDP none knows which servers have asked. What the
    // process guards in another network namespace has maps of its own.
    let here = take_over.iter().filter(|held| held.is_here());
    let maps: std::io::Result<Vec<_>> = here.map(HeldLink::maps).collect();
    Ok(Inherited::from(maps.context("look at the other guard's maps")?.into_iter().flatten().collect()))
}
