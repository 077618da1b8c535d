//! The machine and its software, as a report should state them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Result;
use results::{Environment, Header};

use crate::bursts::LoadsOf;
use crate::dumbbell::Dumbbell;
use crate::experiment::{Experiment, Receive, Server};
use crate::testbed::{CROWD_POLL, Testbed};
use crate::traces::Traces;
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

/// Of this program: the crates' version and, where the build was told `TIDEGATE_COMMIT` as `./dev build` does, the commit.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        match option_env!("TIDEGATE_COMMIT") {
            Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
            _ => version.to_owned(),
        }
    });
    &VERSION
}

/// The header of a run that starts now.
pub fn header(experiment: &Experiment, notes: Vec<String>) -> Result<Header> {
    let mut deviations = deviations(experiment);
    deviations.extend(notes);
    Ok(Header { environment: environment(experiment)?, deviations, ..plain(experiment) })
}

/// The header of packet scripts that are played to this kernel.
pub fn of_traces(traces: &Traces) -> Header {
    let client = "The client is a script on a raw socket: it sends what its lines say, when they say it, and has no timers. \
                  Times are shorter than the figure's where nothing depends on them.";
    traces_header(traces, machine(), vec![client.to_owned()])
}

/// The same of the simulated kernel.
pub fn of_simulated_traces(traces: &Traces) -> Header {
    let deviations = [
        "In virtual time: no kernel ran. The server is a model of today's Linux, whose work costs nothing; the wire takes no time.",
        "The client is a script: it sends what its lines say, when they say it, and has no timers.",
    ];
    let environment = Environment { cpu: "none, as nothing costs anything".to_owned(), ..simulated("none") };
    traces_header(traces, environment, deviations.map(str::to_owned).into())
}

fn traces_header(traces: &Traces, environment: Environment, deviations: Vec<String>) -> Header {
    Header {
        experiment: traces.name.clone(),
        title: traces.title.clone(),
        source: traces.source.clone(),
        started: now(),
        environment,
        deviations,
        planned: None,
        is_quick: false,
    }
}

/// The header of a run without a machine of its own that starts now; its environment and deviations are still to be said.
pub fn plain(experiment: &Experiment) -> Header {
    Header {
        experiment: experiment.name.clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        started: now(),
        environment: machine(),
        deviations: Vec::new(),
        planned: None,
        is_quick: experiment.is_quick,
    }
}

/// The header of a dumbbell's run that starts now.
pub fn of_dumbbell(dumbbell: &Dumbbell, deviations: Vec<String>) -> Header {
    Header {
        experiment: dumbbell.name.clone(),
        title: dumbbell.title.clone(),
        source: dumbbell.source.clone(),
        started: now(),
        environment: Environment { cpu: "none".to_owned(), cpus: 0, ..simulated("") },
        deviations,
        planned: None,
        is_quick: dumbbell.is_quick,
    }
}

/// The header of a dumbbell's run on this machine that starts now; sysctls are those of its hosts.
pub fn of_real_dumbbell(
    dumbbell: &Dumbbell,
    deviations: Vec<String>,
    sysctls: BTreeMap<String, String>,
) -> Header {
    Header { environment: Environment { sysctls, ..machine() }, ..of_dumbbell(dumbbell, deviations) }
}

/// A machine that is simulated.
pub fn simulated(profile: &str) -> Environment {
    Environment {
        kernel: "a model of Linux, in virtual time".to_owned(),
        cpu: format!("the profile {profile}"),
        cpus: 1,
        memory_mib: 0,
        versions: [("tidegate".to_owned(), version().to_owned())].into(),
        sysctls: BTreeMap::new(),
    }
}

fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
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

fn machine() -> Environment {
    let kernel = fs::read_to_string("/proc/version").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    Environment {
        kernel: kernel.trim().to_owned(),
        cpu: model.trim_start_matches(['\t', ' ', ':']).to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory_mib(),
        versions: [("tidegate".to_owned(), version().to_owned())].into(),
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

fn bursts(experiment: &Experiment, server: &Server) -> Option<String> {
    let bursts = experiment.bursts(server)?;
    let crowd = format!(
        "The crowd of {} comes in bursts of {:?} with gaps of {:?}",
        server.name, bursts.on, bursts.off
    );
    Some(in_bursts(&crowd, bursts.loads))
}

fn in_bursts(crowd: &str, loads: LoadsOf) -> String {
    let loads = match loads {
        LoadsOf::Mean => "the mean over both",
        LoadsOf::Burst => "those of a burst",
    };
    format!(
        "{crowd}, in which one attempt starts each second. Loads are {loads}; the saturation rate, and what the machine can do just \
         before a load, are of crowds without bursts."
    )
}

/// Of clients that are far away in every cell.
pub const NEAR: &str =
    "Loads are multiples of the rate at which the server saturates before clients beside it.";

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
    match experiment.map {
        Some(_) => deviations.push(in_bursts("Crowds come in bursts with gaps between them", LoadsOf::Burst)),
        None => deviations.extend(experiment.servers.iter().filter_map(|server| bursts(experiment, server))),
    }
    if experiment.ways.is_some() {
        deviations.push(format!(
            "Clients are far away: in each cell a tidegate link is between the crowd and the server, on CPU {}, and writes down how late frames left it. \
             Floods and connections that are held do not go through it. {NEAR}",
            layout.link_cpu()
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
