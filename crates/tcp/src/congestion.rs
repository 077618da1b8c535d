//! How much may be in flight: slow start, congestion avoidance, and what a loss makes of both.

use units::Nanos;
use wire::SeqNumber;

use crate::cubic::Cubic;

/// By which rule a sender finds out what the path carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681, counted in bytes (RFC 3465): a segment more each round trip, half of it after a
    /// loss. `net.ipv4.tcp_congestion_control=reno`.
    NewReno,
    /// RFC 5681 and RFC 6675 as ns-3 has them: each ACK adds a segment at most in slow start, and
    /// later MSS²/cwnd (RFC 5681, (3)); a loss leaves half of what is in flight
    /// (`TcpNewReno::GetSsThresh()`, ns-3.44, where the RFC has all that is not acknowledged), at
    /// once, and what is lost is told by duplicates and the timer alone, with none of what Linux
    /// concludes from what was sent again (RACK). Slower than [`Algorithm::NewReno`] by half before
    /// a receiver that delays its ACKs, and with a timeout for each segment that is lost twice.
    Classic,
    /// RFC 9438, without HyStart. What Linux does unless told otherwise.
    Cubic,
}

/// As large as a window that can be offered (RFC 7323 section 2.3).
const MOST: u32 = 65_535 << 14;
/// Segments that are left after any loss (RFC 5681 section 3.1).
const LEAST_SEGMENTS: u32 = 2;

/// The congestion window. In bytes, where Linux counts segments: they are the same for a sender of
/// full ones.
#[derive(Debug)]
pub(crate) struct Window {
    /// `cwnd`; 0 before the first segment.
    pub(crate) size: u32,
    /// `ssthresh`.
    pub(crate) threshold: u32,
    rule: Rule,
    /// Of the reduction that is under way: the window before, and what has arrived and was sent
    /// since (`prior_cwnd`, `prr_delivered`, `prr_out`).
    before: u32,
    arrived: u32,
    sent: u32,
    /// The window was what limited, within the last window; and what was out at most
    /// (`is_cwnd_limited`, `max_packets_out`).
    is_limit: bool,
    most_out: u32,
    /// Where that window ends (`cwnd_usage_seq`).
    used_until: SeqNumber,
}

#[derive(Debug)]
enum Rule {
    /// With the bytes that have arrived since the window last grew.
    NewReno {
        arrived: u32,
    },
    Classic,
    Cubic(Cubic),
}

impl Window {
    pub(crate) fn new(algorithm: Algorithm, una: SeqNumber) -> Self {
        let rule = match algorithm {
            Algorithm::NewReno => Rule::NewReno { arrived: 0 },
            Algorithm::Classic => Rule::Classic,
            Algorithm::Cubic => Rule::Cubic(Cubic::new()),
        };
        Self {
            size: 0,
            threshold: MOST,
            rule,
            before: 0,
            arrived: 0,
            sent: 0,
            is_limit: false,
            most_out: 0,
            used_until: una,
        }
    }

    /// Notes what is out, and whether more would be if the window were larger
    /// (`tcp_cwnd_validate()`, Linux 6.18 `net/ipv4/tcp_output.c`).
    pub(crate) fn note_use(&mut self, una: SeqNumber, max: SeqNumber, is_limit: bool) {
        let out = max - una;
        if self.used_until <= una || is_limit || (!self.is_limit && out > self.most_out) {
            self.is_limit = is_limit;
            self.most_out = out;
            self.used_until = max;
        }
    }

    /// Bytes have arrived, and nothing was lost. A window that is not used does not grow (RFC 7661;
    /// `tcp_is_cwnd_limited()`).
    pub(crate) fn grow(&mut self, arrived: u32, mss: u32, round_trip: Nanos, now: Nanos) {
        let is_slow_start = self.size < self.threshold;
        if !(self.is_limit || is_slow_start && self.size < self.most_out.saturating_mul(2)) {
            return;
        }
        let mut arrived = if self.is_classic() { arrived.min(mss) } else { arrived };
        if is_slow_start {
            // All that arrived, also where one ACK is for two segments: as Linux, where RFC 5681
            // section 3.1 has a segment for each ACK.
            let step = arrived.min(self.threshold - self.size);
            self.size += step;
            arrived -= step;
        }
        if arrived > 0 {
            self.size += match &mut self.rule {
                Rule::NewReno { arrived: before } => {
                    *before += arrived;
                    if *before >= self.size {
                        *before -= self.size;
                        mss
                    } else {
                        0
                    }
                }
                Rule::Classic => (u64::from(mss).pow(2) / u64::from(self.size)).max(1) as u32,
                Rule::Cubic(cubic) => cubic.increase(self.size, arrived, mss, round_trip, now),
            };
        }
        self.size = self.size.min(MOST);
    }

    pub(crate) fn is_classic(&self) -> bool {
        matches!(self.rule, Rule::Classic)
    }

    /// A loss that acknowledgments have told of, with so many bytes still in flight: the window
    /// shrinks to the threshold while they come in.
    pub(crate) fn begin_reduction(&mut self, in_flight: u32, mss: u32) {
        self.before = self.size.max(1);
        (self.arrived, self.sent) = (0, 0);
        self.lower_threshold(in_flight, mss);
    }

    /// Proportional rate reduction (RFC 6937, RFC 9937; `tcp_cwnd_reduction()`, Linux 6.18
    /// `net/ipv4/tcp_input.c`): as many segments may be sent as keep the rate of those that arrive,
    /// times what the window shrinks by, rounded up; and where more is missing than that, as in
    /// slow start if `goes_well`. [`Algorithm::Classic`] shrinks at once (RFC 6675 section 5,
    /// (4.2)).
    pub(crate) fn reduce(&mut self, arrived: u32, in_flight: u32, goes_well: bool, mss: u32) {
        if arrived == 0 {
            return;
        }
        self.arrived = self.arrived.saturating_add(arrived);
        // The first segment that is sent again is sent at once.
        let least = if self.sent == 0 { mss } else { 0 };
        let may_send = if self.is_classic() {
            self.threshold.saturating_sub(in_flight)
        } else if in_flight > self.threshold {
            let share = u64::from(self.arrived) * u64::from(self.threshold);
            let segments = share.div_ceil(u64::from(self.before) * u64::from(mss));
            (segments * u64::from(mss)).saturating_sub(u64::from(self.sent)).min(u64::from(MOST)) as u32
        } else {
            let owed = self.arrived.saturating_sub(self.sent).max(arrived);
            let more = if goes_well { mss } else { 0 };
            owed.saturating_add(more).min(self.threshold - in_flight)
        };
        self.size = in_flight.saturating_add(may_send.max(least)).clamp(mss, MOST);
    }

    /// Bytes were sent while the window shrinks.
    pub(crate) fn note_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// What was out when the loss was noticed has arrived.
    pub(crate) fn end_reduction(&mut self) {
        self.size = self.threshold;
    }

    /// A timeout, with so many bytes in flight: slow start from one segment. `is_new`: it is no
    /// consequence of a loss that has counted already.
    pub(crate) fn collapse(&mut self, is_new: bool, in_flight: u32, mss: u32) {
        if is_new {
            self.lower_threshold(in_flight, mss);
        }
        if let Rule::Cubic(cubic) = &mut self.rule {
            cubic.forget();
        }
        self.size = mss;
    }

    /// Linux's rules take a part of the window and not of what is out (`tcp_reno_ssthresh()`,
    /// `cubictcp_recalc_ssthresh()`): it grows only if it is used.
    fn lower_threshold(&mut self, in_flight: u32, mss: u32) {
        let left = match &mut self.rule {
            Rule::NewReno { arrived } => {
                *arrived = 0;
                self.size / 2
            }
            Rule::Classic => in_flight / 2,
            Rule::Cubic(cubic) => cubic.reduce(self.size, mss),
        };
        self.threshold = left.max(LEAST_SEGMENTS * mss);
    }

    /// Nothing was sent for longer than a timeout: nobody knows what the path carries now (RFC 5681
    /// section 4.1, RFC 2861; `tcp_cwnd_restart()`, Linux 6.18, with
    /// `net.ipv4.tcp_slow_start_after_idle` 1). Half of the window for each timeout, but for the
    /// initial one.
    pub(crate) fn restart(&mut self, idle: Nanos, timeout: Nanos, initial: u32) {
        if let Rule::Cubic(cubic) = &mut self.rule {
            cubic.skip(idle);
        }
        if idle <= timeout || timeout == Nanos::ZERO {
            return;
        }
        self.threshold = self.threshold.max(self.size - self.size / 4);
        let least = initial.min(self.size);
        // Linux counts the timeouts after the first.
        let timeouts = (idle.0.div_ceil(timeout.0) - 1).min(31) as u32;
        self.size = (self.size >> timeouts).max(least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const START: SeqNumber = SeqNumber(u32::MAX - 5);

    fn window(algorithm: Algorithm, size: u32) -> Window {
        let mut window = Window::new(algorithm, START);
        window.size = size;
        window.note_use(START, START + size, true);
        window
    }

    #[test]
    fn slow_start_doubles_and_congestion_avoidance_adds_a_segment_each_round_trip() {
        let mut window = window(Algorithm::NewReno, 10 * MSS);
        for _ in 0..10 {
            window.grow(MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        }
        assert_eq!(window.size, 20 * MSS);
        window.threshold = window.size;
        for _ in 0..10 {
            window.grow(2 * MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        }
        assert_eq!(window.size, 21 * MSS);
    }

    /// RFC 5681 section 3.1: min(N, SMSS) for each ACK.
    #[test]
    fn classic_window_grows_by_acks() {
        let mut window = window(Algorithm::Classic, 10 * MSS);
        for _ in 0..5 {
            window.grow(2 * MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        }
        assert_eq!(window.size, 15 * MSS);
        window.threshold = window.size;
        for _ in 0..15 {
            window.grow(2 * MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        }
        assert!((15_900..16_000).contains(&window.size), "nearly a segment: {}", window.size);
    }

    #[test]
    fn window_that_is_not_used_does_not_grow() {
        let mut window = window(Algorithm::NewReno, 10 * MSS);
        // In slow start a little beyond half of it is enough: it may be full in the next round
        // trip.
        window.note_use(START + 10 * MSS, START + 15 * MSS, false);
        window.grow(MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        assert_eq!(window.size, 10 * MSS);
        window.note_use(START + 15 * MSS, START + 21 * MSS, false);
        window.grow(MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        assert_eq!(window.size, 11 * MSS);
        window.threshold = 5 * MSS;
        window.grow(20 * MSS, MSS, Nanos::ZERO, Nanos::ZERO);
        assert_eq!(window.size, 11 * MSS);
    }

    #[test]
    fn loss_leaves_half_or_seven_tenths_and_two_segments_at_least() {
        for (algorithm, left) in [(Algorithm::NewReno, 10 * MSS), (Algorithm::Cubic, 14 * MSS)] {
            let mut large = window(algorithm, 20 * MSS);
            large.begin_reduction(17 * MSS, MSS);
            assert_eq!(large.threshold, left, "{algorithm:?}");
            let mut small = window(algorithm, 2 * MSS);
            small.collapse(true, 2 * MSS, MSS);
            assert_eq!((small.size, small.threshold), (MSS, 2 * MSS), "{algorithm:?}");
        }
    }

    /// Twenty segments were sent and the first is lost, with so many in flight: the
    /// acknowledgments, of twelve, at which one more is sent.
    fn sent_at(algorithm: Algorithm, in_flight: u32) -> Vec<u32> {
        let mut window = window(algorithm, 20 * MSS);
        window.begin_reduction(in_flight * MSS, MSS);
        let (mut out, mut sent) = (in_flight * MSS, Vec::new());
        for n in 1..=12 {
            window.reduce(MSS, out, false, MSS);
            while out + MSS <= window.size {
                out += MSS;
                window.note_sent(MSS);
                sent.push(n);
            }
            out -= MSS;
        }
        sent
    }

    /// The lost one is sent at once, and then every other acknowledgment sends one.
    #[test]
    fn window_shrinks_in_proportion_to_what_arrives() {
        assert_eq!(sent_at(Algorithm::NewReno, 17), [1, 3, 5, 7, 9, 11]);
    }

    /// RFC 6675 section 5, (4.2) and (4.3): it is sent again at once, and nothing more until half
    /// of the 16 that are in flight has arrived.
    #[test]
    fn classic_window_shrinks_at_once() {
        assert_eq!(sent_at(Algorithm::Classic, 16), [1, 11, 12]);
    }

    #[test]
    fn idle_time_takes_half_of_the_window_for_each_timeout_but_for_the_initial_one() {
        let (timeout, initial) = (Nanos::from_millis(200), 10 * MSS);
        let after = |millis| {
            let mut window = window(Algorithm::Cubic, 100 * MSS);
            window.restart(Nanos::from_millis(millis), timeout, initial);
            window.size / MSS
        };
        assert_eq!([200, 201, 401, 601, 10_000].map(after), [100, 50, 25, 12, 10]);
    }
}
