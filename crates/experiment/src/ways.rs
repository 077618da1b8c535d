//! How far the clients are from the server: the way between them, of several delays and losses.

use path::ConfigError;
use results::PathSummary;
use serde::Deserialize;
use units::Nanos;

use crate::servers::ServerSpec;

/// The table `[path]`. Every server of the file stands for one behind each pair of a delay and a
/// loss. All is of each direction, in the words of `tidegate link`; what is not said is as in a
/// wire without delay, rate and loss.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ways {
    /// Half of a round trip's, one or several.
    delay: Option<Texts>,
    /// Share of the packets that the wire loses, one or several.
    loss: Option<Texts>,
    /// How much more or less a delay may be.
    jitter: Option<String>,
    /// Packets do not overtake each other by jitter.
    in_order: bool,
    /// Share of the packets that have no delay.
    reorder: Option<String>,
    /// Of the transmitter.
    rate: Option<String>,
    /// That it sends besides each packet, bytes.
    overhead: Option<i32>,
    /// What waits for it.
    queue: Option<String>,
    /// What is different from the clients to the server, in words.
    to_server: Option<String>,
    /// And back.
    to_clients: Option<String>,
    /// Groups of clients, each in words: what is different from the keys above in both directions.
    /// Users are of one after the other.
    groups: Option<Vec<String>>,
    /// Every server stands besides for one before clients who are all as those of a group, for each
    /// group.
    groups_alone: bool,
}

/// Most groups of clients.
const MOST_GROUPS: usize = 32;

/// The way between clients and server.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    /// From the clients.
    pub to_server: path::Config,
    /// From the server.
    pub to_clients: path::Config,
    /// The same two of each group of clients, where they are at several distances; else empty.
    pub groups: Vec<[path::Config; 2]>,
}

/// Packets of one direction.
#[derive(Debug, Clone, Copy)]
pub struct PathCounted {
    /// That came to the near end.
    pub arrived: u64,
    /// That left the far end.
    pub delivered: u64,
    /// By the queue.
    pub dropped: u64,
    /// By the wire.
    pub lost: u64,
    /// That went ahead of those before them.
    pub reordered: u64,
    /// SYNs or SYN/ACKs among those that came.
    pub opening: u64,
    /// Of these, those that were dropped or lost.
    pub opening_dropped: u64,
}

impl PathCounted {
    fn named(&self, direction: &str) -> [(String, u64); 7] {
        let Self { arrived, delivered, dropped, lost, reordered, opening, opening_dropped } = *self;
        let counts = [
            ("arrived", arrived),
            ("delivered", delivered),
            ("dropped", dropped),
            ("lost", lost),
            ("reordered", reordered),
            ("opening", opening),
            ("opening_dropped", opening_dropped),
        ];
        counts.map(|(name, count)| (format!("{direction}.{name}"), count))
    }
}

/// One value or several, each once. Deserializes from a text or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Texts(Vec<String>);

impl TryFrom<toml::Value> for Texts {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let values = match value {
            toml::Value::Array(values) => values,
            one => vec![one],
        };
        let mut texts = Vec::new();
        for value in values {
            let toml::Value::String(text) = value else {
                return Err(format!("{value} is no text; \"50ms\" or \"1%\" would be, or a list of such"));
            };
            if texts.contains(&text) {
                return Err(format!(
                    "{text:?} is there twice; to measure it several times, raise grid.repetitions"
                ));
            }
            texts.push(text);
        }
        if texts.is_empty() {
            return Err("the list is empty: name one value, or leave out the key".to_owned());
        }
        Ok(Self(texts))
    }
}

impl Ways {
    /// Whether it is several.
    pub(crate) fn are_several(&self) -> bool {
        [&self.delay, &self.loss].into_iter().flatten().any(|texts| texts.0.len() > 1)
    }

    /// One server for each way, in the order of delays, then losses. Where there are several, their
    /// names say which.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and what would do.
    pub(crate) fn spread(&self, servers: &[ServerSpec]) -> Result<Vec<ServerSpec>, String> {
        let mut all = Vec::new();
        for server in servers {
            for (delay, of_delay) in named(self.delay.as_ref()) {
                for (loss, of_loss) in named(self.loss.as_ref()) {
                    let way = self.way(delay, loss)?;
                    let name = format!("{}{of_delay}{of_loss}", server.name);
                    let alone = if self.groups_alone { way.groups.clone() } else { Vec::new() };
                    let before = |name: String, way: Way| {
                        let way = Some(Box::new(way));
                        ServerSpec { name, way, ..server.clone() }
                    };
                    all.push(before(name.clone(), way));
                    all.extend((0..).zip(alone).map(|(group, [to_server, to_clients])| {
                        let way = Way { to_server, to_clients, groups: Vec::new() };
                        before(format!("{name}-group-{group}"), way)
                    }));
                }
            }
        }
        Ok(all)
    }

    fn way(&self, delay: Option<&str>, loss: Option<&str>) -> Result<Way, String> {
        let both = path::Config::default().with(&self.words(delay, loss));
        let both = both.map_err(|why| format!("path: {why}"))?;
        let of = |key: &str, words: &Option<String>| {
            let config = both.clone().with(words.as_deref().unwrap_or_default());
            config.map_err(|why: ConfigError| format!("path.{key}: {why}"))
        };
        let (to_server, to_clients) =
            (of("to_server", &self.to_server)?, of("to_clients", &self.to_clients)?);
        let groups = self.groups.as_deref().unwrap_or_default();
        if self.groups_alone && self.groups.is_none() {
            return Err("path.groups_alone: there are no groups".to_owned());
        }
        if self.groups.is_some() && !(2..=MOST_GROUPS).contains(&groups.len()) {
            return Err(format!(
                "path.groups has {} groups: from 2 to {MOST_GROUPS}, as [\"delay 0ms\", \"delay 75ms\"]",
                groups.len()
            ));
        }
        let group = |words: &String| {
            let each = [&to_server, &to_clients].map(|config| config.clone().with(words));
            let [to_server, to_clients] = each;
            let said = |why: ConfigError| format!("path.groups {words:?}: {why}");
            Ok([to_server.map_err(said)?, to_clients.map_err(said)?])
        };
        let groups = groups.iter().map(group).collect::<Result<_, String>>()?;
        Ok(Way { to_server, to_clients, groups })
    }

    fn words(&self, delay: Option<&str>, loss: Option<&str>) -> String {
        let overhead = self.overhead.map(|bytes| bytes.to_string());
        let values = [
            ("delay", delay),
            ("loss", loss),
            ("jitter", self.jitter.as_deref()),
            ("reorder", self.reorder.as_deref()),
            ("rate", self.rate.as_deref()),
            ("overhead", overhead.as_deref()),
            ("aqm", self.queue.as_deref()),
        ];
        // A value with blanks in it would be several words.
        let value = |(key, value): (&str, Option<&str>)| {
            value.map(|value| format!("{key} {} ", value.replace(char::is_whitespace, "")))
        };
        let order = if self.in_order { "in-order" } else { "" };
        values.into_iter().filter_map(value).chain([order.to_owned()]).collect()
    }
}

impl Way {
    /// What went over it, by what a link counted in each direction, to the server first.
    pub fn summary(&self, directions: &[PathCounted; 2]) -> PathSummary {
        let [to_server, to_clients] = directions;
        let counters = [("to_server", to_server), ("to_clients", to_clients)];
        let words = |direction: usize, alike: &path::Config| {
            let of_group =
                |(n, group): (usize, &[path::Config; 2])| format!("group {n}: {}", group[direction]);
            let groups: Vec<String> = (0..).zip(&self.groups).map(of_group).collect();
            if groups.is_empty() { alike.to_string() } else { groups.join("; ") }
        };
        PathSummary {
            to_server: words(0, &self.to_server),
            to_clients: words(1, &self.to_clients),
            counters: counters.into_iter().flat_map(|(name, counted)| counted.named(name)).collect(),
            late_p99_ms: 0.0,
        }
    }

    /// The shortest time from a client's SYN to its reply: two round trips, of the group that is
    /// farthest away. Nothing where packets may go ahead without delay.
    pub(crate) fn shortest_reply(&self) -> Nanos {
        let one = |config: &path::Config| {
            let is_sure = config.reorder == 0.0;
            if is_sure { config.delay - config.jitter } else { Nanos::ZERO }
        };
        let round_trip = |[to_server, to_clients]: [&path::Config; 2]| one(to_server) + one(to_clients);
        let of_groups = self.groups.iter().map(|group| round_trip(group.each_ref()));
        let farthest = of_groups.max().unwrap_or_else(|| round_trip([&self.to_server, &self.to_clients]));
        farthest + farthest
    }
}

/// The values, and what each adds to a server's name: nothing where there is one.
fn named(texts: Option<&Texts>) -> Vec<(Option<&str>, String)> {
    match texts.map(|texts| &texts.0[..]) {
        None => vec![(None, String::new())],
        Some([one]) => vec![(Some(one), String::new())],
        Some(several) => {
            several.iter().map(|text| (Some(text.as_str()), format!("-{}", plain(text)))).collect()
        }
    }
}

/// As a part of a name: `1%` is `1pct`.
fn plain(text: &str) -> String {
    let text = text.replace("gilbert-elliott", "ge").replace('%', "pct");
    text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(text: &str) -> Ways {
        toml::from_str(text).expect("a table")
    }

    fn servers() -> Vec<ServerSpec> {
        #[derive(Deserialize)]
        struct File {
            server: Vec<ServerSpec>,
        }
        let of = |name: &str| format!("[[server]]\nname = {name:?}\nkind = \"built-in\"\nbacklog = 128\n");
        toml::from_str::<File>(&(of("a") + &of("b"))).expect("servers").server
    }

    fn spread(text: &str) -> Vec<ServerSpec> {
        ways(text).spread(&servers()).expect("ways")
    }

    #[test]
    fn server_stands_for_one_behind_each_delay_and_loss() {
        let all = spread("delay = [\"0ms\", \"25ms\"]\nloss = [\"0%\", \"0.5%\"]\njitter = \"0ms\"");
        let names: Vec<&str> = all.iter().map(|server| server.name.as_str()).collect();
        let of_a = ["a-0ms-0pct", "a-0ms-0.5pct", "a-25ms-0pct", "a-25ms-0.5pct"];
        assert_eq!(names[..4], of_a);
        assert_eq!((names.len(), names[7]), (8, "b-25ms-0.5pct"));
        let way = all[3].way.as_deref().expect("a way");
        assert_eq!(way.to_server, "delay 25ms loss 0.5%".parse().expect("a path"));
        assert_eq!(way.to_clients, way.to_server, "both directions are alike");
        assert_eq!(way.shortest_reply(), Nanos::from_millis(100));
    }

    #[test]
    fn one_way_leaves_names_alone_and_has_all_words_of_a_path() {
        let all = spread(
            "delay = \"20 ms\"\nloss = \"gilbert-elliott:p=1%,r=25%\"\njitter = \"2ms\"\nin_order = true\nrate = \"10mbit\"\noverhead = 24\n\
             queue = \"red:limit=180\"\nto_server = \"rate 1mbit limit 20\"",
        );
        assert_eq!(all.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let way = all[0].way.as_deref().expect("a way");
        let both = "rate 10mbit overhead 24 delay 20ms jitter 2ms in-order loss gilbert-elliott:p=1%,r=25% aqm red:limit=180";
        assert_eq!(way.to_clients, both.parse().expect("a path"));
        assert_eq!(way.to_server, way.to_clients.clone().with("rate 1mbit limit 20").expect("a path"));
    }

    #[test]
    fn empty_table_is_a_wire_without_delay() {
        let way = spread("").remove(0).way.expect("a way");
        assert_eq!(way.to_server, path::Config::default());
    }

    #[test]
    fn groups_have_ways_of_their_own_beside_what_all_share() {
        let way = spread(
            "loss = \"1%\"\nto_clients = \"rate 10mbit\"\ngroups = [\"delay 0ms\", \"delay 75ms loss 5%\"]",
        );
        let way = way[0].way.as_deref().expect("a way");
        assert_eq!(way.groups.len(), 2);
        let expected = ["loss 5% delay 75ms", "rate 10mbit loss 5% delay 75ms"];
        assert_eq!(way.groups[1], expected.map(|words| words.parse().expect("a path")));
        assert_eq!(way.groups[0][0], "loss 1%".parse().expect("a path"));
        assert_eq!(way.shortest_reply(), Nanos::from_millis(300), "of the farthest");
        let all = spread("groups_alone = true\ngroups = [\"delay 0ms\", \"delay 75ms\"]");
        let names: Vec<&str> = all.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a", "a-group-0", "a-group-1", "b", "b-group-0", "b-group-1"]);
        let alone = all[2].way.as_deref().expect("a way");
        assert_eq!((alone.to_server.delay, alone.groups.len()), (Nanos::from_millis(75), 0));
    }

    #[test]
    fn burst_losses_have_names_of_folders() {
        let all = spread("loss = [\"1%\", \"gilbert-elliott:p=1%,r=25%\"]");
        assert_eq!(all[1].name, "a-ge-p-1pct-r-25pct");
        assert!(all.iter().all(|server| crate::check::is_plain(&server.name)));
    }

    #[test]
    fn way_that_cannot_be_is_refused_in_one_line() {
        for (text, expected) in [
            ("delay = \"20\"", "path: delay 20: a time with its unit"),
            ("loss = [\"1%\", \"120%\"]", "path: loss 1.2: a probability from 0 to 1"),
            ("delay = \"1ms\"\njitter = \"2ms\"", "path: jitter 2ms is above delay 1ms"),
            ("queue = \"read\"", "path: aqm "),
            ("groups_alone = true", "path.groups_alone: there are no groups"),
            ("groups = [\"delay 0ms\"]", "path.groups has 1 groups: from 2 to 32"),
            ("groups = [\"delay 0ms\", \"delay 5\"]", "path.groups \"delay 5\": delay 5: a time"),
            ("to_server = \"los 1%\"", "path.to_server: \"los\" is no word of a path"),
        ] {
            let why = ways(text).spread(&servers()).expect_err(text);
            assert!(why.starts_with(expected) && !why.contains('\n'), "{text}: {why}");
        }
        for (text, expected) in [
            ("delay = 20", "20 is no text; \"50ms\""),
            ("delay = [\"1ms\", \"1ms\"]", "\"1ms\" is there twice"),
            ("loss = []", "the list is empty"),
            ("delays = \"1ms\"", "unknown field `delays`"),
        ] {
            let why = toml::from_str::<Ways>(text).expect_err(text).to_string();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
