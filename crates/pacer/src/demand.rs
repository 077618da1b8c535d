//! What is asked of a server.

use kernel::ListenerStats;
use verdict::{Policy, Trigger, WaitsFrom};

/// What the listeners of one server ask for, and have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// New SYNs of listeners that are not in a dry run.
    pub new: u64,
    /// Handshakes that ended while the accept queue was full, where the ACK stage looks.
    pub found_full: u64,
    /// SYNs that the limit that is found or a full queue refused.
    pub refused: u64,
    /// SYNs that the kernel or a cookie answers.
    pub let_in: u64,
    /// Whether one of them names a limit, which always holds, so that all are followed.
    pub follows_all: bool,
    /// From when on they wait; where two say it, the earlier.
    pub waits_from: WaitsFrom,
    /// The shortest `burst:TIME` of listeners that decide, and of those in a dry run, ns; `None`
    /// without such a listener.
    pub bursts_ns: [Option<u64>; 2],
}

impl Demand {
    /// Adds one listener's.
    pub fn add(&mut self, policy: &Policy, dry_run: bool, stats: &ListenerStats) {
        let ListenerStats { seen, admitted, cookies, .. } = *stats;
        // Of a client that sends more after its ACK, the ACK.
        self.found_full += stats.acks_full.saturating_sub(stats.acks_implied);
        // In a dry run it refuses nobody, so that nothing can be learnt from what it would have
        // refused.
        let (refused, new) = if dry_run { (0, 0) } else { (seen.saturating_sub(admitted + cookies), seen) };
        self.new += new;
        self.let_in += if dry_run { seen } else { admitted + cookies };
        if self.waits_from != WaitsFrom::Handshake && policy.waits_from != WaitsFrom::Found {
            self.waits_from = policy.waits_from;
        }
        match policy.trigger {
            Trigger::Unserved(None) => {
                self.refused += refused;
                let burst_ns = 1000 * u64::from(policy.burst_us.unwrap_or(Policy::USUAL_BURST_US));
                let shortest_ns = &mut self.bursts_ns[usize::from(dry_run)];
                *shortest_ns = Some(shortest_ns.map_or(burst_ns, |shortest| shortest.min(burst_ns)));
            }
            Trigger::Sojourn(_) | Trigger::Unserved(Some(_)) => self.follows_all = true,
            Trigger::Queue => {}
        }
    }

    /// For how long a queue may stand before anybody is refused, ns. A dry run alone says what
    /// would be; beside others it changes nothing.
    pub fn burst_ns(&self) -> u64 {
        let [real, dry] = self.bursts_ns;
        real.or(dry).unwrap_or(1000 * u64::from(Policy::USUAL_BURST_US))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_a_cookie_is_not_refused() {
        let policy = "rst-syn+cookies+unserved".parse().expect("policy");
        let stats =
            ListenerStats { seen: 100, admitted: 10, cookies: 60, server_full: 20, ..Default::default() };
        let mut demand = Demand::default();
        demand.add(&policy, false, &stats);
        assert_eq!((demand.refused, demand.new), (30, 100));
    }

    #[test]
    fn of_what_two_listeners_say_the_earlier_counts() {
        let words = ["rst-syn+unserved", "rst-syn+unserved+request", "rst-syn+unserved+first-byte"];
        let mut demand = Demand::default();
        for (word, waits_from) in [
            (0, WaitsFrom::Found),
            (1, WaitsFrom::Request),
            (2, WaitsFrom::Handshake),
            (1, WaitsFrom::Handshake),
        ] {
            demand.add(&words[word].parse().expect("policy"), false, &ListenerStats::default());
            assert_eq!(demand.waits_from, waits_from, "after {}", words[word]);
        }
    }

    #[test]
    fn of_what_two_listeners_say_of_bursts_the_shorter_counts() {
        let mut demand = Demand::default();
        for (word, dry_run, burst_ms) in [
            ("rst-syn+unserved+burst:0s", true, 0),
            ("rst-syn+unserved+burst:9s", false, 9000),
            ("rst-syn+unserved", false, 100),
            ("rst-syn+unserved+burst:5ms", false, 5),
            ("rst-syn+unserved+burst:1s", false, 5),
            ("rst-syn+sojourn:5ms", false, 5),
            ("rst-syn+unserved+burst:0s", true, 5),
        ] {
            demand.add(&word.parse().expect("policy"), dry_run, &ListenerStats::default());
            assert_eq!(demand.burst_ns(), burst_ms * 1_000_000, "after {word}");
        }
    }
}
