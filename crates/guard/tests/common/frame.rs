//! Frames from their fields, odd ones included.

use std::net::IpAddr;

pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const ECE_CWR: u8 = 0xc0;

const TCP: u8 = 6;

/// A TCP segment in a frame to the server.
#[derive(Debug, Clone)]
pub struct Segment {
    /// What a failing test prints.
    pub name: &'static str,
    pub to_mac: [u8; 6],
    /// (TPID, TCI), outermost first.
    pub tags: Vec<(u16, u16)>,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
    pub traffic_class: u8,
    pub flow_label: u32,
    /// IPv4 options, or IPv6 extension headers whose last one says TCP.
    pub extra: Vec<u8>,
    /// IPv6: type of the first extension header.
    pub first_extension: u8,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub tcp_options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Bytes after the IP packet.
    pub trailer: usize,
}

impl Segment {
    /// A plain SYN.
    pub fn syn(name: &'static str, source: &str, destination: &str, destination_port: u16) -> Self {
        Self {
            name,
            to_mac: SERVER_MAC,
            tags: Vec::new(),
            source: source.parse().expect("address"),
            destination: destination.parse().expect("address"),
            // Below the ephemeral ports, which the kernel's own clients in the same namespace use.
            source_port: 20_000,
            destination_port,
            traffic_class: 0,
            flow_label: 0,
            extra: Vec::new(),
            first_extension: TCP,
            // So that adding one to it carries, and payload wraps.
            seq: 0xffff_fffe,
            ack: 0,
            flags: SYN,
            tcp_options: vec![2, 4, 5, 0xb4],
            payload: Vec::new(),
            trailer: 0,
        }
    }

    pub fn with(mut self, name: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        self.name = name;
        change(&mut self);
        self
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut frame = [self.to_mac, CLIENT_MAC].concat();
        for (tpid, tci) in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        let tcp = self.tcp();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                let header = 20 + self.extra.len();
                let mut ip = vec![0x40 | (header / 4) as u8, self.traffic_class];
                ip.extend(((header + tcp.len()) as u16).to_be_bytes());
                ip.extend([0x12, 0x34, 0, 0, 55, TCP, 0, 0]);
                ip.extend(source.octets());
                ip.extend(destination.octets());
                ip.extend(&self.extra);
                let sum = checksum(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(ip);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd]);
                let word = 6_u32 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
                frame.extend(word.to_be_bytes());
                frame.extend(((self.extra.len() + tcp.len()) as u16).to_be_bytes());
                frame.extend([self.first_extension, 55]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                frame.extend(&self.extra);
            }
            _ => panic!("one address family per segment"),
        }
        frame.extend(tcp);
        frame.resize(frame.len() + self.trailer, 0xee);
        frame
    }

    fn tcp(&self) -> Vec<u8> {
        let mut tcp = self.source_port.to_be_bytes().to_vec();
        tcp.extend(self.destination_port.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([(((20 + self.tcp_options.len()) / 4) << 4) as u8, self.flags]);
        tcp.extend([0xfa, 0xf0, 0, 0, 0, 0]);
        tcp.extend(&self.tcp_options);
        tcp.extend(&self.payload);
        let sum = tcp_checksum(self.source, self.destination, &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }
}

/// The RST to `segment` among other frames: its ports swapped, tags and all.
pub fn is_reset_to(frame: &[u8], segment: &Segment) -> bool {
    tcp_to(frame, segment).is_some_and(|tcp| tcp[13] & RST != 0)
}

/// The FIN of the connection that `segment` is of.
pub fn is_fin_to(frame: &[u8], segment: &Segment) -> bool {
    tcp_to(frame, segment).is_some_and(|tcp| tcp[13] & FIN != 0)
}

/// Sequence number of the SYN/ACK that answers `segment`, if `frame` is one.
pub fn syn_ack_to(frame: &[u8], segment: &Segment) -> Option<u32> {
    let tcp = tcp_to(frame, segment).filter(|tcp| tcp[13] & (SYN | ACK | RST) == SYN | ACK)?;
    Some(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]))
}

/// The TCP header of a frame that goes back to where `segment` came from.
fn tcp_to<'a>(frame: &'a [u8], segment: &Segment) -> Option<&'a [u8]> {
    let mut l3 = 12;
    while matches!(frame.get(l3..l3 + 2), Some([0x81, 0x00] | [0x88, 0xa8])) {
        l3 += 4;
    }
    let l4 = match frame.get(l3..l3 + 2)? {
        [0x08, 0x00] => l3 + 2 + usize::from(frame[l3 + 2] & 0xf) * 4,
        [0x86, 0xdd] => l3 + 2 + 40,
        _ => return None,
    };
    let tcp = frame.get(l4..l4 + 20)?;
    let is_back =
        tcp[..2] == segment.destination_port.to_be_bytes() && tcp[2..4] == segment.source_port.to_be_bytes();
    is_back.then_some(tcp)
}

/// RFC 1071.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Of a segment whose checksum field is zero; zero for one whose field is right.
pub fn tcp_checksum(source: IpAddr, destination: IpAddr, tcp: &[u8]) -> u16 {
    let mut bytes = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
    }
    bytes.extend((tcp.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, TCP]);
    bytes.extend(tcp);
    checksum(&bytes)
}
