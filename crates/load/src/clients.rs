//! The crowd's addresses and ports: which four-tuple the next attempt uses.

use std::net::IpAddr;

use ipnet::IpNet;

/// Linux's ephemeral ports (`net.ipv4.ip_local_port_range`, v6.18).
const FIRST_PORT: u64 = 32_768;
const PORTS: u64 = 60_999 - FIRST_PORT + 1;
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

/// The addresses of a network that the crowd comes from: all but the first and last, where there are more than two.
#[derive(Debug, Clone, Copy)]
pub struct Clients {
    first: IpAddr,
    count: u32,
}

impl Clients {
    /// The clients of a network, at most 2^24 of them.
    pub fn new(network: IpNet) -> Self {
        let host_bits = u32::from(network.max_prefix_len() - network.prefix_len());
        let addresses = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX);
        let skipped = if addresses > 2 { 1 } else { 0 };
        let count = (addresses - 2 * skipped).min(MAX_CLIENTS) as u32;
        Self { first: offset(network.network(), skipped as u32), count }
    }

    /// How many addresses there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Endpoint of the `n`-th attempt: every address once, then every address with the next port. A tuple comes back
    /// after addresses x 28,232 attempts.
    pub fn endpoint(&self, n: u64) -> Endpoint {
        let count = u64::from(self.count);
        Endpoint { client: (n % count) as u32, port: (FIRST_PORT + n / count % PORTS) as u16 }
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
    use std::collections::HashSet;

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
}
