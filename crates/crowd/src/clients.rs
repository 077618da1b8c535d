//! The crowd's addresses and ports: which four-tuple the next attempt uses.

use std::net::IpAddr;

use ipnet::IpNet;

/// Linux's ephemeral ports (`net.ipv4.ip_local_port_range`, v6.18).
const FIRST_PORT: u64 = 32_768;
pub(crate) const PORTS: u64 = 60_999 - FIRST_PORT + 1;
/// More than this many addresses adds nothing but a wider index.
const MAX_CLIENTS: u128 = 1 << 24;

/// One client endpoint: an address, as an index into the network, and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Index of the address, from 0.
    pub client: u32,
    /// Port.
    pub port: u16,
}

/// The addresses of a network that the crowd comes from: all but the first and last, where there
/// are more than two. Of their endpoints those of one worker, or all.
///
/// Endpoints have numbers: every address once, then every address with the next port. Of so many
/// workers each has those whose number leaves its own as the remainder, so that everybody can tell
/// whose a segment is.
#[derive(Debug, Clone, Copy)]
pub struct Clients {
    first: IpAddr,
    count: u32,
    worker: u32,
    workers: u32,
}

impl Clients {
    /// The clients of a network, at most 2^24 of them, with all their endpoints.
    pub fn new(network: IpNet) -> Self {
        let host_bits = u32::from(network.max_prefix_len() - network.prefix_len());
        let addresses = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX);
        let skipped = if addresses > 2 { 1 } else { 0 };
        let count = (addresses - 2 * skipped).min(MAX_CLIENTS) as u32;
        Self { first: offset(network.network(), skipped as u32), count, worker: 0, workers: 1 }
    }

    /// The same clients with the endpoints of one worker of so many, from 0. There are thousands of
    /// each address, and so some for everybody.
    pub fn of_worker(self, worker: u32, workers: u32) -> Self {
        debug_assert!(worker < workers && u64::from(workers) <= PORTS, "{worker} of {workers}");
        Self { worker, workers, ..self }
    }

    /// How many addresses there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Endpoint of the `n`-th attempt of the worker, in the order of their numbers. A tuple comes
    /// back after addresses x 28,232 attempts of all workers together; the few whose numbers are
    /// left over when each has as many are nobody's, so that after a wrap remainders are the same.
    pub fn endpoint(&self, n: u64) -> Endpoint {
        let (count, workers) = (u64::from(self.count), u64::from(self.workers));
        let of_each = count * PORTS / workers;
        let number = n % of_each * workers + u64::from(self.worker);
        Endpoint { client: (number % count) as u32, port: (FIRST_PORT + number / count) as u16 }
    }

    /// The endpoint of a client with a port, by its place in the range; of all workers.
    pub(crate) fn endpoint_at(&self, client: u32, place: u16) -> Endpoint {
        Endpoint { client, port: FIRST_PORT as u16 + place }
    }

    /// The same of the `n`-th attempt of one group of so many, from 0: those of a group have
    /// numbers that leave its own as the remainder.
    pub fn endpoint_of_group(&self, n: u64, group: u8, groups: u8) -> Endpoint {
        let of_each = u64::from(self.count) * PORTS / u64::from(self.workers) / u64::from(groups);
        self.endpoint(n % of_each * u64::from(groups) + u64::from(group))
    }

    /// Which of so many groups an endpoint of the worker is of.
    pub fn group(&self, endpoint: Endpoint, groups: u8) -> u8 {
        (self.number(endpoint) % u64::from(groups)) as u8
    }

    /// Which of the workers has an endpoint, from 0. One with a port that no client uses is
    /// somebody's, too.
    pub fn owner(&self, endpoint: Endpoint) -> u32 {
        (self.number_of_all(endpoint) % u64::from(self.workers)) as u32
    }

    /// Number of one of the worker's endpoints among them, in the order in which
    /// [`Clients::endpoint`] gives them.
    pub(crate) fn number(&self, endpoint: Endpoint) -> u64 {
        self.number_of_all(endpoint) / u64::from(self.workers)
    }

    /// Its number among those of all workers.
    fn number_of_all(&self, endpoint: Endpoint) -> u64 {
        let turn = endpoint.port.wrapping_sub(FIRST_PORT as u16);
        u64::from(turn) * u64::from(self.count) + u64::from(endpoint.client)
    }

    /// Whether an endpoint is this worker's.
    pub fn has(&self, endpoint: Endpoint) -> bool {
        self.workers == 1 || self.owner(endpoint) == self.worker
    }

    /// Address of a client.
    pub fn address(&self, client: u32) -> IpAddr {
        offset(self.first, client)
    }

    /// Index of an address, when it is one of ours.
    pub fn index(&self, address: IpAddr) -> Option<u32> {
        let distance = match (address, self.first) {
            (IpAddr::V4(address), IpAddr::V4(first)) => {
                u128::from(u32::from(address).checked_sub(first.into())?)
            }
            (IpAddr::V6(address), IpAddr::V6(first)) => u128::from(address).checked_sub(first.into())?,
            _ => return None,
        };
        (distance < u128::from(self.count)).then_some(distance as u32)
    }
}

fn offset(address: IpAddr, by: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) + by).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) + u128::from(by)).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn clients(network: &str) -> Clients {
        Clients::new(network.parse().expect("a network"))
    }

    #[test]
    fn network_and_broadcast_addresses_are_nobody() {
        let clients = clients("10.0.0.0/30");
        assert_eq!(clients.count(), 2);
        assert_eq!(clients.address(0), "10.0.0.1".parse::<IpAddr>().expect("an address"));
        assert_eq!(clients.index("10.0.0.0".parse().expect("an address")), None);
        assert_eq!(clients.index("10.0.0.3".parse().expect("an address")), None);
        assert_eq!(clients.index("10.0.0.2".parse().expect("an address")), Some(1));
    }

    #[test]
    fn single_address_is_one_client() {
        assert_eq!(clients("192.0.2.7/32").count(), 1);
        assert_eq!(clients("fd00::/64").count(), 1 << 24);
        assert_eq!(clients("::/0").count(), 1 << 24);
    }

    #[test]
    fn endpoints_do_not_repeat_before_all_were_used() {
        let clients = clients("10.0.0.0/29");
        let all = 6 * PORTS;
        let seen: HashSet<Endpoint> = (0..all).map(|n| clients.endpoint(n)).collect();
        assert_eq!(seen.len() as u64, all);
        assert_eq!(clients.endpoint(all), clients.endpoint(0));
    }

    /// Also when they were all used, and when their number is no multiple of the workers'.
    #[test]
    fn every_endpoint_of_a_worker_is_its_own_and_no_others() {
        for (network, workers) in
            [("10.0.0.0/29", 4), ("10.0.0.1/32", 3), ("10.0.0.0/30", 64), ("fd00::/127", 1)]
        {
            let whole = clients(network);
            let all = u64::from(whole.count()) * PORTS;
            let mut owners = HashMap::new();
            for worker in 0..workers {
                let own = whole.of_worker(worker, workers);
                let of_each = all / u64::from(workers);
                for n in 0..of_each + 10 {
                    let endpoint = own.endpoint(n);
                    assert!(own.has(endpoint), "{network}: {endpoint:?} of {worker} of {workers}");
                    assert_eq!(own.number(endpoint), n % of_each, "{network}: {endpoint:?}");
                    assert_eq!(*owners.entry(endpoint).or_insert(worker), worker, "{endpoint:?}");
                }
                assert_eq!(own.endpoint(of_each), own.endpoint(0), "it begins again");
            }
            assert_eq!(owners.len() as u64, all - all % u64::from(workers), "all are used but the last few");
        }
    }

    #[test]
    fn endpoints_of_a_group_are_its_own_also_after_all_were_used() {
        for (network, groups) in [("10.0.0.0/29", 5), ("10.0.0.1/32", 3), ("10.0.0.0/30", 1)] {
            let clients = clients(network);
            let all = u64::from(clients.count()) * PORTS;
            let mut seen = HashSet::new();
            for group in 0..groups {
                for n in 0..all / u64::from(groups) + 10 {
                    let endpoint = clients.endpoint_of_group(n, group, groups);
                    assert_eq!(clients.group(endpoint, groups), group, "{network}: {endpoint:?}");
                    seen.insert(endpoint);
                }
            }
            assert_eq!(seen.len() as u64, all - all % u64::from(groups), "{network}");
        }
    }

    #[test]
    fn every_segment_has_one_owner_whatever_its_port() {
        let whole = clients("10.0.0.0/24");
        for port in [0, 80, 32_767, 32_768, 60_999, 61_000, u16::MAX] {
            for client in [0, 1, 100, 253] {
                let endpoint = Endpoint { client, port };
                let owners = (0..3).filter(|worker| whole.of_worker(*worker, 3).has(endpoint));
                assert_eq!(owners.count(), 1, "{endpoint:?}");
            }
        }
    }
}
