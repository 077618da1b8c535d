//! Users who look at one page after another, and think in between.

use rand::{Rng, RngExt};
use units::Nanos;

use crate::workload::random;

/// Sessions: how many pages a user looks at, of how many objects each is, and the times between
/// them. All are exponential, and functions of a seed, the number of the user, and that of the page
/// or object; counts are rounded up, so that there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sessions {
    pages: f64,
    objects: f64,
    think: Nanos,
    between_objects: Nanos,
}

/// What a random number is for.
#[derive(Clone, Copy)]
enum Purpose {
    Pages = 1,
    Objects,
    Think,
    BetweenObjects,
}

impl Sessions {
    /// With these means: pages of a session, objects of a page, time from the last reply of a page
    /// to the next page, time from one object's request to the next one's. None where a count is
    /// not above zero, or above a million.
    pub fn new(pages: f64, objects: f64, think: Nanos, between_objects: Nanos) -> Option<Self> {
        let is_count = |mean: f64| mean > 0.0 && mean <= MOST;
        (is_count(pages) && is_count(objects)).then_some(Self { pages, objects, think, between_objects })
    }

    /// `[RF]` table I: 240 pages of 3 objects, 5 s and 0.1 s; sessions begin every 0.5 s.
    pub fn redfavor() -> Self {
        let (think, between_objects) = (Nanos::from_secs(5), Nanos::from_millis(100));
        Self { pages: 240.0, objects: 3.0, think, between_objects }
    }

    /// Pages of a user's session.
    pub fn pages(&self, seed: u64, user: u64) -> u32 {
        count(self.pages, &mut of(seed, user, Purpose::Pages, 0))
    }

    /// Objects of its `page`-th page, from 0.
    pub fn objects(&self, seed: u64, user: u64, page: u32) -> u32 {
        count(self.objects, &mut of(seed, user, Purpose::Objects, page))
    }

    /// Time to think after the `page`-th page.
    pub fn think(&self, seed: u64, user: u64, page: u32) -> Nanos {
        span(self.think, &mut of(seed, user, Purpose::Think, page))
    }

    /// Time from the request for the `object`-th object of the session, from 0, to the next one's
    /// of the same page.
    pub fn between_objects(&self, seed: u64, user: u64, object: u32) -> Nanos {
        span(self.between_objects, &mut of(seed, user, Purpose::BetweenObjects, object))
    }

    /// Objects of a session on the mean, as far as counts are rounded.
    pub fn mean_objects(&self) -> f64 {
        let rounded_up = |mean: f64| 1.0 / (1.0 - (-1.0 / mean).exp());
        rounded_up(self.pages) * rounded_up(self.objects)
    }
}

/// Largest mean of a count: none is beyond what fits.
const MOST: f64 = 1e6;

fn of(seed: u64, user: u64, purpose: Purpose, which: u32) -> impl Rng {
    random(seed, user, (purpose as u64) << 32 | u64::from(which))
}

fn exponential(mean: f64, random: &mut impl Rng) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

fn count(mean: f64, random: &mut impl Rng) -> u32 {
    (exponential(mean, random).ceil() as u32).max(1)
}

fn span(mean: Nanos, random: &mut impl Rng) -> Nanos {
    Nanos::from_secs_f64(exponential(mean.as_secs_f64(), random))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_near;

    /// `[RF]` table I.
    #[test]
    fn sessions_have_the_means_of_the_paper() {
        let sessions = Sessions::redfavor();
        let mean = |of: &dyn Fn(u64) -> f64| (0..200_000).map(of).sum::<f64>() / 200_000.0;
        // Rounded up: half a one more, nearly.
        assert_near("pages", mean(&|user| f64::from(sessions.pages(1, user))), 240.5, 0.01);
        assert_near("objects", mean(&|user| f64::from(sessions.objects(1, user, 7))), 3.53, 0.01);
        assert_near("think", mean(&|user| sessions.think(1, user, 7).as_secs_f64()), 5.0, 0.01);
        assert_near("between", mean(&|user| sessions.between_objects(1, user, 7).as_secs_f64()), 0.1, 0.01);
        assert_near("objects of a session", sessions.mean_objects(), 240.5 * 3.53, 0.01);
        assert!((0..1000).all(|user| sessions.pages(1, user) > 0));
    }

    #[test]
    fn the_same_user_does_the_same() {
        let sessions = Sessions::redfavor();
        assert_eq!(sessions.pages(1, 2), sessions.pages(1, 2));
        let differ =
            (0..100).filter(|page| sessions.think(1, 2, *page) != sessions.think(2, 2, *page)).count();
        assert_eq!(differ, 100);
    }

    #[test]
    fn session_of_nothing_is_none() {
        for (pages, objects) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0)] {
            assert_eq!(Sessions::new(pages, objects, Nanos::ZERO, Nanos::ZERO), None);
        }
    }
}
