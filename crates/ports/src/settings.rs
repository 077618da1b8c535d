//! Sysctls of the host (Documentation/networking/ip-sysctl.rst).

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{Error, Result};

const RANGE: &str = "net/ipv4/ip_local_port_range";
const RESERVED: &str = "net/ipv4/ip_local_reserved_ports";
const REUSE: &str = "net/ipv4/tcp_tw_reuse";
const REUSE_DELAY: &str = "net/ipv4/tcp_tw_reuse_delay";
const TIMESTAMPS: &str = "net/ipv4/tcp_timestamps";
const MOST_TIME_WAITS: &str = "net/ipv4/tcp_max_tw_buckets";
/// Delay of a kernel before Linux 6.14, which has no `tcp_tw_reuse_delay`.
const USUAL_REUSE_DELAY: Duration = Duration::from_secs(1);

/// Where a new connection may take a four-tuple in TIME_WAIT: `net.ipv4.tcp_tw_reuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Never: 0.
    Never,
    /// Towards every address: 1.
    Everywhere,
    /// Over the loopback only: 2, which is the default.
    Loopback,
}

impl Reuse {
    /// Value of the sysctl.
    pub fn number(self) -> u8 {
        match self {
            Self::Never => 0,
            Self::Everywhere => 1,
            Self::Loopback => 2,
        }
    }
}

/// Sysctls of the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Ports that connect(2) chooses from.
    pub range: RangeInclusive<u16>,
    /// Ports that connect(2) does not choose.
    pub reserved: BTreeSet<u16>,
    /// Where connect(2) may choose a port in TIME_WAIT. Both ends must have timestamps for it.
    pub reuse: Reuse,
    /// Time in TIME_WAIT before a port may be chosen.
    pub reuse_delay: Duration,
    /// True if this end offers timestamps.
    pub has_timestamps: bool,
    /// Most sockets in TIME_WAIT. Linux forgets those beyond at once.
    pub most_time_waits: u64,
}

impl Settings {
    /// Reads the sysctls.
    ///
    /// # Errors
    ///
    /// A sysctl cannot be read, or has a value that Linux does not write.
    pub fn read() -> Result<Self> {
        let range = read(RANGE)?;
        let numbers: Vec<u16> = range.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[first, last] = numbers.as_slice() else { return Err(Error::Strange(RANGE, range)) };
        let reuse = match number(REUSE)? {
            0 => Reuse::Never,
            1 => Reuse::Everywhere,
            2 => Reuse::Loopback,
            other => return Err(Error::Strange(REUSE, other.to_string())),
        };
        let reserved = read(RESERVED)?;
        Ok(Self {
            range: first..=last,
            reserved: ports(&reserved).ok_or(Error::Strange(RESERVED, reserved))?,
            reuse,
            reuse_delay: number(REUSE_DELAY).map_or(USUAL_REUSE_DELAY, Duration::from_millis),
            has_timestamps: number(TIMESTAMPS)? != 0,
            most_time_waits: number(MOST_TIME_WAITS)?,
        })
    }

    /// Ports that connect(2) can choose, for each local address and destination.
    pub fn size(&self) -> u32 {
        let reserved = self.reserved.range(self.range.clone()).count() as u32;
        u32::from(self.range.end().saturating_sub(*self.range.start())) + 1 - reserved
    }

    /// True if connect(2) chooses this port when it is free.
    pub(crate) fn chooses(&self, port: u16) -> bool {
        self.range.contains(&port) && !self.reserved.contains(&port)
    }
}

fn read(path: &'static str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).map_err(|error| Error::Unread(path, error))?;
    Ok(text.trim().to_owned())
}

fn number(path: &'static str) -> Result<u64> {
    let text = read(path)?;
    text.parse().map_err(|_| Error::Strange(path, text))
}

/// Ports of a list such as `8080,9000-9002`.
fn ports(text: &str) -> Option<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    for words in text.split(',').filter(|words| !words.is_empty()) {
        let (first, last) = words.split_once('-').unwrap_or((words, words));
        ports.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_are_single_ones_and_ranges() {
        let all = ports("8080,9000-9002").expect("as Linux writes them");
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [8080, 9000, 9001, 9002]);
        assert_eq!((ports(""), ports("8080-,1")), (Some(BTreeSet::new()), None));
    }

    #[test]
    fn settings_of_this_host_are_read() {
        let settings = Settings::read().expect("read /proc/sys");
        assert!(settings.size() > 0 && settings.chooses(*settings.range.start()), "{settings:?}");
    }
}
