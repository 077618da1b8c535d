//! Configurations as people write them: words on the command line, tables in files.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kernel::Cutoffs;
use serde::Deserialize;
use units::Nanos;

use crate::amount::{self, Amount, Rate};
use crate::config::{
    BandsConfig, CakeConfig, CodelConfig, Config, ConfigError, DropTailConfig, FqCodelConfig, FqConfig,
    Guard, RankedConfig, RedConfig, RedFavorConfig, SfqConfig,
};
use crate::packet::ProtectedSet;

const AMOUNT: &str = "packets as in 180, or bytes with their unit, B, kB, MB, KiB or MiB, as in 180kB";
const PACKETS: &str = "packets, without a unit, as in 180";
const BYTES: &str = "bytes, as in 1500, or with a unit, B, kB, MB, KiB or MiB";
const RATE: &str = "a number with its unit, bit, kbit, Mbit or Gbit (per second), as in 10Mbit";
const SPAN: &str = "a time with its unit, as in 5ms";
const FRACTION: &str = "a number, as in 0.1, or a percentage, as in 10%";
const COUNT: &str = "a whole number";
const FLAG: &str = "true or false";
const CUTOFFS: &str = "one to seven sizes in ascending order, joined as in 1kB+2kB+5kB+50kB";
const PROTECT: &str = "tcp, sctp, dccp, or some of syn, syn-ack, sctp-init, sctp-init-ack, dccp-request and dccp-response, joined as in tcp+sctp";

/// What a file says.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Given {
    Words(String),
    Table(BTreeMap<String, Word>),
}

/// A value, whatever its type: `rate = 10` must be told that it lacks a unit, and not that it
/// should be a string.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Word {
    Flag(bool),
    Count(i64),
    Number(f64),
    Text(String),
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl TryFrom<Given> for Config {
    type Error = ConfigError;

    fn try_from(given: Given) -> Result<Self, ConfigError> {
        match given {
            Given::Words(text) => text.parse(),
            Given::Table(mut table) => {
                let kind = table.remove("kind").ok_or(ConfigError::NoKind)?.to_string();
                let words = table.into_iter().map(|(key, word)| (key, word.to_string())).collect();
                parse(&kind, words)
            }
        }
    }
}

/// `red`, or `red:limit=180,min=30,gentle`: a key alone is true.
impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut words = BTreeMap::new();
        for word in rest.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, "true"));
            if words.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(ConfigError::Twice { kind: kind.to_owned(), key: key.to_owned() });
            }
        }
        parse(kind, words)
    }
}

fn parse(kind: &str, words: BTreeMap<String, String>) -> Result<Config, ConfigError> {
    let known = |known: &&&str| **known == if kind == "fq_codel" { "fq-codel" } else { kind };
    let kind = *Config::KINDS.iter().find(known).ok_or_else(|| ConfigError::Kind(kind.to_owned()))?;
    let mut words = Words { kind, words, known: Vec::new() };
    let config = match kind {
        "droptail" => Config::DropTail(words.droptail()?),
        "red" => Config::Red(words.red(RedConfig::default())?),
        "choke" => Config::Choke(words.red(RedConfig::choke())?),
        "redfavor" => Config::RedFavor(words.redfavor()?),
        "codel" => Config::Codel(words.codel(CodelConfig::default())?),
        "fq-codel" => Config::FqCodel(words.fq_codel()?),
        "bands" => Config::Bands(words.bands()?),
        "srpt" => Config::Srpt(words.ranked()?),
        "las" => Config::Las(words.ranked()?),
        "fq" => Config::Fq(words.fq()?),
        "sfq" => Config::Sfq(words.sfq()?),
        _ => Config::Cake(words.cake()?),
    };
    words.end()?;
    config.check()?;
    Ok(config)
}

/// Words that have not been understood yet.
struct Words {
    kind: &'static str,
    words: BTreeMap<String, String>,
    /// Keys that were asked for.
    known: Vec<&'static str>,
}

impl Words {
    fn take<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&str) -> Option<T>,
        wanted: &'static str,
    ) -> Result<T, ConfigError> {
        self.known.push(key);
        let Some(text) = self.words.remove(key) else { return Ok(default) };
        read(&text).ok_or(ConfigError::Value { kind: self.kind, key, text, wanted })
    }

    fn end(mut self) -> Result<(), ConfigError> {
        match self.words.pop_first() {
            None => Ok(()),
            Some((key, _)) => Err(ConfigError::Key { kind: self.kind, key, known: self.known.join(", ") }),
        }
    }

    fn amount(&mut self, key: &'static str, default: Amount) -> Result<Amount, ConfigError> {
        self.take(key, default, Amount::parse, AMOUNT)
    }

    fn packets(&mut self, key: &'static str, default: u32) -> Result<u32, ConfigError> {
        self.take(key, default, |text| text.parse().ok(), PACKETS)
    }

    fn bytes(&mut self, key: &'static str, default: u32) -> Result<u32, ConfigError> {
        self.take(key, default, amount::bytes, BYTES)
    }

    fn fraction(&mut self, key: &'static str, default: f64) -> Result<f64, ConfigError> {
        self.take(key, default, fraction, FRACTION)
    }

    fn span(&mut self, key: &'static str, default: Nanos) -> Result<Nanos, ConfigError> {
        let read = |text: &str| spelling::time(text).ok().map(Nanos::from);
        self.take(key, default, read, SPAN)
    }

    fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        self.take(key, default, |text| text.parse().ok(), FLAG)
    }

    fn count<T: FromStr>(&mut self, key: &'static str, default: T) -> Result<T, ConfigError> {
        self.take(key, default, |text| text.parse().ok(), COUNT)
    }

    fn droptail(&mut self) -> Result<DropTailConfig, ConfigError> {
        Ok(DropTailConfig { limit: self.amount("limit", DropTailConfig::default().limit)? })
    }

    fn red(&mut self, default: RedConfig) -> Result<RedConfig, ConfigError> {
        Ok(RedConfig {
            limit: self.amount("limit", default.limit)?,
            min: self.amount("min", default.min)?,
            max: self.amount("max", default.max)?,
            max_probability: self.fraction("max_p", default.max_probability)?,
            weight: self.fraction("w", default.weight)?,
            is_gentle: self.flag("gentle", default.is_gentle)?,
            waits: self.flag("wait", default.waits)?,
            spares_one: self.flag("spare_one", default.spares_one)?,
            mean_packet_bytes: self.bytes("mean", default.mean_packet_bytes)?,
            rate: self.take("rate", default.rate, Rate::parse, RATE)?,
        })
    }

    fn redfavor(&mut self) -> Result<RedFavorConfig, ConfigError> {
        let default = RedFavorConfig::default();
        let red = self.red(default.red)?;
        let protect = self.take("protect", default.protect, ProtectedSet::parse, PROTECT)?;
        let guard = Guard::of(&red);
        let wanted = "off, or a share of the rate as in 25%";
        let read = |text: &str| if text == "off" { Some(None) } else { fraction(text).map(Some) };
        let share = self.take("guard", Some(guard.share), read, wanted)?;
        let guard = match share {
            Some(share) => Some(Guard { share, places: self.amount("places", guard.places)? }),
            None => None,
        };
        Ok(RedFavorConfig { red, protect, guard })
    }

    fn codel(&mut self, default: CodelConfig) -> Result<CodelConfig, ConfigError> {
        Ok(CodelConfig {
            limit: self.amount("limit", default.limit)?,
            target: self.span("target", default.target)?,
            interval: self.span("interval", default.interval)?,
            mtu_bytes: self.bytes("mtu", default.mtu_bytes)?,
        })
    }

    fn fq_codel(&mut self) -> Result<FqCodelConfig, ConfigError> {
        let default = FqCodelConfig::default();
        Ok(FqCodelConfig {
            codel: self.codel(default.codel)?,
            flows: self.count("flows", default.flows)?,
            quantum_bytes: self.bytes("quantum", default.quantum_bytes)?,
            batch: self.count("batch", default.batch)?,
            memory_bytes: self.bytes("memory", default.memory_bytes)?,
        })
    }

    fn bands(&mut self) -> Result<BandsConfig, ConfigError> {
        let default = BandsConfig::default();
        let cutoffs = self.take("cutoffs", None, |text| cutoffs(text).map(Some), CUTOFFS)?;
        let bands = cutoffs.map_or(default.bands, |cutoffs| cutoffs.count as u8 + 1);
        Ok(BandsConfig {
            cutoffs,
            bands: self.count("bands", bands)?,
            limit: self.amount("limit", default.limit)?,
            push_out: self.flag("push_out", default.push_out)?,
        })
    }

    fn ranked(&mut self) -> Result<RankedConfig, ConfigError> {
        let default = RankedConfig::default();
        Ok(RankedConfig {
            limit_pkts: self.packets("limit", default.limit_pkts)?,
            flow_limit_pkts: self.packets("flow_limit", default.flow_limit_pkts)?,
        })
    }

    fn fq(&mut self) -> Result<FqConfig, ConfigError> {
        let default = FqConfig::default();
        Ok(FqConfig {
            limit_pkts: self.packets("limit", default.limit_pkts)?,
            flow_limit_pkts: self.packets("flow_limit", default.flow_limit_pkts)?,
            quantum_bytes: self.bytes("quantum", default.quantum_bytes)?,
            initial_quantum_bytes: self.bytes("initial_quantum", default.initial_quantum_bytes)?,
            refill_delay: self.span("refill_delay", default.refill_delay)?,
        })
    }

    fn cake(&mut self) -> Result<CakeConfig, ConfigError> {
        let default = CakeConfig::default();
        Ok(CakeConfig {
            rate: self.take("rate", default.rate, Rate::parse, RATE)?,
            rtt: self.span("rtt", default.rtt)?,
            memory_bytes: self.take("memory", None, |text| amount::bytes(text).map(Some), BYTES)?,
        })
    }

    fn sfq(&mut self) -> Result<SfqConfig, ConfigError> {
        let default = SfqConfig::default();
        Ok(SfqConfig {
            limit_pkts: self.packets("limit", default.limit_pkts)?,
            depth_pkts: self.packets("depth", default.depth_pkts)?,
            flows: self.count("flows", default.flows)?,
            divisor: self.count("divisor", default.divisor)?,
            quantum_bytes: self.bytes("quantum", default.quantum_bytes)?,
        })
    }
}

fn cutoffs(text: &str) -> Option<Cutoffs> {
    let bytes: Vec<u64> =
        text.split('+').map(|size| amount::bytes(size).map(u64::from)).collect::<Option<_>>()?;
    Cutoffs::new(&bytes)
}

/// A fraction as people write it, `0.1` or `10%`. Without bounds: what is too much is said by who
/// asked, as by [`Config::check`].
pub fn fraction(text: &str) -> Option<f64> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    number.is_finite().then_some(number)
}

/// As [`FromStr`] takes it, with all parameters.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        match self {
            Self::DropTail(DropTailConfig { limit }) => write!(f, "limit={limit}"),
            Self::Red(red) | Self::Choke(red) => write_red(f, red),
            Self::RedFavor(RedFavorConfig { red, protect, guard }) => {
                write_red(f, red)?;
                write!(f, ",protect={protect}")?;
                match guard {
                    Some(Guard { share, places }) => write!(f, ",guard={share},places={places}"),
                    None => f.write_str(",guard=off"),
                }
            }
            Self::Codel(codel) => write_codel(f, codel),
            Self::FqCodel(FqCodelConfig { codel, flows, quantum_bytes, batch, memory_bytes }) => {
                write_codel(f, codel)?;
                write!(f, ",flows={flows},quantum={quantum_bytes},batch={batch},memory={memory_bytes}")
            }
            Self::Bands(BandsConfig { bands, limit, push_out, cutoffs }) => {
                write!(f, "bands={bands},limit={limit},push_out={push_out}")?;
                let Some(Cutoffs { bytes, count, .. }) = cutoffs else { return Ok(()) };
                let bytes: Vec<_> = bytes[..*count as usize].iter().map(u64::to_string).collect();
                write!(f, ",cutoffs={}", bytes.join("+"))
            }
            Self::Srpt(RankedConfig { limit_pkts, flow_limit_pkts })
            | Self::Las(RankedConfig { limit_pkts, flow_limit_pkts }) => {
                write!(f, "limit={limit_pkts},flow_limit={flow_limit_pkts}")
            }
            Self::Fq(FqConfig {
                limit_pkts,
                flow_limit_pkts,
                quantum_bytes,
                initial_quantum_bytes,
                refill_delay,
            }) => {
                write!(f, "limit={limit_pkts},flow_limit={flow_limit_pkts},quantum={quantum_bytes}")?;
                write!(f, ",initial_quantum={initial_quantum_bytes},refill_delay={}", span(*refill_delay))
            }
            Self::Sfq(SfqConfig { limit_pkts, depth_pkts, flows, divisor, quantum_bytes }) => {
                write!(f, "limit={limit_pkts},depth={depth_pkts},flows={flows},divisor={divisor}")?;
                write!(f, ",quantum={quantum_bytes}")
            }
            Self::Cake(CakeConfig { rate, rtt, memory_bytes }) => {
                write!(f, "rate={rate},rtt={}", span(*rtt))?;
                memory_bytes.map_or(Ok(()), |memory| write!(f, ",memory={memory}"))
            }
        }
    }
}

fn write_red(f: &mut fmt::Formatter<'_>, red: &RedConfig) -> fmt::Result {
    let RedConfig { limit, min, max, max_probability, weight, is_gentle, waits, spares_one, .. } = red;
    write!(f, "limit={limit},min={min},max={max},max_p={max_probability},w={weight},gentle={is_gentle}")?;
    write!(f, ",wait={waits},spare_one={spares_one},mean={},rate={}", red.mean_packet_bytes, red.rate)
}

fn write_codel(f: &mut fmt::Formatter<'_>, codel: &CodelConfig) -> fmt::Result {
    let CodelConfig { limit, target, interval, mtu_bytes } = *codel;
    write!(f, "limit={limit},target={},interval={},mtu={mtu_bytes}", span(target), span(interval))
}

fn span(span: Nanos) -> String {
    humantime::format_duration(Duration::from(span)).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn error(text: &str) -> String {
        text.parse::<Config>().expect_err(text).to_string()
    }

    #[test]
    fn name_alone_is_the_default() {
        assert_eq!(config("droptail"), Config::DropTail(DropTailConfig::default()));
        assert_eq!(config("red"), Config::Red(RedConfig::default()));
        assert_eq!(config("red:limit=180,min=30,max=90,max_p=10%,w=0.002,gentle"), config("red"));
        assert_eq!(config("choke"), Config::Choke(RedConfig::choke()));
        assert_eq!(config("redfavor"), Config::RedFavor(RedFavorConfig::default()));
        assert_eq!(config("codel:"), Config::Codel(CodelConfig::default()));
        assert_eq!(config("fq_codel"), Config::FqCodel(FqCodelConfig::default()), "as Linux writes it");
        assert_eq!(config("bands"), Config::Bands(BandsConfig::default()));
        assert_eq!(config("srpt"), Config::Srpt(RankedConfig::default()));
        assert_eq!(config("las"), Config::Las(RankedConfig::default()));
        assert_eq!(config("fq"), Config::Fq(FqConfig::default()));
        assert_eq!(config("sfq"), Config::Sfq(SfqConfig::default()));
        assert_eq!(config("cake"), Config::Cake(CakeConfig::default()));
    }

    #[test]
    fn text_of_a_configuration_gives_it_back() {
        let texts = [
            "droptail:limit=150kB",
            "red:min=30kB,max=90kB,limit=180kB,gentle=false,wait,spare_one,mean=512,rate=1.5Gbit",
            "choke:max_p=0.02,w=0.001",
            "redfavor:protect=tcp+sctp,guard=10%,places=12",
            "redfavor:guard=off",
            "codel:target=1500us,interval=2s 500ms",
            "fq-codel:flows=16,quantum=300,batch=1,memory=1MiB",
            "bands:bands=2,push_out=false",
            "bands:cutoffs=1kB+2kB+5kB+50kB,limit=100",
            "srpt:limit=300,flow_limit=50",
            "las:limit=300,flow_limit=50",
            "fq:limit=300,flow_limit=50,quantum=1514,initial_quantum=1kB,refill_delay=0s",
            "sfq:limit=300,depth=50,flows=7,divisor=3,quantum=1kB",
            "cake:rate=2Mbit,rtt=30ms",
            "cake:memory=1MiB",
        ];
        for text in texts {
            assert_eq!(config(&config(text).to_string()), config(text), "{text}");
        }
    }

    #[test]
    fn guard_has_as_many_places_as_the_minimum_unless_told() {
        let places = |text| match config(text) {
            Config::RedFavor(config) => config.guard.map(|guard| guard.places),
            other => panic!("{other}"),
        };
        assert_eq!(places("redfavor:min=10"), Some(Amount::Packets(10)));
        assert_eq!(places("redfavor:min=10kB,max=20kB"), Some(Amount::Bytes(10_000)));
        assert_eq!(places("redfavor:places=7"), Some(Amount::Packets(7)));
        assert_eq!(places("redfavor:guard=off"), None);
    }

    #[test]
    fn table_of_a_file_is_taken_with_numbers_or_text() {
        #[derive(Deserialize)]
        struct File {
            queue: Config,
        }
        let file = |text: &str| toml::from_str::<File>(text).map(|file| file.queue);
        let table =
            "queue = { kind = \"red\", limit = 100, min = \"5\", max = 15, max_p = 0.02, gentle = false }";
        assert_eq!(file(table).ok(), Some(config("red:limit=100,min=5,max=15,max_p=0.02,gentle=false")));
        assert_eq!(file("queue = \"codel:target=2ms\"").ok(), Some(config("codel:target=2ms")));
        let error = |text| file(text).expect_err(text).to_string();
        assert!(
            error("queue = { kind = \"red\", rate = 10 }").contains("red: rate=10: a number with its unit")
        );
        assert!(error("queue = { limit = 10 }").contains("has no kind; add kind = \"red\""));
        assert!(error("queue = { kind = \"red\", quantum = 10 }").contains("\"quantum\" is no key of it"));
    }

    #[test]
    fn limit_of_zero_is_refused() {
        // CAKE has no limit of packets.
        for kind in Config::KINDS.into_iter().filter(|kind| *kind != "cake") {
            assert_eq!(
                error(&format!("{kind}:limit=0")),
                format!("{kind}: limit=0: nothing could wait; say at least 1")
            );
        }
        assert!(error("droptail:limit=0kB").contains("nothing could wait"));
        assert!(error("fq-codel:memory=0").contains("nothing could wait"));
    }

    #[test]
    fn thresholds_that_do_not_go_together_are_refused() {
        assert_eq!(
            error("red:min=90,max=30"),
            "red: min=90 is not below max=30; the probability of a drop rises from one to the other"
        );
        assert!(error("red:min=30,max=30").contains("is not below"));
        assert!(error("choke:min=30kB,max=90").contains("not in one unit"));
        assert!(error("redfavor:max=200").contains("max=200 is above limit=180"));
        assert!(error("red:min=0").contains("an empty queue would drop"));
        assert!(error("redfavor:places=3kB").contains("places=3000B and min=30 are not in one unit"));
        assert!(
            error("redfavor:guard=off,places=3").contains("\"places\" is no key"),
            "it would have no meaning"
        );
        assert!(error("codel:target=100ms").contains("is not below interval=100ms"));
    }

    #[test]
    fn unknown_units_are_refused() {
        for wrong in ["10", "10parsecs", "10Mbps", "-1Mbit", "fast"] {
            assert_eq!(error(&format!("red:rate={wrong}")), format!("red: rate={wrong}: {RATE}"),);
        }
        assert!(error("droptail:limit=10furlongs").contains("B, kB, MB, KiB or MiB"));
        assert!(error("codel:target=5").contains("a time with its unit"));
        assert!(error("fq-codel:limit=10kB").contains("packets, without a unit"));
        assert_eq!(error("srpt:limit=10kB"), "srpt: limit=10kB: packets, without a unit, as in 180");
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        assert!(
            error("rde").starts_with(
                "\"rde\" is no queue discipline; did you mean red? known are droptail, red, choke"
            )
        );
        assert!(error("").starts_with("\"\" is no queue discipline"));
        assert_eq!(
            error("codel:min=3"),
            "codel: \"min\" is no key of it; it has limit, target, interval, mtu"
        );
        assert_eq!(error("red:min=3,min=4"), "red: min is given twice; leave one");
        for wrong in
            ["max_p=0", "max_p=1.1", "max_p=-1", "max_p=nan", "max_p=", "w=0", "w=2", "w=1e-9", "mean=1"]
        {
            assert!(error(&format!("red:{wrong}")).starts_with("red: "), "{wrong}");
        }
        for wrong in ["guard=0", "guard=101%", "guard=on", "places=0", "protect=udp"] {
            assert!(error(&format!("redfavor:{wrong}")).starts_with("redfavor: "), "{wrong}");
        }
        for wrong in ["flows=0", "flows=65537", "quantum=255", "batch=0", "target=0s", "mtu=0"] {
            assert!(error(&format!("fq-codel:{wrong}")).starts_with("fq-codel: "), "{wrong}");
        }
        assert_eq!(error("srpt:flow_limit=0"), "srpt: flow_limit=0: nothing could wait; say at least 1");
        assert_eq!(error("las:bands=2"), "las: \"bands\" is no key of it; it has limit, flow_limit");
        for wrong in ["quantum=255", "quantum=2MB", "initial_quantum=0", "refill_delay=40", "flow_limit=0"] {
            assert!(error(&format!("fq:{wrong}")).starts_with("fq: "), "{wrong}");
        }
        for wrong in ["quantum=255", "depth=0", "flows=0", "divisor=0", "divisor=65537"] {
            assert!(error(&format!("sfq:{wrong}")).starts_with("sfq: "), "{wrong}");
        }
        for wrong in ["rate=10", "rtt=0s", "rtt=11s", "memory=0", "limit=5"] {
            assert!(error(&format!("cake:{wrong}")).starts_with("cake: "), "{wrong}");
        }
        assert_eq!(
            error("bands:cutoffs=1kB+5kB+2kB"),
            "bands: cutoffs=1kB+5kB+2kB: one to seven sizes in ascending order, joined as in 1kB+2kB+5kB+50kB"
        );
        assert_eq!(
            error("bands:cutoffs=1kB+2kB,bands=5"),
            "bands: bands=5 does not go with 2 cutoffs, which make 3; leave bands out"
        );
        for wrong in ["cutoffs=", "cutoffs=1kB+1kB", "cutoffs=1+2+3+4+5+6+7+8", "cutoffs=10Mbit"] {
            assert!(error(&format!("bands:{wrong}")).starts_with("bands: "), "{wrong}");
        }
        for wrong in ["bands=0", "bands=65", "bands=300", "push_out=maybe"] {
            assert!(error(&format!("bands:{wrong}")).starts_with("bands: "), "{wrong}");
        }
    }
}
