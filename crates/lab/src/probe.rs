//! The kernel's own counters around a measured window.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use experiment::{Layout, TURNS};
use netns::{CpuTimes, LinkCounters, Namespace};
use results::CpuShares;

use crate::middle::{LINK_LEFT, LINK_RIGHT};
use crate::testbed::{CROWD_INTERFACE, FLOODED_INTERFACE, SERVER_INTERFACE, Testbed};

/// How often the server's program went to sleep; of several processes the first.
pub const SLEEPS: &str = "server.voluntary_ctxt_switches";

/// How often the thread that receives at the crowd's end went to sleep, which it does after each
/// look for replies. Where the server's end receives as a driver does, a relay does the looking,
/// and this is not of it.
pub const LOOKS: &str = "crowd_end.voluntary_ctxt_switches";

/// How long the programs of all guards of the machine ran that frames and SYNs pass, ns, and not
/// those that follow sockets: only while the kernel counts that (`kernel.bpf_stats_enabled`).
pub const GUARD_RUN_NS: &str = "guard.run_time_ns";
/// Beside those at interfaces, what is asked of each SYN that would be answered
/// (kernel/admit.bpf.c).
const REQUEST_PROGRAM: &str = "admit_request";

/// A CPU is quiet when it was idle for this share of a moment.
pub(crate) const QUIET: f64 = 0.9;
const MOMENT: Duration = Duration::from_millis(100);
/// A machine that does not become quiet within this time is busy with something else.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counters at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// `TcpExt.*`, `Tcp.*`, `Ip.*` of the server's namespace, each CPU's full backlog as
    /// `softnet.dropped.cpuN`, how often the server's turned to received packets ([`TURNS`]), the
    /// crowd's end looked for some ([`LOOKS`]), and the guard's programs ran ([`GUARD_RUN_NS`]).
    pub kernel: BTreeMap<String, u64>,
    at: Instant,
    server_cpu: CpuTimes,
    crowd_cpu: CpuTimes,
    /// Frames that the server's end had no room for.
    lost_before_server: u64,
    /// Frames that the crowd's end had no room for.
    lost_replies: u64,
    flooded: LinkCounters,
}

/// What happened between two moments.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Counters that grew, by how much.
    pub kernel: BTreeMap<String, u64>,
    /// Where the server's CPU spent the time.
    pub server_cpu: CpuShares,
    /// Share of the time that the server's CPU was neither idle nor taken by the hypervisor. That
    /// it was idle is told exactly, and what it did otherwise by ticks, which do not come to a CPU
    /// that was idle but for a softirq (`kernel/time/tick-sched.c`, v6.18): at low load it is more
    /// than the parts. What the hypervisor took is told exactly, too, but not from what: of an idle
    /// CPU it is how late it was woken, and idle already. So it is taken off in proportion.
    pub server_busy: f64,
    /// Where the crowd's CPU spent it.
    pub crowd_cpu: CpuShares,
    /// Frames that the server's end had no room for.
    pub lost_before_server: u64,
    /// Frames that the crowd's end had no room for.
    pub lost_replies: u64,
    /// SYNs of a flood that came to the server's end, lost in its backlog or not.
    pub flood_syns: u64,
    /// Frames that were sent in answer to them, lost on the way or not.
    pub flood_answers: u64,
}

impl Snapshot {
    /// Reads all counters.
    pub(crate) fn take(testbed: &Testbed, layout: &Layout) -> Result<Self> {
        let mut kernel = netns::namespace_counters(&testbed.server)?;
        for (cpu, dropped) in netns::softnet_dropped()? {
            kernel.insert(format!("softnet.dropped.cpu{cpu}"), dropped);
        }
        kernel.insert(TURNS.to_owned(), netns::receive_softirqs(layout.server_cpu)?);
        kernel.insert(LOOKS.to_owned(), testbed.looks()?);
        let guard = bpf::run_time_of(&[&guard::PROGRAM_NAMES[..], &[REQUEST_PROGRAM]].concat())
            .context("read how long the guard's programs ran")?;
        kernel.insert(GUARD_RUN_NS.to_owned(), guard.as_nanos() as u64);
        let dropped = |namespace: &Namespace, interface| -> Result<u64> {
            Ok(netns::link_counters(namespace, interface)?.transmit_dropped)
        };
        let of_link = |interface| testbed.between().map_or(Ok(0), |namespace| dropped(namespace, interface));
        Ok(Self {
            kernel,
            at: Instant::now(),
            server_cpu: netns::cpu_times(layout.server_cpu)?,
            crowd_cpu: netns::cpu_times(layout.crowd_cpu)?,
            lost_before_server: dropped(&testbed.crowd, CROWD_INTERFACE)? + of_link(LINK_LEFT)?,
            lost_replies: dropped(&testbed.server, SERVER_INTERFACE)? + of_link(LINK_RIGHT)?,
            flooded: match testbed.server_interfaces.contains(&FLOODED_INTERFACE) {
                true => netns::link_counters(&testbed.server, FLOODED_INTERFACE)?,
                false => LinkCounters::default(),
            },
        })
    }

    /// What happened since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Difference {
        Difference {
            kernel: grown(&self.kernel, &earlier.kernel),
            server_cpu: shares(self.server_cpu, earlier.server_cpu),
            server_busy: busy(self.server_cpu, earlier.server_cpu, self.at - earlier.at),
            crowd_cpu: shares(self.crowd_cpu, earlier.crowd_cpu),
            lost_before_server: self.lost_before_server - earlier.lost_before_server,
            lost_replies: self.lost_replies - earlier.lost_replies,
            flood_syns: self.flooded.received - earlier.flooded.received,
            flood_answers: self.flooded.sent() - earlier.flooded.sent(),
        }
    }
}

/// Counters that grew. Gauges that fell (`Tcp.CurrEstab`) are left out.
pub(crate) fn grown(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let growth = |(name, value): (&String, &u64)| {
        let by = value.saturating_sub(before.get(name).copied().unwrap_or(0));
        (by > 0).then(|| (name.clone(), by))
    };
    now.iter().filter_map(growth).collect()
}

/// Waits until both CPUs have been idle for a moment, or patience ends; gives the busier one's busy
/// share then.
///
/// The kernel takes down a namespace after it was deleted, with all the sockets that an overload
/// left. That is work of the cell before, and must not be done in the next one's time.
pub(crate) fn settle(layout: &Layout, patience: Duration) -> Result<f64> {
    let deadline = Instant::now() + PATIENCE.min(patience);
    loop {
        let before = [netns::cpu_times(layout.server_cpu)?, netns::cpu_times(layout.crowd_cpu)?];
        std::thread::sleep(MOMENT);
        let now = [netns::cpu_times(layout.server_cpu)?, netns::cpu_times(layout.crowd_cpu)?];
        let idle = shares(now[0], before[0]).idle.min(shares(now[1], before[1]).idle);
        if idle >= QUIET || Instant::now() >= deadline {
            return Ok(1.0 - idle);
        }
    }
}

/// Of a CPU in so long.
fn busy(now: CpuTimes, before: CpuTimes, elapsed: Duration) -> f64 {
    let spent = |part: fn(CpuTimes) -> u64| part(now).saturating_sub(part(before)) as f64;
    let share = |ticks: f64| (ticks / (elapsed.as_secs_f64() * netns::ticks_per_second())).clamp(0.0, 1.0);
    (1.0 - share(spent(|times| times.idle))) * (1.0 - share(spent(|times| times.steal)))
}

fn shares(now: CpuTimes, before: CpuTimes) -> CpuShares {
    // Idle and steal may step back a little (proc(5)).
    let spent = |part: fn(CpuTimes) -> u64| part(now).saturating_sub(part(before));
    let parts = [
        spent(|times| times.user),
        spent(|times| times.system),
        spent(|times| times.softirq),
        spent(|times| times.idle),
        spent(|times| times.steal),
    ];
    let whole = parts.iter().sum::<u64>().max(1) as f64;
    let [user, system, softirq, idle, steal] = parts.map(|part| part as f64 / whole);
    CpuShares { user, system, softirq, idle, steal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_and_an_idle_clock_that_steps_back_is_zero() {
        let before = CpuTimes { idle: 100, ..CpuTimes::default() };
        let now = CpuTimes { user: 30, system: 20, softirq: 40, idle: 99, steal: 10 };
        let shares = shares(now, before);
        let sum = shares.user + shares.system + shares.softirq + shares.idle + shares.steal;
        assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares.idle, 0.0);
    }

    #[test]
    fn cpu_is_busy_when_it_is_neither_idle_nor_taken() {
        let ticks = |seconds: f64| (seconds * netns::ticks_per_second()) as u64;
        let before = CpuTimes { idle: 7, steal: 1, ..CpuTimes::default() };
        // No tick told of the softirq.
        let now = CpuTimes { idle: 7 + ticks(1.5), steal: 1 + ticks(0.1), ..CpuTimes::default() };
        assert!((busy(now, before, Duration::from_secs(2)) - 0.25 * 0.95).abs() < 1e-9);
        assert_eq!(busy(before, before, Duration::from_secs(2)), 1.0);
        assert_eq!(busy(now, before, Duration::from_secs(1)), 0.0, "the clocks differ a little");
    }

    #[test]
    fn only_counters_that_grew_are_kept() {
        let map = |pairs: [(&str, u64); 2]| pairs.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(
            grown(&map([("a", 5), ("b", 1)]), &map([("a", 3), ("b", 4)])),
            [("a".to_owned(), 2)].into()
        );
    }
}
