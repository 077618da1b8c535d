//! Meaning to bytes.

use std::net::SocketAddr;

use crate::layout::{self, ETHERNET, IPV4, IPV6, TCP};
use crate::{Ethernet, Flags, FourTuple, Options, Place, Segment};

const MSS_OPTION_LEN: usize = 4;
const SACK_PERMITTED_OPTION_LEN: usize = 2;
const WINDOW_SCALE_OPTION_LEN: usize = 3;
const TIMESTAMPS_OPTION_LEN: usize = 10;
const SACK_OPTION_LEN: usize = 2;
const SACK_BLOCK_LEN: usize = 8;
/// Time to live and hop limit of every frame, as Linux has it (`net.ipv4.ip_default_ttl`).
const HOPS: u8 = 64;

/// Bytes that [`emit`] will write.
pub fn frame_len(tuple: &FourTuple, segment: &Segment<'_>) -> usize {
    let ip = if tuple.src.is_ipv4() { IPV4 } else { IPV6 };
    ETHERNET + ip + tcp_len(segment)
}

/// Writes a frame and gives its length, with right checksums, the don't-fragment bit, IP
/// identification 0.
///
/// # Panics
///
/// When `buffer` is shorter than [`frame_len`], or the addresses of `tuple` are of two families.
pub fn emit(buffer: &mut [u8], ethernet: &Ethernet, tuple: &FourTuple, segment: &Segment<'_>) -> usize {
    let len = frame_len(tuple, segment);
    let (header, packet) = buffer[..len].split_at_mut(ETHERNET);
    header[0..6].copy_from_slice(&ethernet.dst);
    header[6..12].copy_from_slice(&ethernet.src);
    let pseudo_header = match (tuple.src, tuple.dst) {
        (SocketAddr::V4(src), SocketAddr::V4(dst)) => {
            header[12..14].copy_from_slice(&layout::ETHERTYPE_IPV4);
            ipv4(packet, src.ip().octets(), dst.ip().octets())
        }
        (SocketAddr::V6(src), SocketAddr::V6(dst)) => {
            header[12..14].copy_from_slice(&layout::ETHERTYPE_IPV6);
            ipv6(packet, src.ip().octets(), dst.ip().octets())
        }
        _ => panic!("a segment has one address family, not {tuple:?}"),
    };
    let tcp = &mut packet[len - ETHERNET - tcp_len(segment)..];
    write_tcp(tcp, tuple, segment);
    let checksum = fold(pseudo_header + sum(tcp));
    tcp[16..18].copy_from_slice(&(!checksum).to_be_bytes());
    len
}

/// Writes the header and gives the sum of the pseudo-header.
fn ipv4(packet: &mut [u8], src: [u8; 4], dst: [u8; 4]) -> u64 {
    let total_len = packet.len() as u16;
    let header = &mut packet[..IPV4];
    header.copy_from_slice(&[
        0x45,
        0,
        0,
        0,
        0,
        0,
        0x40,
        0,
        HOPS,
        layout::PROTOCOL_TCP,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[12..16].copy_from_slice(&src);
    header[16..20].copy_from_slice(&dst);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    sum(&src) + sum(&dst) + u64::from(layout::PROTOCOL_TCP) + u64::from(total_len) - IPV4 as u64
}

/// Writes the header and gives the sum of the pseudo-header.
fn ipv6(packet: &mut [u8], src: [u8; 16], dst: [u8; 16]) -> u64 {
    let payload_len = (packet.len() - IPV6) as u16;
    let header = &mut packet[..IPV6];
    header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    header[6] = layout::PROTOCOL_TCP;
    header[7] = HOPS;
    header[8..24].copy_from_slice(&src);
    header[24..40].copy_from_slice(&dst);
    sum(&src) + sum(&dst) + u64::from(layout::PROTOCOL_TCP) + u64::from(payload_len)
}

fn write_tcp(tcp: &mut [u8], tuple: &FourTuple, segment: &Segment<'_>) {
    let header_len = tcp.len() - segment.payload.len();
    let (header, payload) = tcp.split_at_mut(header_len);
    header[0..2].copy_from_slice(&tuple.src.port().to_be_bytes());
    header[2..4].copy_from_slice(&tuple.dst.port().to_be_bytes());
    header[4..8].copy_from_slice(&segment.seq.0.to_be_bytes());
    let ack = if segment.flags.has(Flags::ACK) { segment.ack.0 } else { 0 };
    header[8..12].copy_from_slice(&ack.to_be_bytes());
    header[12] = ((header_len / 4) as u8) << 4;
    header[13] = segment.flags.0;
    header[14..16].copy_from_slice(&segment.window.to_be_bytes());
    header[16..20].fill(0);
    write_options(&mut header[TCP..], &segment.options);
    payload.copy_from_slice(segment.payload);
}

fn tcp_len(segment: &Segment<'_>) -> usize {
    TCP + options_len(&segment.options) + segment.payload.len()
}

/// Whole 32-bit words.
fn options_len(options: &Options) -> usize {
    let len = if options.mss.is_some() {
        options.layout.iter().map(|place| place_len(*place, options)).sum()
    } else {
        later_options_len(options)
    };
    len.next_multiple_of(4)
}

fn place_len(place: Place, options: &Options) -> usize {
    let (is_there, len) = match place {
        Place::Mss => (options.mss.is_some(), MSS_OPTION_LEN),
        Place::WindowScale => (options.window_scale.is_some(), WINDOW_SCALE_OPTION_LEN),
        Place::SackPermitted => (options.sack_permitted, SACK_PERMITTED_OPTION_LEN),
        Place::Timestamps => (options.timestamps.is_some(), TIMESTAMPS_OPTION_LEN),
        Place::Nop | Place::End => (true, 1),
    };
    if is_there { len } else { 0 }
}

/// Of a segment that is no SYN: each option begins a word, behind two NOPs, as every system has it
/// (RFC 7323 appendix A).
fn later_options_len(options: &Options) -> usize {
    let handshake: usize =
        [Place::SackPermitted, Place::WindowScale].iter().map(|place| place_len(*place, options)).sum();
    let timestamps = if options.timestamps.is_some() { 2 + TIMESTAMPS_OPTION_LEN } else { 0 };
    let blocks = options.sack.as_slice().len();
    let sack = if blocks > 0 { 2 + SACK_OPTION_LEN + blocks * SACK_BLOCK_LEN } else { 0 };
    timestamps + sack + handshake
}

/// Fills `to`, what is left over with NOPs.
fn write_options(to: &mut [u8], options: &Options) {
    let mut writer = Writer { rest: to };
    if options.mss.is_none() {
        if options.timestamps.is_some() {
            writer.put(&[layout::OPTION_NOP; 2]);
            writer.place(Place::Timestamps, options);
        }
        let blocks = options.sack.as_slice();
        if !blocks.is_empty() {
            let len = (SACK_OPTION_LEN + blocks.len() * SACK_BLOCK_LEN) as u8;
            writer.put(&[layout::OPTION_NOP, layout::OPTION_NOP, layout::OPTION_SACK, len]);
            for (from, to) in blocks {
                writer.put(&from.0.to_be_bytes());
                writer.put(&to.0.to_be_bytes());
            }
        }
        writer.place(Place::SackPermitted, options);
        writer.place(Place::WindowScale, options);
    } else {
        options.layout.iter().for_each(|place| writer.place(*place, options));
    }
    let is_ended = options.mss.is_some() && options.layout.last() == Some(&Place::End);
    writer.rest.fill(if is_ended { layout::OPTION_END } else { layout::OPTION_NOP });
}

struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (option, after) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        option.copy_from_slice(bytes);
        self.rest = after;
    }

    fn place(&mut self, place: Place, options: &Options) {
        match place {
            Place::Mss => {
                if let Some(mss) = options.mss {
                    self.put(&[layout::OPTION_MSS, MSS_OPTION_LEN as u8]);
                    self.put(&mss.to_be_bytes());
                }
            }
            Place::WindowScale => {
                if let Some(shift) = options.window_scale {
                    self.put(&[layout::OPTION_WINDOW_SCALE, WINDOW_SCALE_OPTION_LEN as u8, shift]);
                }
            }
            Place::SackPermitted => {
                if options.sack_permitted {
                    self.put(&[layout::OPTION_SACK_PERMITTED, SACK_PERMITTED_OPTION_LEN as u8]);
                }
            }
            Place::Timestamps => {
                if let Some(timestamps) = options.timestamps {
                    self.put(&[layout::OPTION_TIMESTAMPS, TIMESTAMPS_OPTION_LEN as u8]);
                    self.put(&timestamps.value.to_be_bytes());
                    self.put(&timestamps.echo.to_be_bytes());
                }
            }
            Place::Nop => self.put(&[layout::OPTION_NOP]),
            Place::End => self.put(&[layout::OPTION_END]),
        }
    }
}

/// Sum of big-endian 16-bit words, the last padded with zero (RFC 1071). Fold it before use.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + odd
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketHeaders, TransportHeader};

    use super::*;
    use crate::{ParseError, SackBlocks, SeqNumber, Timestamps, parse};

    const ETHERNET_ADDRESSES: Ethernet = Ethernet { src: [2, 0, 0, 0, 0, 1], dst: [2, 0, 0, 0, 0, 2] };

    fn tuple(src: &str, dst: &str) -> FourTuple {
        FourTuple { src: src.parse().expect("valid"), dst: dst.parse().expect("valid") }
    }

    fn segment(payload: &[u8]) -> Segment<'_> {
        let flags = Flags::SYN | Flags::ACK;
        Segment {
            seq: SeqNumber(7),
            ack: SeqNumber(9),
            flags,
            window: 512,
            options: Options::mss(1460),
            payload,
        }
    }

    fn frame(tuple: &FourTuple, payload: &[u8]) -> Vec<u8> {
        let mut buffer = [0xaa; 2048];
        let len = emit(&mut buffer, &ETHERNET_ADDRESSES, tuple, &segment(payload));
        buffer[..len].to_vec()
    }

    #[test]
    fn emitted_frames_parse_back_and_their_checksums_hold() {
        for tuple in [tuple("10.0.0.1:1000", "10.0.0.2:80"), tuple("[fd00::1]:1000", "[fd00::2]:80")] {
            for payload in [&b""[..], b"odd", b"even"] {
                let frame = frame(&tuple, payload);
                assert_eq!(parse(&frame), Ok((tuple, segment(payload))));
                assert_checksums(&frame);
            }
        }
    }

    /// Against an implementation that is not ours.
    fn assert_checksums(frame: &[u8]) {
        let headers = PacketHeaders::from_ethernet_slice(frame).expect("a well-formed frame");
        let Some(TransportHeader::Tcp(tcp)) = headers.transport else { panic!("not TCP") };
        let payload = headers.payload.slice();
        let expected = match headers.net.expect("an IP packet") {
            etherparse::NetHeaders::Ipv4(ip, _) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                tcp.calc_checksum_ipv4(&ip, payload).expect("short enough")
            }
            etherparse::NetHeaders::Ipv6(ip, _) => {
                tcp.calc_checksum_ipv6(&ip, payload).expect("short enough")
            }
            other => panic!("not IP: {other:?}"),
        };
        assert_eq!(tcp.checksum, expected);
    }

    #[test]
    fn every_set_of_options_parses_back() {
        let mut blocks = SackBlocks::NONE;
        blocks.push(SeqNumber(u32::MAX), SeqNumber(9));
        blocks.push(SeqNumber(20), SeqNumber(30));
        for bits in 0..32 {
            let has = |bit: u32| bits & bit != 0;
            let options = Options {
                mss: has(1).then_some(1460),
                window_scale: has(2).then_some(7),
                sack_permitted: has(4),
                timestamps: has(8).then_some(Timestamps { value: 1, echo: u32::MAX }),
                // A SYN has none.
                sack: if has(16) && !has(1) { blocks } else { SackBlocks::NONE },
                layout: Options::LAYOUT,
            };
            let segment = Segment { options, ..segment(b"data") };
            let tuple = tuple("10.0.0.1:1000", "10.0.0.2:80");
            let mut buffer = [0xaa; 256];
            let len = emit(&mut buffer, &ETHERNET_ADDRESSES, &tuple, &segment);
            assert_eq!(parse(&buffer[..len]), Ok((tuple, segment)));
            assert_checksums(&buffer[..len]);
        }
    }

    #[test]
    fn layout_says_where_the_options_of_a_syn_stand() {
        let layout = &[
            Place::Mss,
            Place::Nop,
            Place::WindowScale,
            Place::Nop,
            Place::Nop,
            Place::SackPermitted,
            Place::End,
        ];
        let options = Options { window_scale: Some(6), sack_permitted: true, layout, ..Options::mss(0x05b4) };
        let mut bytes = [0xaa; 16];
        write_options(&mut bytes[..options_len(&options)], &options);
        assert_eq!(bytes, [2, 4, 5, 0xb4, 1, 3, 3, 6, 1, 1, 4, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn timestamps_of_a_data_segment_stand_in_whole_words() {
        let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 5 });
        let options = Options { timestamps, ..Options::NONE };
        let mut bytes = [0xaa; 12];
        write_options(&mut bytes[..options_len(&options)], &options);
        assert_eq!(bytes, [1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0, 5]);
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        for tuple in [tuple("10.0.0.1:1000", "10.0.0.2:80"), tuple("[fd00::1]:1000", "[fd00::2]:80")] {
            let frame = frame(&tuple, b"data");
            for len in 0..frame.len() {
                assert!(parse(&frame[..len]).is_err(), "{len} bytes of {}", frame.len());
            }
        }
    }

    #[test]
    fn fragment_is_not_parsed_as_a_segment() {
        let mut frame = frame(&tuple("10.0.0.1:1000", "10.0.0.2:80"), b"data");
        frame[20] = 0x20; // more fragments
        assert_eq!(parse(&frame), Err(ParseError::Fragment));
    }

    #[test]
    fn padding_after_the_packet_is_not_data() {
        let mut padded = frame(&tuple("10.0.0.1:1000", "10.0.0.2:80"), b"");
        padded.extend([0; 6]);
        let (_, segment) = parse(&padded).expect("parses");
        assert!(segment.payload.is_empty());
    }

    #[test]
    fn option_of_length_zero_ends_the_options() {
        let mut frame = frame(&tuple("10.0.0.1:1000", "10.0.0.2:80"), b"");
        frame[54..58].copy_from_slice(&[99, 0, 5, 0xb4]);
        let (_, segment) = parse(&frame).expect("parses");
        assert_eq!(segment.options, Options::default());
    }
}
