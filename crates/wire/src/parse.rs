//! Bytes to meaning.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::layout::{self, ETHERNET, IPV4, IPV6, TCP};
use crate::{Flags, FourTuple, Options, SackBlocks, Segment, SeqNumber, Timestamps};

/// Why a frame is not a segment of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// Shorter than its headers say.
    Truncated,
    /// Not IPv4 or IPv6.
    NotIp,
    /// Not TCP, or TCP behind an extension header.
    NotTcp,
    /// A fragment.
    Fragment,
}

/// Parses a frame of one TCP segment. Bytes after the IP packet (Ethernet padding) are ignored.
///
/// # Errors
///
/// See [`ParseError`]. Checksums are not verified.
pub fn parse(frame: &[u8]) -> Result<(FourTuple, Segment<'_>), ParseError> {
    let ethertype = frame.get(12..ETHERNET).ok_or(ParseError::Truncated)?;
    let packet = &frame[ETHERNET..];
    let (src, dst, tcp) = if ethertype == layout::ETHERTYPE_IPV4 {
        ipv4(packet)?
    } else if ethertype == layout::ETHERTYPE_IPV6 {
        ipv6(packet)?
    } else {
        return Err(ParseError::NotIp);
    };
    let (src_port, dst_port, segment) = segment(tcp)?;
    let tuple = FourTuple { src: SocketAddr::new(src, src_port), dst: SocketAddr::new(dst, dst_port) };
    Ok((tuple, segment))
}

fn ipv4(packet: &[u8]) -> Result<(IpAddr, IpAddr, &[u8]), ParseError> {
    let header: &[u8; IPV4] = packet.first_chunk().ok_or(ParseError::Truncated)?;
    if header[0] >> 4 != 4 {
        return Err(ParseError::NotIp);
    }
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff; // more-fragments bit and offset
    if fragment != 0 {
        return Err(ParseError::Fragment);
    }
    if header[9] != layout::PROTOCOL_TCP {
        return Err(ParseError::NotTcp);
    }
    if header_len < IPV4 {
        return Err(ParseError::Truncated);
    }
    let tcp = packet.get(header_len..total_len).ok_or(ParseError::Truncated)?;
    let src = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let dst = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    Ok((src.into(), dst.into(), tcp))
}

fn ipv6(packet: &[u8]) -> Result<(IpAddr, IpAddr, &[u8]), ParseError> {
    let header: &[u8; IPV6] = packet.first_chunk().ok_or(ParseError::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(ParseError::NotIp);
    }
    if header[6] != layout::PROTOCOL_TCP {
        return Err(ParseError::NotTcp);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let tcp = packet.get(IPV6..IPV6 + payload_len).ok_or(ParseError::Truncated)?;
    let address = |at: usize| -> Ipv6Addr {
        let bytes: [u8; 16] = header[at..at + 16].try_into().expect("the header has 40 bytes");
        bytes.into()
    };
    Ok((address(8).into(), address(24).into(), tcp))
}

fn segment(tcp: &[u8]) -> Result<(u16, u16, Segment<'_>), ParseError> {
    let header: &[u8; TCP] = tcp.first_chunk().ok_or(ParseError::Truncated)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    let options = tcp.get(TCP..header_len).ok_or(ParseError::Truncated)?;
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let segment = Segment {
        seq: SeqNumber(u32_at(4)),
        ack: SeqNumber(u32_at(8)),
        flags: Flags(header[13]),
        window: u16_at(14),
        options: parse_options(options),
        payload: &tcp[header_len..],
    };
    Ok((u16_at(0), u16_at(2), segment))
}

fn timestamps(bytes: &[u8]) -> Option<Timestamps> {
    let (value, rest) = bytes.split_first_chunk()?;
    let echo = rest.first_chunk()?;
    Some(Timestamps { value: u32::from_be_bytes(*value), echo: u32::from_be_bytes(*echo) })
}

/// Whole blocks; what is left over is none.
fn sack(bytes: &[u8]) -> SackBlocks {
    let mut blocks = SackBlocks::NONE;
    for block in bytes.chunks_exact(8) {
        let at = |from: usize| {
            SeqNumber(u32::from_be_bytes([block[from], block[from + 1], block[from + 2], block[from + 3]]))
        };
        blocks.push(at(0), at(4));
    }
    blocks
}

fn parse_options(mut bytes: &[u8]) -> Options {
    let mut options = Options::default();
    loop {
        match *bytes {
            [layout::OPTION_NOP, ref rest @ ..] => {
                bytes = rest;
                continue;
            }
            [layout::OPTION_MSS, 4, high, low, ..] => options.mss = Some(u16::from_be_bytes([high, low])),
            [layout::OPTION_WINDOW_SCALE, 3, shift, ..] => options.window_scale = Some(shift),
            [layout::OPTION_SACK_PERMITTED, 2, ..] => options.sack_permitted = true,
            [layout::OPTION_TIMESTAMPS, 10, ref rest @ ..] => options.timestamps = timestamps(rest),
            [layout::OPTION_SACK, len, ref rest @ ..] => {
                options.sack = sack(rest.get(..usize::from(len).saturating_sub(2)).unwrap_or_default());
            }
            [] | [layout::OPTION_END, ..] => return options,
            _ => {}
        }
        // A length below 2 would never advance.
        let rest = bytes.get(1).filter(|len| **len >= 2).and_then(|len| bytes.get(usize::from(*len)..));
        match rest {
            Some(rest) => bytes = rest,
            None => return options,
        }
    }
}
