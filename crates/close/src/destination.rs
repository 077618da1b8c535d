//! Servers whose connections the programs handle.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// Servers at one port: `10.0.0.0/8:80`, `192.0.2.1:443`, `[2001:db8::]/32:80`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Their addresses.
    pub network: IpNet,
    /// Their port.
    pub port: u16,
}

impl Destination {
    /// True if a large network contains a loopback address by accident. A network that begins with
    /// one means it.
    fn covers_loopback_by_chance(&self) -> bool {
        let loopbacks = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        loopbacks.iter().any(|address| self.network.contains(address)) && !self.network.addr().is_loopback()
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "write an address or a network and a port, as 10.0.0.0/8:80 or [2001:db8::]/32:443";
        let (network, port) = text.rsplit_once(':').ok_or_else(|| format!("{text}: no port; {wanted}"))?;
        let port: u16 = port.parse().map_err(|_| format!("{text}: {port:?} is no port; {wanted}"))?;
        if port == 0 {
            return Err(format!("{text}: nobody listens at port 0; {wanted}"));
        }
        // Brackets are a pair around an IPv6 address, and around nothing else.
        let plain = match network.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, length)) if address.contains(':') => format!("{address}{length}"),
            _ if network.contains(':') => {
                return Err(format!("{text}: an IPv6 address goes into brackets; {wanted}"));
            }
            _ => network.to_owned(),
        };
        let network = match plain.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => plain.parse().map_err(|_| format!("{text}: {network:?} is no network; {wanted}"))?,
        };
        let destination = Self { network: network.trunc(), port };
        if destination.covers_loopback_by_chance() {
            return Err(format!(
                "{text}: it has the loopback in it; name smaller networks, and 127.0.0.0/8 if you mean that"
            ));
        }
        Ok(destination)
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { network, port } = self;
        let is_one = network.prefix_len() == network.max_prefix_len();
        match (network, is_one) {
            (IpNet::V4(network), true) => write!(f, "{}:{port}", network.addr()),
            (IpNet::V4(network), false) => write!(f, "{network}:{port}"),
            (IpNet::V6(network), true) => write!(f, "[{}]:{port}", network.addr()),
            (IpNet::V6(network), false) => write!(f, "[{}]/{}:{port}", network.addr(), network.prefix_len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_written_as_it_is_read() {
        for text in
            ["10.0.0.0/8:80", "192.0.2.1:443", "[2001:db8::]/32:80", "[2001:db8::1]:80", "127.0.0.0/8:80"]
        {
            let destination: Destination = text.parse().expect(text);
            assert_eq!(destination.to_string(), text);
        }
        let host: Destination = "10.1.2.3/8:80".parse().expect("a host with the length of its network");
        assert_eq!(host.to_string(), "10.0.0.0/8:80");
    }

    #[test]
    fn what_is_no_destination_is_said_in_one_line() {
        for (text, what) in [
            ("10.0.0.0/8", "no port"),
            ("10.0.0.0/8:http", "is no port"),
            ("10.0.0.0/8:0", "port 0"),
            ("10.0.0.0/33:80", "is no network"),
            ("2001:db8::1:80", "brackets"),
            ("example.com:80", "is no network"),
            ("0.0.0.0/0:80", "loopback"),
            ("[::]/0:80", "loopback"),
        ] {
            let error = text.parse::<Destination>().expect_err(text);
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn brackets_are_a_pair_around_an_ipv6_address() {
        for text in
            ["[10.8.0.2:80", "10.8.0.2]:80", "[10.8.0.2]:80", "[fd00::1:80", "fd00::1]:80", "[[fd00::1]]:80"]
        {
            let error = text.parse::<Destination>().expect_err(text);
            assert!(error.starts_with(text) && !error.contains('\n'), "{error}");
        }
    }
}
