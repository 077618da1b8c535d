//! What the peer has of that which it has not acknowledged: RFC 6675.

use wire::SeqNumber;

/// Duplicate acknowledgments, or pieces above a hole, that make the hole a loss (RFC 6675 section 2, `DupThresh`). Linux raises it where a path
/// reorders; this does not.
pub(crate) const DUPLICATES: u32 = 3;
/// Pieces that are kept at most: what a peer says beyond them is as if it were lost, so that none makes us remember without end.
const MOST_PIECES: usize = 4096;

/// Pieces that were selectively acknowledged: ascending, disjoint, with holes between them, and none below the acknowledgment number.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    pieces: Vec<Piece>,
}

/// From a sequence number up to, and not including, another.
type Piece = (SeqNumber, SeqNumber);

impl Scoreboard {
    /// Everything below `una` is acknowledged. Gives the bytes of that which were here.
    pub(crate) fn advance(&mut self, una: SeqNumber) -> u32 {
        let mut known = 0;
        let mut below = 0;
        for piece in &mut self.pieces {
            if una < piece.1 {
                if piece.0 < una {
                    known += una - piece.0;
                    piece.0 = una;
                }
                break;
            }
            known += piece.1 - piece.0;
            below += 1;
        }
        self.pieces.drain(..below);
        known
    }

    /// Adds a piece of what is out. Gives the bytes of it that are new.
    pub(crate) fn insert(&mut self, from: SeqNumber, to: SeqNumber) -> u32 {
        let first = self.pieces.partition_point(|piece| piece.1 < from);
        let touched = self.pieces[first..].iter().take_while(|piece| piece.0 <= to).count();
        if touched == 0 {
            if self.pieces.len() == MOST_PIECES {
                return 0;
            }
            self.pieces.insert(first, (from, to));
            return to - from;
        }
        let last = first + touched - 1;
        let known: u32 = self.pieces[first..=last].iter().map(|piece| piece.1 - piece.0).sum();
        let from = if self.pieces[first].0 < from { self.pieces[first].0 } else { from };
        let to = if to < self.pieces[last].1 { self.pieces[last].1 } else { to };
        self.pieces[first] = (from, to);
        self.pieces.drain(first + 1..=last);
        to - from - known
    }

    /// The peer may have thrown it all away (RFC 2018 section 8).
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Whether the peer says that it has what comes next, and does not acknowledge it: it has thrown something away.
    pub(crate) fn has(&self, una: SeqNumber) -> bool {
        self.pieces.first().is_some_and(|piece| piece.0 == una)
    }

    /// Where the last piece ends, which is the highest that was selectively acknowledged.
    pub(crate) fn end(&self) -> Option<SeqNumber> {
        self.pieces.last().map(|piece| piece.1)
    }

    /// Bytes of this range that are not here.
    pub(crate) fn missing(&self, from: SeqNumber, to: SeqNumber) -> u32 {
        if to <= from {
            return 0;
        }
        let mut missing = to - from;
        for piece in &self.pieces {
            let start = if piece.0 < from { from } else { piece.0 };
            let end = if to < piece.1 { to } else { piece.1 };
            if start < end {
                missing -= end - start;
            }
        }
        missing
    }

    /// The first range from `from` on, and below `max`, that is not here.
    pub(crate) fn hole(&self, from: SeqNumber, max: SeqNumber) -> Option<Piece> {
        let mut start = from;
        for piece in &self.pieces {
            if start < piece.0 {
                return Some((start, piece.0));
            }
            if start < piece.1 {
                start = piece.1;
            }
        }
        (start < max).then_some((start, max))
    }

    /// Up to where what is missing counts as lost: below as many pieces, or more bytes than as many segments less one, as [`DUPLICATES`] says
    /// (RFC 6675 section 4, `IsLost()`, which holds for all that is below where it holds).
    pub(crate) fn lost_below(&self, mss: u32) -> Option<SeqNumber> {
        let mut bytes = 0;
        for (above, piece) in (1..).zip(self.pieces.iter().rev()) {
            bytes += piece.1 - piece.0;
            if above >= DUPLICATES || bytes > (DUPLICATES - 1) * mss {
                return Some(piece.0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const START: SeqNumber = SeqNumber(u32::MAX - 5000);
    const MSS: u32 = 1000;

    fn board(pieces: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for (from, to) in pieces {
            board.insert(START + *from, START + *to);
        }
        board
    }

    fn shown(board: &Scoreboard) -> Vec<(u32, u32)> {
        board.pieces.iter().map(|(from, to)| (*from - START, *to - START)).collect()
    }

    #[test]
    fn pieces_that_touch_are_one() {
        let mut board = board(&[(1000, 2000), (3000, 4000), (5000, 6000)]);
        assert_eq!(board.insert(START + 2000, START + 3000), 1000);
        assert_eq!(shown(&board), [(1000, 4000), (5000, 6000)]);
        assert_eq!(board.insert(START + 500, START + 7000), 6500 - 4000);
        assert_eq!(shown(&board), [(500, 7000)]);
        assert_eq!(board.insert(START + 600, START + 700), 0);
        assert_eq!(board.advance(START + 600), 100);
        assert!(board.has(START + 600));
        assert_eq!(board.advance(START + 7000), 6400);
        assert_eq!(shown(&board), []);
    }

    /// RFC 6675 section 4: `DupThresh` pieces above, or more than `DupThresh - 1` full segments.
    #[test]
    fn hole_is_lost_below_three_pieces_or_more_than_two_segments() {
        let lost_below = |pieces: &[(u32, u32)]| board(pieces).lost_below(MSS).map(|seq| seq - START);
        assert_eq!(lost_below(&[(1000, 3000)]), None);
        assert_eq!(lost_below(&[(1000, 3001)]), Some(1000));
        assert_eq!(lost_below(&[(1000, 1010), (1020, 1030)]), None);
        assert_eq!(lost_below(&[(1000, 1010), (1020, 1030), (1040, 1050)]), Some(1000));
        assert_eq!(lost_below(&[(1000, 2000), (3000, 4000), (5000, 7500)]), Some(5000));
    }

    #[test]
    fn holes_are_found_and_counted_by_ranges() {
        let board = board(&[(1000, 2000), (3000, 4000)]);
        let hole = |from| board.hole(START + from, START + 6000).map(|(from, to)| (from - START, to - START));
        assert_eq!(
            [0, 500, 1500, 4000].map(hole).map(Option::unwrap_or_default),
            [(0, 1000), (500, 1000), (2000, 3000), (4000, 6000)]
        );
        assert_eq!(hole(6000), None);
        assert_eq!(board.missing(START + 500, START + 6000), 500 + 1000 + 2000);
        assert_eq!(board.missing(START + 6000, START + 500), 0);
    }

    /// Against one bit for each byte.
    #[test]
    fn any_pieces_in_any_order_are_counted_as_a_bitmap_counts_them() {
        for seed in 0..200 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let (mut board, mut bits, mut una) = (Scoreboard::default(), [false; 400], 0);
            for _ in 0..60 {
                if random.random_ratio(1, 5) {
                    let to = random.random_range(una..400).min(una + 40);
                    let known = bits[una..to].iter().filter(|is_here| **is_here).count();
                    assert_eq!(board.advance(START + to as u32) as usize, known, "seed {seed}");
                    una = to;
                } else {
                    let from = random.random_range(una..400);
                    let to = random.random_range(from + 1..=(from + 30).min(400));
                    let known = bits[from..to].iter().filter(|is_here| **is_here).count();
                    let new = board.insert(START + from as u32, START + to as u32) as usize;
                    assert_eq!(new, to - from - known, "seed {seed}");
                    bits[from..to].fill(true);
                }
                let missing = bits[una..].iter().filter(|is_here| !**is_here).count();
                assert_eq!(board.missing(START + una as u32, START + 400) as usize, missing, "seed {seed}");
                let hole = bits[una..].iter().position(|is_here| !is_here).map(|at| (una + at) as u32);
                let found = board.hole(START + una as u32, START + 400).map(|(from, _)| from - START);
                assert_eq!(found, hole, "seed {seed}");
                assert!(board.pieces.windows(2).all(|pair| pair[0].1 < pair[1].0), "seed {seed}");
            }
        }
    }
}
