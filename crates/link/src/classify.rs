//! What a queue discipline wants to know of a frame.

use std::hash::BuildHasher;

use aqm::{Packet, PacketKind};
use foldhash::fast::FixedState;

const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
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
}

/// Flow, kind and band of a frame.
///
/// A flow has one pair of addresses, one protocol and one pair of ports; what is not IP, one pair of Ethernet addresses. A fragment has no
/// ports and opens no connection, as only the first has a transport header. The band is 7 less the class selector: what is marked with precedence goes first.
pub(crate) fn classify(frame: &[u8], key: &FixedState) -> (u32, PacketKind, u8) {
    let (addresses, protocol, class, transport) = headers(frame).unwrap_or_else(|| {
        let addresses = frame.get(..12).unwrap_or(frame);
        (addresses, 0, 0, &[])
    });
    let has_ports = matches!(protocol, TCP | UDP | DCCP | SCTP);
    let ports =
        transport.first_chunk::<4>().filter(|_| has_ports).map_or(0, |ports| u32::from_be_bytes(*ports));
    // The hash has 64 good bits; the upper ones are as good as the lower.
    let flow = (key.hash_one((addresses, protocol, ports)) >> 32) as u32;
    let kind = transport.first_chunk().map(|header| PacketKind::of_transport(protocol, header));
    (flow, kind.unwrap_or_default(), LAST_BAND - (class >> 5))
}

/// IP addresses, protocol, traffic class, and what comes behind the IP header: nothing of a fragment.
fn headers(frame: &[u8]) -> Option<(&[u8], u8, u8, &[u8])> {
    let mut at = 12;
    let mut ethertype = u16_at(frame, at)?;
    while VLAN_TAGS.contains(&ethertype) {
        at += 4;
        ethertype = u16_at(frame, at)?;
    }
    let packet = &frame[at + 2..];
    match ethertype {
        IPV4 => {
            let header = packet.first_chunk::<20>()?;
            let is_fragment = u16_at(header, 6)? & 0x3fff != 0;
            let transport = packet.get(usize::from(header[0] & 0x0f) * 4..)?;
            Some((&packet[12..20], header[9], header[1], if is_fragment { &[] } else { transport }))
        }
        IPV6 => {
            let header = packet.first_chunk::<40>()?;
            let class = header[0] << 4 | header[1] >> 4;
            Some((&packet[8..40], header[6], class, &packet[40..]))
        }
        _ => None,
    }
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
        let kind = |frame: &[u8]| classify(frame, &key()).1;
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

    #[test]
    fn flow_is_addresses_protocol_and_ports() {
        let flow = |frame: &[u8]| classify(frame, &key()).0;
        let one = flow(&tcp(1, 1000, 0x10));
        assert_eq!(one, flow(&tcp(1, 1000, 0x02)));
        assert_ne!(one, flow(&tcp(1, 1001, 0x10)));
        assert_ne!(one, flow(&tcp(3, 1000, 0x10)));
        assert_ne!(one, classify(&tcp(1, 1000, 0x10), &FixedState::with_seed(2)).0, "keyed");
        let mut fragment = tcp(1, 1000, 0x02);
        fragment[14 + 6] = 0x20;
        let (fragments_flow, kind, _) = classify(&fragment, &key());
        assert_eq!(kind, PacketKind::Other);
        fragment[34..38].fill(9);
        assert_eq!(flow(&fragment), fragments_flow, "ports of a fragment are not looked at");
    }

    #[test]
    fn precedence_goes_first() {
        let band = |tos: u8| {
            let mut frame = tcp(1, 1, 0);
            frame[15] = tos;
            classify(&frame, &key()).2
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
