//! What a queue discipline wants to know of a frame.

use std::hash::BuildHasher;
use std::net::IpAddr;

use aqm::{Packet, PacketKind};
use foldhash::fast::FixedState;
use path::Service;

const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
/// IPv6 extension headers of one form: hop-by-hop options, routing, destination options (RFC 8200
/// section 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// As `kernel/kind.bpf.h`: RFC 8200 section 4.1 lists six headers that may come before the
/// transport.
const MAX_EXTENSIONS: usize = 6;
/// Class selectors (RFC 2474): the upper three bits of the traffic class, and as many bands.
const LAST_BAND: u8 = 7;

/// A frame that is inside, with what a discipline asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where its bytes are.
    pub buffer: u32,
    pub len: u32,
    pub flow: u32,
    pub kind: PacketKind,
    pub band: u8,
    /// Of its response.
    pub service: Service,
    /// The receiver's own link, if it has one.
    pub access: Option<u16>,
}

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class<'a> {
    pub flow: u32,
    pub kind: PacketKind,
    pub band: u8,
    /// Addresses of sender and receiver.
    pub ends: Option<[IpAddr; 2]>,
    /// Of IP.
    pub packet: Option<IpPacket<'a>>,
}

/// What a packet of IP is part of, and what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpPacket<'a> {
    /// Of sender and receiver.
    pub addresses: &'a [u8],
    pub protocol: u8,
    /// Of sender and receiver, where it has some and is no fragment; otherwise 0.
    pub ports: [u16; 2],
    pub carries: Carries<'a>,
}

/// What a packet of IP carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carries<'a> {
    /// A whole segment.
    Tcp { seq: u32, flags: u8, payload: &'a [u8] },
    /// Of another transport, or a fragment: so many bytes.
    Other(u32),
}

impl Packet for Frame {
    fn bytes(&self) -> u32 {
        self.len
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }

    fn band(&self) -> u8 {
        self.band
    }

    fn left(&self) -> Option<u64> {
        self.service.left
    }

    fn attained(&self) -> u64 {
        self.service.attained
    }
}

/// Flow, kind, band and addresses of a frame.
///
/// A flow has one pair of addresses, one protocol and one pair of ports; what is not IP, one pair
/// of Ethernet addresses. A fragment has no ports. Which packets open a connection is asked as the
/// qdisc asks it (`kernel/kind.bpf.h`): behind IPv6 extension headers, too, and of IPv4's first
/// fragment, but of none of IPv6. The band is 7 less the class selector: what is marked with
/// precedence goes first.
pub(crate) fn classify<'a>(frame: &'a [u8], key: &FixedState) -> Class<'a> {
    let Some(headers) = headers(frame) else {
        let addresses = frame.get(..12).unwrap_or(frame);
        return Class {
            flow: hash(key, addresses, 0, 0),
            kind: PacketKind::Other,
            band: LAST_BAND,
            ends: None,
            packet: None,
        };
    };
    let Headers { addresses, protocol, class, transport, is_fragment, bytes, padding } = headers;
    let has_ports = matches!(protocol, TCP | UDP | DCCP | SCTP) && !is_fragment;
    let ports =
        transport.first_chunk::<4>().filter(|_| has_ports).map_or(0, |ports| u32::from_be_bytes(*ports));
    let is_segment = protocol == TCP && !is_fragment;
    let packet = IpPacket {
        addresses,
        protocol,
        ports: [(ports >> 16) as u16, ports as u16],
        carries: tcp(transport, padding).filter(|_| is_segment).unwrap_or(Carries::Other(bytes)),
    };
    let kind = transport.first_chunk().map(|header| PacketKind::of_transport(protocol, header));
    Class {
        flow: hash(key, addresses, protocol, ports),
        kind: kind.unwrap_or_default(),
        band: LAST_BAND - (class >> 5),
        ends: ends(addresses),
        packet: Some(packet),
    }
}

/// `None` of a header that is cut off. What is behind the packet of IP, an Ethernet frame's
/// padding, is not its payload.
fn tcp(transport: &[u8], padding: usize) -> Option<Carries<'_>> {
    let header = transport.first_chunk::<20>()?;
    let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let payload = usize::from(header[12] >> 4) * 4..transport.len().saturating_sub(padding);
    Some(Carries::Tcp { seq, flags: header[13], payload: transport.get(payload).unwrap_or(&[]) })
}

/// The hash has 64 good bits; the upper ones are as good as the lower.
fn hash(key: &FixedState, addresses: &[u8], protocol: u8, ports: u32) -> u32 {
    (key.hash_one((addresses, protocol, ports)) >> 32) as u32
}

fn ends(addresses: &[u8]) -> Option<[IpAddr; 2]> {
    let (from, to) = addresses.split_at(addresses.len() / 2);
    let address = |bytes: &[u8]| {
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    Some([address(from)?, address(to)?])
}

/// What is in front of the transport header, and what comes from there on.
struct Headers<'a> {
    /// Of IP, both.
    addresses: &'a [u8],
    /// Of the transport, behind extension headers.
    protocol: u8,
    class: u8,
    /// Nothing of a later fragment.
    transport: &'a [u8],
    is_fragment: bool,
    /// Of the packet of IP, by its own word, and what is behind it in the frame.
    bytes: u32,
    padding: usize,
}

fn headers(frame: &[u8]) -> Option<Headers<'_>> {
    let mut at = 12;
    let mut ethertype = u16_at(frame, at)?;
    while VLAN_TAGS.contains(&ethertype) {
        at += 4;
        ethertype = u16_at(frame, at)?;
    }
    let packet = &frame[at + 2..];
    let size = |said: usize| (said as u32, packet.len().saturating_sub(said));
    match ethertype {
        IPV4 => {
            const MORE_OR_OFFSET: u16 = 0x3fff;
            const OFFSET: u16 = 0x1fff;
            let header = packet.first_chunk::<20>()?;
            let fragment = u16_at(header, 6)?;
            let transport = packet.get(usize::from(header[0] & 0x0f) * 4..)?;
            let (bytes, padding) = size(u16_at(header, 2)?.into());
            Some(Headers {
                addresses: &packet[12..20],
                protocol: header[9],
                class: header[1],
                transport: if fragment & OFFSET == 0 { transport } else { &[] },
                is_fragment: fragment & MORE_OR_OFFSET != 0,
                bytes,
                padding,
            })
        }
        IPV6 => {
            let header = packet.first_chunk::<40>()?;
            let (protocol, transport) = behind_extensions(header[6], &packet[40..]);
            let (bytes, padding) = size(40 + usize::from(u16_at(header, 4)?));
            Some(Headers {
                addresses: &packet[8..40],
                protocol,
                class: header[0] << 4 | header[1] >> 4,
                transport,
                // A fragment header is none of the extensions that are looked behind.
                is_fragment: false,
                bytes,
                padding,
            })
        }
        _ => None,
    }
}

/// Protocol and bytes of the first header that is none of [`EXTENSIONS`]; nothing of one that is
/// cut off.
fn behind_extensions(mut next_header: u8, mut rest: &[u8]) -> (u8, &[u8]) {
    for _ in 0..MAX_EXTENSIONS {
        if !EXTENSIONS.contains(&next_header) {
            break;
        }
        let Some([next, length]) = rest.first_chunk() else { return (next_header, &[]) };
        next_header = *next;
        rest = rest.get((usize::from(*length) + 1) * 8..).unwrap_or(&[]);
    }
    (next_header, rest)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn key() -> FixedState {
        FixedState::with_seed(1)
    }

    fn tcp(client: u8, port: u16, flags: u8) -> Vec<u8> {
        let mut frame = Vec::new();
        let step = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, client], [10, 0, 0, 2], 64);
        step.tcp(port, 80, 1, 512).write(&mut frame, b"data").expect("build");
        frame[14 + 20 + 13] = flags;
        frame
    }

    fn with_protocol(protocol: u8, transport: &[u8]) -> Vec<u8> {
        let mut frame = tcp(1, 1, 0);
        frame.truncate(14 + 20);
        frame[14 + 9] = protocol;
        frame.extend(transport);
        frame
    }

    fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
    }

    #[test]
    fn packets_that_open_connections_are_known_also_behind_a_vlan_tag() {
        let kind = |frame: &[u8]| classify(frame, &key()).kind;
        for (flags, wanted) in [
            (0x02, PacketKind::Syn),
            (0x12, PacketKind::SynAck),
            (0x10, PacketKind::Other),
            (0x14, PacketKind::Other),
        ] {
            assert_eq!(kind(&tcp(1, 1000, flags)), wanted);
            assert_eq!(kind(&tagged(&tcp(1, 1000, flags))), wanted);
        }
        let mut v6 = Vec::new();
        let step = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64);
        step.tcp(1, 80, 1, 512).syn().write(&mut v6, b"").expect("build");
        assert_eq!(kind(&v6), PacketKind::Syn);
        let sctp = |chunk| kind(&with_protocol(SCTP, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, chunk, 0, 0, 20]));
        assert_eq!(
            [sctp(1), sctp(2), sctp(0)],
            [PacketKind::SctpInit, PacketKind::SctpInitAck, PacketKind::Other]
        );
        let dccp = |kind_bits: u8| {
            kind(&with_protocol(DCCP, &[0, 1, 0, 2, 5, 0, 0, 0, kind_bits << 1 | 1, 0, 0, 0, 0, 0, 0, 0]))
        };
        assert_eq!(
            [dccp(0), dccp(1), dccp(2)],
            [PacketKind::DccpRequest, PacketKind::DccpResponse, PacketKind::Other]
        );
    }

    /// The cases of `crates/qdisc/tests/kernel.rs`.
    #[test]
    fn packets_that_open_are_known_behind_ipv6_extension_headers() {
        const FRAGMENT: u8 = 44;
        let ipv6 = |next_header: u8, payload: &[u8]| {
            let mut frame = vec![2; 12];
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next_header, 64]);
            frame.extend([1; 16].into_iter().chain([2; 16]));
            frame.extend(payload);
            frame
        };
        let tcp = |flags| [&[0, 7, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0x50, flags], &[0; 6]].concat();
        // Hop-by-hop options (0) of 8 bytes before destination options (60) of 16.
        let behind = |header: &[u8]| [&[60, 0, 1, 4, 0, 0, 0, 0, TCP, 1][..], &[0; 14], header].concat();
        let routed = [&[TCP, 0, 0, 0, 0, 0, 0, 0][..], &tcp(0x12)].concat();
        let fragment = [&[TCP, 0, 0, 1, 0, 0, 0, 7], &tcp(2)[..]].concat();
        for (name, frame, wanted) in [
            ("SYN", ipv6(TCP, &tcp(2)), PacketKind::Syn),
            ("SYN behind extensions", ipv6(0, &behind(&tcp(2))), PacketKind::Syn),
            ("ACK behind extensions", ipv6(0, &behind(&tcp(0x10))), PacketKind::Other),
            ("SYN/ACK behind a routing header", ipv6(43, &routed), PacketKind::SynAck),
            ("fragment", ipv6(FRAGMENT, &fragment), PacketKind::Other),
            ("header that is cut off", ipv6(TCP, &tcp(2)[..8]), PacketKind::Other),
            ("extension that is cut off", ipv6(0, &[60]), PacketKind::Other),
        ] {
            assert_eq!(classify(&frame, &key()).kind, wanted, "{name}");
        }
        let flow = |frame: &[u8]| classify(frame, &key()).flow;
        assert_eq!(
            flow(&ipv6(0, &behind(&tcp(2)))),
            flow(&ipv6(TCP, &tcp(0x10))),
            "one flow, whatever is before"
        );
    }

    #[test]
    fn addresses_are_those_of_ip() {
        let ends = |frame: &[u8]| classify(frame, &key()).ends;
        assert_eq!(ends(&tcp(7, 1, 0)), Some([IpAddr::from([10, 0, 0, 7]), IpAddr::from([10, 0, 0, 2])]));
        assert_eq!(ends(&[0; 60]), None, "no IP");
    }

    #[test]
    fn flow_is_addresses_protocol_and_ports() {
        let flow = |frame: &[u8]| classify(frame, &key()).flow;
        let one = flow(&tcp(1, 1000, 0x10));
        assert_eq!(one, flow(&tcp(1, 1000, 0x02)));
        assert_ne!(one, flow(&tcp(1, 1001, 0x10)));
        assert_ne!(one, flow(&tcp(3, 1000, 0x10)));
        assert_ne!(one, classify(&tcp(1, 1000, 0x10), &FixedState::with_seed(2)).flow, "keyed");
        let mut fragment = tcp(1, 1000, 0x02);
        fragment[14 + 6] = 0x20;
        let Class { flow: fragments_flow, kind, .. } = classify(&fragment, &key());
        assert_eq!(kind, PacketKind::Syn, "the first one has the header");
        fragment[34..38].fill(9);
        assert_eq!(flow(&fragment), fragments_flow, "ports of a fragment are not looked at");
        fragment[14 + 7] = 1;
        assert_eq!(classify(&fragment, &key()).kind, PacketKind::Other, "a later one has none");
    }

    #[test]
    fn payload_of_a_segment_ends_where_the_packet_does() {
        let carries = |frame: &[u8]| match classify(frame, &key()).packet.map(|packet| packet.carries) {
            Some(Carries::Tcp { seq, flags, payload }) => Some((seq, flags, payload.to_vec())),
            _ => None,
        };
        let frame = tcp(1, 1000, 0x18);
        assert_eq!(carries(&frame), Some((1, 0x18, b"data".to_vec())));
        assert_eq!(carries(&[&frame[..], &[0; 9]].concat()), Some((1, 0x18, b"data".to_vec())), "padding");
        assert_eq!(carries(&tagged(&frame)), Some((1, 0x18, b"data".to_vec())));
        let mut v6 = Vec::new();
        let step = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64);
        step.tcp(1, 80, 7, 512).options_raw(&[1; 12]).expect("fits").write(&mut v6, b"data").expect("build");
        v6.extend([0; 3]);
        assert_eq!(carries(&v6), Some((7, 0, b"data".to_vec())), "behind options");
        fn packet(frame: &[u8]) -> Option<Carries<'_>> {
            classify(frame, &key()).packet.map(|packet| packet.carries)
        }
        let mut fragment = frame.clone();
        fragment[14 + 6] = 0x20;
        assert_eq!(packet(&fragment), Some(Carries::Other(44)));
        assert_eq!(packet(&with_protocol(UDP, &[0; 24])), Some(Carries::Other(44)));
        assert_eq!(packet(&[0; 60]), None, "no IP");
    }

    #[test]
    fn precedence_goes_first() {
        let band = |tos: u8| {
            let mut frame = tcp(1, 1, 0);
            frame[15] = tos;
            classify(&frame, &key()).band
        };
        assert_eq!([band(0), band(0x20), band(0xb8), band(0xe0)], [7, 6, 2, 0]);
    }

    #[test]
    fn whatever_is_cut_short_is_classified_without_a_panic() {
        for frame in [tcp(1, 1, 2), tagged(&tcp(1, 1, 2)), with_protocol(SCTP, &[0; 16]), vec![0xff; 60]] {
            for len in 0..frame.len() {
                classify(&frame[..len], &key());
            }
        }
    }
}
