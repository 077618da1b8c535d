//! Paths as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use aqm::{DropTailConfig, Rate, fraction};
use units::Nanos;

use crate::config::{Config, ConfigError};
use crate::{GilbertElliott, Loss};

const KNOWN: &str = "rate, overhead, delay, jitter, in-order, loss, reorder, limit and aqm";
const RATE: &str =
    "a number with its unit, bit, kbit, Mbit or Gbit (per second), from 1kbit to 10000Gbit, as in 10Mbit";
const BYTES: &str = "bytes besides each packet, as in 24";
const SPAN: &str = "a time with its unit, as in 20ms";
const LOSS: &str = "a share of the packets, as in 1%, or gilbert-elliott:p=1%,r=25% with the probabilities that a good wire becomes bad and a bad one good \
                    (and, unless 100% and 0%, bad= and good=, their losses)";
const SHARE: &str = "a share of the packets, as in 1%";
const LIMIT: &str = "packets as in 180, or bytes with their unit as in 180kB, at least 1";
const AQM: &str = "a discipline as in redfavor:limit=180,min=30,max=90";

/// `rate 10mbit delay 20ms loss 1% aqm red`: what is not said is as in the default.
impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::default().with(text)
    }
}

impl TryFrom<String> for Config {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl Config {
    /// The same with these words in place of its own.
    ///
    /// # Errors
    ///
    /// The first word that cannot be understood, or what the words contradict.
    pub fn with(mut self, text: &str) -> Result<Self, ConfigError> {
        let mut words = Words { words: text.split_whitespace(), seen: Vec::new() };
        while let Some(key) = words.words.next() {
            self.set(key, &mut words)?;
        }
        self.check()?;
        Ok(self)
    }

    fn set(&mut self, key: &str, words: &mut Words<'_>) -> Result<(), ConfigError> {
        let span = |text: &str| spelling::time(text).ok().map(Nanos::from);
        match key {
            "rate" => self.rate = Some(words.value("rate", Rate::parse, RATE)?),
            "overhead" => self.overhead_bytes = words.value("overhead", |text| text.parse().ok(), BYTES)?,
            "delay" => self.delay = words.value("delay", span, SPAN)?,
            "jitter" => self.jitter = words.value("jitter", span, SPAN)?,
            "in-order" => {
                words.once("in-order")?;
                self.keeps_order = true;
            }
            "loss" => self.loss = words.value("loss", loss, LOSS)?,
            "reorder" => self.reorder = words.value("reorder", fraction, SHARE)?,
            "limit" => {
                let limit = words.value("limit", aqm::Amount::parse, LIMIT)?;
                words.not_both("limit", "aqm")?;
                self.queue = aqm::Config::DropTail(DropTailConfig { limit });
            }
            "aqm" => {
                let text = words.value("aqm", |text| Some(text.to_owned()), AQM)?;
                words.not_both("aqm", "limit")?;
                self.queue = text.parse()?;
            }
            key => return Err(ConfigError::Key { key: key.to_owned(), known: KNOWN }),
        }
        Ok(())
    }
}

/// Words that have not been understood yet, and the keys of those that have.
struct Words<'a> {
    words: std::str::SplitWhitespace<'a>,
    seen: Vec<&'static str>,
}

impl Words<'_> {
    fn value<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
        wanted: &'static str,
    ) -> Result<T, ConfigError> {
        self.once(key)?;
        let text = self.words.next().ok_or(ConfigError::NoValue { key, wanted })?;
        read(text).ok_or_else(|| ConfigError::Value { key, text: text.to_owned(), wanted })
    }

    fn once(&mut self, key: &'static str) -> Result<(), ConfigError> {
        if self.seen.contains(&key) {
            return Err(ConfigError::Twice(key));
        }
        self.seen.push(key);
        Ok(())
    }

    fn not_both(&self, key: &str, other: &'static str) -> Result<(), ConfigError> {
        if !self.seen.contains(&other) {
            return Ok(());
        }
        let what = format!(
            "{key} and {other} are given; limit is that of drop-tail, a discipline has its own, as in red:limit=180"
        );
        Err(ConfigError::Contradiction(what))
    }
}

fn loss(text: &str) -> Option<Loss> {
    let Some(words) = text.strip_prefix("gilbert-elliott:") else {
        return fraction(text).map(Loss::Uniform);
    };
    let (mut p, mut r, mut bad, mut good) = (None, None, None, None);
    for word in words.split(',') {
        let (key, value) = word.split_once('=')?;
        let slot = match key {
            "p" => &mut p,
            "r" => &mut r,
            "bad" => &mut bad,
            "good" => &mut good,
            _ => return None,
        };
        if slot.replace(fraction(value)?).is_some() {
            return None;
        }
    }
    Some(Loss::GilbertElliott(GilbertElliott {
        to_bad: p?,
        to_good: r?,
        loss_when_bad: bad.unwrap_or(1.0),
        loss_when_good: good.unwrap_or(0.0),
    }))
}

/// As [`FromStr`] takes it, with all that is not nothing.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span =
            |span: Nanos| humantime::format_duration(Duration::from(span)).to_string().replace(' ', "");
        if let Some(rate) = self.rate {
            write!(f, "rate {rate} ")?;
        }
        if self.overhead_bytes != 0 {
            write!(f, "overhead {} ", self.overhead_bytes)?;
        }
        write!(f, "delay {} ", span(self.delay))?;
        if self.jitter > Nanos::ZERO {
            write!(f, "jitter {} ", span(self.jitter))?;
        }
        if self.keeps_order {
            f.write_str("in-order ")?;
        }
        match self.loss {
            Loss::None => {}
            Loss::Uniform(share) => write!(f, "loss {share} ")?,
            Loss::GilbertElliott(GilbertElliott { to_bad, to_good, loss_when_bad, loss_when_good }) => {
                write!(
                    f,
                    "loss gilbert-elliott:p={to_bad},r={to_good},bad={loss_when_bad},good={loss_when_good} "
                )?;
            }
        }
        if self.reorder > 0.0 {
            write!(f, "reorder {} ", self.reorder)?;
        }
        write!(f, "aqm {}", self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn error(text: &str) -> String {
        let error = text.parse::<Config>().expect_err(text).to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn words_say_what_is_not_the_default() {
        assert_eq!(config(""), Config::default());
        let all = config(
            "rate 10mbit overhead 24 delay 20ms jitter 2ms in-order loss 1% aqm redfavor:limit=100,min=5,max=15",
        );
        assert_eq!(all.rate, Rate::from_bits_per_s(10_000_000));
        assert_eq!((all.overhead_bytes, all.delay), (24, Nanos::from_millis(20)));
        assert_eq!((all.jitter, all.keeps_order), (Nanos::from_millis(2), true));
        assert_eq!((all.loss, all.queue.kind()), (Loss::Uniform(0.01), "redfavor"));
        assert_eq!(config("limit 50").queue, config("aqm droptail:limit=50").queue);
    }

    #[test]
    fn gilbert_elliott_has_netems_probabilities() {
        let model = GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_when_bad: 1.0, loss_when_good: 0.0 };
        assert_eq!(config("loss gilbert-elliott:p=1%,r=25%").loss, Loss::GilbertElliott(model));
        let model = GilbertElliott { loss_when_bad: 0.5, loss_when_good: 0.001, ..model };
        assert_eq!(
            config("loss gilbert-elliott:r=.25,p=.01,bad=50%,good=.1%").loss,
            Loss::GilbertElliott(model)
        );
    }

    #[test]
    fn text_of_a_path_gives_it_back() {
        let texts = [
            "",
            "rate 1500kbit delay 20ms aqm codel",
            "delay 5ms jitter 1ms reorder 2% loss 0.1%",
            "rate 10mbit overhead -14 delay 1ms in-order loss gilbert-elliott:p=1%,r=25%,bad=90% limit 30kB",
        ];
        for text in texts {
            assert_eq!(config(&config(text).to_string()), config(text), "{text}");
        }
    }

    #[test]
    fn words_of_one_direction_replace_those_of_both() {
        let both = config("rate 10mbit delay 20ms aqm red");
        let one = both.clone().with("rate 1mbit limit 20").expect("it can be had");
        assert_eq!(one, config("rate 1mbit delay 20ms limit 20"));
    }

    #[test]
    fn file_has_the_same_text() {
        #[derive(serde::Deserialize)]
        struct File {
            path: Config,
        }
        let file: File = toml::from_str("path = \"rate 10mbit delay 5ms\"").expect("a path");
        assert_eq!(file.path, config("rate 10mbit delay 5ms"));
    }

    #[test]
    fn wrong_words_are_refused_with_what_would_do() {
        assert_eq!(
            error("rate 10Mbps"),
            "rate 10Mbps: a number with its unit, bit, kbit, Mbit or Gbit (per second), from 1kbit to 10000Gbit, as in 10Mbit"
        );
        for rate in ["0mbit", "10", "-1mbit", "10MB"] {
            assert!(error(&format!("rate {rate}")).starts_with("rate "), "{rate}");
        }
        assert!(error("speed 10mbit").contains("\"speed\" is no word of a path; there are rate, "));
        assert_eq!(error("delay"), "delay: a value is missing; a time with its unit, as in 20ms");
        assert!(error("delay 20").contains("a time with its unit"));
        assert_eq!(error("delay 1ms delay 2ms"), "delay is given twice; once is enough");
        assert!(error("delay 2h").contains("up to an hour"));
        assert!(error("loss 101%").contains("loss 1.01: a probability from 0 to 1"));
        assert!(error("loss gilbert-elliott:p=1%").contains("gilbert-elliott:p=1%,r=25%"));
        assert!(error("loss gilbert-elliott:p=2,r=1%").contains("a probability"));
        assert!(error("overhead 2000").contains("from -100 to 1000"));
    }

    #[test]
    fn limits_of_zero_and_a_minimum_above_the_maximum_are_refused() {
        assert!(error("limit 0").contains("nothing could wait; say at least 1"));
        assert!(error("aqm codel:limit=0").contains("nothing could wait"));
        assert!(error("aqm red:min=90,max=30").contains("min=90 is not below max=30"));
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        assert!(error("delay 1ms jitter 2ms").contains("jitter 2ms is above delay 1ms"));
        assert!(error("reorder 1%").contains("reorder needs a delay"));
        assert!(error("delay 1ms reorder 1% in-order").contains("contradict each other"));
        assert!(error("limit 10 aqm red").contains("aqm and limit are given"));
        assert!(error("aqm red limit 10").contains("limit and aqm are given"));
    }
}
