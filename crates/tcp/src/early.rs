//! What arrived before its turn.

use wire::{SackBlocks, SeqNumber};

/// Separate pieces that are kept at most: more than a window of full segments makes, so that a peer that sends single bytes with
/// holes between them costs no more than others.
const MOST_PIECES: usize = 64;

/// Data beyond what is expected next, and where the stream ends, if that is known. All of it lies within the receive window.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// By sequence number, and disjoint.
    pieces: Vec<Piece>,
    /// Sequence number of the FIN.
    fin: Option<SeqNumber>,
    /// Where the newest piece began.
    newest: SeqNumber,
}

#[derive(Debug)]
struct Piece {
    seq: SeqNumber,
    data: Vec<u8>,
}

impl Piece {
    fn end(&self) -> SeqNumber {
        self.seq + self.data.len() as u32
    }
}

impl Early {
    /// Keeps what of `data` is not there yet. What came first stays, as in Linux.
    pub(crate) fn insert(&mut self, seq: SeqNumber, data: &[u8]) {
        self.newest = seq;
        let end = seq + data.len() as u32;
        let mut from = seq;
        let mut at = 0;
        while from < end && self.pieces.len() < MOST_PIECES {
            let (until, after) = match self.pieces.get(at) {
                Some(piece) if piece.end() <= from => {
                    at += 1;
                    continue;
                }
                Some(piece) => (if piece.seq < end { piece.seq } else { end }, piece.end()),
                None => (end, end),
            };
            if from < until {
                let fresh = &data[(from - seq) as usize..(until - seq) as usize];
                self.pieces.insert(at, Piece { seq: from, data: fresh.to_vec() });
                at += 1;
            }
            from = if from < after { after } else { until };
        }
    }

    /// The stream ends there.
    pub(crate) fn insert_fin(&mut self, seq: SeqNumber) {
        self.fin.get_or_insert(seq);
    }

    /// Whether the stream ends there.
    pub(crate) fn ends_at(&self, seq: SeqNumber) -> bool {
        self.fin == Some(seq)
    }

    /// Takes what follows `next` without a hole.
    pub(crate) fn take_from(&mut self, next: SeqNumber) -> Vec<u8> {
        let mut taken = Vec::new();
        let mut next = next;
        let mut used = 0;
        for piece in &mut self.pieces {
            if next < piece.seq {
                break;
            }
            used += 1;
            if next < piece.end() {
                taken.extend_from_slice(&piece.data[(next - piece.seq) as usize..]);
                next = piece.end();
            }
        }
        self.pieces.drain(..used);
        taken
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.fin.is_none()
    }

    /// What a selective acknowledgement says of it (RFC 2018 section 4): the block of the newest piece first.
    pub(crate) fn blocks(&self, most: usize) -> SackBlocks {
        let mut runs: Vec<(SeqNumber, SeqNumber)> = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            match runs.last_mut() {
                Some(run) if run.1 == piece.seq => run.1 = piece.end(),
                _ => runs.push((piece.seq, piece.end())),
            }
        }
        if let Some(fin) = self.fin {
            match runs.last_mut() {
                Some(run) if run.1 == fin => run.1 = fin + 1,
                _ => runs.push((fin, fin + 1)),
            }
        }
        let newest = runs.iter().position(|run| run.0 <= self.newest && self.newest < run.1).unwrap_or(0);
        let mut blocks = SackBlocks::NONE;
        let others = runs.iter().enumerate().filter(|(at, _)| *at != newest).map(|(_, run)| run);
        for (from, to) in runs.get(newest).into_iter().chain(others).take(most) {
            blocks.push(*from, *to);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const START: SeqNumber = SeqNumber(u32::MAX - 10);

    fn seen(early: &Early) -> Vec<(u32, u32)> {
        early.blocks(4).as_slice().iter().map(|(from, to)| (*from - START, *to - START)).collect()
    }

    #[test]
    fn newest_block_comes_first_and_neighbours_are_one() {
        let mut early = Early::default();
        early.insert(START + 10, b"0123456789");
        early.insert(START + 40, b"0123456789");
        assert_eq!(seen(&early), [(40, 50), (10, 20)]);
        early.insert(START + 20, b"01234");
        assert_eq!(seen(&early), [(10, 25), (40, 50)]);
    }

    #[test]
    fn what_came_first_stays() {
        let mut early = Early::default();
        early.insert(START + 2, b"bb");
        early.insert(START + 1, b"aaaa");
        assert_eq!(early.take_from(START + 1), b"abba");
        assert!(early.is_empty());
    }

    #[test]
    fn hole_ends_what_is_taken() {
        let mut early = Early::default();
        early.insert(START + 1, b"b");
        early.insert(START + 3, b"d");
        early.insert_fin(START + 4);
        assert_eq!(early.take_from(START), b"");
        assert_eq!(early.take_from(START + 1), b"b");
        assert!(!early.ends_at(START + 2) && !early.is_empty());
        assert_eq!(early.take_from(START + 3), b"d");
        assert!(early.ends_at(START + 4));
    }

    #[test]
    fn pieces_in_any_order_and_overlap_are_the_stream() {
        let stream: Vec<u8> = (0..2000).map(|at| (at % 251) as u8).collect();
        for seed in 0..200 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut early = Early::default();
            let (mut next, mut heard) = (START, Vec::new());
            for _ in 0..3000 {
                if heard.len() == stream.len() {
                    break;
                }
                let around = heard.len().saturating_sub(100)..(heard.len() + 400).min(stream.len());
                let from = random.random_range(around);
                let to = (from + random.random_range(1..200)).min(stream.len());
                let at = heard.len();
                if (from..to).contains(&at) {
                    heard.extend_from_slice(&stream[at..to]);
                    next += (to - at) as u32;
                } else {
                    early.insert(START + from as u32, &stream[from..to]);
                }
                let taken = early.take_from(next);
                next += taken.len() as u32;
                heard.extend(taken);
            }
            assert_eq!(heard, stream, "seed {seed}");
        }
    }

    #[test]
    fn single_bytes_with_holes_are_kept_up_to_a_number() {
        let mut early = Early::default();
        for at in 0..1000 {
            early.insert(START + 2 * at, b"x");
        }
        assert_eq!(early.pieces.len(), MOST_PIECES);
    }
}
