//! Logs of web servers, request by request: what was asked for when. Bytes in, requests out.

use jiff::Timestamp;
use jiff::fmt::strtime;
use units::Nanos;

/// A request of a log: when, and how long the reply was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Seconds since 1970, in which it was logged.
    pub second: u32,
    /// Bytes of the reply, without its head; 0 where there was none, as after a 304.
    pub bytes: u32,
}

/// Length of a record of the World Cup's logs.
pub const WORLD_CUP_RECORD: usize = 20;
/// The days of these logs: 26 April to 26 July 1998, and a day to either side.
const WORLD_CUP_SECONDS: std::ops::RangeInclusive<u32> = 893_462_400..=901_584_000;

impl Entry {
    /// Reads a line of the Common Log Format, or of a format that begins so: `host ident user
    /// [time] "request" status bytes`.
    ///
    /// # Errors
    ///
    /// What is not there, or is none.
    pub fn of_common_log(line: &str) -> Result<Self, &'static str> {
        let (_, rest) = line.split_once('[').ok_or("there is no time in brackets")?;
        let (time, rest) = rest.split_once(']').ok_or("the time has no closing bracket")?;
        let second = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
            .and_then(|time| time.to_timestamp())
            .map_err(|_| "the time is none, as 01/Jul/1995:00:00:01 -0400")?;
        // A request may have quotes in it, and more quoted fields may follow: it ends where a
        // status comes.
        let mut ends = rest.match_indices('"').skip(1).map(|(at, _)| &rest[at + 1..]).peekable();
        ends.peek().ok_or("there is no request in quotes")?;
        let is_end = |text: &&str| text.split_ascii_whitespace().next().is_some_and(is_status);
        let end = ends.find(is_end).ok_or("there is no status after the request")?;
        let mut numbers = end.split_ascii_whitespace().skip(1);
        let bytes = match numbers.next() {
            Some("-") => 0,
            bytes => bytes
                .and_then(|bytes| bytes.parse().ok())
                .ok_or("there is no number of bytes after the status")?,
        };
        Ok(Self { second: seconds(second).ok_or("the time is before 1970, or after 2106")?, bytes })
    }

    /// Reads a record of the World Cup's logs of 1998: big-endian time, client, object and size,
    /// four bytes each, then method, status, type and server. None if the time is not of those
    /// months. Source: the format's description in the Internet Traffic Archive.
    pub fn of_world_cup(record: &[u8; WORLD_CUP_RECORD]) -> Option<Self> {
        let word =
            |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        // All bits are set where the size is not known.
        let bytes = Some(word(12)).filter(|bytes| *bytes != u32::MAX).unwrap_or(0);
        let entry = Self { second: word(0), bytes };
        WORLD_CUP_SECONDS.contains(&entry.second).then_some(entry)
    }
}

/// 200, 404 and so on.
fn is_status(word: &str) -> bool {
    word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn seconds(time: Timestamp) -> Option<u32> {
    u32::try_from(time.as_second()).ok()
}

/// Requests in their order, each with the time of its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Since the first, and bytes.
    starts: Vec<(Nanos, u32)>,
}

impl Replay {
    /// Of a log, in any order; those of one second are spread evenly over it. Times go by `speed`
    /// times as fast. None for an empty log, or a speed that is not above zero.
    pub fn new(mut entries: Vec<Entry>, speed: f64) -> Option<Self> {
        if !(speed > 0.0 && speed.is_finite()) {
            return None;
        }
        entries.sort_by_key(|entry| entry.second);
        let first = entries.first()?.second;
        let mut starts = Vec::with_capacity(entries.len());
        for of_second in entries.chunk_by(|a, b| a.second == b.second) {
            let count = of_second.len() as f64;
            for (n, entry) in of_second.iter().enumerate() {
                let at = f64::from(entry.second - first) + n as f64 / count;
                starts.push((Nanos::from_secs_f64(at / speed), entry.bytes));
            }
        }
        Some(Self { starts })
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// When the `n`-th starts, from 0.
    pub fn start(&self, n: u64) -> Option<Nanos> {
        Some(self.starts.get(usize::try_from(n).ok()?)?.0)
    }

    /// How many bytes its reply has.
    pub fn bytes(&self, n: u64) -> Option<u64> {
        Some(self.starts.get(usize::try_from(n).ok()?)?.1.into())
    }

    /// From the first start to the last.
    pub fn span(&self) -> Nanos {
        self.starts.last().map_or(Nanos::ZERO, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_common_log_is_a_time_and_a_size() {
        let entry = |line| Entry::of_common_log(line);
        let nasa =
            r#"199.72.81.55 - - [01/Jul/1995:00:00:01 -0400] "GET /history/apollo/ HTTP/1.0" 200 6245"#;
        assert_eq!(entry(nasa), Ok(Entry { second: 804_571_201, bytes: 6245 }));
        let quoted = r#"::1 - bob [10/Oct/2000:13:55:36 -0700] "GET /a\"b HTTP/1.0" 304 -"#;
        assert_eq!(entry(quoted), Ok(Entry { second: 971_211_336, bytes: 0 }));
        let combined =
            r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 23 "http://h/" "Mozilla/5.0""#;
        assert_eq!(entry(combined), Ok(Entry { second: 971_211_336, bytes: 23 }));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, why) in [
            ("", "no time in brackets"),
            ("a - - [01/Jul/1995", "closing bracket"),
            ("a - - [yesterday] \"GET /\" 200 1", "the time is none"),
            ("a - - [01/Jul/1995:00:00:01 -0400] 200 1", "no request in quotes"),
            ("a - - [01/Jul/1995:00:00:01 -0400] \"GET /\"", "no status"),
            ("a - - [01/Jul/1995:00:00:01 -0400] \"GET /\" 200", "no number of bytes"),
            ("a - - [01/Jul/1995:00:00:01 -0400] \"GET /\" 200 -1", "no number of bytes"),
            ("a - - [01/Jul/1965:00:00:01 -0400] \"GET /\" 200 1", "before 1970"),
        ] {
            assert!(Entry::of_common_log(line).expect_err(line).contains(why), "{line}");
        }
    }

    #[test]
    fn record_of_the_world_cup_is_big_endian() {
        let mut record = [0; WORLD_CUP_RECORD];
        record[..4].copy_from_slice(&898_000_000_u32.to_be_bytes());
        record[12..16].copy_from_slice(&4711_u32.to_be_bytes());
        assert_eq!(Entry::of_world_cup(&record), Some(Entry { second: 898_000_000, bytes: 4711 }));
        record[12..16].fill(0xff);
        assert_eq!(Entry::of_world_cup(&record).map(|entry| entry.bytes), Some(0));
        assert_eq!(Entry::of_world_cup(b"199.72.81.55 - - [01"), None);
    }

    #[test]
    fn requests_of_a_second_are_spread_over_it_and_times_are_scaled() {
        let entry = |second, bytes| Entry { second, bytes };
        let log = vec![entry(102, 5), entry(100, 1), entry(100, 2), entry(100, 3), entry(100, 4)];
        let replay = Replay::new(log, 2.0).expect("a log");
        let starts: Vec<u64> = (0..5).map(|n| replay.start(n).expect("a start").0 / 1_000_000).collect();
        assert_eq!(starts, [0, 125, 250, 375, 1000]);
        assert_eq!((replay.bytes(4), replay.start(5), replay.len()), (Some(5), None, 5));
        assert_eq!(replay.span(), Nanos::from_secs(1));
        assert_eq!(Replay::new(vec![], 1.0), None);
        assert_eq!(Replay::new(vec![entry(1, 1)], 0.0), None);
    }
}
