//! The kernel's own counters.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use crate::Namespace;

/// Where one CPU's time went since boot, in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User space, niced included.
    pub user: u64,
    /// The kernel on behalf of processes.
    pub system: u64,
    /// Hard and soft interrupts.
    pub softirq: u64,
    /// Idle, waiting for I/O included.
    pub idle: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

/// Times of one CPU, from `/proc/stat`.
pub fn cpu_times(cpu: usize) -> Result<CpuTimes> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    parse_cpu(&text, cpu).with_context(|| format!("find cpu{cpu} in /proc/stat; is it online?"))
}

fn parse_cpu(stat: &str, cpu: usize) -> Option<CpuTimes> {
    let label = format!("cpu{cpu}");
    let line = stat
        .lines()
        .find(|line| line.split(' ').next() == Some(label.as_str()))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    Some(CpuTimes {
        user: user + nice,
        system,
        softirq: irq + softirq,
        idle: idle + iowait,
        steal,
    })
}

/// Frames dropped because a CPU's receive backlog was full (`net.core.netdev_max_backlog`), per CPU, since boot.
///
/// Source: `/proc/net/softnet_stat`, second column; CPUs are numbered by the thirteenth.
pub fn softnet_dropped() -> Result<BTreeMap<usize, u64>> {
    let text = fs::read_to_string("/proc/net/softnet_stat").context("read /proc/net/softnet_stat")?;
    Ok(text
        .lines()
        .enumerate()
        .filter_map(|(row, line)| parse_softnet(row, line))
        .collect())
}

fn parse_softnet(row: usize, line: &str) -> Option<(usize, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| {
        words
            .get(index)
            .and_then(|word| u64::from_str_radix(word, 16).ok())
    };
    let cpu = number(12).map_or(row, |cpu| cpu as usize);
    Some((cpu, number(1)?))
}

/// Every counter of `/proc/net/netstat` and `/proc/net/snmp` in the namespace, as `TcpExt.ListenOverflows`.
pub fn namespace_counters(namespace: &Namespace) -> Result<BTreeMap<String, u64>> {
    let texts = namespace.enter(|| -> std::io::Result<[String; 2]> {
        Ok([
            fs::read_to_string("/proc/thread-self/net/netstat")?,
            fs::read_to_string("/proc/thread-self/net/snmp")?,
        ])
    })?;
    let [netstat, snmp] = texts.context("read the namespace's TCP counters")?;
    let mut counters = parse_pairs(&netstat);
    counters.extend(parse_pairs(&snmp));
    Ok(counters)
}

fn parse_pairs(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let mut counters = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // MaxConn is -1 where there is no limit: not a counter, so it is left out.
            if let Ok(value) = value.parse() {
                counters.insert(format!("{group}.{name}"), value);
            }
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_by_group() {
        let counters = parse_pairs("TcpExt: A ListenOverflows\nTcpExt: 1 7\nIpExt: InPkts\nIpExt: 9\n");
        assert_eq!(counters["TcpExt.ListenOverflows"], 7);
        assert_eq!(counters["IpExt.InPkts"], 9);
    }

    #[test]
    fn softnet_rows_give_cpu_and_drops() {
        let line = "00000d31 0000000a 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                    00000000 00000001 00000000 00000000";
        assert_eq!(parse_softnet(0, line), Some((1, 10)));
    }

    #[test]
    fn cpu1_is_not_taken_for_cpu10() {
        let stat = "cpu  1 1 1 1 1 1 1 1\ncpu10 9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\n";
        let times = parse_cpu(stat, 1).expect("cpu1 is there");
        assert_eq!(
            times,
            CpuTimes {
                user: 3,
                system: 3,
                softirq: 13,
                idle: 9,
                steal: 8
            }
        );
    }
}
