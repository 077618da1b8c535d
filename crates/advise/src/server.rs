//! What the server can do, by what was seen of it.

use units::Nanos;

use crate::record::{Bin, Record};

/// Answers that a mean is taken of.
const ENOUGH: u64 = 32;
/// A queue stands where this many times as many wait as the server works on, and this many at
/// least.
const STANDS: f64 = 3.0;
const FEWEST: f64 = 8.0;
/// The shortest are those of one in twenty.
const ONE_IN: usize = 20;

/// A server as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Server {
    /// Answers in a second while a queue stands; `None` if none ever stood. Without the time in
    /// which the kernel drops SYNs, if that leaves any: an overload costs a server its answers, and
    /// with a guard there is none.
    pub(crate) per_s: Option<f64>,
    /// How long an answer takes where the fewest wait before it.
    pub(crate) answer: Nanos,
    /// Requests that it works on at a time, from 1.
    pub(crate) workers: u32,
    /// Whether it takes connections out of the accept queue before it has time for them.
    pub(crate) accepts_all: bool,
    /// Of a handshake.
    pub(crate) round_trip: Nanos,
}

impl Server {
    pub(crate) fn measured(record: &Record) -> Self {
        let answer_s = shortest_answer_s(&record.bins);
        let busy: Vec<Busy<'_>> = record.bins.windows(2).filter_map(Busy::of).collect();
        let standing = standing(&busy, answer_s, has_lost(record));
        let calm: Vec<Busy<'_>> = standing.iter().filter(|busy| busy.bin.syns_full == 0).copied().collect();
        let per_s = rate(&calm).or(rate(&standing));
        let mut insides: Vec<f64> = standing.iter().map(|busy| f64::from(busy.bin.inside())).collect();
        insides.sort_by(f64::total_cmp);
        let mean_inside = insides.iter().sum::<f64>() / insides.len().max(1) as f64;
        // By Little's law; and what it works on is inside it at any time.
        let quick_s = record.quickest().as_secs_f64();
        let alone_s = if 2.0 * quick_s < answer_s { quick_s } else { answer_s };
        let at_work = per_s.unwrap_or(0.0) * alone_s;
        let least_inside = insides.get(insides.len() / ONE_IN).copied().unwrap_or(0.0);
        let workers = at_work.min(least_inside).round().max(1.0);
        Self {
            per_s,
            answer: Nanos::from_secs_f64(answer_s),
            workers: workers as u32,
            accepts_all: mean_inside > 2.0 * workers + 2.0,
            round_trip: record.round_trip(),
        }
    }
}

/// A bin in which somebody waited all the time.
#[derive(Clone, Copy)]
struct Busy<'a> {
    bin: &'a Bin,
    /// Connections, at its start or its end, whichever are fewer.
    waiting: f64,
}

impl<'a> Busy<'a> {
    fn of(pair: &'a [Bin]) -> Option<Self> {
        let [before, bin] = pair else { return None };
        let waiting = f64::from(before.waiting.min(bin.waiting));
        (bin.idle == Nanos::ZERO && bin.span > Nanos::ZERO).then_some(Self { bin, waiting })
    }
}

/// The bins in which more wait than the server can be working on. That number and the rate of these
/// bins depend on each other, and settle after a few rounds.
fn standing<'a>(busy: &[Busy<'a>], answer_s: f64, has_lost: bool) -> Vec<Busy<'a>> {
    let mut standing = busy.to_vec();
    for _ in 0..4 {
        let Some(per_s) = rate(&standing) else { return Vec::new() };
        let least = (STANDS * per_s * answer_s).max(FEWEST);
        standing = busy.iter().filter(|busy| busy.waiting >= least).copied().collect();
        if rate(&standing).is_none() {
            // The wait was never short, if clients were lost; or there was no queue.
            return if has_lost { busy.to_vec() } else { Vec::new() };
        }
    }
    standing
}

/// Answers in a second; `None` of too few.
fn rate(bins: &[Busy<'_>]) -> Option<f64> {
    let answered: u64 = bins.iter().map(|busy| busy.bin.answered).sum();
    let span_s: f64 = bins.iter().map(|busy| busy.bin.span.as_secs_f64()).sum();
    (answered >= ENOUGH).then(|| answered as f64 / span_s)
}

/// Whether one client in a hundred was dropped or went away.
fn has_lost(record: &Record) -> bool {
    100 * record.sum(|bin| bin.syns_full + bin.ended) > record.sum(|bin| bin.first)
}

fn shortest_answer_s(bins: &[Bin]) -> f64 {
    let mut means: Vec<f64> =
        together(bins, |sum| sum.timed >= ENOUGH).iter().filter_map(Bin::response_s).collect();
    means.sort_by(f64::total_cmp);
    means.get(means.len() / ONE_IN).copied().unwrap_or(0.0)
}

/// Bins that follow each other, together until there are enough.
pub(crate) fn together(bins: &[Bin], is_enough: impl Fn(&Bin) -> bool) -> Vec<Bin> {
    let (mut sums, mut sum) = (Vec::new(), Bin::default());
    for bin in bins {
        sum = sum.with(bin);
        if is_enough(&sum) {
            sums.push(std::mem::take(&mut sum));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 500 wait all the time. Another process takes half of the CPU, every other second.
    #[test]
    fn rate_is_the_mean_while_a_queue_stands_and_not_the_best_second() {
        let bin = |second: u64| Bin {
            span: Nanos::from_millis(50),
            answered: if second.is_multiple_of(2) { 60 } else { 30 },
            waiting: 500,
            accept_qlen: 499,
            ..Bin::default()
        };
        let bins = (0..20).flat_map(|second| [bin(second); 20]).collect();
        let per_s = Server::measured(&Record::of(bins)).per_s;
        assert!(per_s.is_some_and(|per_s| (890.0..910.0).contains(&per_s)), "{per_s:?}");
    }

    /// It drops SYNs for a third of the time, and answers half as many.
    #[test]
    fn rate_is_that_without_an_overload() {
        let bin = |is_overload: bool| Bin {
            span: Nanos::from_millis(50),
            answered: if is_overload { 20 } else { 40 },
            syns_full: if is_overload { 200 } else { 0 },
            waiting: 500,
            accept_qlen: 499,
            ..Bin::default()
        };
        let bins = (0..300).map(|number| bin(number >= 200)).collect();
        let per_s = Server::measured(&Record::of(bins)).per_s;
        assert!(per_s.is_some_and(|per_s| (790.0..810.0).contains(&per_s)), "{per_s:?}");
    }
}
