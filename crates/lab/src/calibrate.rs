//! What work costs on this machine, as a profile of the simulator (`tidegate lab calibrate`).
//!
//! Crowds below saturation (of seven tenths of it, unless a rate is given: costs are those of the rate at which they were measured), each of which makes the server's CPU do something else; what it costs is the CPU's time over how often it was done. The kernel
//! tells exactly how long a CPU was idle, and by ticks, 100 to 1,000 in a second, how the rest divides over softirq and programs, so that a crowd must come for some seconds: of ten seconds at 250 Hz a share of a half is
//! known to 2%.
//!
//! | crowd | gives |
//! |---|---|
//! | answered by the stock server, below saturation, and closed by RST | a whole connection, in softirq and in the program |
//! | the same in turns ten times as far apart, so that more comes at once | what it costs to turn to frames, and to wake the program: [`Softirq::wake`], [`Program::poll`] |
//! | fewer, closed by FIN, and as many closed by RST | `fin`, and what the program does about either end |
//! | four times as many, and half of the rate let in by a token bucket: the rest held back in silence, or reset | `syn_held`, `syn_reset` |
//! | before a server that was stopped: all held back, or dropped by the kernel | what `syn_dropped` is beyond `syn_held` |
//! | hardly any | what the lab's own watch takes |
//! | together, before a server with a backlog of one, under *abort* | `syn_answered` and two of `end_reset`: the end of a handshake, and the request behind it |
//!
//! A crowd's frames that come one by one cost more than those that come together: the CPU turns to each, and the program sleeps and is woken between them. At
//! saturation both are rarer for each connection. How far apart the crowd's turns came to be is what turns were counted, and not what it was told: it has its own work, and timers are late. Both are counted (`NET_RX` of `/proc/softirqs`, `voluntary_ctxt_switches` of the server), so that two crowds of one rate give what one turn
//! costs; the rest is the work itself. To look at what is ready costs a program that need not sleep for it much less: that is timed in this process.
//!
//! How a whole connection's time divides over its segments and system calls cannot be seen from outside, but for the last, which two crowds tell apart that end in different ways: the rest is divided evenly. What is
//! predicted of connections that are answered does not depend on it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::resource::{Resource, getrlimit};
use sim::Profile;
use sim::profile::{Receive, Server as Program, Softirq, System};

use crate::cell::{self, Lab, Measured};
use crate::crowd::Send;
use crate::experiment::{Close, Experiment, Server};
use crate::policy::Policy;
use crate::probe::{SLEEPS, TURNS};
use crate::saturation;

/// The server, one that has no room, and one that will be stopped; `{saturation}` is how many are let in.
const EXPERIMENT: &str = r#"
name = "calibrate"
title = "What does work cost?"

[crowd]
timeout = "900ms"
close = "fin"
arrivals = "poisson"

[grid]
loads = [1.0]
warmup = "1s"
duration = "10s"

[[server]]
name = "answers"
kind = "built-in"
backlog = 1024

[[server]]
name = "narrow"
kind = "built-in"
backlog = 1

[[server]]
name = "hangs"
kind = "built-in"
backlog = 1

[[policy]]
name = "stock"

[[policy]]
name = "held"
guard = "police:{saturation}/1000"

[[policy]]
name = "reset"
guard = "police:{saturation}/1000+rst-syn"

[[policy]]
name = "nobody"
guard = "police:1/1"

[[policy]]
name = "abort"
guard = "abort"
"#;

/// Segments that a client of one answered request sends beside its SYN when it closes by RST: the end of the handshake, the request, the reply's ACK, and that. One that closes by FIN acknowledges the server's as well.
const SEGMENTS: f64 = 4.0;
/// What the program asks the kernel for it, beside a look at what is ready: accept, read, write, read again, close.
const CALLS: f64 = 5.0;
/// Between turns of the generator, of frames one by one and of frames together. A tick comes every 1, 3.3, 4 or 10 ms: were the turns a divisor of that apart, each tick would find the server's CPU
/// at the same moment of a turn, always in softirq or never.
const APART: Duration = Duration::from_micros(49);
const TOGETHER: Duration = Duration::from_micros(491);
/// Frames that wait for a CPU behind receive packet steering (`net.core.netdev_max_backlog`).
const BACKLOG: u32 = 1000;
/// Nothing costs less, microseconds: what is left of a time when another was taken off.
const LEAST: f64 = 0.05;

/// Of a measurement.
const TRIES: u32 = 3;

/// Of the rate at which the server saturates, where no rate is given: near enough to it that work comes together as it does there, and far enough that all is answered.
const SHARE: f64 = 0.7;
/// Of that rate, how many are let in beside SYNs that make no connection, and times that rate, how many come then: beside a server that has nothing to do, caches are not what they are in a crowd.
const ADMITTED: f64 = 0.5;
const MORE: f64 = 4.0;
/// Attempts per second that leave the lab's own watch alone.
const HARDLY_ANY: f64 = 100.0;
/// Of that, at which connections are closed by FIN, too: of these the server can answer a quarter fewer.
const FEWER: f64 = 0.7;

/// Measures this machine's costs with crowds of so many attempts a second, which the server must be able to answer, or of seven tenths of what it can; each step is told in a line.
///
/// # Errors
///
/// When the testbed cannot be made, or the server does not answer as many.
pub fn calibrate(
    program: &Path,
    rate: Option<f64>,
    stop: &AtomicBool,
    mut on_step: impl FnMut(String),
) -> Result<Profile> {
    ensure!(nix::unistd::geteuid().is_root(), "calibrate: network namespaces need root; run it with sudo");
    netns::sweep()?;
    let apart = experiment(APART, Close::Rst)?;
    let by_fin = experiment(APART, Close::Fin)?;
    let together = experiment(TOGETHER, Close::Rst)?;
    let nearness = apart.testbed.nearness();
    let lab = Lab { experiment: &apart, program, nearness: &nearness, stop };
    let [answers, narrow, hangs] = &apart.servers[..] else { unreachable!("three servers") };
    let [stock, held, reset, nobody, abort] = &apart.policies[..] else { unreachable!("five policies") };
    let rate = match rate {
        Some(rate) => rate,
        None => {
            let on_probe =
                |offered, answered| on_step(format!("offered {offered:.0}/s, answered {answered:.0}/s"));
            let found =
                saturation::find(lab, answers, on_probe).context("find where the server saturates")?;
            SHARE * found.rate_per_s
        }
    };
    let mut measure = |what: &str,
                       experiment: &Experiment,
                       (server, policy): (&Server, &Policy),
                       rate: f64|
     -> Result<Costs> {
        let measured = run_near(Lab { experiment, ..lab }, server, policy, &send(experiment, rate))
            .with_context(|| format!("measure {what}"))?;
        if let Some(far) = &measured.far {
            on_step(format!("{what}: {far}"));
        }
        let costs = Costs::of(&measured, experiment.grid.duration);
        let Costs { softirq_of_syn, program_of_syn, .. } = costs;
        on_step(format!(
            "{what}: {softirq_of_syn:.2} us in softirq and {program_of_syn:.2} us in programs for each SYN"
        ));
        Ok(costs)
    };
    let mut answered = |what: &str, experiment: &Experiment, rate: f64| -> Result<Costs> {
        let costs = measure(what, experiment, (answers, stock), rate)?;
        ensure!(
            costs.answered > 0.99,
            "the server answered {:.0}% of {rate:.0} attempts/s; calibrate with a lower --rate",
            100.0 * costs.answered
        );
        Ok(costs)
    };
    let whole = answered("connections that are answered", &apart, rate)?;
    let batch = answered("connections that come together", &together, rate)?;
    let ended_by_fin = answered("fewer, closed by FIN", &by_fin, FEWER * rate)?;
    let ended_by_rst = answered("as many, closed by RST", &apart, FEWER * rate)?;
    let wake =
        cost_of_one((whole.softirq_of_syn, whole.turns_of_syn), (batch.softirq_of_syn, batch.turns_of_syn));
    let woken =
        cost_of_one((whole.program_of_syn, whole.sleeps_of_syn), (batch.program_of_syn, batch.sleeps_of_syn));
    let without_turns = |costs: &Costs| (costs.softirq_of_syn - wake * costs.turns_of_syn).max(LEAST);
    let us_per_s = |costs: &Costs| {
        let of_syn = costs.softirq_of_syn + costs.program_of_syn;
        costs.syns_per_s * (of_syn - wake * costs.turns_of_syn - woken * costs.sleeps_of_syn)
    };
    let let_in = ADMITTED * rate;
    let [held, reset] = [held, reset].map(|policy| policy.for_saturation(let_in));
    let mut beside = |what: &str, (server, policy): (&Server, &Policy), rate: f64| {
        measure(what, &apart, (server, policy), rate)
    };
    let of_one = us_per_s(&whole) / whole.syns_per_s.max(1.0);
    let mut refused = |what: &str, policy: &Policy| {
        let costs = beside(what, (answers, policy), MORE * rate)?;
        let refused = (costs.syns_per_s - costs.answered_per_s).max(1.0);
        Ok::<_, anyhow::Error>(((us_per_s(&costs) - costs.answered_per_s * of_one) / refused).max(LEAST))
    };
    let held = refused("SYNs that are held back, but for some", &held)?;
    let reset = refused("SYNs that are reset, but for some", &reset)?;
    let held_alone = beside("SYNs that are all held back", (hangs, nobody), MORE * rate)?;
    let dropped_alone = beside("SYNs that the kernel drops", (hangs, stock), MORE * rate)?;
    let hardly_any = beside("hardly any", (answers, stock), HARDLY_ANY)?;
    // What a drop by the kernel costs beyond one by the guard.
    let beyond = (us_per_s(&dropped_alone) - us_per_s(&held_alone)) / dropped_alone.syns_per_s.max(1.0);
    let dropped = (held + beyond).max(LEAST);
    let watch = (us_per_s(&hardly_any) - HARDLY_ANY * of_one).max(0.0);
    let torn = measure("handshakes that are reset at their end", &together, (narrow, abort), rate)?;
    ensure!(
        torn.torn_per_s > 0.0,
        "no handshake found an accept queue of one place full at {rate:.0} attempts/s; calibrate with a higher --rate"
    );
    let of_answered = (us_per_s(&batch) - watch) / batch.syns_per_s.max(1.0);
    let torn = (us_per_s(&torn) - watch - torn.answered_per_s * of_answered - torn.dropped_per_s * dropped)
        / torn.torn_per_s;
    let connection = without_turns(&whole);
    let poll = look_us()?;
    let in_program = |costs: &Costs| (costs.program_of_syn - woken * costs.sleeps_of_syn).max(LEAST);
    let program_time = in_program(&whole);
    // A RST costs as much in answer to a SYN as to the end of a handshake, and to the request that comes with that.
    let syn_answered = (torn - 2.0 * reset).max(reset).min(connection / 2.0);
    let segment = (connection - syn_answered) / SEGMENTS;
    let fin = (without_turns(&ended_by_fin) - without_turns(&ended_by_rst)).max(LEAST);
    let call = program_time / CALLS;
    let close = (2.0 * call + in_program(&ended_by_fin) - in_program(&ended_by_rst)).max(LEAST);
    Ok(Profile {
        name: "host".to_owned(),
        about: format!(
            "measured on this machine at {rate:.0} attempts/s, closed by RST: {:.1} us in softirq and {:.1} us in the program for a connection, {wake:.2} us of it for each of {:.1} turns to frames and {woken:.2} us for each of {:.1} times that the program was woken",
            whole.softirq_of_syn, whole.program_of_syn, whole.turns_of_syn, whole.sleeps_of_syn
        ),
        softirq: Softirq {
            syn_answered,
            syn_dropped: dropped,
            syn_reset: reset,
            syn_held: held,
            established: segment,
            end_dropped: dropped,
            end_reset: reset,
            data: segment,
            fin,
            ack: segment,
            reset: segment,
            stray: reset,
            sent_again: segment,
            wake,
        },
        server: Program {
            poll,
            woken: (woken - poll).max(0.0),
            accept: call,
            accept_nothing: 0.0, // part of what accept(2) costs
            request: 2.0 * call,
            kib: 0.5,
            close,
            error: 2.0 * call,
        },
        in_kernel: None,
        process_pool: None,
        receive: Receive {
            ring: BACKLOG,
            moderation: 1e6 / whole.turns_per_s.max(1.0),
            // Since 6.5 softirq runs whenever a program lets it, also while ksoftirqd waits for its turn (commit d15121be7485).
            longest: 0.0,
            turn: 0.0,
        },
        system: System { descriptors: descriptors()?, ..System::default() },
    })
}

/// What it takes a program to learn what is ready when something is, microseconds: the shortest of several times, as whatever else runs here makes them longer.
fn look_us() -> Result<f64> {
    const TIMES: u32 = 20;
    const LOOKS: u32 = 1000;
    let ready = EventFd::from_value(1).context("make an eventfd")?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("make an epoll")?;
    epoll.add(&ready, EpollEvent::new(EpollFlags::EPOLLIN, 0)).context("watch an eventfd")?;
    let mut shortest = Duration::MAX;
    for _ in 0..TIMES {
        let start = Instant::now();
        for _ in 0..LOOKS {
            epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).context("look at what is ready")?;
        }
        shortest = shortest.min(start.elapsed() / LOOKS);
    }
    Ok(shortest.as_secs_f64() * 1e6)
}

/// Connections that the built-in server may have open, which raises its limit as far as it may; `None` for more than anybody has.
fn descriptors() -> Result<Option<u32>> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open descriptors")?;
    Ok(u32::try_from(hard).ok())
}

/// Measures until the CPUs were near each other all the time, or for as many times as are worth it: what is far costs more, and one profile is of one state.
fn run_near(lab: Lab<'_>, server: &Server, policy: &Policy, send: &Send) -> Result<Measured> {
    let mut measured = cell::run(lab, server, policy, send)?;
    for _ in 1..TRIES {
        if measured.far.is_none() {
            break;
        }
        measured = cell::run(lab, server, policy, send)?;
    }
    Ok(measured)
}

/// With a generator that has turns so far apart, and clients who close so.
fn experiment(coalesce: Duration, close: Close) -> Result<Experiment> {
    let mut experiment = Experiment::parse(Path::new("calibrate"), EXPERIMENT.to_owned())?;
    experiment.testbed.coalesce = coalesce;
    experiment.crowd.close = close;
    experiment.servers[2].is_stopped = true;
    Ok(experiment)
}

/// Of two measurements of a time and of how often something happened in it, what that costs each time; nothing where it happened as often in both, or noise would have
/// it cost less than nothing.
fn cost_of_one((time, count): (f64, f64), (other_time, other_count): (f64, f64)) -> f64 {
    const ALIKE: f64 = 0.05;
    let more = count - other_count;
    if more.abs() < ALIKE * count.max(other_count) { 0.0 } else { ((time - other_time) / more).max(0.0) }
}

fn send(experiment: &Experiment, rate: f64) -> Send {
    Send {
        rate,
        bursts: None,
        warmup: experiment.grid.warmup,
        duration: experiment.grid.duration,
        timeout: experiment.crowd.timeout.max(Duration::from_millis(1)),
        seed: 1,
        flood_per_s: None,
        hold: None,
        abort: None,
    }
}

/// Of one crowd, microseconds of the server's CPU for each SYN that came.
struct Costs {
    syns_per_s: f64,
    softirq_of_syn: f64,
    program_of_syn: f64,
    /// How often it turned to frames, and how often the program went to sleep.
    turns_of_syn: f64,
    turns_per_s: f64,
    sleeps_of_syn: f64,
    /// Share of the attempts that were answered.
    answered: f64,
    answered_per_s: f64,
    /// SYNs that the kernel dropped, and handshakes that were reset at their end.
    dropped_per_s: f64,
    torn_per_s: f64,
}

impl Costs {
    fn of(measured: &Measured, window: Duration) -> Self {
        let shares = measured.difference.server_cpu;
        let syns = measured.crowd.syns_per_s.max(1.0) * window.as_secs_f64();
        let counted = |name| measured.difference.kernel.get(name).copied().unwrap_or(0) as f64;
        let guarded = |name| measured.guard_per_s.get(name).copied().unwrap_or(0.0);
        let busy_of_syn = 1e6 * measured.difference.server_busy / measured.crowd.syns_per_s.max(1.0);
        // The parts are told by ticks; see `Difference::server_busy`.
        let program = shares.user + shares.system;
        let of_program = program / (program + shares.softirq).max(f64::MIN_POSITIVE);
        Self {
            syns_per_s: measured.crowd.syns_per_s,
            softirq_of_syn: (1.0 - of_program) * busy_of_syn,
            program_of_syn: of_program * busy_of_syn,
            turns_of_syn: counted(TURNS) / syns,
            turns_per_s: counted(TURNS) / window.as_secs_f64(),
            sleeps_of_syn: counted(SLEEPS) / syns,
            answered: measured.crowd.goodput_per_s / measured.crowd.offered_per_s.max(1.0),
            answered_per_s: measured.crowd.goodput_per_s,
            dropped_per_s: counted("TcpExt.ListenDrops") / window.as_secs_f64(),
            torn_per_s: guarded("acks.full") - guarded("acks.implied"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_one_is_the_difference_of_times_over_that_of_counts() {
        assert_eq!(cost_of_one((30.0, 6.0), (20.0, 1.0)), 2.0);
        assert_eq!(cost_of_one((20.0, 1.0), (30.0, 6.0)), 2.0);
        assert_eq!(cost_of_one((30.0, 1.0), (20.0, 1.01)), 0.0, "it happened as often in both");
        assert_eq!(cost_of_one((20.0, 6.0), (30.0, 1.0)), 0.0, "noise");
    }
}
