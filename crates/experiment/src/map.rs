//! Each server before crowds of many bursts and gaps: where one policy begins to answer more than
//! another.

use std::time::Duration;

use humantime::format_duration;
use serde::Deserialize;

use crate::bursts::{Bursts, LoadsOf, SHORTEST};
use crate::servers::ServerSpec;
use crate::time::{LONGEST, durations};

/// Most servers that a map makes: more cells than anybody looks at.
const MOST: usize = 400;

/// Lengths of bursts and gaps: every server of the file stands for one before each pair of them.
/// Loads are of the burst alone, so that along a row and a column only lengths change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Map {
    /// Of bursts.
    #[serde(deserialize_with = "durations")]
    pub on: Vec<Duration>,
    /// Of gaps.
    #[serde(deserialize_with = "durations")]
    pub off: Vec<Duration>,
    /// Bursts and gaps in a window, at least.
    pub cycles: u32,
    /// Shorter windows have more of them.
    #[serde(deserialize_with = "crate::time::duration")]
    pub window: Duration,
}

impl Map {
    /// One server for each pair, in the order of bursts, then gaps.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and what would do.
    pub(crate) fn spread(&self, servers: &[ServerSpec]) -> Result<Vec<ServerSpec>, String> {
        for (key, lengths) in [("on", &self.on), ("off", &self.off)] {
            let is_rising = lengths.is_sorted_by(|a, b| a < b);
            if lengths.len() < 2 || !is_rising {
                return Err(format!(
                    "map.{key}: two lengths or more are wanted, from the shortest to the longest, each once"
                ));
            }
        }
        if servers.len() != 1 {
            return Err(format!(
                "map: it is of one [[server]], and here are {}: make a file for each",
                servers.len()
            ));
        }
        if self.cycles == 0 {
            return Err("map.cycles is 0: nothing would be measured; 2 is usual".to_owned());
        }
        let pairs = self.on.len().saturating_mul(self.off.len());
        if pairs > MOST {
            return Err(format!(
                "map: {pairs} pairs of a burst and a gap are more than the {MOST} that a map can have"
            ));
        }
        let mut all = Vec::new();
        for server in servers {
            if server.crowd.bursts.is_some() || server.duration.is_some() {
                return Err(format!(
                    "server {:?}: map says its bursts and how long it is measured",
                    server.name
                ));
            }
            for &on in &self.on {
                for &off in &self.off {
                    all.push(self.before(server, Bursts { on, off, loads: LoadsOf::Burst })?);
                }
            }
        }
        Ok(all)
    }

    /// So many times shorter are its bursts, gaps and windows in a quick run: all of them alike, or
    /// there would be no map.
    pub(crate) fn quicker(&self) -> u32 {
        let shortest = self.on.iter().chain(&self.off).min().expect("lengths were checked");
        u32::try_from(shortest.as_nanos() / SHORTEST.as_nanos()).expect("an hour in 10 ms").max(1)
    }

    fn before(&self, server: &ServerSpec, bursts: Bursts) -> Result<ServerSpec, String> {
        bursts.check()?;
        let cycle = bursts.cycle();
        let cycles = self.window.as_nanos().div_ceil(cycle.as_nanos()).max(u128::from(self.cycles));
        let window = u32::try_from(cycles).ok().and_then(|cycles| cycle.checked_mul(cycles));
        let window = window.filter(|window| *window <= LONGEST).ok_or_else(|| {
            format!(
                "map: {} bursts of {} and gaps of {} are longer than an hour",
                cycles,
                format_duration(bursts.on),
                format_duration(bursts.off)
            )
        })?;
        let length = |part| format_duration(part).to_string().replace(' ', "-");
        let mut server = server.clone();
        server.name = format!("{}-{}-{}", server.name, length(bursts.on), length(bursts.off));
        (server.crowd.bursts, server.duration) = (Some(bursts), Some(window));
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn map(text: &str) -> Map {
        toml::from_str(text).expect("a map")
    }

    fn servers(text: &str) -> Vec<ServerSpec> {
        #[derive(Deserialize)]
        struct File {
            server: Vec<ServerSpec>,
        }
        toml::from_str::<File>(text).expect("servers").server
    }

    const ONE: &str = "[[server]]\nname = \"b\"\nkind = \"built-in\"\nbacklog = 128";
    const FOUR: &str = "on = [\"1s\", \"1m 30s\"]\noff = [\"500ms\", \"5s\"]\ncycles = 2\nwindow = \"10s\"";

    #[test]
    fn server_stands_for_one_before_each_pair() {
        let all = map(FOUR).spread(&servers(ONE)).expect("four");
        let seen: Vec<_> =
            all.iter().map(|server| (server.name.as_str(), server.duration.expect("its own"))).collect();
        let wanted = [
            ("b-1s-500ms", SECOND * 21 / 2),
            ("b-1s-5s", 12 * SECOND),
            ("b-1m-30s-500ms", 181 * SECOND),
            ("b-1m-30s-5s", 190 * SECOND),
        ];
        assert_eq!(seen, wanted, "whole bursts and gaps, two at least");
        assert!(all.iter().all(|server| server.crowd.bursts.expect("bursts").loads == LoadsOf::Burst));
    }

    #[test]
    fn map_that_cannot_be_is_refused() {
        let refused = |from: &str, to: &str, servers: &[ServerSpec]| {
            map(&FOUR.replace(from, to)).spread(servers).expect_err("it cannot be")
        };
        let one = servers(ONE);
        assert!(refused("\"1s\", ", "", &one).starts_with("map.on: two lengths"));
        assert!(refused("\"1s\"", "\"2m\"", &one).starts_with("map.on: two lengths"), "not rising");
        assert!(refused("cycles = 2", "cycles = 0", &one).contains("2 is usual"));
        assert!(refused("cycles = 2", "cycles = 1000", &one).contains("longer than an hour"));
        assert!(refused("500ms", "1us", &one).contains("off = 1µs cannot be sent"));
        let own = servers(&format!("{ONE}\nduration = \"10s\""));
        assert!(refused("", "", &own).contains("map says"));
        assert!(refused("", "", &vec![one[0].clone(); 2]).contains("here are 2"));
        let many = (1..=101).map(|n| format!("\"{n}s\"")).collect::<Vec<_>>().join(", ");
        let four = "off = [\"500ms\", \"5s\"]";
        let wide = map(&FOUR
            .replace("on = [\"1s\", \"1m 30s\"]", &format!("on = [{many}]"))
            .replace(four, "off = [\"1s\", \"2s\", \"3s\", \"4s\"]"));
        assert!(wide.spread(&one).expect_err("404").contains("more than the 400"));
    }

    #[test]
    fn length_without_a_unit_is_refused() {
        let why = toml::from_str::<Map>(&FOUR.replace("\"1s\"", "\"1\"")).expect_err("no unit").to_string();
        assert!(why.contains("say s, ms or us"), "{why}");
    }
}
