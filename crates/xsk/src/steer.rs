//! Which received frames are the crowd's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::Error;

/// The crowd's frames: TCP from `server` to an address within `clients`. The kernel gets all
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steer {
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Network address and prefix length, bits. Host bits may be set; they are ignored.
    pub clients: (IpAddr, u8),
}

/// A [`Steer`] as the program compares it: network byte order, an IPv4 address in word 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub every_frame: bool,
    pub ipv6: bool,
    pub server: [u32; 4],
    pub port: u16,
    pub network: [u32; 4],
    pub mask: [u32; 4],
}

impl Steer {
    /// Every frame, whatever is in it: for bridges. No server has port 0.
    pub const EVERY_FRAME: Self = Self {
        server: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
        clients: (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    };

    pub(crate) fn to_match(self) -> Result<Match, Error> {
        let (address, prefix) = self.clients;
        let refuse = |reason| Error::Steer { server: self.server, address, prefix, reason };
        if self.server.is_ipv6() != address.is_ipv6() {
            return Err(refuse("one is IPv4, the other IPv6"));
        }
        let bits = if address.is_ipv6() { 128 } else { 32 };
        if prefix > bits {
            return Err(refuse("the prefix is longer than an address"));
        }
        let mask = mask(prefix);
        let address = words(address);
        Ok(Match {
            every_frame: self == Self::EVERY_FRAME,
            ipv6: self.server.is_ipv6(),
            server: words(self.server.ip()),
            port: self.server.port().to_be(),
            network: std::array::from_fn(|word| address[word] & mask[word]),
            mask,
        })
    }
}

fn words(address: IpAddr) -> [u32; 4] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.copy_from_slice(&address.octets()),
    }
    network_words(bytes)
}

/// The first `prefix` bits set. Addresses of both families start in word 0, so that one mask serves
/// both.
fn mask(prefix: u8) -> [u32; 4] {
    let bits = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    network_words(bits.to_be_bytes())
}

fn network_words(bytes: [u8; 16]) -> [u32; 4] {
    std::array::from_fn(|word| {
        let at = word * 4;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steer(server: &str, clients: &str, prefix: u8) -> Steer {
        Steer {
            server: server.parse().expect("server"),
            clients: (clients.parse().expect("clients"), prefix),
        }
    }

    #[test]
    fn match_has_the_network_without_host_bits_in_network_byte_order() {
        let found = steer("10.0.0.1:80", "10.1.2.3", 16).to_match().expect("match");
        assert_eq!(found.server[0].to_ne_bytes(), [10, 0, 0, 1]);
        assert_eq!(found.port.to_ne_bytes(), [0, 80]);
        assert_eq!(found.network[0].to_ne_bytes(), [10, 1, 0, 0]);
        assert_eq!(found.mask[0].to_ne_bytes(), [255, 255, 0, 0]);
        assert!(!found.ipv6);
    }

    #[test]
    fn only_every_frame_is_every_frame() {
        assert!(Steer::EVERY_FRAME.to_match().expect("match").every_frame);
        let any_client = steer("0.0.0.0:80", "0.0.0.0", 0).to_match().expect("match");
        assert!(!any_client.every_frame, "TCP from port 80 only");
    }

    #[test]
    fn prefix_of_zero_matches_every_address_and_a_full_one_a_single_address() {
        assert_eq!(mask(0), [0; 4]);
        assert_eq!(mask(32), [u32::MAX, 0, 0, 0]);
        assert_eq!(mask(128), [u32::MAX; 4]);
    }

    #[test]
    fn families_that_differ_and_prefixes_that_are_too_long_are_refused() {
        for (server, clients, prefix) in [
            ("10.0.0.1:80", "fd00::", 64),
            ("[fd00::1]:80", "10.0.0.0", 8),
            ("10.0.0.1:80", "10.0.0.0", 33),
            ("[fd00::1]:80", "fd00::", 129),
        ] {
            let error = steer(server, clients, prefix).to_match().expect_err("refused");
            assert!(error.to_string().contains(clients), "{error}");
        }
    }
}
