//! How fast a server answers while it has something to do.

use units::Nanos;

use crate::fade::remembered;

/// Of less the best of many would be too much: a server that accepts all that wait before it answers one of them answers nobody meanwhile, and then twice as many as in the mean, and in a burst a
/// second's work may wait.
const WINDOW: Nanos = Nanos::from_secs(1);
/// How fast what the server could do is forgotten while it is busy and does less: in the gap between two bursts nobody shows what it can, and nothing says that it cannot any more.
const MEMORY: Nanos = Nanos::from_secs(10);
/// Somebody waits all the time, but for what two looks at the counts are apart.
const BUSY: f64 = 0.9;
/// What a crowd's SYNs leave of the CPU, at least: a server that is slower by more while it is busy has become slower.
const LEFT_BY_SYNS: f64 = 0.5;

/// The best rate of the last moments: of the answers in the time in which somebody waited. While a burst lasts, its SYNs take a part of the CPU, and in the gap after it few may be left who wait:
/// answers by all of the time are fewer than the server could give to those who are let in.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ServiceRate {
    per_s: f64,
    elapsed: Nanos,
    idle: Nanos,
    answered: u64,
}

impl ServiceRate {
    /// Answers/s; 0 while nothing is known.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// Goes on by what was counted: in so much time, for so much of which nobody waited.
    pub(crate) fn add(&mut self, elapsed: Nanos, idle: Nanos, answered: u64) {
        self.elapsed += elapsed;
        self.idle += idle.min(elapsed);
        self.answered += answered;
        if self.elapsed < WINDOW {
            return;
        }
        let Self { per_s, elapsed, idle, answered } = std::mem::take(self);
        let seconds = elapsed.as_secs_f64();
        let busy = 1.0 - idle.as_secs_f64() / seconds;
        // Of a server that hardly worked it says little how fast it was; as much as it did it can do.
        let shown = answered as f64 / (seconds * if busy >= 0.5 { busy } else { 1.0 });
        let best = shown.max(per_s * remembered(Nanos((busy * elapsed.0 as f64) as u64), MEMORY));
        let has_shown_all = busy >= BUSY && answered > 0;
        self.per_s = if has_shown_all { best.min(shown / LEFT_BY_SYNS) } else { best };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Nanos::from_millis(50);

    /// Ticks with so many answers each, in which nobody waits for so much of the time.
    fn add(rate: &mut ServiceRate, ticks: u32, idle: f64, answered: u64) -> f64 {
        (0..ticks).for_each(|_| rate.add(TICK, Nanos((idle * TICK.0 as f64) as u64), answered));
        rate.per_s().round()
    }

    #[test]
    fn answers_are_of_the_time_in_which_somebody_waited() {
        let mut rate = ServiceRate::default();
        assert_eq!(add(&mut rate, 19, 0.4, 600), 0.0, "950 ms are not enough");
        assert_eq!(add(&mut rate, 1, 0.4, 600), 20_000.0, "600 in 30 ms");
        assert_eq!(add(&mut ServiceRate::default(), 20, 0.9, 600), 12_000.0, "5 ms may be chance");
    }

    #[test]
    fn burst_that_slows_a_server_does_not_hide_what_it_can_do_after_it() {
        let mut rate = ServiceRate::default();
        add(&mut rate, 20, 0.3, 1750);
        assert_eq!(add(&mut rate, 20, 0.0, 1500), 45_242.0, "50,000/s, and a tenth is forgotten");
        assert_eq!(add(&mut rate, 20, 0.0, 1000), 40_000.0, "but no more than twice what it shows");
    }

    #[test]
    fn what_a_server_could_do_is_forgotten_while_it_is_busy_and_not_while_nobody_waits() {
        let mut rate = ServiceRate::default();
        add(&mut rate, 20, 0.0, 2000);
        assert_eq!(add(&mut rate, 1200, 1.0, 0), 40_000.0, "after a minute");
        assert_eq!(add(&mut rate, 200, 0.0, 0), 14_715.0, "over e after ten seconds of answering nobody");
        add(&mut rate, 20, 0.0, 2000);
        assert_eq!(
            add(&mut rate, 200, 0.5, 500),
            24_261.0,
            "over its root after ten of which half were busy"
        );
    }

    #[test]
    fn server_that_becomes_ten_times_as_slow_is_seen_within_a_window() {
        let mut rate = ServiceRate::default();
        add(&mut rate, 20, 0.0, 500);
        assert_eq!(add(&mut rate, 20, 0.0, 50), 2_000.0, "1,000/s is what it shows");
    }

    #[test]
    fn server_that_answers_in_bouts_is_no_faster_in_them() {
        let mut rate = ServiceRate::default();
        for _ in 0..12 {
            // A quarter of a second for those who wait, and as long for their answers.
            add(&mut rate, 5, 0.0, 0);
            add(&mut rate, 5, 0.0, 2000);
        }
        assert_eq!(rate.per_s(), 20_000.0);
    }

    #[test]
    fn few_answers_count_after_a_second() {
        let mut rate = ServiceRate::default();
        assert_eq!(add(&mut rate, 19, 0.0, 1), 0.0);
        assert_eq!(add(&mut rate, 1, 0.0, 1), 20.0);
    }
}
