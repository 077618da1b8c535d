//! How long answers take by how many wait: in a queue longer the more there are, before work that is slow by itself always as long.
//!
//! A limit is found by what twice of it brings, a few answers' time after it was set. Where answers take seconds that takes minutes, while others are refused; and how long each took, and how many
//! waited when it came, is known after one.

use units::Nanos;

use crate::fade::{SECOND, remembered};
use crate::service::BESIDE;
use crate::service::waiting_beside;
use crate::{Look, Service as Counts};

/// From here on answers are slow, ns: a limit is not found within seconds.
pub(crate) const SLOW_NS: u64 = 100_000_000;
/// How fast what was seen is forgotten: in a crowd there are no few.
const MEMORY: Nanos = Nanos::from_secs(60);
/// What many wait now is of so many usual answers, and a second.
const RECENT_RESPONSES: u64 = 2;
/// They are few until there are so many answers, and many of whom at least twice as many wait: so many buckets further.
const FEW: f64 = 4.0;
const APART: usize = 2;
/// Of fewer answers a mean is noise.
const FEWEST: f64 = 8.0;
/// Up to here many wait as long as few.
const AS_LONG: f64 = 1.5;
/// If those who came while few waited took so many times as long, what they waited for is gone.
const GONE: f64 = 2.0;
/// For so many answers' time those may be in the way who were there before us. Nobody was if nobody comes for a second.
const RESPONSES_BEFORE_US: u64 = 3;

/// Answers, and what they took.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    answers: f64,
    /// What those waited who were answered, together.
    waited_ns: f64,
    /// And what all did, answered or not.
    present_ns: f64,
}

impl Row {
    /// By Little's law: the soonest are answered first, so that what those wait who are not yet must count, too.
    fn mean_ns(&self) -> Option<f64> {
        self.is_known().then(|| self.present_ns / self.answers)
    }

    fn is_known(&self) -> bool {
        self.answers >= FEWEST
    }

    /// Of those who were answered alone: one among few who never is would weigh much.
    fn answered_ns(&self) -> f64 {
        self.waited_ns / self.answers
    }

    fn plus(self, other: Self, share: f64) -> Self {
        Self {
            answers: self.answers + share * other.answers,
            waited_ns: self.waited_ns + share * other.waited_ns,
            present_ns: self.present_ns + share * other.present_ns,
        }
    }
}

/// What is known of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Curve {
    began: Look,
    /// Whether whoever was there before us is answered by now.
    is_settled: bool,
    /// The longest of the usual answers until then.
    slowest_ns: u64,
    /// By buckets of how many waited: 0, 1, 2 and 3, 4 to 7 and so on.
    rows: [Row; BESIDE],
    /// Of all of them.
    recent: Row,
}

impl Curve {
    pub(crate) fn new(began: Look) -> Self {
        Self {
            began,
            is_settled: false,
            slowest_ns: 0,
            rows: [Row::default(); BESIDE],
            recent: Row::default(),
        }
    }

    /// Goes on by what was counted between two looks, while an answer usually takes so long; 0 if that is not known. Silent connections wait, too, or do not.
    pub(crate) fn add(&mut self, now: &Look, before: &Look, response_ns: u64, counts_silent: bool) {
        self.settle(now, before, response_ns);
        if !self.is_settled {
            return;
        }
        let elapsed = now.at.since(before.at);
        let since = |of: fn(&Counts) -> &[u64; BESIDE], bucket: usize| {
            of(&now.counts)[bucket].saturating_sub(of(&before.counts)[bucket]) as f64
        };
        let kept = remembered(elapsed, MEMORY);
        let kept_recent = remembered(elapsed, SECOND + Nanos(RECENT_RESPONSES * response_ns));
        self.recent = Row::default().plus(self.recent, kept_recent);
        for (bucket, row) in self.rows.iter_mut().enumerate() {
            let seen = Row {
                answers: since(|counts| &counts.answers_beside, bucket),
                waited_ns: since(|counts| &counts.responses_beside_ns, bucket),
                present_ns: f64::from(waiting_beside(&now.counts, bucket, counts_silent)) * elapsed.0 as f64,
            };
            *row = seen.plus(*row, kept);
            self.recent = self.recent.plus(seen, 1.0);
        }
        self.forget_what_is_gone();
    }

    fn settle(&mut self, now: &Look, before: &Look, response_ns: u64) {
        // A server that stalls with a full queue ends no handshake either.
        let has_nobody_come = before.counts.established == 0 && before.demand.new == self.began.demand.new;
        let was_quiet = has_nobody_come && before.at.since(self.began.at) >= SECOND;
        self.slowest_ns = self.slowest_ns.max(response_ns);
        let age = now.at.since(self.began.at);
        self.is_settled |=
            was_quiet || (self.slowest_ns > 0 && age >= Nanos(RESPONSES_BEFORE_US * self.slowest_ns));
    }

    /// The first of the buckets that have answers enough, together, and the last of them.
    fn few(&self) -> Option<(Row, usize)> {
        let mut few = Row::default();
        self.rows[..BESIDE - APART].iter().enumerate().find_map(|(bucket, &row)| {
            few = few.plus(row, 1.0);
            (few.answers >= FEW).then_some((few, bucket))
        })
    }

    /// What few waited for a while ago nobody waits for any more.
    fn forget_what_is_gone(&mut self) {
        let gone_ns = self.recent.mean_ns().map(|recent_ns| GONE * recent_ns);
        if let (Some((few, _)), Some(gone_ns)) = (self.few(), gone_ns)
            && few.answered_ns() >= SLOW_NS as f64
            && few.answered_ns() > gone_ns
        {
            (self.rows, self.recent) = ([Row::default(); BESIDE], Row::default());
        }
    }

    /// So many may wait: they are answered as soon as where few wait, and that takes long. Half as many again, unless these were seen to take longer, so that it shows. 0 where nothing is known.
    ///
    /// If it is steady (some have been refused for some answers' time, and the limit has not risen), whoever will be answered is by now, and who is not is taken for one who asks for nothing.
    pub(crate) fn unhindered(&self, is_steady: bool) -> u32 {
        let mut unhindered = 0;
        let Some((few, last)) = self.few().filter(|(few, _)| few.answered_ns() >= SLOW_NS as f64) else {
            return unhindered;
        };
        for bucket in last + APART..BESIDE {
            let row = self.rows[bucket];
            match if is_steady { row.is_known().then(|| row.answered_ns()) } else { row.mean_ns() } {
                Some(many_ns) if many_ns <= AS_LONG * few.answered_ns() => unhindered = 3 << (bucket - 1),
                Some(_) => unhindered = unhindered.min(1 << (bucket - 1)),
                None => {}
            }
        }
        unhindered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, WAITING};

    const LOOK: Nanos = Nanos::from_millis(50);
    const S: u64 = 1_000_000_000;

    /// Looks at a server that answers so many in each bucket, after so long, for as long as that takes; nobody came in the first `quiet`.
    struct Server {
        curve: Curve,
        look: Look,
    }

    impl Server {
        fn after(quiet: Nanos) -> Self {
            let at = Nanos::from_secs(1);
            let look = Look { at, counts: Counts::default(), demand: Demand::default() };
            let mut server = Self { curve: Curve::new(look), look };
            server.go_on(quiet, 0, |_| {});
            server
        }

        fn go_on(&mut self, span: Nanos, response_ns: u64, change: impl Fn(&mut Counts)) -> &mut Self {
            for _ in 0..span.0 / LOOK.0 {
                let mut now = self.look;
                now.at += LOOK;
                change(&mut now.counts);
                self.curve.add(&now, &self.look, response_ns, false);
                self.look = now;
            }
            self
        }

        /// For ten seconds: in each look one is answered in each of these buckets, after so long.
        fn answers(&mut self, waits: &[(usize, u64)]) -> &mut Self {
            let waits = waits.to_vec();
            self.look.counts.waiting_beside[WAITING] = [0; BESIDE];
            for &(bucket, wait_ns) in &waits {
                self.look.counts.waiting_beside[WAITING][bucket] = (wait_ns / LOOK.0) as u32;
            }
            let usual_ns = waits[waits.len() / 2].1;
            self.go_on(Nanos::from_secs(10), usual_ns, |counts| {
                for &(bucket, wait_ns) in &waits {
                    counts.established += 1;
                    counts.answers_beside[bucket] += 1;
                    counts.responses_beside_ns[bucket] += wait_ns;
                }
            })
        }

        fn unhindered(&self) -> u32 {
            self.curve.unhindered(false)
        }
    }

    fn seen(waits: &[(usize, u64)]) -> u32 {
        Server::after(Nanos::from_secs(2)).answers(waits).unhindered()
    }

    #[test]
    fn as_many_may_wait_as_wait_no_longer_than_few_and_half_as_many_again_if_nobody_was_seen_to_wait_longer()
    {
        // Of 4 to 7, and of 32 to 63.
        assert_eq!(seen(&[(3, S), (6, S)]), 96);
        assert_eq!(seen(&[(3, S), (6, S + S / 4)]), 96, "but for a little");
        assert_eq!(seen(&[(3, S), (5, S), (6, S), (7, 2 * S)]), 64, "64 to 127 are too many");
        assert_eq!(seen(&[(3, S), (6, 2 * S), (8, S)]), 384, "more of them say that it was something else");
    }

    #[test]
    fn queue_is_none() {
        assert_eq!(seen(&[(1, S), (3, 4 * S), (5, 16 * S)]), 0);
        assert_eq!(seen(&[(3, S), (4, S)]), 0, "7 and 8 may be, and wait as long");
        assert_eq!(seen(&[(6, S)]), 0, "how long few wait is not known");
    }

    #[test]
    fn answers_that_come_soon_need_none() {
        assert_eq!(seen(&[(3, SLOW_NS / 2), (6, SLOW_NS / 2)]), 0);
    }

    /// Twenty of a thousand are answered within a second, and the others never.
    #[test]
    fn who_is_not_answered_yet_waits_too() {
        let mut server = Server::after(Nanos::from_secs(2));
        server.answers(&[(3, S)]);
        server.look.counts.waiting_beside[WAITING][6] = 1_000;
        server.go_on(LOOK, S, |counts| {
            counts.answers_beside[6] += 20;
            counts.responses_beside_ns[6] += 20 * S;
        });
        server.go_on(Nanos::from_secs(2), S, |_| {});
        assert_eq!(server.unhindered(), 0);
    }

    #[test]
    fn what_fewer_than_eight_waited_for_is_not_known() {
        for (answers, unhindered) in [(7, 0), (8, 96)] {
            let mut server = Server::after(Nanos::from_secs(2));
            server.answers(&[(3, S)]);
            server.look.counts.waiting_beside[WAITING][6] = (answers * S / LOOK.0) as u32;
            server.go_on(LOOK, S, |counts| {
                counts.answers_beside[6] += answers;
                counts.responses_beside_ns[6] += answers * S;
            });
            for is_steady in [false, true] {
                assert_eq!(server.curve.unhindered(is_steady), unhindered, "{answers} answers, {is_steady}");
            }
        }
    }

    #[test]
    fn who_is_not_answered_once_it_is_steady_is_taken_for_one_who_never_is() {
        let mut server = Server::after(Nanos::from_secs(2));
        server.answers(&[(3, S), (6, S)]);
        server.look.counts.waiting_beside[WAITING][6] = 1_000;
        server.go_on(Nanos::from_secs(2), S, |_| {});
        assert_eq!(server.unhindered(), 0);
        assert_eq!(server.curve.unhindered(true), 96);
    }

    #[test]
    fn who_was_there_before_keeps_the_first_waiting() {
        for (quiet, unhindered) in [(0, 0), (2_000, 96)] {
            let mut server = Server::after(Nanos::from_millis(quiet));
            for bucket in [3, 6] {
                server.look.counts.waiting_beside[WAITING][bucket] = 20;
            }
            server.go_on(Nanos::from_secs(2), S, |counts| {
                counts.established += 1;
                for bucket in [3, 6] {
                    counts.answers_beside[bucket] += 1;
                    counts.responses_beside_ns[bucket] += S;
                }
            });
            assert_eq!(server.unhindered(), unhindered, "after {quiet} ms");
        }
    }

    /// With SYNs that find the queue full, of a server that stalls.
    #[test]
    fn server_to_which_somebody_comes_is_not_quiet() {
        let mut server = Server::after(Nanos::ZERO);
        let at = server.look.at;
        while server.look.at.since(at) < Nanos::from_secs(2) {
            server.look.demand.new += 1;
            server.go_on(LOOK, 0, |_| {});
        }
        server.look.counts.established += 1;
        server.go_on(LOOK, 0, |_| {});
        assert!(!server.curve.is_settled);
    }

    #[test]
    fn what_few_waited_for_may_be_gone() {
        let mut server = Server::after(Nanos::from_secs(2));
        server.answers(&[(3, 4 * S), (6, 4 * S)]);
        assert_eq!(server.unhindered(), 96);
        // A queue now, before a server that takes a fraction of a second.
        server.answers(&[(6, S)]);
        assert_eq!(server.unhindered(), 0);
        server.answers(&[(6, 4 * S)]);
        assert_eq!(server.unhindered(), 0, "how long few wait now is not known");
    }

    #[test]
    fn what_was_seen_minutes_ago_is_forgotten() {
        let mut server = Server::after(Nanos::from_secs(2));
        server.answers(&[(3, S), (6, S)]);
        server.look.counts.waiting_beside[WAITING] = [0; BESIDE];
        server.go_on(Nanos::from_secs(60), S, |_| {});
        assert_eq!(server.unhindered(), 96);
        server.go_on(Nanos::from_secs(240), S, |_| {});
        assert_eq!(server.unhindered(), 0);
    }
}
