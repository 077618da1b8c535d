//! Lengths of queues and rates, with their units.

use std::fmt;

/// Longest length that RED's arithmetic holds, with twice of it as gentle needs.
const MOST: u32 = i32::MAX as u32;
/// From what RED's idle time needs to be a number, to more than a link has.
const BITS_PER_S: std::ops::RangeInclusive<f64> = 1e3..=1e13;

/// Length of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// `180`.
    Packets(u32),
    /// `180kB`.
    Bytes(u32),
}

impl Amount {
    /// Its number, in its unit.
    pub const fn number(self) -> u32 {
        match self {
            Self::Packets(number) | Self::Bytes(number) => number,
        }
    }

    /// Whether both count the same thing.
    pub(crate) const fn has_unit_of(self, other: Self) -> bool {
        matches!((self, other), (Self::Packets(_), Self::Packets(_)) | (Self::Bytes(_), Self::Bytes(_)))
    }

    /// As a limit: whether a queue of that length has room for another packet.
    pub(crate) const fn has_room(self, qlen_pkts: u32, qlen_bytes: u64, bytes: u32) -> bool {
        match self {
            Self::Packets(limit) => qlen_pkts < limit,
            Self::Bytes(limit) => qlen_bytes + bytes as u64 <= limit as u64,
        }
    }

    /// `180`, or bytes with their unit as in `180kB`. A plain number is packets.
    pub fn parse(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(packets) => (packets <= MOST).then_some(Self::Packets(packets)),
            Err(_) => bytes_with_unit(text).map(Self::Bytes),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}"),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

/// Bytes, where packets would make no sense: a plain number is bytes, too.
pub(crate) fn bytes(text: &str) -> Option<u32> {
    text.parse().ok().filter(|bytes| *bytes <= MOST).or_else(|| bytes_with_unit(text))
}

fn bytes_with_unit(text: &str) -> Option<u32> {
    let (number, unit) = split_unit(text)?;
    let factor = match unit {
        "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u32>().ok()?.checked_mul(factor).filter(|bytes| *bytes <= MOST)
}

fn split_unit(text: &str) -> Option<(&str, &str)> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    Some((text[..at].trim_end(), &text[at..]))
}

/// Bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// Above 0.
    bits_per_s: u64,
}

impl Rate {
    /// `None` below 1 kbit/s and above 10 Tbit/s.
    pub fn from_bits_per_s(bits_per_s: u64) -> Option<Self> {
        BITS_PER_S.contains(&(bits_per_s as f64)).then_some(Self { bits_per_s })
    }

    /// Bits per second.
    pub const fn bits_per_s(self) -> u64 {
        self.bits_per_s
    }

    /// Time to send so many bytes, nanoseconds, rounded down.
    pub const fn transmission_ns(self, bytes: u64) -> u64 {
        (bytes as u128 * 8_000_000_000 / self.bits_per_s as u128) as u64
    }

    /// `10Mbit` or `10Mbit/s`. What has no unit or another one is none: `10Mbps` is bits to some
    /// and bytes to tc.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split_unit(text)?;
        let factor = match unit.strip_suffix("/s").unwrap_or(unit) {
            "bit" => 1.0,
            "kbit" => 1e3,
            "Mbit" | "mbit" => 1e6,
            "Gbit" | "gbit" => 1e9,
            _ => return None,
        };
        let bits_per_s = number.parse::<f64>().ok().filter(|number| *number > 0.0)? * factor;
        BITS_PER_S.contains(&bits_per_s).then_some(Self { bits_per_s: bits_per_s.round() as u64 })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1000, "kbit"), (1, "bit")];
        let is_whole = |(factor, _): &&(u64, &str)| self.bits_per_s.is_multiple_of(*factor);
        let (factor, unit) = units.iter().find(is_whole).expect("every rate is whole bits");
        write!(f, "{}{unit}", self.bits_per_s / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_packets_unless_it_says_bytes() {
        assert_eq!(Amount::parse("180"), Some(Amount::Packets(180)));
        assert_eq!(Amount::parse("180B"), Some(Amount::Bytes(180)));
        assert_eq!(Amount::parse("30kB"), Some(Amount::Bytes(30_000)));
        assert_eq!(Amount::parse("2 MiB"), Some(Amount::Bytes(2 << 20)));
        assert_eq!(bytes("1514"), Some(1514));
        for wrong in ["", "B", "-1", "1.5kB", "10k", "10KB", "10Mbit", "4000000000", "3000MB"] {
            assert_eq!(Amount::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rate_without_a_known_unit_is_none() {
        let rate = |text| Rate::parse(text).map(Rate::bits_per_s);
        assert_eq!(rate("10Mbit"), Some(10_000_000));
        assert_eq!(rate("10mbit/s"), Some(10_000_000));
        assert_eq!(rate("1.5 Gbit/s"), Some(1_500_000_000));
        assert_eq!(rate("9600bit"), Some(9600));
        for wrong in ["10", "10M", "10Mbps", "10MB/s", "10 miles", "0Mbit", "-1Mbit", "Mbit", "99999Gbit"] {
            assert_eq!(rate(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rate_is_shown_as_it_can_be_read() {
        for text in ["10Mbit", "1Gbit", "9600bit", "1500kbit"] {
            assert_eq!(Rate::parse(text).map(|rate| rate.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn packet_of_a_thousand_bytes_takes_800_microseconds_at_10_mbit() {
        assert_eq!(Rate::parse("10Mbit").map(|rate| rate.transmission_ns(1000)), Some(800_000));
    }
}
