//! How many more than a server answers are let in, so that as many wait for it as may.

use units::Nanos;

/// Of the limit, the share that is to wait. More, and a queue that bouts make full counts for one that is.
const WANTED: f64 = 0.7;
/// Natural logarithm of the largest factor, which is twenty.
const MOST: f64 = 3.0;

/// By what is answered now nobody knows what a server can answer that does many things at a time: fifty processes of which five work answer a tenth of what they can, as fast as each
/// of them can. If as many are let in from far away as are answered, it stays at that, whatever the limit; and each one who does not come makes it less. So it is more, by a factor that grows
/// while fewer wait than may, and others are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Filling {
    log: f64,
}

impl Filling {
    /// One or more.
    pub(crate) fn factor(&self) -> f64 {
        self.log.exp()
    }

    /// Goes on by the share of the limit that waits, in so much time; what is let in now shows within a part of `memory`. `None` if nobody is refused, or who is let in would find no place to wait.
    pub(crate) fn add(&mut self, elapsed: Nanos, waiting: Option<f64>, memory: Nanos) {
        let lacking = (WANTED - waiting.unwrap_or(f64::INFINITY)).max(-WANTED);
        let step = lacking * elapsed.as_secs_f64() / memory.as_secs_f64();
        self.log = (self.log + step).clamp(0.0, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Nanos = Nanos::from_millis(50);
    const MEMORY: Nanos = Nanos::from_millis(400);

    fn add(filling: &mut Filling, looks: u32, waiting: Option<f64>) -> f64 {
        (0..looks).for_each(|_| filling.add(LOOK, waiting, MEMORY));
        filling.factor()
    }

    #[test]
    fn more_are_let_in_while_fewer_wait_than_may() {
        let mut filling = Filling::default();
        for (looks, waiting, wanted) in [
            (100, Some(1.0), 1.0),
            (8, Some(0.0), 2.01),
            (8, Some(0.7), 2.01),
            (8, Some(0.4), 2.72),
            (8, Some(0.9), 2.23),
            (8, Some(100.0), 1.11),
            (8, Some(0.2), 1.82),
            (8, None, 1.0),
            (1000, Some(0.0), 20.09),
        ] {
            let factor = add(&mut filling, looks, waiting);
            assert!((factor - wanted).abs() < 0.01, "{factor} after {looks} looks with {waiting:?}");
        }
    }

    /// Ten processes that take a tenth of a second each, of which one works; one of ten who are let in never comes.
    #[test]
    fn pool_that_is_let_in_what_it_answers_comes_to_what_it_can() {
        let (mut filling, mut working) = (Filling::default(), 1.0_f64);
        for _ in 0..400 {
            filling.add(LOOK, Some(working / 10.0), MEMORY);
            let (answered, let_in) = (0.5 * working, 0.45 * working * filling.factor());
            working = (working + let_in - answered).min(10.0);
        }
        assert!((5.0..9.0).contains(&working), "{working} work");
    }
}
