//! How the rate of a crowd changes as time goes by.

use units::Nanos;

/// A rate over time, as a multiple of what it is compared with: pieces in which it stays or goes
/// evenly from one multiple to another. After the last the first begins again.
///
/// Source: the workloads W1 to W10 of `[SH06]` section 2.3 and table 1 ([`Shape::of_paper`]); ramps
/// are what real flash crowds are (a growth by half in five minutes at the World Cup of 1998, not
/// steps within a second).
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pieces: Vec<Piece>,
}

/// So long, from one multiple to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// Its length.
    pub span: Nanos,
    /// The multiple at its start.
    pub from: f64,
    /// And at its end.
    pub to: f64,
}

impl Piece {
    /// One multiple for so long.
    pub const fn level(span: Nanos, load: f64) -> Self {
        Self { span, from: load, to: load }
    }

    /// What it adds up to: seconds at a multiple of 1.
    fn area(&self) -> f64 {
        self.span.as_secs_f64() * (self.from + self.to) / 2.0
    }

    /// After how long, seconds, it has added up to `area`, which is at most [`Piece::area`].
    fn time_of(&self, area: f64) -> f64 {
        let slope = (self.to - self.from) / self.span.as_secs_f64();
        if slope.abs() < 1e-12 {
            return area / self.from;
        }
        // from * t + slope * t^2 / 2 = area, and the root of it that does not lose digits when the
        // slope is small.
        let root = (self.from * self.from + 2.0 * slope * area).max(0.0).sqrt();
        2.0 * area / (self.from + root)
    }
}

/// Seconds low, seconds high, load low, load high (`[SH06]` table 1).
const PAPER: [(f64, f64, f64, f64); 10] = [
    (25.0, 25.0, 0.2, 1.2),
    (10.0, 10.0, 0.2, 1.2),
    (50.0, 50.0, 0.2, 1.6),
    (25.0, 25.0, 0.4, 1.4),
    (10.0, 10.0, 0.4, 1.4),
    (40.0, 40.0, 0.1, 1.7),
    (63.0, 6.0, 0.4, 5.0),
    (63.0, 10.0, 0.45, 3.0),
    (20.0, 3.0, 0.735, 2.0),
    (13.3, 2.0, 0.735, 2.0),
];

impl Shape {
    /// From pieces; none when there is no time or no attempt in them, or a multiple is negative or
    /// no number.
    pub fn new(pieces: Vec<Piece>) -> Option<Self> {
        let is_rate = |load: f64| load >= 0.0 && load.is_finite();
        let are_pieces =
            pieces.iter().all(|piece| piece.span > Nanos::ZERO && is_rate(piece.from) && is_rate(piece.to));
        let shape = Self { pieces };
        (are_pieces && shape.area() > 0.0).then_some(shape)
    }

    /// One multiple for ever.
    pub fn steady(load: f64) -> Option<Self> {
        Self::new(vec![Piece::level(Nanos::from_secs(1), load)])
    }

    /// W1 to W10 of `[SH06]`, by number: alternating low and high load, low first.
    pub fn of_paper(number: usize) -> Option<Self> {
        let (low_s, high_s, low, high) = *PAPER.get(number.checked_sub(1)?)?;
        Self::new(vec![
            Piece::level(Nanos::from_secs_f64(low_s), low),
            Piece::level(Nanos::from_secs_f64(high_s), high),
        ])
    }

    /// The pieces.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Until it begins again.
    pub fn cycle(&self) -> Nanos {
        self.pieces.iter().fold(Nanos::ZERO, |sum, piece| sum + piece.span)
    }

    /// The mean multiple.
    pub fn mean(&self) -> f64 {
        self.area() / self.cycle().as_secs_f64()
    }

    /// The mean multiple from one moment to a later one.
    pub fn mean_between(&self, from: Nanos, to: Nanos) -> f64 {
        (self.area_until(to) - self.area_until(from)) / to.since(from).as_secs_f64()
    }

    /// The same course, each piece as many times as long.
    pub fn stretched(&self, by: f64) -> Option<Self> {
        let pieces = self.pieces.iter();
        let stretched = |piece: &Piece| {
            let span = Nanos::from_secs_f64(piece.span.as_secs_f64() * by);
            Piece { span, ..*piece }
        };
        Self::new(pieces.map(stretched).collect())
    }

    /// The largest multiple.
    pub fn peak(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.from.max(piece.to)).fold(0.0, f64::max)
    }

    fn area(&self) -> f64 {
        self.pieces.iter().map(Piece::area).sum()
    }

    /// What it has added up to by then: seconds at a multiple of 1.
    fn area_until(&self, moment: Nanos) -> f64 {
        let cycle = self.cycle();
        let mut area = self.area() * (moment.0 / cycle.0) as f64;
        let mut left = Nanos(moment.0 % cycle.0);
        for piece in &self.pieces {
            let part = left.min(piece.span).as_secs_f64();
            let slope = (piece.to - piece.from) / piece.span.as_secs_f64();
            area += part * (piece.from + slope * part / 2.0);
            left = left.since(piece.span);
        }
        area
    }

    /// When it has added up to so many seconds at a multiple of 1.
    pub(crate) fn moment(&self, area: f64) -> Nanos {
        let whole = self.area();
        let cycles = (area / whole).floor();
        let mut left = (area - cycles * whole).max(0.0);
        let mut before = Nanos(self.cycle().0 * cycles as u64);
        for piece in &self.pieces {
            let of_piece = piece.area();
            if left < of_piece {
                return before + Nanos::from_secs_f64(piece.time_of(left)).min(piece.span);
            }
            left -= of_piece;
            before += piece.span;
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn workloads_of_the_paper_have_its_mean_loads() {
        let means: Vec<f64> =
            (1..=10).map(|number| Shape::of_paper(number).expect("a workload").mean()).collect();
        let paper = [0.7, 0.7, 0.9, 0.9, 0.9, 0.9, 0.8, 0.8, 0.9, 0.9];
        for (number, (mean, paper)) in means.iter().zip(paper).enumerate() {
            assert!((mean - paper).abs() < 0.005, "W{}: {mean}, {paper} in table 1", number + 1);
        }
        assert!(Shape::of_paper(0).is_none() && Shape::of_paper(11).is_none());
    }

    #[test]
    fn mean_of_a_part_is_that_of_its_pieces() {
        let shape = Shape::of_paper(1).expect("W1");
        let mean = |from, to| shape.mean_between(Nanos::from_secs(from), Nanos::from_secs(to));
        for (from, to, expected) in
            [(0, 25, 0.2), (25, 50, 1.2), (0, 50, 0.7), (20, 30, 0.7), (110, 160, 0.7)]
        {
            assert!((mean(from, to) - expected).abs() < 1e-9, "{from} to {to} s: {}", mean(from, to));
        }
        let ramp =
            Shape::new(vec![Piece { span: Nanos::from_secs(10), from: 0.0, to: 2.0 }]).expect("a shape");
        assert!((ramp.mean_between(Nanos::from_secs(5), Nanos::from_secs(10)) - 1.5).abs() < 1e-9);
        let steady = Shape::steady(1.2).expect("a shape");
        assert!((steady.mean_between(Nanos(7), Nanos::from_secs(1800)) - 1.2).abs() < 1e-9);
        assert_eq!(Shape::steady(0.0), None);
    }

    #[test]
    fn stretched_shape_has_the_same_loads_in_another_time() {
        let short = Shape::of_paper(7).and_then(|shape| shape.stretched(0.5)).expect("half of W7");
        assert_eq!(short.cycle(), Nanos::from_millis(34_500));
        assert!((short.mean() - Shape::of_paper(7).expect("W7").mean()).abs() < 1e-9);
        assert_eq!(short.stretched(0.0), None);
    }

    #[test]
    fn ramp_has_the_square_root_in_it() {
        let ramp =
            Shape::new(vec![Piece { span: Nanos::from_secs(10), from: 0.0, to: 2.0 }]).expect("a shape");
        assert_eq!((ramp.mean(), ramp.peak()), (1.0, 2.0));
        assert_eq!(ramp.moment(2.5), Nanos::from_secs(5), "a quarter of it in the first half");
        assert_eq!(ramp.moment(12.5), Nanos::from_secs(15), "and again");
        let down =
            Shape::new(vec![Piece { span: Nanos::from_secs(10), from: 2.0, to: 0.0 }]).expect("a shape");
        assert_eq!(down.moment(7.5), Nanos::from_secs(5));
    }

    #[test]
    fn nothing_starts_where_the_rate_is_zero() {
        let pieces = vec![Piece::level(SECOND, 0.0), Piece::level(SECOND, 2.0), Piece::level(SECOND, 0.0)];
        let shape = Shape::new(pieces).expect("a shape");
        for step in 0..100 {
            let moment = shape.moment(f64::from(step) / 20.0).0 % 3_000_000_000;
            assert!((1_000_000_000..=2_000_000_000).contains(&moment), "{moment}");
        }
    }

    #[test]
    fn moments_do_not_go_back() {
        for number in 1..=10 {
            let shape = Shape::of_paper(number).expect("a workload");
            let mut last = Nanos::ZERO;
            for step in 0..20_000 {
                let moment = shape.moment(f64::from(step) * 0.01);
                assert!(last <= moment, "W{number}: {last} and then {moment}");
                last = moment;
            }
        }
    }

    #[test]
    fn no_shape_is_made_of_nothing() {
        for pieces in [
            vec![],
            vec![Piece::level(SECOND, 0.0)],
            vec![Piece::level(Nanos::ZERO, 1.0)],
            vec![Piece::level(SECOND, -1.0), Piece::level(SECOND, 5.0)],
            vec![Piece::level(SECOND, f64::NAN)],
        ] {
            assert_eq!(Shape::new(pieces), None);
        }
    }
}
