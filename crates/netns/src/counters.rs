//! The kernel's own counters.

use std::collections::BTreeMap;
use std::fs;

use crate::error::Act;
use crate::{Error, Namespace, Result};

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

/// Clock ticks of [`CpuTimes`] in a second (sysconf(3), `_SC_CLK_TCK`).
pub fn ticks_per_second() -> f64 {
    // SAFETY: no pointers.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as f64
}

/// Times of one CPU, from `/proc/stat`.
pub fn cpu_times(cpu: usize) -> Result<CpuTimes> {
    let text = fs::read_to_string("/proc/stat").act("read /proc/stat")?;
    parse_cpu(&text, cpu).ok_or_else(|| Error::Missing(format!("find cpu{cpu} in /proc/stat; is it online?")))
}

fn parse_cpu(stat: &str, cpu: usize) -> Option<CpuTimes> {
    let label = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(label.as_str()))?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    Some(CpuTimes { user: user + nice, system, softirq: irq + softirq, idle: idle + iowait, steal })
}

/// Frames dropped because a CPU's receive backlog was full (`net.core.netdev_max_backlog`), per
/// CPU, since boot.
///
/// Source: `/proc/net/softnet_stat`, second column; CPUs are numbered by the thirteenth.
pub fn softnet_dropped() -> Result<BTreeMap<usize, u64>> {
    let text = fs::read_to_string("/proc/net/softnet_stat").act("read /proc/net/softnet_stat")?;
    Ok(text.lines().enumerate().filter_map(|(row, line)| parse_softnet(row, line)).collect())
}

fn parse_softnet(row: usize, line: &str) -> Option<(usize, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| words.get(index).and_then(|word| u64::from_str_radix(word, 16).ok());
    let cpu = number(12).map_or(row, |cpu| cpu as usize);
    Some((cpu, number(1)?))
}

/// How often a CPU has turned to received packets since boot, be it for one or for many: `NET_RX`
/// of `/proc/softirqs`.
pub fn receive_softirqs(cpu: usize) -> Result<u64> {
    let text = fs::read_to_string("/proc/softirqs").act("read /proc/softirqs")?;
    parse_softirqs(&text, "NET_RX", cpu)
        .ok_or_else(|| Error::Missing(format!("find NET_RX of CPU {cpu} in /proc/softirqs; is it online?")))
}

/// A line of the CPUs' names, and for each kind one of their counts.
fn parse_softirqs(text: &str, kind: &str, cpu: usize) -> Option<u64> {
    let mut lines = text.lines();
    let column = lines.next()?.split_whitespace().position(|name| name == format!("CPU{cpu}"))?;
    let counts = lines.find_map(|line| line.trim_start().strip_prefix(kind)?.strip_prefix(':'))?;
    counts.split_whitespace().nth(column)?.parse().ok()
}

/// How often a process's main thread has gone to sleep by itself: `voluntary_ctxt_switches` of
/// proc_pid_status(5).
pub fn sleeps(process: u32) -> Result<u64> {
    let file = format!("/proc/{process}/status");
    let text = fs::read_to_string(&file).act_with(|| format!("read {file}"))?;
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| Error::Missing(format!("find voluntary_ctxt_switches in {file}")))
}

/// Every counter of `/proc/net/netstat` and `/proc/net/snmp` in the namespace, as
/// `TcpExt.ListenOverflows`.
pub fn namespace_counters(namespace: &Namespace) -> Result<BTreeMap<String, u64>> {
    let texts = namespace.enter(|| -> std::io::Result<[String; 2]> {
        Ok([
            fs::read_to_string("/proc/thread-self/net/netstat")?,
            fs::read_to_string("/proc/thread-self/net/snmp")?,
        ])
    })?;
    let [netstat, snmp] = texts.act("read the namespace's TCP counters")?;
    let mut counters = parse_pairs(&netstat);
    counters.extend(parse_pairs(&snmp));
    Ok(counters)
}

/// Connections of the namespace in TIME_WAIT, over IPv4 and IPv6.
///
/// Source: `/proc/net/sockstat`, whose `tw` is of the namespace (`sockstat_seq_show()`, Linux 6.18
/// `net/ipv4/proc.c`).
pub fn time_waits(namespace: &Namespace) -> Result<u64> {
    const FILE: &str = "/proc/thread-self/net/sockstat";
    let text = namespace.enter(|| fs::read_to_string(FILE))?.act("read /proc/net/sockstat")?;
    parse_time_waits(&text).ok_or_else(|| Error::Missing("find TIME_WAITs in /proc/net/sockstat".to_owned()))
}

fn parse_time_waits(text: &str) -> Option<u64> {
    let tcp = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = tcp.split_whitespace().skip_while(|word| *word != "tw");
    words.nth(1)?.parse().ok()
}

/// Frames of an interface since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// That came in.
    pub received: u64,
    /// That left.
    pub transmitted: u64,
    /// That it failed to send. On veth these are the frames that the peer's receive path had no
    /// room for: its CPU's backlog, or its ring.
    pub transmit_dropped: u64,
}

impl LinkCounters {
    /// Frames that were sent, lost at the peer or not.
    pub fn sent(&self) -> u64 {
        self.transmitted + self.transmit_dropped
    }
}

/// Counters of an interface of the namespace.
///
/// Source: `/proc/net/dev`; `drivers/net/veth.c`, `veth_xmit` (v6.18) counts what `netif_rx`
/// refuses.
pub fn link_counters(namespace: &Namespace, interface: &str) -> Result<LinkCounters> {
    let text =
        namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?.act("read /proc/net/dev")?;
    parse_link_counters(&text, interface)
        .ok_or_else(|| Error::Missing(format!("find {interface} in /proc/net/dev")))
}

/// Eight columns of receive counters, bytes and packets first, then as many of transmit counters:
/// bytes, packets, errs, drop.
fn parse_link_counters(text: &str, interface: &str) -> Option<LinkCounters> {
    let values = text.lines().find_map(|line| {
        let (name, values) = line.split_once(':')?;
        (name.trim() == interface).then_some(values)
    })?;
    let values: Vec<u64> = values.split_whitespace().map_while(|value| value.parse().ok()).collect();
    let column = |index: usize| values.get(index).copied();
    Some(LinkCounters { received: column(1)?, transmitted: column(9)?, transmit_dropped: column(11)? })
}

/// Accept queue of the listener on an IPv4 port of the namespace, connections; `None` when nothing
/// listens there.
///
/// Source: `/proc/net/tcp`, whose `rx_queue` is `sk_ack_backlog` for a listener (`get_tcp4_sock`,
/// v6.18). Listeners come first, so that the many connections behind them need not be read.
pub fn accept_queue(namespace: &Namespace, port: u16) -> Result<Option<u64>> {
    let mut text = vec![0; 4096];
    let read = namespace.enter(|| -> std::io::Result<usize> {
        std::io::Read::read(&mut fs::File::open("/proc/thread-self/net/tcp")?, &mut text)
    })?;
    text.truncate(read.act("read /proc/net/tcp")?);
    Ok(parse_accept_queue(&String::from_utf8_lossy(&text), port))
}

fn parse_accept_queue(text: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    text.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _remote, state, queues) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let local_port = u16::from_str_radix(local.split_once(':')?.1, 16).ok()?;
        let (_, received) = queues.split_once(':')?;
        (state == LISTEN && local_port == port).then(|| u64::from_str_radix(received, 16).ok())?
    })
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
    fn time_waits_are_the_number_behind_their_name() {
        let text = "sockets: used 5\nTCP: inuse 3 orphan 0 tw 17 alloc 4 mem 0\nUDP: inuse 0 mem 0\n";
        assert_eq!(parse_time_waits(text), Some(17));
        assert_eq!(parse_time_waits("TCP: inuse 3\n"), None);
    }

    #[test]
    fn softirqs_are_read_by_the_cpus_name() {
        let text = "                    CPU0       CPU2\n      NET_TX:          3          4\n      NET_RX:       1700         42\n";
        assert_eq!(parse_softirqs(text, "NET_RX", 2), Some(42));
        assert_eq!(parse_softirqs(text, "NET_RX", 0), Some(1700));
        assert_eq!(parse_softirqs(text, "NET_RX", 1), None, "it is offline");
    }

    #[test]
    fn counters_are_named_by_group() {
        let counters = parse_pairs("TcpExt: A ListenOverflows\nTcpExt: 1 7\nIpExt: InPkts\nIpExt: 9\n");
        assert_eq!(counters["TcpExt.ListenOverflows"], 7);
        assert_eq!(counters["IpExt.InPkts"], 9);
    }

    #[test]
    fn link_counters_are_of_one_interface() {
        let text = "Inter-| Receive | Transmit\n face |bytes\n  lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n eth0: 0 5 0 0 0 0 0 0 0 9 0 77 0 0 0 0\n";
        let counters = parse_link_counters(text, "eth0").expect("it is there");
        assert_eq!((counters.received, counters.transmitted, counters.transmit_dropped), (5, 9, 77));
        assert_eq!(counters.sent(), 86);
        assert_eq!(parse_link_counters(text, "eth1"), None);
    }

    #[test]
    fn accept_queue_is_read_from_the_listener_only() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr\n   \
                    0: 00000000:1F90 00000000:0000 01 00000000:00000009 00:00000000\n   \
                    1: 00000000:1F90 00000000:0000 0A 00000000:00000081 00:00000000\n";
        assert_eq!(parse_accept_queue(text, 8080), Some(129));
        assert_eq!(parse_accept_queue(text, 80), None);
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
        assert_eq!(times, CpuTimes { user: 3, system: 3, softirq: 13, idle: 9, steal: 8 });
    }
}
