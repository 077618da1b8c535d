//! The kernel's average of round trips, for a sender that times each segment.

use units::Nanos;
use wire::SeqNumber;

/// Smoothed round trip and variation as `tcp_rtt_estimator()` has them (Linux 6.18
/// `net/ipv4/tcp_input.c`).
///
/// With a sample for each acknowledgment RFC 6298's variation would forget within a few of them
/// what a whole round trip showed. So this keeps the largest deviation of each round trip, and lets
/// the variation sink once a round trip at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Estimate {
    /// Eighths of a microsecond (`srtt_us`); 0 before the first sample.
    smoothed: u32,
    /// Smoothed deviation, quarters of a microsecond (`mdev_us`), and the largest of this round
    /// trip (`mdev_max_us`).
    deviation: u32,
    most: u32,
    /// What the timeout adds to the round trip: four times the variation, microseconds
    /// (`rttvar_us`).
    margin: u32,
    /// The round trip ends when this is acknowledged (`rtt_seq`).
    ends: SeqNumber,
}

impl Estimate {
    /// The handshake has taken so long, if that is known; the stream begins at `start`. `floor`:
    /// see [`Estimate::take`].
    pub(crate) fn begin(handshake: Option<Nanos>, floor: Nanos, start: SeqNumber) -> Self {
        let mut estimate = Self { smoothed: 0, deviation: 0, most: 0, margin: 0, ends: start };
        if let Some(took) = handshake {
            estimate.take(took, floor, (start, start));
        }
        estimate
    }

    /// Takes in a sample, when `una` is the first byte that is not acknowledged and `next` the
    /// first that was not sent. `floor` is the least margin that a new round trip begins with
    /// (`tcp_rto_min_us()`).
    pub(crate) fn take(&mut self, took: Nanos, floor: Nanos, (una, next): (SeqNumber, SeqNumber)) {
        let sample = micros(took).max(1);
        let floor = micros(floor);
        if self.smoothed == 0 {
            self.smoothed = sample << 3;
            self.deviation = sample << 1;
            self.margin = self.deviation.max(floor);
            (self.most, self.ends) = (self.margin, next);
            return;
        }
        let error = i64::from(sample) - i64::from(self.smoothed >> 3);
        self.smoothed = (i64::from(self.smoothed) + error).max(1) as u32;
        let mut more = error.abs() - i64::from(self.deviation >> 2);
        if error < 0 && more > 0 {
            more >>= 3; // a round trip that becomes shorter must not make the timeout longer
        }
        self.deviation = (i64::from(self.deviation) + more) as u32;
        if self.deviation > self.most {
            self.most = self.deviation;
            self.margin = self.margin.max(self.most);
        }
        if self.ends < una {
            if self.most < self.margin {
                self.margin -= (self.margin - self.most) >> 2;
            }
            (self.ends, self.most) = (next, floor);
        }
    }

    /// The smoothed round trip.
    pub(crate) fn smoothed(&self) -> Nanos {
        Nanos::from_micros(u64::from(self.smoothed >> 3))
    }

    /// What the timeout adds to it.
    pub(crate) fn margin(&self) -> Nanos {
        Nanos::from_micros(u64::from(self.margin))
    }
}

/// No longer than a fifth of an hour, so that eight times as much fits.
fn micros(time: Nanos) -> u32 {
    time.as_micros().min(u64::from(u32::MAX >> 3)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Nanos = Nanos::from_millis(200);
    const START: SeqNumber = SeqNumber(u32::MAX - 1500);

    fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    /// Worked out by hand from the kernel's function, microseconds.
    #[test]
    fn each_sample_moves_the_average_by_an_eighth_and_the_deviation_by_a_quarter() {
        let mut estimate = Estimate::begin(Some(ms(100)), Nanos::ZERO, START);
        assert_eq!((estimate.smoothed(), estimate.margin()), (ms(100), ms(200)));
        // 80 ms more: the average rises by 10; the deviation was 50 and becomes 50 + 30 / 4.
        estimate.take(ms(180), Nanos::ZERO, (START, START + 1000));
        assert_eq!((estimate.smoothed(), estimate.margin()), (ms(110), ms(230)));
        // 80 ms less than the average: the deviation, 57.5, takes 22.5 / 32 only.
        estimate.take(ms(30), Nanos::ZERO, (START, START + 1000));
        assert_eq!(estimate.smoothed(), ms(100));
        assert_eq!(estimate.margin(), Nanos::from_micros(230_000 + 22_500 / 8));
    }

    #[test]
    fn margin_sinks_once_a_round_trip_by_a_quarter_of_what_is_too_much() {
        let mut estimate = Estimate::begin(Some(ms(100)), Nanos::ZERO, START);
        // Samples of one round trip: nothing beyond the first segment is acknowledged.
        for _ in 0..50 {
            estimate.take(ms(100), Nanos::ZERO, (START, START + 1000));
        }
        assert_eq!(estimate.margin(), ms(200));
        let (mut una, mut margins) = (START, Vec::new());
        for _ in 0..4 {
            una += 1000;
            estimate.take(ms(100), Nanos::ZERO, (una, una + 999));
            estimate.take(ms(100), Nanos::ZERO, (una, una + 999));
            margins.push(estimate.margin().as_micros());
        }
        // The first round trip had its own beginning as its largest. From then on it is what is
        // left of the deviation: 3 quarters of a microsecond, of which a quarter is 0.
        assert_eq!(margins, [200_000, 150_001, 112_502, 84_378]);
    }

    #[test]
    fn margin_is_never_below_the_floor() {
        let mut estimate = Estimate::begin(None, FLOOR, START);
        let mut una = START;
        for _ in 0..100 {
            una += 1000;
            estimate.take(ms(20), FLOOR, (una, una + 999));
            assert_eq!((estimate.smoothed(), estimate.margin()), (ms(20), FLOOR));
        }
        // Nor does any time overflow.
        for took in [Nanos::from_secs(1 << 30), Nanos::ZERO, Nanos::from_secs(1 << 30)] {
            (0..50).for_each(|_| estimate.take(took, FLOOR, (una, una + 999)));
            assert!(estimate.margin() >= FLOOR);
        }
    }
}
