//! A whole experiment: saturation, then the grid, with results written as they come.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use experiment::{Event, Experiment, Outcome, Policy, ServerKind, ServerSpec, Writer};
use netns::Namespace;
use results::{Record, Saturation};

use crate::cell::{self, Lab};
use crate::environment;
use crate::nearness::Nearness;
use crate::probe::{QUIET, settle};
use crate::stop::unless_stopped;
use crate::undisturbed::{Undisturbed, undisturbed};
use crate::{nft, saturation, server, uplink};

/// Runs an experiment. When `stop` is set it ends within a moment, with what was complete by then.
///
/// # Errors
///
/// When the machine cannot run it, or something fails on the way; what was measured by then stays
/// in the results folder.
pub(crate) fn run(
    experiment: &Experiment,
    program: &Path,
    results: &Path,
    stop: &AtomicBool,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let nearness = Nearness::of(&experiment.testbed)?;
    let (servers, mut notes) = available(experiment);
    let (policies, missing) = available_policies(experiment)?;
    notes.extend(missing);
    notes.extend(stand_ins(experiment));
    notes.extend(experiment.note_of_uplink());
    notes.extend(busy(experiment)?);
    notes.extend(experiment.note_of_quick());
    for note in &notes {
        on_event(&Event::Note(note));
    }
    ensure!(!servers.is_empty(), "none of the experiment's servers is here; see the notes above");
    ensure!(!policies.is_empty(), "none of the experiment's policies is here; see the notes above");
    try_policies(&policies)?;
    let grid = &experiment.grid;
    let planned = servers.len() * policies.len() * grid.loads.len() * grid.repetitions as usize;
    let header = environment::header(experiment, notes)?;
    let mut writer = Writer::begin(results, header, planned)?;
    let lab = Lab { experiment, program, nearness: &nearness, stop };
    let measured = measure_all(lab, &servers, &policies, &mut writer, &mut on_event);
    let measured = unless_stopped(measured, stop);
    writer.conclude(measured, stop, |writer| experiment.answer(&servers, writer, false))
}

/// Sets what every policy sets, once, so that a wrong name or value is known before anything is
/// measured.
fn try_policies(policies: &[&Policy]) -> Result<()> {
    for policy in policies.iter().filter(|policy| policy.nft.is_some() || !policy.sysctls.is_empty()) {
        let namespace = Namespace::create("try")?;
        cell::prepare(&namespace, &policy.for_saturation(1.0))
            .with_context(|| format!("policy {:?}", policy.name))?;
    }
    Ok(())
}

/// A word about a machine that does something else.
fn busy(experiment: &Experiment) -> Result<Option<String>> {
    let busy = settle(&experiment.testbed, experiment.patience())?;
    Ok((busy > 1.0 - QUIET).then(|| {
        format!(
            "a CPU was {:.0}% busy with something else before the run: read all that follows with care",
            busy * 100.0
        )
    }))
}

/// The servers that this machine has, and a word about each that it has not.
fn available(experiment: &Experiment) -> (Vec<&ServerSpec>, Vec<String>) {
    let (mut servers, mut notes) = (Vec::new(), Vec::new());
    for server in &experiment.servers {
        match server::missing(server.kind)
            .or_else(|| several_requests(experiment, server))
            .or_else(|| groups(server))
            .or_else(|| only_simulated(server))
        {
            Some(note) => notes.push(note),
            None => servers.push(server),
        }
    }
    (servers, notes)
}

/// A word about a server whose clients have several requests on a connection: the lab compares
/// replies with attempts.
fn several_requests(experiment: &Experiment, server: &ServerSpec) -> Option<String> {
    let is_one = experiment.crowd_of(server, &Policy::stock()).workload.workload().is_one_request();
    (!is_one)
        .then(|| format!("{} is left out: several requests on a connection are simulated only", server.name))
}

/// A word about a server whose clients are at several distances: the lab has one link.
fn groups(server: &ServerSpec) -> Option<String> {
    let has_groups = server.way.as_ref().is_some_and(|way| !way.groups.is_empty());
    has_groups.then(|| format!("{} is left out: groups of clients are simulated only", server.name))
}

/// A word about a server whose TCP is to be other than this kernel's.
fn only_simulated(server: &ServerSpec) -> Option<String> {
    let key = server.only_simulated()?;
    Some(format!("{} is left out: {key} is simulated only", server.name))
}

/// A word about each server that another stands for.
fn stand_ins(experiment: &Experiment) -> impl Iterator<Item = String> {
    let in_kernel = experiment.servers.iter().filter(|server| server.kind == ServerKind::InKernel);
    in_kernel.map(|server| {
        format!("{}: there is no server in the kernel; tidegate serve, which takes one connection at a time, stands for it", server.name)
    })
}

/// The policies that this machine has, and a word about each that it has not.
fn available_policies(experiment: &Experiment) -> Result<(Vec<&Policy>, Vec<String>)> {
    let has_nft = nft::version().is_some();
    let (mut there, mut notes) = (Vec::new(), Vec::new());
    for policy in &experiment.policies {
        let uplink = experiment.uplink_of(policy).map_err(anyhow::Error::msg)?;
        let missing = match uplink {
            _ if policy.nft.is_some() && !has_nft => Some("there is no nft (install nftables)".to_owned()),
            _ if policy.extra_time_waits > 0 => Some("extra_time_waits are simulated only".to_owned()),
            Some(uplink) => uplink::missing(&uplink)?,
            None => None,
        };
        match missing {
            Some(why) => notes.push(format!("{} is left out: {why}", policy.name)),
            None => there.push(policy),
        }
    }
    Ok((there, notes))
}

fn measure_all(
    lab: Lab<'_>,
    servers: &[&ServerSpec],
    policies: &[&Policy],
    writer: &mut Writer,
    on_event: &mut impl FnMut(&Event<'_>),
) -> Result<()> {
    let experiment = lab.experiment;
    let grid = &experiment.grid;
    let cells = servers.len() * grid.loads.len() * policies.len() * grid.repetitions as usize;
    let mut done = 0;
    let mut found: Vec<Saturation> = Vec::new();
    for server in servers {
        let saturation = match experiment.known_saturation(server, &found) {
            Some(saturation) => saturation,
            None => saturation::find(lab, server, |offered, goodput| {
                on_event(&Event::Probe(server, offered, goodput));
            })
            .with_context(|| format!("find the saturation rate of {}", server.name))?,
        };
        found.push(saturation.clone());
        on_event(&Event::Saturated(&saturation));
        writer.write(Record::Saturation(saturation.clone()))?;
        for repetition in 0..grid.repetitions {
            for &load in &grid.loads {
                let at = |policy: &str| format!("{} under {policy} at {load} times saturation", server.name);
                let look = cell::look(lab, server, &saturation).with_context(|| at("stock"))?;
                // Policies alternate, so that a drift of the machine meets them all; their clients
                // send the same.
                for policy in policies {
                    let measure = || cell::measure(lab, server, policy, load, &saturation, &look, repetition);
                    let set_aside = |cell| {
                        on_event(&Event::SetAside(&cell));
                        writer.write(Record::SetAside(Box::new(cell)))
                    };
                    let Undisturbed { mut measured, times_set_aside, failed } =
                        undisturbed(grid.again, measure, set_aside).with_context(|| at(&policy.name))?;
                    measured.times_set_aside = times_set_aside;
                    done += 1;
                    on_event(&Event::Cell(&measured, done, cells));
                    writer.write(Record::Cell(Box::new(measured)))?;
                    if let Some(error) = failed {
                        return Err(error.context(at(&policy.name)));
                    }
                }
            }
        }
    }
    Ok(())
}
