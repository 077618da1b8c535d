//! What a crowd cost the server's CPU, and what it made it do.

use std::time::Duration;

use experiment::TURNS;
use lab::{GUARD_RUN_NS, LOOKS, Measured, SLEEPS};
use telemetry::counter;

/// Of one crowd, microseconds of the server's CPU for each SYN that came.
#[derive(Default)]
pub(super) struct Costs {
    pub(super) syns_per_s: f64,
    pub(super) softirq_of_syn: f64,
    pub(super) program_of_syn: f64,
    /// How often it turned to frames, and how often the program went to sleep.
    pub(super) turns_of_syn: f64,
    pub(super) turns_per_s: f64,
    /// How often the crowd's end looked for replies.
    pub(super) looks_per_s: f64,
    pub(super) sleeps_of_syn: f64,
    /// Ends of handshakes, and what came with them, that were reset.
    pub(super) ends_of_syn: f64,
    /// How long a client waited to hear that he is refused, in the median.
    pub(super) refused_after_us: f64,
    /// Share of the attempts that were answered.
    pub(super) answered: f64,
    pub(super) answered_per_s: f64,
    /// SYNs that the kernel dropped, and handshakes that were reset at their end.
    pub(super) dropped_per_s: f64,
    pub(super) torn_per_s: f64,
    /// What the guard's programs took of a second, where the kernel counted it.
    pub(super) guard_us_per_s: f64,
    /// Times as long as beside the first crowd the CPU took for a small datagram.
    pub(super) slower: f64,
}

impl Costs {
    /// How often the CPU turned to frames for each connection, and its program slept, and how long
    /// it took but for `worked_us`; without what was so beside hardly any.
    pub(super) fn beside(&self, hardly_any: &Self, worked_us: f64) -> ([f64; 2], f64) {
        let connections = self.syns_per_s - hardly_any.syns_per_s;
        let of_connection = |per_s: fn(&Self) -> f64| (per_s(self) - per_s(hardly_any)) / connections;
        let turns = of_connection(|costs| costs.turns_of_syn * costs.syns_per_s);
        let sleeps = of_connection(|costs| costs.sleeps_of_syn * costs.syns_per_s);
        ([turns, sleeps], of_connection(|costs| costs.us_per_s(0.0, 0.0)) - worked_us)
    }

    /// Microseconds of the CPU in a second, but for turns and waking the program at these costs.
    pub(super) fn us_per_s(&self, turn: f64, woken: f64) -> f64 {
        let of_syn = self.softirq_of_syn + self.program_of_syn;
        self.syns_per_s * (of_syn - turn * self.turns_of_syn - woken * self.sleeps_of_syn)
    }

    /// How far apart turns came to be, of a crowd that has a SYN for each.
    pub(super) fn turns_apart_us(&self) -> f64 {
        1e6 / self.turns_per_s.max(1.0)
    }

    /// How far apart the crowd's end's looks for replies were.
    pub(super) fn looks_apart_us(&self) -> f64 {
        1e6 / self.looks_per_s.max(1.0)
    }

    /// Of a crowd, as if the CPU had taken so long for a small datagram: machines change their
    /// speed from one to the next. Beside a program with many connections a datagram takes up to
    /// 15% longer at the same speed, so that what is measured before a stopped server may come out
    /// as much too dear.
    pub(super) fn of(measured: &Measured, window: Duration, round_trip: Duration) -> Self {
        let shares = measured.difference.server_cpu;
        let syns = measured.crowd.syns_per_s.max(1.0) * window.as_secs_f64();
        let counted = |name| measured.difference.kernel.get(name).copied().unwrap_or(0) as f64;
        let guarded = |name| measured.guard_per_s.get(name).copied().unwrap_or(0.0);
        let slower = measured.round_trip.as_secs_f64() / round_trip.as_secs_f64();
        let busy_of_syn = 1e6 * measured.difference.server_busy / measured.crowd.syns_per_s.max(1.0) / slower;
        // The parts are told by ticks; see `Difference::server_busy`.
        let program = shares.user + shares.system;
        let of_program = program / (program + shares.softirq).max(f64::MIN_POSITIVE);
        Self {
            syns_per_s: measured.crowd.syns_per_s,
            softirq_of_syn: (1.0 - of_program) * busy_of_syn,
            program_of_syn: of_program * busy_of_syn,
            turns_of_syn: counted(TURNS) / syns,
            turns_per_s: counted(TURNS) / window.as_secs_f64(),
            looks_per_s: counted(LOOKS) / window.as_secs_f64(),
            sleeps_of_syn: counted(SLEEPS) / syns,
            ends_of_syn: guarded(counter::acks_reset) / measured.crowd.syns_per_s.max(1.0),
            refused_after_us: 1e3 * measured.crowd.refusal_ms.p50,
            answered: measured.crowd.goodput_per_s / measured.crowd.offered_per_s.max(1.0),
            answered_per_s: measured.crowd.goodput_per_s,
            dropped_per_s: counted("TcpExt.ListenDrops") / window.as_secs_f64(),
            torn_per_s: guarded(counter::acks_full) - guarded(counter::acks_implied),
            guard_us_per_s: counted(GUARD_RUN_NS) / 1e3 / window.as_secs_f64() / slower,
            slower,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_a_crowd_is_no_part_of_it() {
        let of = |syns_per_s: f64, us_per_s: f64, turns_per_s: f64| Costs {
            syns_per_s,
            softirq_of_syn: us_per_s / syns_per_s / 2.0,
            program_of_syn: us_per_s / syns_per_s / 2.0,
            turns_of_syn: turns_per_s / syns_per_s,
            sleeps_of_syn: turns_per_s / syns_per_s / 2.0,
            ..Costs::default()
        };
        let hardly_any = of(5.0, 5_000.0, 160.0);
        // Of each of a thousand more 40 us, seven tenths of a turn, and 150 us that a request
        // works.
        let crowd = of(1005.0, 5_000.0 + 1000.0 * 190.0, 160.0 + 700.0);
        let ([turns, sleeps], us) = crowd.beside(&hardly_any, 150.0);
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(is_near(turns, 0.7) && is_near(sleeps, 0.35) && is_near(us, 40.0), "{turns} {sleeps} {us}");
    }
}
