//! `kernel/returned.h`: which attempts come back.

use kernel::{Back, Outcome, UnansweredRow};
use units::Nanos;

/// The attempts that were refused last, by the hash of their flow; no memory until one was.
#[derive(Debug, Default)]
pub struct Returns {
    refused: Vec<u64>,
    unanswered: Vec<[u64; 2]>,
    /// Where one got no answer lately.
    marks: Vec<u64>,
}

impl Returns {
    /// Whether one that was deferred is so again, and nothing is paid for it; or a place is owed to it.
    pub fn may_defer_again(&self, hash: u32, seq: u32, now: Nanos) -> bool {
        let marks = self.marks.get(kernel::marks_index_of(hash) as usize);
        if !marks.is_some_and(|&marks| kernel::is_marked(marks, hash, now.0)) {
            return false;
        }
        let row = &self.unanswered[kernel::unanswered_row_of(hash) as usize];
        kernel::may_defer_again(row[which(row, hash, seq, now)], hash, seq, now.0)
    }

    /// An attempt was decided; what is known of it from before: `see_return()` of `kernel/returned.bpf.h`.
    pub fn see(&mut self, hash: u32, seq: u32, outcome: Outcome, now: Nanos) -> Option<Back> {
        if self.refused.is_empty() {
            if outcome == Outcome::Admitted {
                return None;
            }
            *self = Self::new();
        }
        let is_left = kernel::is_unanswered(outcome);
        let word = &mut self.refused[kernel::refused_index_of(hash) as usize];
        let back = kernel::is_back(*word, hash, seq).then_some(Back::Reset);
        *word = kernel::next_refused(*word, hash, seq, outcome);
        let marks = &mut self.marks[kernel::marks_index_of(hash) as usize];
        let mut left = Back::Not;
        if is_left || kernel::is_marked(*marks, hash, now.0) {
            let row = &mut self.unanswered[kernel::unanswered_row_of(hash) as usize];
            let word = &mut row[which(row, hash, seq, now)];
            left = kernel::read_unanswered(*word, hash, seq);
            *word = kernel::next_unanswered(*word, hash, seq, outcome, now.0);
        }
        if is_left {
            *marks = kernel::with_mark(*marks, hash, now.0);
        }
        if left == Back::Not { back } else { Some(left) }
    }

    fn new() -> Self {
        Self {
            refused: vec![0; 1 << kernel::REFUSED_SHIFT],
            unanswered: vec![[0; 2]; 1 << kernel::UNANSWERED_SHIFT],
            marks: vec![0; 1 << kernel::MARKS_SHIFT],
        }
    }
}

fn which(row: &[u64; 2], hash: u32, seq: u32, now: Nanos) -> usize {
    kernel::which_word(&UnansweredRow { words: *row }, hash, seq, now.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(10_000);
    /// In one row, and the first two with the same word of it; and all with the same word of those that got a RST.
    const HASHES: [u32; 3] = [0xffff_f000, 0xffff_f010, 0xffff_f001];
    const RESET: Option<Back> = Some(Back::Reset);
    const DROPPED: Option<Back> = Some(Back::Dropped);
    const DEFERRED: Option<Back> = Some(Back::Deferred);

    #[test]
    fn attempt_is_back_by_its_flow_and_sequence_number_until_it_is_let_in() {
        let mut returns = Returns::default();
        let [hash, other, _] = HASHES;
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, NOW), None, "nobody was refused yet");
        assert_eq!(returns.see(hash, 7, Outcome::Reset, NOW), None);
        assert_eq!(returns.see(other, 7, Outcome::Admitted, NOW), None, "of another flow");
        assert_eq!(returns.see(hash, 8, Outcome::Admitted, NOW), None, "of another connection");
        assert_eq!(returns.see(hash, 7, Outcome::Reset, NOW), RESET);
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, NOW), RESET);
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, NOW), None, "once");
        assert_eq!(returns.see(0, 0, Outcome::Admitted, NOW), None, "an empty place is nobody's");
    }

    /// A client of Linux 6.5 and later sends its SYN again after 1, 2, 3, 4 and 5 s, and then after 7.
    #[test]
    fn deferred_attempt_is_deferred_for_nothing_as_often_as_it_comes_back_within_five_seconds() {
        let mut returns = Returns::default();
        let [hash, ..] = HASHES;
        let at = |second| NOW + Nanos::from_secs(second);
        assert!(!returns.may_defer_again(hash, 7, NOW));
        assert_eq!(returns.see(hash, 7, Outcome::Deferred, NOW), None);
        for second in 1..=5 {
            assert!(returns.may_defer_again(hash, 7, at(second)), "{second} s");
            assert!(!returns.may_defer_again(hash, 8, at(second)), "that is another");
            assert_eq!(returns.see(hash, 7, Outcome::Deferred, at(second)), DEFERRED);
        }
        assert!(!returns.may_defer_again(hash, 7, at(7)), "it is the first time that counts");
        assert_eq!(returns.see(hash, 7, Outcome::Deferred, at(7)), DEFERRED, "paid for once more");
        assert!(returns.may_defer_again(hash, 7, at(8)));
        assert_eq!(returns.see(hash, 7, Outcome::Reset, at(8)), DEFERRED);
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, at(9)), RESET, "told that it is not wanted");
    }

    #[test]
    fn time_of_a_word_goes_round_and_nobody_is_forgotten() {
        let mut returns = Returns::default();
        let round = Nanos(4096 << 27);
        returns.see(1, 7, Outcome::Deferred, Nanos(round.0 - 1));
        assert!(returns.may_defer_again(1, 7, round + Nanos::from_secs(5)));
        assert!(!returns.may_defer_again(1, 7, round + Nanos::from_secs(6)));
    }

    #[test]
    fn of_three_in_one_row_the_later_are_remembered_unless_one_was_deferred() {
        let mut returns = Returns::default();
        let [hash, other, third] = HASHES;
        returns.see(hash, 7, Outcome::Dropped, NOW);
        returns.see(other, 7, Outcome::Deferred, NOW);
        assert_eq!(returns.see(hash, 7, Outcome::Dropped, NOW), None, "the later one of the same word");
        assert!(returns.may_defer_again(other, 7, NOW), "he paid for it");
        returns.see(hash, 7, Outcome::Deferred, NOW);
        assert!([hash, other].map(|hash| returns.may_defer_again(hash, 7, NOW)).iter().all(|&is| is), "both");
        returns.see(third, 7, Outcome::Dropped, NOW);
        assert_eq!(returns.see(third, 7, Outcome::Admitted, NOW), None, "there is no place for it");
        returns.see(third, 7, Outcome::Deferred, NOW);
        let are_left = HASHES.map(|hash| returns.may_defer_again(hash, 7, NOW));
        assert_eq!(are_left, [false, true, true], "but for the word of its hash there is none");
        assert_eq!(returns.see(other, 7, Outcome::Admitted, NOW), DEFERRED);
        assert_eq!(returns.see(third, 7, Outcome::Admitted, NOW), DEFERRED);
    }

    #[test]
    fn who_was_deferred_and_never_came_back_is_forgotten() {
        let [hash, other, _] = HASHES;
        for (later, is_remembered) in [(3, true), (6, false)] {
            let mut returns = Returns::default();
            returns.see(hash, 7, Outcome::Deferred, NOW);
            let now = NOW + Nanos::from_secs(later);
            returns.see(other, 7, Outcome::Dropped, now);
            let back = returns.see(hash, 7, Outcome::Admitted, now);
            assert_eq!(back.is_some(), is_remembered, "{later} s later");
        }
    }

    #[test]
    fn who_got_a_reset_is_in_the_way_of_none_who_was_left_unanswered() {
        let mut returns = Returns::default();
        let [hash, other, _] = HASHES;
        returns.see(hash, 7, Outcome::Deferred, NOW);
        for seq in 0..1000 {
            returns.see(hash, 100 + seq, Outcome::Reset, NOW);
        }
        assert_eq!(returns.see(hash, 1098, Outcome::Admitted, NOW), None, "the last one has its word");
        assert_eq!(returns.see(hash, 1099, Outcome::Reset, NOW), RESET);
        assert!(returns.may_defer_again(hash, 7, NOW));
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, NOW), DEFERRED);
        returns.see(other, 7, Outcome::Reset, NOW);
        returns.see(other, 7, Outcome::Dropped, NOW);
        assert_eq!(returns.see(other, 7, Outcome::Deferred, NOW), DROPPED, "of what became of it last");
        assert_eq!(returns.see(other, 7, Outcome::Reset, NOW), DEFERRED);
        assert_eq!(returns.see(other, 7, Outcome::Admitted, NOW), RESET);
        assert_eq!(returns.see(other, 7, Outcome::Admitted, NOW), None, "once");
    }

    /// By marks of two periods of 8.6 s, whose number goes round after six days.
    #[test]
    fn who_was_left_unanswered_is_looked_for_for_eight_seconds_at_least() {
        let period = |number: u64| Nanos(number << 33);
        for began in [period(1000), period(1001) - Nanos(1), period(65_536) - Nanos(1)] {
            let back = |after| {
                let mut returns = Returns::default();
                returns.see(HASHES[0], 7, Outcome::Deferred, began);
                returns.see(HASHES[0], 7, Outcome::Admitted, began + Nanos::from_secs(after))
            };
            assert_eq!([0, 8, 18].map(back), [DEFERRED, DEFERRED, None]);
        }
        let mut returns = Returns::default();
        returns.see(HASHES[0], 7, Outcome::Deferred, period(1000));
        let before = period(1000) - Nanos(1);
        assert_eq!(
            returns.see(HASHES[0], 7, Outcome::Admitted, before),
            DEFERRED,
            "a clock that lags behind"
        );
    }
}
