//! `kernel/returned.h`: which attempts come back.

use units::Nanos;

/// What became of a SYN: `enum outcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was let through.
    Admitted,
    /// It was answered by a RST, or dropped by a policy.
    Refused,
    /// It was left unanswered, since a burst may be over when its client tries again.
    Deferred,
}

/// Of an attempt that was refused before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Return {
    /// It was left unanswered.
    pub was_deferred: bool,
}

/// The attempts that were refused last, by the hash of their flow; no memory until one was.
#[derive(Debug, Default)]
pub struct Returns(Vec<[u64; 2]>);

impl Returns {
    /// Whether one that was deferred is so again, and nothing is paid for it; or a place is owed to it.
    pub fn may_defer_again(&self, hash: u32, seq: u32, now: Nanos) -> bool {
        let Some(row) = self.0.get(row_of(hash)) else { return false };
        // SAFETY: numbers alone, and nothing is kept; here and below.
        unsafe { tidegate_may_defer_again(row[which(row, hash, seq, now)], hash, seq, now.0) }
    }

    /// An attempt was decided; what is known of it from before.
    pub fn see(&mut self, hash: u32, seq: u32, outcome: Outcome, now: Nanos) -> Option<Return> {
        if self.0.is_empty() {
            if outcome == Outcome::Admitted {
                return None;
            }
            // SAFETY: as above.
            self.0 = vec![[0; 2]; 1 << unsafe { tidegate_refused_shift() }];
        }
        let row = &mut self.0[row_of(hash)];
        let word = &mut row[which(row, hash, seq, now)];
        // SAFETY: as above.
        let (is_back, was_deferred, next) = unsafe {
            (
                tidegate_is_back(*word, hash, seq),
                tidegate_was_deferred(*word, hash, seq),
                tidegate_next_word(*word, hash, seq, outcome as u32, now.0),
            )
        };
        *word = next;
        is_back.then_some(Return { was_deferred })
    }
}

fn row_of(hash: u32) -> usize {
    // SAFETY: as above.
    unsafe { tidegate_refused_row_of(hash) as usize }
}

fn which(row: &[u64; 2], hash: u32, seq: u32, now: Nanos) -> usize {
    // SAFETY: as above; the array has as many as are read.
    unsafe { tidegate_which_word(row.as_ptr(), hash, seq, now.0) as usize }
}

unsafe extern "C" {
    fn tidegate_is_back(word: u64, hash: u32, seq: u32) -> bool;
    fn tidegate_was_deferred(word: u64, hash: u32, seq: u32) -> bool;
    fn tidegate_may_defer_again(word: u64, hash: u32, seq: u32, now: u64) -> bool;
    fn tidegate_next_word(word: u64, hash: u32, seq: u32, outcome: u32, now: u64) -> u64;
    fn tidegate_refused_row_of(hash: u32) -> u32;
    fn tidegate_which_word(words: *const u64, hash: u32, seq: u32, now: u64) -> u32;
    fn tidegate_refused_shift() -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(10_000);
    /// In one row, and the first two with the same word of it.
    const HASHES: [u32; 3] = [0xffff_f000, 0xffff_f002, 0xffff_f001];
    const REFUSED: Option<Return> = Some(Return { was_deferred: false });
    const DEFERRED: Option<Return> = Some(Return { was_deferred: true });

    #[test]
    fn attempt_is_back_by_its_flow_and_sequence_number_until_it_is_let_in() {
        let mut returns = Returns::default();
        let [hash, other, _] = HASHES;
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, NOW), None, "nobody was refused yet");
        assert_eq!(returns.see(hash, 7, Outcome::Refused, NOW), None);
        assert_eq!(returns.see(other, 7, Outcome::Admitted, NOW), None, "of another flow");
        assert_eq!(returns.see(hash, 8, Outcome::Admitted, NOW), None, "of another connection");
        assert_eq!(returns.see(hash, 7, Outcome::Refused, NOW), REFUSED);
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, NOW), REFUSED);
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
        assert_eq!(returns.see(hash, 7, Outcome::Refused, at(8)), DEFERRED);
        assert_eq!(returns.see(hash, 7, Outcome::Admitted, at(9)), REFUSED, "told that it is not wanted");
    }

    #[test]
    fn time_of_a_word_goes_round_and_nobody_is_forgotten() {
        let mut returns = Returns::default();
        let round = Nanos(8192 << 27);
        returns.see(1, 7, Outcome::Deferred, Nanos(round.0 - 1));
        assert!(returns.may_defer_again(1, 7, round + Nanos::from_secs(5)));
        assert!(!returns.may_defer_again(1, 7, round + Nanos::from_secs(6)));
    }

    #[test]
    fn of_three_in_one_row_the_later_are_remembered_unless_one_was_deferred() {
        let mut returns = Returns::default();
        let [hash, other, third] = HASHES;
        returns.see(hash, 7, Outcome::Refused, NOW);
        returns.see(other, 7, Outcome::Deferred, NOW);
        assert_eq!(returns.see(hash, 7, Outcome::Refused, NOW), None, "the later one of the same word");
        assert!(returns.may_defer_again(other, 7, NOW), "he paid for it");
        returns.see(hash, 7, Outcome::Deferred, NOW);
        assert!([hash, other].map(|hash| returns.may_defer_again(hash, 7, NOW)).iter().all(|&is| is), "both");
        returns.see(third, 7, Outcome::Refused, NOW);
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
            returns.see(other, 7, Outcome::Refused, NOW + Nanos::from_secs(later));
            assert_eq!(
                returns.see(hash, 7, Outcome::Admitted, NOW).is_some(),
                is_remembered,
                "{later} s later"
            );
        }
    }
}
