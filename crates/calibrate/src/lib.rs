//! Measures what work costs on this machine, as a profile of the simulator (`tidegate lab
//! calibrate`).
//!
//! It sends crowds below saturation: seven tenths of it, unless a rate is given, because costs are
//! those of the rate at which they were measured. Each crowd makes the server's CPU do something
//! else. A cost is the CPU's time over how often the work was done. The kernel tells exactly how
//! long a CPU was idle. Ticks, 100 to 1,000 in a second, tell how the rest divides over softirq and
//! programs. So a crowd must come for some seconds: of ten seconds at 250 Hz a share of a half is
//! known to 2%.
//!
//! What it is not: it measures no server program but the lab's own.
//!
//! # The crowds, and what they give
//!
//! - Answered by the stock server, and closed by RST: a whole connection, in softirq and in the
//!   program.
//! - The same in turns up to ten times as far apart, so that more comes at once, all of them twice.
//!   Also before a server that works for each request, whose program mostly runs when its CPU turns
//!   to frames. They give the cost to turn to frames of connections, and to wake the program:
//!   [`Program::woken`].
//! - Fewer, closed by FIN, and as many closed by RST: `fin`, and the program's work about either
//!   end.
//! - Four times as many before a server that was stopped, so that no program runs: dropped by the
//!   kernel, in turns near and far apart, and all held back, or reset. They give `syn_dropped`,
//!   `syn_held`, `syn_reset`, and the cost of a turn itself: [`Softirq::wake`].
//! - All reset, four times as many and one times. In the larger crowd each turn has a SYN, and each
//!   look for replies finds some. They give the distance of the crowd's turns, and of its end's
//!   looks. From a refused client's wait they give the way to the server and back: [`CrowdEnd`].
//! - Twice as many before it, all answered with a cookie. That costs as much as a RST, because
//!   either is the SYN rewritten. They give `stray`: the end of each handshake and the request
//!   behind it, which find no place.
//! - Four times as many, and half of the rate let in by a token bucket; the rest held back, or
//!   reset. The cost beyond the sum of both comes from caches that the program has had:
//!   [`Softirq::cold_refusal`].
//! - Hardly any: what the lab's own watch takes, and its turns.
//! - None, while a thread works on the server's CPU without a pause. It gives the share that is
//!   [taken](Profile::taken) by ticks and the hypervisor, beside the lab's own watch. A server's
//!   `cpu_time` takes so much longer.
//! - Under *abort*, four times as many before a server that was stopped; and connections that are
//!   answered, before an accept queue that is never full and before one that nearly is. The kernel
//!   counts how long the guard's programs run: `guard_dropped`, `guard_syn`, `guard_ack`.
//! - Together, before a server with a backlog of one, under *abort*: `syn_answered` and
//!   `end_reset`, beside one of `stray`, the request behind the end of a handshake.
//!
//! # From times to costs
//!
//! A crowd's frames that come one by one cost more than those that come together. The CPU turns to
//! each, and the program sleeps and is woken between them. At saturation both are rarer for each
//! connection. So turns and wakings are counted: `NET_RX` of `/proc/softirqs`,
//! `voluntary_ctxt_switches` of the server, and the looks of the crowd's receiving thread. What the
//! crowd was told does not say how far apart its turns came to be, because timers are late, and its
//! end's receiving takes time of the same CPU. The slopes of the plane nearest to the crowds are
//! the cost of one turn and of one waking. Where the plane begins is the work itself.
//!
//! The plane goes by the CPU's whole time, of which the kernel tells exactly how much was idle. By
//! ticks a crowd now and then had a third less in the program than the others, and the line through
//! it no turn at all. Ticks only tell how the work divides over softirq and program, and of that
//! the median counts.
//!
//! Before a server that only answers, the program sleeps as often as the CPU turns to frames. So no
//! crowd of it tells one from the other. Before one that works for each request, frames come while
//! it runs, and the CPU turns to them without a waking. A turn to SYNs alone that nothing comes of
//! costs much less than one to connections: the difference is [`Softirq::cold_connection`]. A
//! program that need not sleep for it looks much more cheaply at what is ready: that is timed in
//! this process.
//!
//! How a connection's time in softirq divides over its segments cannot be seen from outside, except
//! for the last one: two crowds that end in different ways tell it apart. The rest is divided
//! evenly. Its time in the program is divided as the system calls of such a program take it, which
//! are timed in this process over the loopback.

mod calls;
mod costs;
mod fit;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use experiment::{Experiment, Policy, ServerSpec};
use nix::sys::resource::{Resource, getrlimit};
use sim::Profile;
use sim::profile::{CrowdEnd, ProgramCosts as Program, Receive, Softirq, System};
use tcp::Close;

use lab::{CROWD_POLL, Lab, Nearness};

use calls::Calls;
use costs::Costs;
use fit::{Line, Plane, median};

/// The server that will be stopped.
const HANGS: &str = "hangs";
/// The server, one that has no room, one that will be stopped, and one that works for each request;
/// `{saturation}` is how many are let in.
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

[[server]]
name = "works"
kind = "built-in"
backlog = 1024
cpu_time = "150us"

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
name = "all-reset"
guard = "police:1/1+rst-syn"

[[policy]]
name = "own-cookies"
guard = "no-syn-drop"

[[policy]]
name = "kernel-cookies"
guard = "no-syn-drop:kernel"

[[policy]]
name = "abort"
guard = "abort"
"#;

/// Segments that a client of one answered request sends beside its SYN when it closes by RST: the
/// end of the handshake, the request, the reply's ACK, and that. One that closes by FIN
/// acknowledges the server's as well.
const SEGMENTS: f64 = 4.0;
/// Of these and its SYN, those that the guard looks into while a queue may be full: all with ACK
/// but the last.
const LOOKED_INTO: f64 = 3.0;
/// Between turns of the generator: from frames one by one to frames together. A tick comes every 1,
/// 3.3, 4 or 10 ms: were the turns a divisor of that apart, each tick would find the server's CPU
/// at the same moment of a turn, always in softirq or never.
const SPACINGS: [Duration; 4] = [
    Duration::from_micros(49),
    Duration::from_micros(109),
    Duration::from_micros(229),
    Duration::from_micros(491),
];
/// The same before the server that works, in which more is done between two turns.
const SPACINGS_OF_WORK: [Duration; 2] = [SPACINGS[0], SPACINGS[2]];
const APART: Duration = SPACINGS[0];
const TOGETHER: Duration = SPACINGS[SPACINGS.len() - 1];
/// How often crowds of all these come, one after the other, so that a machine whose speed changes
/// does not make a slope.
const ROUNDS: u32 = 2;
/// Seconds for which a program works to see what is taken from it: from one to the next it is 1 to
/// 3%.
const WORK_S: u32 = 10;
/// Frames that wait for a CPU behind receive packet steering (`net.core.netdev_max_backlog`).
const BACKLOG: u32 = 1000;
/// Nothing costs less, microseconds: what is left of a time when another was taken off.
const LEAST: f64 = 0.05;

/// A crowd before CPUs that were far from each other comes again at most so many times: what is far
/// costs more, and one profile is of one state.
const AGAIN: u32 = 2;

/// Of the rate at which the server saturates, where no rate is given: near enough to it that work
/// comes together as it does there, and far enough that all is answered.
const SHARE: f64 = 0.7;
/// Of that rate, how many are let in beside SYNs that make no connection, and times that rate, how
/// many come then: beside a server that has nothing to do, caches are not what they are in a crowd.
const ADMITTED: f64 = 0.5;
const MORE: f64 = 4.0;
/// Times that rate, how many get a cookie: each is three segments, of which two are reset.
const COOKIES: f64 = 2.0;
const ENDS: f64 = 2.0;
/// Attempts per second that leave the lab's own watch alone: of a hundred each costs ten times what
/// it does in a crowd, as caches are cold and the CPU idles between them. What they take is a tenth
/// of what is found, which is so much too much.
const HARDLY_ANY: f64 = 5.0;
/// Of the rate, at which connections are closed by FIN, too: of these the server can answer a
/// quarter fewer.
const FEWER: f64 = 0.7;
/// Times as far apart as they are told to be, and looks for replies are of another machine.
const MOST_POLLS: f64 = 2.0;

/// Measures this machine's costs with crowds of so many attempts a second, which the server must be
/// able to answer, or of seven tenths of what it can; each step is told in a line.
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
    let (apart, by_fin) = (experiment(APART, Close::Reset)?, experiment(APART, Close::Fin)?);
    let together = experiment(TOGETHER, Close::Reset)?;
    let nearness = Nearness::of(&apart.testbed)?;
    let lab = Lab { experiment: &apart, program, nearness: &nearness, stop };
    let mut crowds = Crowds {
        lab,
        apart: &apart,
        by_fin: &by_fin,
        together: &together,
        round_trip: None,
        on_step: &mut on_step,
    };
    let rate = match rate {
        Some(rate) => rate,
        None => SHARE * crowds.saturation()?,
    };
    let taken = taken(apart.testbed.server_cpu, stop)?;
    (crowds.on_step)(format!(
        "{:.1}% of the server's CPU is taken from a program that works without a pause",
        100.0 * taken
    ));
    let answered = crowds.answered(rate, taken)?;
    let refused = crowds.refused(rate, &answered)?;
    let guard = crowds.guard(rate)?;
    let end_of_handshake = crowds.torn_us(rate, &answered, &refused, guard)?;
    // What is to be predicted has the watch beside it, as what was measured had.
    let taken = 1.0 - (1.0 - taken) * (1.0 - answered.watch_share);
    profile(rate, (crowds.round_trip, taken), &answered, &refused, guard, end_of_handshake)
}

/// What each crowd needs.
struct Crowds<'a> {
    lab: Lab<'a>,
    /// By how they come, and how they close.
    apart: &'a Experiment,
    by_fin: &'a Experiment,
    together: &'a Experiment,
    /// What the server's CPU took for a small datagram beside the first of them: costs are at its
    /// speed then.
    round_trip: Option<Duration>,
    /// Is told what came of each.
    on_step: &'a mut dyn FnMut(String),
}

/// What connections cost that are answered, microseconds.
struct Answered {
    /// In softirq, and in the program, but for turns and for waking it.
    connection: f64,
    in_program: f64,
    /// A turn to their frames, and waking the program.
    turn: f64,
    woken: f64,
    /// What its end by FIN costs more than that by RST, in softirq and in the program.
    fin: f64,
    close_more: f64,
    /// The lab's own watch, in a second, but for turns and wakings; and its share of the CPU with
    /// them.
    watch_us_per_s: f64,
    watch_share: f64,
    /// A connection, without what of it is the watch.
    without_watch: f64,
}

/// What SYNs cost that become nothing, microseconds, and how they came.
struct Refused {
    crowd: CrowdEnd,
    dropped: f64,
    held: f64,
    reset: f64,
    /// The end of a handshake by cookie that finds no place, and is reset.
    stray: f64,
    /// A turn to nothing but such SYNs, and what is more in the first of a turn after a program
    /// ran.
    wake: f64,
    cold: f64,
}

/// What the guard's looks cost, microseconds, by the kernel's count: it has some of its own reading
/// of the clock in it (20 ns for each frame, of five), and not what the kernel does to call a
/// program.
#[derive(Clone, Copy)]
struct Guard {
    /// Into a SYN that the kernel drops.
    dropped: f64,
    /// Into one that it answers, and the little that it is with what follows.
    syn: f64,
    /// More for each of what follows, while a queue may be full; with what is more of the SYN then.
    ack: f64,
}

impl<'a> Crowds<'a> {
    fn server(&self, name: &str) -> &'a ServerSpec {
        let servers = &self.apart.servers;
        servers.iter().find(|server| server.name == name).expect("a server of the experiment above")
    }

    fn policy(&self, name: &str) -> &'a Policy {
        let policies = &self.apart.policies;
        policies.iter().find(|policy| policy.name == name).expect("a policy of the experiment above")
    }

    /// The rate at which the server saturates, requests/s.
    fn saturation(&mut self) -> Result<f64> {
        let answers = self.server("answers");
        let on_probe =
            |offered, answered| (self.on_step)(format!("offered {offered:.0}/s, answered {answered:.0}/s"));
        self.lab.saturation_rate(answers, on_probe).context("find where the server saturates")
    }

    /// What a crowd before a server under a policy made its CPU do.
    fn measure(
        &mut self,
        what: &str,
        experiment: &Experiment,
        (server, policy): (&ServerSpec, &Policy),
        rate: f64,
    ) -> Result<Costs> {
        let lab = Lab { experiment, ..self.lab };
        let measured = lab.crowd(server, policy, rate, AGAIN).with_context(|| format!("measure {what}"))?;
        if let Some(far) = &measured.far {
            (self.on_step)(format!("{what}: {far}"));
        }
        let round_trip = *self.round_trip.get_or_insert(measured.round_trip);
        let costs = Costs::of(&measured, experiment.grid.duration, round_trip);
        let Costs { softirq_of_syn, program_of_syn, .. } = costs;
        (self.on_step)(format!(
            "{what}: {softirq_of_syn:.2} us in softirq and {program_of_syn:.2} us in programs for each SYN, at {:.0}% of the first one's speed",
            100.0 * round_trip.as_secs_f64() / measured.round_trip.as_secs_f64()
        ));
        Ok(costs)
    }

    /// The same of one that a stock server answers.
    fn measure_answered(
        &mut self,
        what: &str,
        experiment: &Experiment,
        server: &str,
        rate: f64,
    ) -> Result<Costs> {
        let stock = (self.server(server), self.policy("stock"));
        let costs = self.measure(what, experiment, stock, rate)?;
        ensure!(
            costs.answered > 0.99,
            "the server answered {:.1}% of {rate:.0} attempts/s, at {:.0}% of the speed that it had beside the first crowd; calibrate once more, or with a lower --rate",
            100.0 * costs.answered,
            100.0 / costs.slower
        );
        Ok(costs)
    }

    /// `taken` is the share of the CPU that a program which works has not for itself.
    fn answered(&mut self, rate: f64, taken: f64) -> Result<Answered> {
        let mut all = Vec::new();
        for spacing in (0..ROUNDS).flat_map(|_| SPACINGS) {
            let what = format!("connections that are answered, turns {spacing:?} apart");
            all.push(self.measure_answered(&what, &experiment(spacing, Close::Reset)?, "answers", rate)?);
        }
        let work_us = micros(self.server("works").cpu_time);
        let while_it_works = SHARE * 1e6 / (SHARE * 1e6 / rate + work_us);
        let mut working = Vec::new();
        for spacing in (0..ROUNDS).flat_map(|_| SPACINGS_OF_WORK) {
            let what = format!("the same before a server that works {work_us} us, turns {spacing:?} apart");
            let crowd = experiment(spacing, Close::Reset)?;
            working.push(self.measure_answered(&what, &crowd, "works", while_it_works)?);
        }
        let by_fin = self.measure_answered("fewer, closed by FIN", self.by_fin, "answers", FEWER * rate)?;
        let by_rst = self.measure_answered("as many, closed by RST", self.apart, "answers", FEWER * rate)?;
        let stock = (self.server("answers"), self.policy("stock"));
        let hardly_any = self.measure("hardly any", self.apart, stock, HARDLY_ANY)?;

        let of_answers = all.iter().map(|costs| costs.beside(&hardly_any, 0.0));
        let of_works =
            working.iter().map(|costs| costs.beside(&hardly_any, work_us / (1.0 - taken) / costs.slower));
        let Plane { at_zero, slopes: [turn, woken] } = Plane::nearest(of_answers.chain(of_works));
        let of_hardly_any = HARDLY_ANY * (at_zero + turn + woken);
        let all_watch_us_per_s = (hardly_any.us_per_s(0.0, 0.0) - of_hardly_any).max(0.0);
        let in_softirq = |costs: &Costs| costs.softirq_of_syn - turn * costs.turns_of_syn;
        let of_program = |costs: &Costs| costs.program_of_syn - woken * costs.sleeps_of_syn;
        let with_watch = at_zero + all_watch_us_per_s / rate;
        let by_ticks = median(all.iter().map(in_softirq).collect());
        let connection = by_ticks.clamp(LEAST, (with_watch - LEAST).max(LEAST));
        Ok(Answered {
            connection,
            in_program: (with_watch - connection).max(LEAST),
            turn,
            woken,
            fin: (in_softirq(&by_fin) - in_softirq(&by_rst)).max(LEAST),
            close_more: of_program(&by_fin) - of_program(&by_rst),
            watch_us_per_s: (hardly_any.us_per_s(turn, woken) - HARDLY_ANY * at_zero).max(0.0),
            watch_share: all_watch_us_per_s / 1e6,
            without_watch: at_zero,
        })
    }

    fn refused(&mut self, rate: f64, answered: &Answered) -> Result<Refused> {
        let hangs = self.server(HANGS);
        let of_syn = |costs: &Costs| {
            (costs.us_per_s(0.0, answered.woken) - answered.watch_us_per_s) / costs.syns_per_s.max(1.0)
        };
        let mut dropped = Vec::new();
        let (nearer, farther) = (self.apart, self.together);
        for experiment in (0..ROUNDS).flat_map(|_| [nearer, farther]) {
            let stock = (hangs, self.policy("stock"));
            dropped.push(self.measure("SYNs that the kernel drops", experiment, stock, MORE * rate)?);
        }
        let drops = Line::nearest(dropped.iter().map(|costs| (costs.turns_of_syn, of_syn(costs))));
        let wake = drops.slope.min(answered.turn);
        let mut alone = |what: &str, policy: &str| -> Result<(f64, Costs)> {
            let policy = self.policy(policy);
            let costs = self.measure(what, self.apart, (hangs, policy), MORE * rate)?;
            Ok(((of_syn(&costs) - wake * costs.turns_of_syn).max(LEAST), costs))
        };
        let (held, _) = alone("SYNs that are all held back", "nobody")?;
        let (reset, all) = alone("SYNs that are all reset", "all-reset")?;
        let everybody_reset = (hangs, self.policy("all-reset"));
        let fewer = self.measure("fewer that are all reset", self.apart, everybody_reset, rate)?;
        ensure!(
            all.looks_apart_us() < MOST_POLLS * micros(CROWD_POLL),
            "the crowd's end looked for replies every {:.0} us, where it is told {CROWD_POLL:?}: its CPU {} is busy with something else",
            all.looks_apart_us(),
            self.apart.testbed.crowd_cpu
        );
        let delay = delay_us(fewer.refused_after_us, all.turns_apart_us(), fewer.looks_apart_us());
        (self.on_step)(format!("{delay:.1} us each way between crowd and server"));
        let crowd =
            CrowdEnd { delay: delay.max(0.0), turns: all.turns_apart_us(), poll: all.looks_apart_us() };
        let cookies = if guard::takes_own_cookies() { "own-cookies" } else { "kernel-cookies" };
        let with_cookies = (hangs, self.policy(cookies));
        let what = "SYNs that all get a cookie";
        let costs = self.measure(what, self.apart, with_cookies, COOKIES * rate)?;
        ensure!(
            costs.ends_of_syn > 0.9 * ENDS,
            "of {ENDS} segments that came after each cookie {:.2} were reset",
            costs.ends_of_syn
        );
        let stray = (of_syn(&costs) - wake * costs.turns_of_syn - reset) / costs.ends_of_syn;
        let cold = f64::midpoint(
            self.cold_us(rate, "SYNs that are held back, but for some", ("held", held), answered)?,
            self.cold_us(rate, "SYNs that are reset, but for some", ("reset", reset), answered)?,
        );
        let (dropped, stray) = (drops.at_zero.max(LEAST), stray.max(LEAST));
        Ok(Refused { crowd, dropped, held, reset, stray, wake, cold: cold.max(0.0) })
    }

    /// What a turn to SYNs of which some are let in costs more than all that is known of them.
    fn cold_us(
        &mut self,
        rate: f64,
        what: &str,
        (policy, of_refused): (&str, f64),
        answered: &Answered,
    ) -> Result<f64> {
        let policy = self.policy(policy).for_saturation(ADMITTED * rate);
        let answers = self.server("answers");
        let costs = self.measure(what, self.apart, (answers, &policy), MORE * rate)?;
        let refused = costs.syns_per_s - costs.answered_per_s;
        let known =
            answered.watch_us_per_s + costs.answered_per_s * answered.without_watch + refused * of_refused;
        Ok((costs.us_per_s(answered.turn, answered.woken) - known) / costs.turns_per_s.max(1.0))
    }

    /// By the kernel's own count of how long the guard's programs run: they are some hundredths of
    /// a connection, by which two crowds of one kind differ, too.
    fn guard(&mut self, rate: f64) -> Result<Guard> {
        let _counting = bpf::RunCounting::begin().context("have the kernel count how long programs run")?;
        let abort = self.policy("abort");
        let (hangs, answers) = (self.server(HANGS), self.server("answers"));
        let mut narrower = answers.clone();
        narrower.backlog = nearly_full(rate);
        let mut of_syn = |what: &str, server: &ServerSpec, rate: f64| -> Result<f64> {
            let costs = self.measure(what, self.apart, (server, abort), rate)?;
            Ok(costs.guard_us_per_s / costs.syns_per_s.max(1.0))
        };
        let dropped = of_syn("SYNs that the kernel drops behind the guard", hangs, MORE * rate)?;
        let syn = of_syn("connections that are answered behind the guard", answers, rate)?;
        let looked_into = of_syn("the same before a queue that is nearly full", &narrower, rate)?;
        ensure!(
            dropped > 0.0 && syn > 0.0,
            "the kernel counted no run of the guard's programs before SYNs that were dropped ({dropped} us) or answered ({syn} us)"
        );
        let guard = Guard { dropped, syn, ack: ((looked_into - syn) / LOOKED_INTO).max(0.0) };
        (self.on_step)(format!(
            "the guard takes {syn:.2} us for a SYN that is answered and {dropped:.2} us for one that is dropped, and {:.2} us for what follows while a queue may be full",
            guard.ack
        ));
        Ok(guard)
    }

    /// What a handshake costs, from its SYN on, that is reset at its end, with the request that
    /// comes with that.
    fn torn_us(&mut self, rate: f64, answered: &Answered, refused: &Refused, guard: Guard) -> Result<f64> {
        let narrow = (self.server("narrow"), self.policy("abort"));
        let torn = self.measure("handshakes that are reset at their end", self.together, narrow, rate)?;
        ensure!(
            torn.torn_per_s > 0.0,
            "no handshake found an accept queue of one place full at {rate:.0} attempts/s; calibrate with a higher --rate"
        );
        let all = torn.us_per_s(answered.turn + refused.cold, answered.woken) - answered.watch_us_per_s;
        let others = torn.answered_per_s * (answered.without_watch + guard.syn + LOOKED_INTO * guard.ack)
            + torn.dropped_per_s * (refused.dropped + guard.dropped)
            + torn.torn_per_s * guard.syn;
        let torn_us = (all - others) / torn.torn_per_s;
        (self.on_step)(format!("a handshake that is reset at its end takes {torn_us:.1} us"));
        Ok(torn_us)
    }
}

/// The costs of `torn`, a handshake that was reset at its end, and all else, divided over what they
/// are of.
fn profile(
    rate: f64,
    (round_trip, taken): (Option<Duration>, f64),
    answered: &Answered,
    refused: &Refused,
    guard: Guard,
    torn: f64,
) -> Result<Profile> {
    let &Answered { connection, in_program, turn, woken, fin, close_more, .. } = answered;
    let &Refused { crowd, dropped, held, reset, stray, wake, cold } = refused;
    let poll = micros(calls::timed_look().context("time a look at what is ready")?);
    let calls = Calls::timed().context("time system calls over the loopback")?;
    let of_program = |call: Duration| in_program * call.as_secs_f64() / calls.all().as_secs_f64();
    // Its end costs what one by cookie does, and what the SYN can hardly have cost: a request is
    // forgotten again. Or less, where nothing is left for the SYN.
    let syn_answered = (torn - ENDS * stray).max(reset).min(connection / 2.0);
    let end_reset = (torn - syn_answered - stray).max(LEAST);
    let segment = (connection - syn_answered) / SEGMENTS;
    Ok(Profile {
        name: "host".to_owned(),
        about: format!(
            "measured on this machine at {rate:.0} attempts/s, closed by RST: {connection:.1} us in softirq and {in_program:.1} us in the program for a connection, beside {turn:.1} us for each turn to their frames and {woken:.1} us for each time that the program was woken; not measured, but taken as what is most like them, are ends of handshakes that are dropped, what a timer sends, and bytes beyond the first KiB"
        ),
        round_trip_us: round_trip.map(micros),
        taken,
        speed: 1.0,
        softirq: Softirq {
            syn_answered,
            syn_cookie: Some(reset),
            syn_dropped: dropped,
            syn_reset: reset,
            syn_held: held,
            established: segment,
            end_dropped: dropped, // not measured: as what it is most like
            end_reset,
            data: segment,
            fin,
            ack: segment,
            reset: segment,
            stray,
            sent_again: segment, // nor this
            guard_syn: guard.syn,
            guard_dropped: guard.dropped,
            guard_ack: guard.ack,
            wake,
            cold_connection: turn - wake,
            cold_refusal: cold,
            // By a hash: what a look costs is in what each segment does.
            examined: 0.0,
            kib: 0.0, // in the program's
        },
        server: Program {
            poll,
            woken: (woken - poll).max(0.0),
            accept: of_program(calls.accept),
            accept_nothing: 0.0, // part of what accept(2) costs
            request: of_program(calls.answer),
            kib: 0.5, // not measured: a copy of some GB/s, and its segment
            close: (of_program(calls.end) + close_more).max(LEAST),
            error: of_program(calls.end),
        },
        in_kernel: None,
        process_pool: None,
        receive: Receive {
            ring: BACKLOG,
            moderation: 0.0,
            // Since 6.5 softirq runs whenever a program lets it, also while ksoftirqd waits for its
            // turn (commit d15121be7485).
            longest: 0.0,
            turn: 0.0,
        },
        crowd,
        system: System { descriptors: descriptors()?, ..System::default() },
    })
}

/// Share of a CPU that a program which works without a pause does not have, while nobody else runs.
fn taken(cpu: usize, stop: &AtomicBool) -> Result<f64> {
    let work = || {
        netns::pin_to_cpu(cpu)?;
        let mut sum = 0.0;
        for _ in 0..WORK_S {
            ensure!(!stop.load(Ordering::Relaxed), "stopped");
            sum += serve::taken(Duration::from_secs(1));
        }
        Ok(sum / f64::from(WORK_S))
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"))
}

/// Connections that the built-in server may have open, which raises its limit as far as it may;
/// `None` for more than anybody has.
fn descriptors() -> Result<Option<u32>> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open descriptors")?;
    Ok(u32::try_from(hard).ok())
}

/// As a profile has it.
fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// With a generator that has turns so far apart, and clients who close so.
fn experiment(coalesce: Duration, close: Close) -> Result<Experiment> {
    let mut experiment = Experiment::parse(Path::new("calibrate"), EXPERIMENT.to_owned())?;
    experiment.testbed.coalesce = coalesce;
    experiment.crowd.close = close;
    let hangs = experiment.servers.iter_mut().find(|server| server.name == HANGS);
    hangs.expect("a server of the experiment above").is_stopped = true;
    Ok(experiment)
}

/// The way to the server, and the way back, of a client who hears after so long that he is refused:
/// half a turn passes before his SYN leaves, half the time to the next look when his RST has come,
/// and half a turn again. Below 0 where the others are taken for longer than they were.
fn delay_us(refused_after: f64, turns: f64, poll: f64) -> f64 {
    (refused_after - turns - poll / 2.0) / 2.0
}

/// Backlog, connections, of a server before which a crowd of so many a second claims all places at
/// some moments, and takes one too many at hardly any: those who come between two looks for replies
/// end their handshakes at once, while as many others begin.
fn nearly_full(rate: f64) -> u32 {
    (2.0 * rate * CROWD_POLL.as_secs_f64()).ceil() as u32 + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_waits_for_two_halves_of_a_turn_and_half_a_look_beside_the_way() {
        assert_eq!(delay_us(30.0 + 5.0 + 5.0 + 85.0 + 30.0, 60.0, 170.0), 5.0);
        assert_eq!(delay_us(140.0, 60.0, 170.0), -2.5, "told as it was found");
    }

    #[test]
    fn profile_adds_up_to_what_was_measured() {
        let answered = Answered {
            connection: 20.0,
            in_program: 12.0,
            turn: 10.0,
            woken: 3.0,
            fin: 1.5,
            close_more: 0.5,
            watch_us_per_s: 15_000.0,
            watch_share: 0.02,
            without_watch: 19.0,
        };
        let refused = Refused {
            crowd: CrowdEnd { delay: 1.5, turns: 59.0, poll: 171.0 },
            dropped: 1.2,
            held: 1.1,
            reset: 1.4,
            stray: 2.8,
            wake: 1.0,
            cold: 4.0,
        };
        let guard = Guard { dropped: 0.4, syn: 0.7, ack: 0.3 };
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // One whose SYN costs what is left, one that costs more than that can be, and one in which
        // nothing is left.
        for (torn, syn) in
            [(11.0, 11.0 - ENDS * refused.stray), (25.0, answered.connection / 2.0), (5.0, refused.reset)]
        {
            let profile =
                profile(10_000.0, (None, 0.02), &answered, &refused, guard, torn).expect("timed here");
            let Softirq { guard_syn, guard_dropped, guard_ack, .. } = profile.softirq;
            assert_eq!([guard_syn, guard_dropped, guard_ack], [guard.syn, guard.dropped, guard.ack]);
            let Softirq { syn_answered, established, data, ack, reset, end_reset, stray, .. } =
                profile.softirq;
            assert!(is_near(syn_answered + end_reset + stray, torn), "a handshake that is torn");
            assert!(is_near(syn_answered, syn) && is_near(stray, refused.stray), "{syn_answered} {stray}");
            assert!(is_near(syn_answered + established + data + ack + reset, answered.connection));
            assert!(is_near(profile.softirq.wake + profile.softirq.cold_connection, answered.turn));
            let Program { accept, request, close, error, poll, woken, .. } = profile.server;
            assert!(is_near(accept + request + error, answered.in_program), "closed by RST");
            assert!(is_near(close - error, answered.close_more), "closed by FIN");
            assert!(is_near(woken + poll, answered.woken.max(poll)));
            assert_eq!(Profile::parse(&profile.to_toml()), Ok(profile), "it can be read back");
        }
    }
}
