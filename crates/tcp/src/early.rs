//! What arrived before its turn.

use wire::{SackBlocks, SeqNumber};

/// Separate pieces that are kept at most, so that a peer that sends single bytes with holes between
/// them costs no more than others: more than full segments with holes between them make in a window
/// that is not scaled.
const MOST_PIECES: usize = 64;
/// In a larger window one for so many bytes.
const BYTES_PER_PIECE: u32 = 1024;

/// Data beyond what is expected next, and where the stream ends, if that is known. All of it lies
/// within the receive window.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// By sequence number, with holes between them.
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

    /// Adds what reaches up to `end` of `data`, which begin at `seq`.
    fn extend(&mut self, seq: SeqNumber, data: &[u8], end: SeqNumber) {
        if self.end() < end {
            self.data.extend_from_slice(&data[(self.end() - seq) as usize..(end - seq) as usize]);
        }
    }
}

impl Early {
    /// Keeps what of `data` is not there yet, within a window of `window` bytes. What came first
    /// stays, as in Linux.
    pub(crate) fn insert(&mut self, seq: SeqNumber, data: &[u8], window: u32) {
        self.newest = seq;
        if data.is_empty() {
            return;
        }
        let end = seq + data.len() as u32;
        let first = self.pieces.partition_point(|piece| piece.end() < seq);
        let touched = self.pieces[first..].iter().take_while(|piece| piece.seq <= end).count();
        let mut rest = self.pieces.drain(first..first + touched);
        let merged = match rest.next() {
            Some(mut piece) => {
                if seq < piece.seq {
                    let before = &data[..(piece.seq - seq) as usize];
                    drop(piece.data.splice(..0, before.iter().copied()));
                    piece.seq = seq;
                }
                for next in rest {
                    piece.extend(seq, data, next.seq);
                    piece.data.extend_from_slice(&next.data);
                }
                piece.extend(seq, data, end);
                piece
            }
            None => {
                drop(rest);
                if self.pieces.len() >= MOST_PIECES.max((window / BYTES_PER_PIECE) as usize) {
                    return;
                }
                Piece { seq, data: data.to_vec() }
            }
        };
        self.pieces.insert(first, merged);
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
            let end = piece.end();
            if next == piece.seq && taken.is_empty() {
                taken = std::mem::take(&mut piece.data);
            } else if next < end {
                taken.extend_from_slice(&piece.data[(next - piece.seq) as usize..]);
            }
            next = if next < end { end } else { next };
        }
        self.pieces.drain(..used);
        taken
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.fin.is_none()
    }

    /// What a selective acknowledgement says of it (RFC 2018 section 4): the block of the newest
    /// piece first.
    pub(crate) fn blocks(&self, most: usize) -> SackBlocks {
        let newest = (0..self.runs()).find(|at| {
            let (from, to) = self.run(*at);
            from <= self.newest && self.newest < to
        });
        let newest = newest.unwrap_or(0);
        let mut blocks = SackBlocks::NONE;
        let others = (0..self.runs()).filter(|at| *at != newest);
        for at in [newest].into_iter().chain(others).take(most.min(self.runs())) {
            let (from, to) = self.run(at);
            blocks.push(from, to);
        }
        blocks
    }

    /// Pieces, and the FIN where it is apart from the last.
    fn runs(&self) -> usize {
        let is_apart = self.fin.is_some() && self.pieces.last().map(Piece::end) != self.fin;
        self.pieces.len() + usize::from(is_apart)
    }

    fn run(&self, at: usize) -> (SeqNumber, SeqNumber) {
        match (self.pieces.get(at), self.fin) {
            (Some(piece), fin) => {
                let is_last = at + 1 == self.pieces.len() && fin == Some(piece.end());
                (piece.seq, piece.end() + u32::from(is_last))
            }
            (None, fin) => {
                let fin = fin.expect("there is one run more than pieces only where there is a FIN");
                (fin, fin + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const START: SeqNumber = SeqNumber(u32::MAX - 10);
    const WINDOW: u32 = 64_240;

    fn seen(early: &Early) -> Vec<(u32, u32)> {
        early.blocks(4).as_slice().iter().map(|(from, to)| (*from - START, *to - START)).collect()
    }

    #[test]
    fn newest_block_comes_first_and_neighbours_are_one() {
        let mut early = Early::default();
        early.insert(START + 10, b"0123456789", WINDOW);
        early.insert(START + 40, b"0123456789", WINDOW);
        assert_eq!(seen(&early), [(40, 50), (10, 20)]);
        early.insert(START + 20, b"01234", WINDOW);
        assert_eq!(seen(&early), [(10, 25), (40, 50)]);
    }

    #[test]
    fn what_came_first_stays() {
        let mut early = Early::default();
        early.insert(START + 2, b"bb", WINDOW);
        early.insert(START + 1, b"aaaa", WINDOW);
        assert_eq!(early.take_from(START + 1), b"abba");
        assert!(early.is_empty());
    }

    #[test]
    fn hole_ends_what_is_taken() {
        let mut early = Early::default();
        early.insert(START + 1, b"b", WINDOW);
        early.insert(START + 3, b"d", WINDOW);
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
                    early.insert(START + from as u32, &stream[from..to], WINDOW);
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
            early.insert(START + 2 * at, b"x", WINDOW);
        }
        assert_eq!(early.pieces.len(), MOST_PIECES);
        early.insert(START + 5000, b"x", 1 << 20);
        assert_eq!(early.pieces.len(), MOST_PIECES + 1, "of a larger window more");
    }
}
