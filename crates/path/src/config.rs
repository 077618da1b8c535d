//! What a path is told to be, and what cannot be.

use aqm::{DropTailConfig, Rate};
use serde::Deserialize;
use units::Nanos;

use crate::{GilbertElliott, Loss};

/// Longest delay, and with it twice of it for jitter: beyond, a unit was mistaken.
const LONGEST_DELAY: Nanos = Nanos::from_secs(3600);
/// Overhead that a link can have, bytes: from the Ethernet header that is not counted, to cells and
/// tunnels.
const OVERHEAD: std::ops::RangeInclusive<i32> = -100..=1000;

/// One direction of a bottleneck.
///
/// Written as words, `rate 10mbit delay 20ms jitter 2ms loss 1% aqm redfavor:limit=180`; what is
/// not said is as in the default, a wire without delay. A file has the same text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Config {
    /// Of the transmitter; `None` sends at once, so that nothing ever waits.
    pub rate: Option<Rate>,
    /// That the transmitter sends besides each packet: 24 for the preamble, FCS and gap of
    /// Ethernet, -14 where the rate is that of IP packets. At least one byte is sent.
    pub overhead_bytes: i32,
    /// From the end of a transmission to the arrival.
    pub delay: Nanos,
    /// The delay is uniform from `delay - jitter` to `delay + jitter`, of each packet for itself,
    /// so that one may overtake another; as in netem. At most `delay`.
    pub jitter: Nanos,
    /// A packet that would overtake another by jitter arrives together with it, as behind another
    /// queue. Jitter makes delays longer on the average then.
    pub keeps_order: bool,
    /// On the wire, after the transmission: what is lost has taken its time. (In netem loss comes
    /// before the rate.)
    pub loss: Loss,
    /// Probability that a packet arrives without delay, ahead of those before it, as in netem. 0 to
    /// 1; needs a delay.
    pub reorder: f64,
    /// What waits for the transmitter. RED's own rate, in `red`, `choke` and `redfavor`, becomes
    /// that of the path where it has one.
    pub queue: aqm::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: None,
            overhead_bytes: 0,
            delay: Nanos::ZERO,
            jitter: Nanos::ZERO,
            keeps_order: false,
            loss: Loss::None,
            reorder: 0.0,
            queue: aqm::Config::DropTail(DropTailConfig::default()),
        }
    }
}

/// Why a path cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No word of a path.
    #[error("\"{key}\" is no word of a path{then}", then = spelling::did_you_mean(.key, .known.split([',', ' ']), &format!("there are {known}")))]
    Key {
        /// What was given.
        key: String,
        /// What could be.
        known: &'static str,
    },
    /// Nothing follows a word.
    #[error("{key}: a value is missing; {wanted}")]
    NoValue {
        /// Which.
        key: &'static str,
        /// What would do.
        wanted: &'static str,
    },
    /// A word was given twice.
    #[error("{0} is given twice; once is enough")]
    Twice(&'static str),
    /// Not a value of this word.
    #[error("{key} {text}: {wanted}")]
    Value {
        /// Which.
        key: &'static str,
        /// What was given.
        text: String,
        /// What would do.
        wanted: &'static str,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Contradiction(String),
    /// A discipline that cannot be had.
    #[error("aqm {0}")]
    Queue(aqm::ConfigError),
}

/// Not as its source: the text has it already.
impl From<aqm::ConfigError> for ConfigError {
    fn from(error: aqm::ConfigError) -> Self {
        Self::Queue(error)
    }
}

impl Config {
    /// Bytes that the transmitter sends for a packet of so many.
    pub fn sent_bytes(&self, packet: u32) -> u32 {
        packet.saturating_add_signed(self.overhead_bytes).max(1)
    }

    /// Why it cannot be had, if so. What was parsed can.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.queue.check()?;
        let Self { delay, jitter, reorder, overhead_bytes, .. } = *self;
        value(delay <= LONGEST_DELAY, "delay", &delay, "a time with its unit, as in 20ms, up to an hour")?;
        value(
            OVERHEAD.contains(&overhead_bytes),
            "overhead",
            &overhead_bytes,
            "bytes besides each packet, from -100 to 1000",
        )?;
        together(jitter <= delay, || {
            format!(
                "jitter {jitter} is above delay {delay}, and no packet arrives before it was sent; raise delay, or lower jitter"
            )
        })?;
        probability("reorder", reorder)?;
        together(reorder == 0.0 || delay > Nanos::ZERO, || {
            "reorder needs a delay, which the packets that go ahead do not have; say delay, too".to_owned()
        })?;
        together(reorder == 0.0 || !self.keeps_order, || {
            "reorder and in-order contradict each other; leave out one".to_owned()
        })?;
        match self.loss {
            Loss::None => Ok(()),
            Loss::Uniform(share) => probability("loss", share),
            Loss::GilbertElliott(GilbertElliott { to_bad, to_good, loss_when_bad, loss_when_good }) => {
                [to_bad, to_good, loss_when_bad, loss_when_good]
                    .into_iter()
                    .try_for_each(|share| probability("loss gilbert-elliott", share))
            }
        }
    }

    /// The discipline, with the rate that its packets leave at.
    pub(crate) fn queue_at_rate(&self) -> aqm::Config {
        let mut queue = self.queue.clone();
        let red = match &mut queue {
            aqm::Config::Red(red) | aqm::Config::Choke(red) => red,
            aqm::Config::RedFavor(config) => &mut config.red,
            aqm::Config::Cake(cake) => {
                cake.rate = self.rate.unwrap_or(cake.rate);
                return queue;
            }
            _ => return queue,
        };
        red.rate = self.rate.unwrap_or(red.rate);
        queue
    }
}

fn value(
    is_good: bool,
    key: &'static str,
    text: &dyn std::fmt::Display,
    wanted: &'static str,
) -> Result<(), ConfigError> {
    is_good.then_some(()).ok_or_else(|| ConfigError::Value { key, text: text.to_string(), wanted })
}

fn probability(key: &'static str, share: f64) -> Result<(), ConfigError> {
    value((0.0..=1.0).contains(&share), key, &share, "a probability from 0 to 1, or 0% to 100%")
}

fn together(is_good: bool, what: impl FnOnce() -> String) -> Result<(), ConfigError> {
    is_good.then_some(()).ok_or_else(|| ConfigError::Contradiction(what()))
}
