//! How many more than a server answers are let in, so that as many wait for it as may.

use units::Nanos;

/// Of the limit, the share that is to wait. Above this a queue that is full only in bouts, as far clients make it, would count as one that is not; with 0.5 far pools answered some percent less.
const WANTED: f64 = 0.7;
/// The largest factor. What is answered follows what is let in, so that twice as many in each round trip are enough, and a mistake costs no more than that.
const MOST: f64 = 2.0;

/// What is answered now does not say what a server can answer that does many things at a time: fifty processes of which five work answer a tenth of what they can, and each answer takes as
/// long as ever. If as many are let in from far away as are answered, it stays at that, whatever the limit; and each one who does not come makes it less. So it is more, by a factor that grows
/// while fewer wait than may, and others are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Filling {
    /// Natural logarithm of the factor.
    log: f64,
}

impl Filling {
    /// One or more.
    pub(crate) fn factor(&self) -> f64 {
        self.log.exp()
    }

    /// Goes on by the share of the limit that waited, in so much time; what is let in now has shown in `settles_in`. `None` if that share says nothing, as few were refused, or who is let in would
    /// find no place to wait.
    pub(crate) fn add(&mut self, elapsed: Nanos, waiting: Option<f64>, settles_in: Nanos) {
        let lacking = (WANTED - waiting.unwrap_or(f64::INFINITY)).max(-WANTED);
        let step = lacking * elapsed.min(settles_in).as_secs_f64() / settles_in.as_secs_f64();
        self.log = (self.log + step).clamp(0.0, MOST.ln());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Nanos = Nanos::from_millis(50);
    const SETTLES_IN: Nanos = Nanos::from_millis(400);

    fn add(filling: &mut Filling, looks: u32, waiting: Option<f64>) -> f64 {
        (0..looks).for_each(|_| filling.add(LOOK, waiting, SETTLES_IN));
        filling.factor()
    }

    #[test]
    fn more_are_let_in_while_fewer_wait_than_may() {
        let mut filling = Filling::default();
        for (looks, waiting, wanted) in [
            (100, Some(1.0), 1.0),
            (4, Some(0.0), 1.42),
            (4, Some(0.7), 1.42),
            (4, Some(0.4), 1.65),
            (4, Some(0.9), 1.49),
            (4, Some(100.0), 1.05),
            (4, None, 1.0),
            (1000, Some(0.0), 2.0),
        ] {
            let factor = add(&mut filling, looks, waiting);
            assert!((factor - wanted).abs() < 0.01, "{factor} after {looks} looks with {waiting:?}");
        }
    }

    /// Ten processes that take a tenth of a second each, of which one works; one of ten who are let in never comes. It swings, as nothing damps it here: a limit would.
    #[test]
    fn pool_of_which_one_works_comes_to_where_as_many_wait_as_are_wanted() {
        let (mut filling, mut working) = (Filling::default(), 1.0_f64);
        let mut look = || {
            filling.add(LOOK, Some(working / 10.0), SETTLES_IN);
            let (answered, let_in) = (0.5 * working, 0.45 * working * filling.factor());
            working = (working + let_in - answered).min(10.0);
            working
        };
        (0..200).for_each(|_| _ = look());
        let later: Vec<_> = (0..200).map(|_| look()).collect();
        let mean = later.iter().sum::<f64>() / 200.0;
        assert!((6.5..7.5).contains(&mean), "{mean} work in the mean");
        assert!(later.iter().all(|&working| working > 4.0), "{later:?}");
    }
}
