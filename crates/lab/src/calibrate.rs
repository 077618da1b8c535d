//! What work costs on this machine, as a profile of the simulator (`tidegate lab calibrate`).
//!
//! Crowds below saturation, each of which makes the server's CPU do something else; what it costs is the CPU's time over how often it was done. The kernel
//! tells that time by ticks, 100 to 1,000 in a second, so that a crowd must come for some seconds: of ten seconds at 250 Hz a share of a half is known to 2%.
//!
//! | crowd | gives |
//! |---|---|
//! | answered by the stock server, below saturation | a whole connection, in softirq and in the program |
//! | refused by a token bucket that is empty, by RST | `syn_reset` |
//! | the same in silence | `syn_held` |
//! | before a server that accepts nobody, stock | `syn_dropped` |
//! | the same with cookies for everybody and *abort* | `syn_answered` and `end_reset` together |
//!
//! How a whole connection's time divides over its segments and system calls cannot be seen from outside: it is divided evenly, but for what is known. What is
//! predicted of connections that are answered does not depend on it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sim::Profile;
use sim::profile::{Receive, Server as Program, Softirq, System};

use crate::cell::{self, Lab, Measured};
use crate::crowd::Send;
use crate::experiment::{Experiment, Server};
use crate::policy::Policy;

/// The server, and another that is busy with its first request for ever.
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
name = "hangs"
kind = "built-in"
backlog = 1
cpu_time = "60s"

[[policy]]
name = "stock"

[[policy]]
name = "reset"
guard = "police:1/1+rst-syn"

[[policy]]
name = "held"
guard = "police:1/1"

[[policy]]
name = "cookies"
guard = "no-syn-drop"
"#;

/// Segments that a client of one answered request sends beside its SYN: the end of the handshake, the request, the reply's ACK, FIN, and the ACK of the server's.
const SEGMENTS: f64 = 5.0;
/// What the program asks the kernel for it: a look at what is ready, accept, read, write, read again, close.
const CALLS: f64 = 6.0;
/// Frames that wait for a CPU behind receive packet steering (`net.core.netdev_max_backlog`).
const BACKLOG: u32 = 1000;
/// Until softirq lets programs have turns, and these, microseconds (`MAX_SOFTIRQ_TIME`; a slice of EEVDF, `base_slice_ns`).
const LONGEST: f64 = 2000.0;
const TURN: f64 = 3000.0;

/// Measures this machine's costs with crowds of so many attempts a second, which the server must be able to answer; each step is told.
///
/// # Errors
///
/// When the testbed cannot be made, or the server does not answer as many.
pub fn calibrate(
    program: &Path,
    rate: f64,
    stop: &AtomicBool,
    mut on_step: impl FnMut(&str, f64),
) -> Result<Profile> {
    ensure!(nix::unistd::geteuid().is_root(), "calibrate: network namespaces need root; run it with sudo");
    netns::sweep()?;
    let experiment = Experiment::parse(Path::new("calibrate"), EXPERIMENT.to_owned())?;
    let lab = Lab { experiment: &experiment, program, stop };
    let [answers, hangs] = &experiment.servers[..] else { unreachable!("two servers") };
    let [stock, reset, held, cookies] = &experiment.policies[..] else { unreachable!("four policies") };
    let mut measure = |what: &str, server: &Server, policy: &Policy| -> Result<Costs> {
        let measured = cell::run(lab, server, policy, &send(&experiment, rate))
            .with_context(|| format!("measure {what}"))?;
        let costs = Costs::of(&measured);
        on_step(what, costs.softirq_of_syn);
        Ok(costs)
    };
    let whole = measure("connections that are answered", answers, stock)?;
    ensure!(
        whole.answered > 0.99,
        "the server answered {:.0}% of {rate:.0} attempts/s; calibrate with a lower --rate",
        100.0 * whole.answered
    );
    let reset = measure("SYNs that are reset", answers, reset)?.softirq_of_syn;
    let held = measure("SYNs that are held back", answers, held)?.softirq_of_syn;
    let dropped = measure("SYNs that the kernel drops", hangs, stock)?.softirq_of_syn;
    let by_cookie = measure("handshakes by cookie that are reset", hangs, cookies)?.softirq_of_syn;
    // A RST costs as much in answer to a SYN as to the end of a handshake.
    let syn_answered = (by_cookie - reset).max(reset).min(whole.softirq_of_syn / 2.0);
    let segment = (whole.softirq_of_syn - syn_answered) / SEGMENTS;
    let call = whole.program_of_syn / CALLS;
    Ok(Profile {
        name: "host".to_owned(),
        about: format!(
            "measured on this machine at {rate:.0} attempts/s: {:.1} us in softirq and {:.1} us in the program for a connection",
            whole.softirq_of_syn, whole.program_of_syn
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
            fin: segment,
            ack: segment,
            reset: segment,
            stray: reset,
            sent_again: segment,
        },
        server: Program {
            poll: call,
            accept: call,
            accept_nothing: call / 2.0,
            request: 2.0 * call,
            kib: 0.5,
            close: 2.0 * call,
            error: 2.0 * call,
        },
        in_kernel: None,
        process_pool: None,
        receive: Receive { ring: BACKLOG, longest: LONGEST, turn: TURN },
        system: System::default(),
    })
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
    softirq_of_syn: f64,
    program_of_syn: f64,
    /// Share of the attempts that were answered.
    answered: f64,
}

impl Costs {
    fn of(measured: &Measured) -> Self {
        let shares = measured.difference.server_cpu;
        // What a hypervisor took is no time of this CPU.
        let us_per_syn = 1e6 / (measured.crowd.syns_per_s.max(1.0) * (1.0 - shares.steal).max(0.01));
        Self {
            softirq_of_syn: shares.softirq * us_per_syn,
            program_of_syn: (shares.user + shares.system) * us_per_syn,
            answered: measured.crowd.goodput_per_s / measured.crowd.offered_per_s.max(1.0),
        }
    }
}
