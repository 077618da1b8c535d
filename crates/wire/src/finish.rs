//! Checksums that the sender left to its device.

use crate::emit::{fold, sum};
use crate::layout::{self, ETHERNET, IPV4, IPV6};

const PROTOCOL_UDP: u8 = 17;
const VLAN_TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const VLAN_TAG: usize = 4;

/// Writes the checksum of a TCP segment or UDP datagram whose sender left it to its device; true if
/// it had.
///
/// Linux leaves in its place the sum over the pseudo-header (`CHECKSUM_PARTIAL` in
/// `include/linux/skbuff.h`), which is how this is told. One right checksum in 65,536 looks the
/// same, and is written again as it was. All others stay as they are, be they right or wrong.
/// Frames may have VLAN tags; fragments, extension headers and all that is shorter than it says are
/// left alone.
pub fn finish_checksum(frame: &mut [u8]) -> bool {
    finish(frame).is_some()
}

fn finish(frame: &mut [u8]) -> Option<()> {
    let mut at = ETHERNET;
    while VLAN_TAGS.iter().any(|tag| frame.get(at - 2..at) == Some(tag.as_slice())) {
        at += VLAN_TAG;
    }
    let ethertype: [u8; 2] = frame.get(at - 2..at)?.try_into().ok()?;
    let packet = &mut frame[at..];
    let (addresses, protocol, transport) = if ethertype == layout::ETHERTYPE_IPV4 {
        let header: &[u8; IPV4] = packet.first_chunk()?;
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let (header_len, total_len) =
            (usize::from(header[0] & 0x0f) * 4, usize::from(u16::from_be_bytes([header[2], header[3]])));
        if is_fragment || header_len < IPV4 {
            return None;
        }
        (sum(&header[12..20]), header[9], packet.get_mut(header_len..total_len)?)
    } else if ethertype == layout::ETHERTYPE_IPV6 {
        let header: &[u8; IPV6] = packet.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        (sum(&header[8..40]), header[6], packet.get_mut(IPV6..IPV6 + len)?)
    } else {
        return None;
    };
    let checksum = match protocol {
        layout::PROTOCOL_TCP => 16..18,
        PROTOCOL_UDP => 6..8,
        _ => return None,
    };
    let pseudo_header = fold(addresses + u64::from(protocol) + transport.len() as u64);
    if *transport.get(checksum.clone())? != pseudo_header.to_be_bytes() {
        return None;
    }
    // What is there is the pseudo-header's part of the sum.
    let whole = !fold(sum(transport));
    // To UDP zero means that there is none (RFC 768).
    let whole = if protocol == PROTOCOL_UDP && whole == 0 { 0xffff } else { whole };
    transport[checksum].copy_from_slice(&whole.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, PacketBuilderStep, TcpHeader, UdpHeader};

    use super::*;

    /// Right frames, with where their checksum is.
    fn frames(data: &[u8]) -> Vec<(Vec<u8>, usize)> {
        let v4 = || PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 9, 8, 7], 64);
        let v6 = || PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfd; 16], [0xfe; 16], 64);
        let tcp = |step: PacketBuilderStep<TcpHeader>| {
            let mut frame = Vec::new();
            step.write(&mut frame, data).expect("build");
            frame
        };
        let udp = |step: PacketBuilderStep<UdpHeader>| {
            let mut frame = Vec::new();
            step.write(&mut frame, data).expect("build");
            frame
        };
        vec![
            (tcp(v4().tcp(80, 1000, 7, 512)), 14 + 20 + 16),
            (tcp(v6().tcp(80, 1000, 7, 512)), 14 + 40 + 16),
            (udp(v4().udp(80, 1000)), 14 + 20 + 6),
            (udp(v6().udp(80, 1000)), 14 + 40 + 6),
        ]
    }

    /// As Linux hands it to a device that writes checksums itself.
    fn left_to_the_device(frame: &[u8], at: usize) -> Vec<u8> {
        let (addresses, transport, protocol) = match frame[12] {
            0x08 => (&frame[26..34], &frame[34..], frame[23]),
            _ => (&frame[22..54], &frame[54..], frame[20]),
        };
        let pseudo_header = fold(sum(addresses) + u64::from(protocol) + transport.len() as u64);
        let mut frame = frame.to_vec();
        frame[at..at + 2].copy_from_slice(&pseudo_header.to_be_bytes());
        frame
    }

    #[test]
    fn checksum_that_was_left_to_the_device_is_written() {
        for data in [&b""[..], b"odd", b"an even number of bytes."] {
            for (right, at) in frames(data) {
                let mut frame = left_to_the_device(&right, at);
                assert_ne!(frame, right);
                assert!(finish_checksum(&mut frame));
                assert_eq!(frame, right);
                assert!(!finish_checksum(&mut frame), "it is finished");
            }
        }
    }

    #[test]
    fn padding_and_vlan_tags_do_not_matter() {
        for (right, at) in frames(b"x") {
            let pad = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..], &[0xaa; 9]].concat();
            let mut frame = pad(&left_to_the_device(&right, at));
            assert!(finish_checksum(&mut frame));
            assert_eq!(frame, pad(&right));
        }
    }

    #[test]
    fn wrong_checksum_stays_wrong() {
        for (right, at) in frames(b"data") {
            let mut frame = right;
            frame[at] ^= 0x10;
            let wrong = frame.clone();
            assert!(!finish_checksum(&mut frame));
            assert_eq!(frame, wrong);
        }
    }

    #[test]
    fn what_is_too_short_is_left_alone() {
        for (right, at) in frames(b"data") {
            let frame = left_to_the_device(&right, at);
            for len in 0..frame.len() {
                let mut short = frame[..len].to_vec();
                assert!(!finish_checksum(&mut short), "{len} bytes");
            }
        }
    }
}
