//! The machine and its software, as a report should state them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Result;
use experiment::{Experiment, Receive};
use results::{Environment, Header};

use crate::testbed::{CROWD_POLL, Testbed, link_cpu};
use crate::{nft, nginx, server};

/// Sysctls that decide what a listener does under load.
const SYSCTLS: [&str; 9] = [
    "net.core.somaxconn",
    "net.core.netdev_max_backlog",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_synack_retries",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_fin_timeout",
];

/// The header of a run that starts now.
pub(crate) fn header(experiment: &Experiment, notes: Vec<String>) -> Result<Header> {
    let mut deviations = deviations(experiment);
    deviations.extend(notes);
    Ok(experiment.header(environment(experiment)?, deviations))
}

fn environment(experiment: &Experiment) -> Result<Environment> {
    let mut versions = BTreeMap::new();
    versions.extend(experiment.servers.iter().filter_map(|server| server::version(server.kind)));
    if experiment.policies.iter().any(|policy| policy.nft.is_some()) {
        versions.extend(nft::version().map(|version| ("nftables".to_owned(), version)));
    }
    let mut environment = machine();
    environment.versions.extend(versions);
    environment.sysctls = sysctls(experiment)?;
    Ok(environment)
}

/// This machine.
pub(crate) fn machine() -> Environment {
    let kernel = fs::read_to_string("/proc/version").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    Environment {
        kernel: kernel.trim().to_owned(),
        cpu: model.trim_start_matches(['\t', ' ', ':']).to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory_mib(),
        versions: [("tidegate".to_owned(), experiment::version().to_owned())].into(),
        sysctls: BTreeMap::new(),
    }
}

/// Read in a namespace of the kind that every cell gets.
fn sysctls(experiment: &Experiment) -> Result<BTreeMap<String, String>> {
    let testbed = Testbed::create(&experiment.testbed, experiment.crowd.clients)?;
    let read = |name: &str| {
        // Those of the first namespace only are the same for all.
        let global = || fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok();
        let value = testbed.server.sysctl(name).ok().or_else(global)?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    Ok(SYSCTLS.into_iter().filter_map(read).collect())
}

fn memory_mib() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(0, |kib: u64| kib / 1024)
}

fn coalescing(interval: Duration) -> String {
    if interval.is_zero() {
        return "each frame of the crowd interrupts the server's CPU at once, as no NIC would".to_owned();
    }
    format!(
        "the crowd's frames come in bursts every {} us, as a NIC with interrupt moderation hands them over",
        interval.as_micros()
    )
}

fn deviations(experiment: &Experiment) -> Vec<String> {
    let layout = &experiment.testbed;
    let receive = match layout.receive {
        Receive::Softirq => {
            "in softirq, ahead of the server process (receive packet steering), as behind a NIC"
        }
        Receive::Napi => {
            "in a NAPI kernel thread of real-time priority, ahead of the server process, as in a NIC's driver"
        }
        Receive::Driver => {
            "in a NAPI kernel thread of real-time priority, ahead of the server process; a relay by XDP redirect, on the crowd's CPU, makes pages of socket \
             buffers before that, so that frames come as a NIC's driver has them"
        }
        Receive::ThreadedNapi => "in a NAPI kernel thread of ordinary priority, beside the server process",
    };
    let mut deviations = vec![
        format!(
            "Server and crowd are network namespaces of one machine, joined by a veth pair: no NIC, no wire, no delay. \
             The server and its receive processing share CPU {}; the crowd has CPU {}.",
            layout.server_cpu, layout.crowd_cpu
        ),
        format!("The server's end receives {receive}; {}.", coalescing(layout.coalesce)),
        format!(
            "The crowd's end receives in a real-time thread that looks for replies every {} us while there are any, as a \
             NIC with interrupt moderation would.",
            CROWD_POLL.as_micros()
        ),
        "The server's interface has a queue of 100,000 frames (pfifo), in which replies wait while the ring of the crowd's \
         end is full (Linux 6.16 and newer; older kernels drop them, and the cell is marked)."
            .to_owned(),
        "TCP and generic segmentation offload are off on both ends, so that a frame is what a wire would carry."
            .to_owned(),
        "Replies reach the crowd with unfinished checksums (veth leaves them to a device), so the crowd does not verify \
         them."
            .to_owned(),
        format!(
            "The crowd's TCP is the generator's own, with the options, timers and manners of {} (docs/crowd.md), and no \
             congestion window: a request is one segment.",
            experiment.crowd.stacks.clone().unwrap_or_default()
        ),
        "Each window begins in a crowd that has been coming for the warm-up only: under overload the number of clients \
         who retry is still growing."
            .to_owned(),
    ];
    deviations.extend(experiment.notes_of_bursts());
    deviations.extend(experiment.notes_of_demand());
    if let Some(near) = experiment.note_of_distance() {
        deviations.push(format!(
            "Clients are far away: in each cell a tidegate link is between the crowd and the server, on CPU {}, and writes down how late frames left it. \
             Floods and connections that are held do not go through it. {near}",
            link_cpu(layout)
        ));
    }
    if experiment.policies.iter().any(|policy| policy.crowd.flood_per_s.is_some()) {
        let shared = match experiment.testbed.receive {
            Receive::Softirq => "both pairs share the backlog of the server's CPU",
            Receive::Napi | Receive::Driver | Receive::ThreadedNapi => {
                "each pair has its thread on the server's CPU, so that the crowd does not share the flood's ring"
            }
        };
        deviations.push(format!(
            "A flood comes from the crowd's core in what time the crowd leaves it, through a veth pair of its own, so that \
             the answers to it take no place from replies; {shared}. Its SYNs have random sources of 198.18.0.0/15, ports and \
             sequence numbers."
        ));
    }
    if experiment.most_held().is_some() {
        deviations.push(format!(
            "Connections that are held beside a crowd are Linux's own, of one address, by a veth pair of their own; the thread that opens and \
             holds them shares the crowd's core. nginx has {} worker_connections, under every policy.",
            nginx::ROOMY
        ));
    }
    deviations
}
