//! What clients ask for, and how much of it on one connection.

use std::fmt;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use crate::files::{File, SpecWeb};
use crate::log::Replay;
use crate::sizes::{BoundedPareto, HeavyTail, ParetoII};

/// Requests of a persistent connection: from 5 to 15, 10 on the mean (SPECweb99).
const PERSISTENT: std::ops::RangeInclusive<u8> = 5..=15;
const PERSISTENT_MEAN: f64 = 10.0;

/// What a workload's table says; see [`Workload`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What is asked for.
    pub kind: Kind,
    /// Requests on a connection, one after the other, on the mean: from 1, on a connection each,
    /// to 10. A share of the connections has 5 to 15 as in SPECweb99, the others one.
    #[serde(default = "one")]
    pub requests_per_connection: f64,
    /// Of `specweb99`: directories of 36 files; 25 unless given.
    pub directories: Option<u32>,
    /// Of `heavy-tail`, `bounded-pareto` and `pareto-ii`: smallest size, bytes.
    pub least: Option<u64>,
    /// Of `pareto-ii`: mean, bytes.
    pub mean: Option<u64>,
    /// Of `heavy-tail`: median.
    pub median: Option<u64>,
    /// Ninth decile, where a Pareto tail begins.
    pub p90: Option<u64>,
    /// Largest.
    pub most: Option<u64>,
    /// Shape of the tail.
    pub shape: Option<f64>,
}

fn one() -> f64 {
    1.0
}

const DIRECTORIES: u32 = 25;

impl Table {
    /// A key that has no meaning for this kind.
    fn stray(&self) -> Option<&'static str> {
        let is_heavy = self.kind == Kind::HeavyTail;
        let is_bounded = is_heavy || matches!(self.kind, Kind::BoundedPareto | Kind::ParetoIi);
        [
            ("directories", self.directories.is_some() && self.kind != Kind::Specweb99),
            ("least", self.least.is_some() && !is_bounded),
            ("mean", self.mean.is_some() && self.kind != Kind::ParetoIi),
            ("median", self.median.is_some() && !is_heavy),
            ("p90", self.p90.is_some() && !is_heavy),
            ("most", self.most.is_some() && !is_bounded),
            ("shape", self.shape.is_some() && !is_bounded),
        ]
        .into_iter()
        .find_map(|(key, is_stray)| is_stray.then_some(key))
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The same page each time (`[Shu05]` section 3.2.1).
    OnePacket,
    /// The files of [`SpecWeb`].
    Specweb99,
    /// Sizes as [`HeavyTail::world_cup`].
    WorldCup,
    /// Sizes as [`HeavyTail::nasa`].
    Nasa,
    /// Sizes as the table's other keys say.
    HeavyTail,
    /// Sizes as [`BoundedPareto`].
    BoundedPareto,
    /// Sizes as [`ParetoII`].
    ParetoIi,
}

/// What clients ask for: a function of a seed, the number of the attempt and that of the request on
/// its connection, and of nothing else, so that the same crowd asks the same questions whatever the
/// server does.
#[derive(Debug, Clone)]
pub struct Workload {
    objects: Objects,
    /// Share of the connections that are persistent.
    persistent: f64,
}

#[derive(Debug, Clone)]
enum Objects {
    Page,
    Files(Box<SpecWeb>),
    Sizes(HeavyTail),
    Bounded(BoundedPareto),
    Pareto(ParetoII),
    Log(Arc<Replay>),
}

/// One thing that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// The page that the crowd was told of.
    Page,
    /// So many bytes.
    Bytes(u64),
    /// A file of SPECweb99.
    File(File),
}

impl Object {
    /// The path under which a server has it, to be written; none for [`Object::Page`], which has
    /// one already.
    pub fn path(self) -> Option<Path> {
        match self {
            Self::Page => None,
            Self::Bytes(bytes) => Some(Path::Bytes(bytes)),
            Self::File(file) => Some(Path::File(file)),
        }
    }

    /// How long the reply is, bytes without its head; none for [`Object::Page`], which the server
    /// knows.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Page => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::File(file) => Some(file.bytes()),
        }
    }

    /// How long a reply of this path is, bytes, when it is one of [`Object::path`].
    pub fn bytes_of_path(path: &str) -> Option<u64> {
        match path.strip_prefix("/bytes/") {
            Some(bytes) => bytes.parse().ok(),
            None => File::of_path(path).map(|file| file.bytes()),
        }
    }
}

/// Where a server has an object. Displays as the path, without an allocation of its own: a crowd
/// writes one for each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// `/bytes/N`.
    Bytes(u64),
    /// That of a [`File`].
    File(File),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "/bytes/{bytes}"),
            Self::File(file) => file.fmt(f),
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self { objects: Objects::Page, persistent: 0.0 }
    }
}

impl Workload {
    /// Workloads that have a name: the tables that they stand for.
    pub const NAMES: [(&'static str, &'static str); 8] = [
        ("one-packet", "kind = \"one-packet\""),
        ("specweb99", "kind = \"specweb99\""),
        ("specweb99-2.62", "kind = \"specweb99\"\nrequests_per_connection = 2.62"),
        ("specweb99-7.2", "kind = \"specweb99\"\nrequests_per_connection = 7.2"),
        ("world-cup", "kind = \"world-cup\""),
        ("world-cup-5", "kind = \"world-cup\"\nrequests_per_connection = 5"),
        ("nasa", "kind = \"nasa\""),
        ("redfavor", "kind = \"pareto-ii\"\nleast = 1000\nmean = 12000\nmost = 10000000\nshape = 1.2"),
    ];

    /// From its table.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and why.
    pub fn new(table: &Table) -> Result<Self, String> {
        let mean = table.requests_per_connection;
        if !(1.0..=PERSISTENT_MEAN).contains(&mean) {
            return Err(format!("requests_per_connection = {mean}: from 1 to {PERSISTENT_MEAN}"));
        }
        if let Some(key) = table.stray() {
            return Err(format!(
                "{key} is no key of this kind; least, median, p90, most and shape are those of heavy-tail, least, most and shape of bounded-pareto, these and mean of pareto-ii, directories of specweb99"
            ));
        }
        let objects = match table.kind {
            Kind::OnePacket => Objects::Page,
            Kind::Specweb99 => Objects::Files(Box::new(
                SpecWeb::new(table.directories.unwrap_or(DIRECTORIES))
                    .ok_or("directories = 0: there must be one")?,
            )),
            Kind::WorldCup => Objects::Sizes(HeavyTail::world_cup()),
            Kind::Nasa => Objects::Sizes(HeavyTail::nasa()),
            Kind::HeavyTail => Objects::Sizes(heavy_tail(table)?),
            Kind::BoundedPareto => Objects::Bounded(bounded_pareto(table)?),
            Kind::ParetoIi => Objects::Pareto(pareto(table)?),
        };
        Ok(Self { objects, persistent: (mean - 1.0) / (PERSISTENT_MEAN - 1.0) })
    }

    /// Whether each connection has one request.
    pub fn is_one_request(&self) -> bool {
        self.persistent == 0.0
    }

    /// Mean number of requests on a connection.
    pub fn mean_requests(&self) -> f64 {
        1.0 + self.persistent * (PERSISTENT_MEAN - 1.0)
    }

    /// Mean length of a reply, bytes without its head; none where it is the server's page, or a
    /// log's.
    pub fn mean_bytes(&self) -> Option<f64> {
        match &self.objects {
            Objects::Page | Objects::Log(_) => None,
            Objects::Files(files) => Some(files.mean()),
            Objects::Sizes(sizes) => Some(sizes.mean()),
            Objects::Bounded(sizes) => Some(sizes.mean()),
            Objects::Pareto(sizes) => Some(sizes.mean()),
        }
    }

    /// What a log has: of each attempt the size of its request's reply.
    pub fn of_log(replay: Arc<Replay>) -> Self {
        Self { objects: Objects::Log(replay), persistent: 0.0 }
    }

    /// How many requests the connection of an attempt has.
    pub fn requests(&self, seed: u64, attempt: u64) -> u8 {
        if self.persistent == 0.0 {
            return 1;
        }
        let mut random = random(seed, attempt, 0);
        if random.random::<f64>() < self.persistent { random.random_range(PERSISTENT) } else { 1 }
    }

    /// What is asked for by the `n`-th request, from 0, of an attempt.
    pub fn object(&self, seed: u64, attempt: u64, n: u8) -> Object {
        let random = || random(seed, attempt, 1 + u64::from(n));
        match &self.objects {
            Objects::Page => Object::Page,
            Objects::Files(files) => Object::File(files.sample(&mut random())),
            Objects::Sizes(sizes) => Object::Bytes(sizes.sample(&mut random())),
            Objects::Bounded(sizes) => Object::Bytes(sizes.sample(&mut random())),
            Objects::Pareto(sizes) => Object::Bytes(sizes.sample(&mut random())),
            Objects::Log(replay) => replay.bytes(attempt).map_or(Object::Page, Object::Bytes),
        }
    }
}

fn heavy_tail(table: &Table) -> Result<HeavyTail, String> {
    let Table {
        least: Some(least),
        median: Some(median),
        p90: Some(p90),
        most: Some(most),
        shape: Some(shape),
        ..
    } = *table
    else {
        return Err("kind = \"heavy-tail\" needs least, median, p90, most (bytes) and shape".to_owned());
    };
    HeavyTail::new(least, median, p90, most, shape).ok_or_else(|| {
        format!(
            "least = {least}, median = {median}, p90 = {p90} and most = {most} must each be larger than the one before, \
             least above 0, and shape = {shape} above 0"
        )
    })
}

fn bounded_pareto(table: &Table) -> Result<BoundedPareto, String> {
    let Table { least: Some(least), most: Some(most), shape: Some(shape), .. } = *table else {
        return Err("kind = \"bounded-pareto\" needs least, most (bytes) and shape".to_owned());
    };
    BoundedPareto::new(least, most, shape).ok_or_else(|| {
        format!("least = {least} must be above 0 and below most = {most}, and shape = {shape} above 0")
    })
}

fn pareto(table: &Table) -> Result<ParetoII, String> {
    let Table { least: Some(least), mean: Some(mean), most: Some(most), shape: Some(shape), .. } = *table
    else {
        return Err("kind = \"pareto-ii\" needs least, mean, most (bytes) and shape".to_owned());
    };
    ParetoII::new(least, mean, most, shape).ok_or_else(|| {
        format!(
            "least = {least}, mean = {mean} and most = {most} must each be larger than the one before, least above 0, \
             and shape = {shape} above 1"
        )
    })
}

/// Numbers of their own for each request, which depend on no other.
pub(crate) fn random(seed: u64, attempt: u64, n: u64) -> Pcg64Mcg {
    let mixed = seed ^ attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xd1b5_4a32_d192_ed03);
    Pcg64Mcg::seed_from_u64(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_near;

    fn table(kind: Kind) -> Table {
        Table {
            kind,
            requests_per_connection: 1.0,
            directories: None,
            least: None,
            mean: None,
            median: None,
            p90: None,
            most: None,
            shape: None,
        }
    }

    #[test]
    fn connections_have_as_many_requests_as_asked_for_on_the_mean() {
        for mean in [1.0, 2.62, 5.0, 7.2, 10.0] {
            let table = Table { requests_per_connection: mean, ..table(Kind::OnePacket) };
            let workload = Workload::new(&table).expect("a workload");
            let requests: Vec<u8> = (0..100_000).map(|attempt| workload.requests(1, attempt)).collect();
            let sum: u64 = requests.iter().map(|&count| u64::from(count)).sum();
            assert_near("requests per connection", sum as f64 / 100_000.0, mean, 0.01);
            assert!(requests.iter().all(|count| *count == 1 || PERSISTENT.contains(count)));
        }
    }

    #[test]
    fn the_same_request_asks_for_the_same() {
        let workload = Workload::new(&table(Kind::Specweb99)).expect("a workload");
        let ask = |seed, attempt, n| workload.object(seed, attempt, n);
        assert_eq!(ask(1, 2, 3), ask(1, 2, 3));
        let others: Vec<Object> =
            (0..50).flat_map(|n| [ask(1, n, 0), ask(2, n, 0), ask(1, 0, n as u8 + 1)]).collect();
        let distinct = others.iter().filter(|other| **other != others[0]).count();
        assert!(distinct > 140, "{distinct} of 150 are others");
    }

    /// A million sizes of a heavy tail have a mean that is 1% off.
    #[test]
    fn mean_length_is_that_of_what_is_asked_for() {
        for kind in [Kind::Specweb99, Kind::WorldCup, Kind::Nasa] {
            let workload = Workload::new(&table(kind)).expect("a workload");
            let bytes = |attempt| workload.object(3, attempt, 0).bytes().expect("a length") as f64;
            let mean = (0..500_000).map(bytes).sum::<f64>() / 500_000.0;
            assert_near("mean", workload.mean_bytes().expect("known"), mean, 0.03);
        }
        assert_eq!(Workload::default().mean_bytes(), None);
    }

    #[test]
    fn server_knows_how_long_a_reply_is() {
        for kind in [Kind::Specweb99, Kind::WorldCup, Kind::Nasa] {
            let workload = Workload::new(&table(kind)).expect("a workload");
            for attempt in 0..100 {
                let object = workload.object(7, attempt, 0);
                let bytes = match object {
                    Object::Bytes(bytes) => bytes,
                    Object::File(file) => file.bytes(),
                    Object::Page => panic!("a page"),
                };
                let path = object.path().expect("a path").to_string();
                assert_eq!(Object::bytes_of_path(&path), Some(bytes));
            }
        }
        assert_eq!(Object::bytes_of_path("/index.html"), None);
        assert_eq!(Object::bytes_of_path("/bytes/-1"), None);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let error = |table: Table| Workload::new(&table).expect_err("no workload");
        let sized = Table { median: Some(5), ..table(Kind::Nasa) };
        assert!(error(sized).contains("median is no key of this kind"));
        let nasa = Table { directories: Some(5), ..table(Kind::Nasa) };
        assert!(error(nasa).contains("directories is no key of this kind"));
        assert!(error(table(Kind::HeavyTail)).contains("needs least"));
        assert!(error(table(Kind::BoundedPareto)).contains("needs least, most"));
        let upside_down =
            Table { least: Some(9), most: Some(5), shape: Some(1.1), ..table(Kind::BoundedPareto) };
        assert!(error(upside_down).contains("least = 9 must be above 0 and below most = 5"));
        assert!(error(Table { requests_per_connection: 0.5, ..table(Kind::Nasa) }).contains("from 1 to 10"));
        assert!(error(Table { directories: Some(0), ..table(Kind::Specweb99) }).contains("directories = 0"));
        let tail = Table {
            least: Some(9),
            median: Some(5),
            p90: Some(10),
            most: Some(20),
            shape: Some(1.0),
            ..table(Kind::HeavyTail)
        };
        assert!(error(tail).contains("must each be larger"));
    }
}
