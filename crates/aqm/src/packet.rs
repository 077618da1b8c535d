//! What a queue must know of a packet.

use std::fmt;

/// A packet, or a handle of one.
pub trait Packet {
    /// Length, above 0, as the link counts it.
    fn bytes(&self) -> u32;

    /// Keyed hash of addresses, ports and protocol: the same for all packets of a flow and evenly
    /// spread over all 32 bits. CHOKe asks, and all that have a queue for each flow.
    fn flow(&self) -> u32;

    /// What it is for its connection. REDFavor asks.
    fn kind(&self) -> PacketKind {
        PacketKind::Other
    }

    /// Priority class, 0 is served first. Priority bands ask.
    fn band(&self) -> u8 {
        0
    }

    /// Bytes of payload that its flow's response still has to send, this packet's among them;
    /// `None` if nobody knows. A packet without payload has 0, unless its place is to be another.
    /// SRPT asks.
    fn left(&self) -> Option<u64> {
        None
    }

    /// Bytes of payload that the response has sent before this packet. LAS asks, and SRPT if
    /// [`Packet::left`] is not known.
    fn attained(&self) -> u64 {
        0
    }
}

/// The packets that open a connection, and all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// Opens nothing, or is not known.
    #[default]
    Other = kernel::PacketKind::Other as u8,
    /// TCP, SYN without ACK.
    Syn = kernel::PacketKind::Syn as u8,
    /// TCP, SYN with ACK.
    SynAck = kernel::PacketKind::SynAck as u8,
    /// SCTP (RFC 9260).
    SctpInit = kernel::PacketKind::SctpInit as u8,
    /// SCTP.
    SctpInitAck = kernel::PacketKind::SctpInitAck as u8,
    /// DCCP (RFC 4340).
    DccpRequest = kernel::PacketKind::DccpRequest as u8,
    /// DCCP.
    DccpResponse = kernel::PacketKind::DccpResponse as u8,
}

impl PacketKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Other,
        Self::Syn,
        Self::SynAck,
        Self::SctpInit,
        Self::SctpInitAck,
        Self::DccpRequest,
        Self::DccpResponse,
    ];

    /// All that can be protected, by name.
    const NAMES: [(&'static str, Self); 6] = [
        ("syn", Self::Syn),
        ("syn-ack", Self::SynAck),
        ("sctp-init", Self::SctpInit),
        ("sctp-init-ack", Self::SctpInitAck),
        ("dccp-request", Self::DccpRequest),
        ("dccp-response", Self::DccpResponse),
    ];

    /// By the protocol's number in the IP header and the first bytes of the transport's:
    /// `kernel/protected.h`, as the qdisc calls it.
    pub fn of_transport(protocol: u8, header: &[u8; 14]) -> Self {
        Self::ALL[kernel::packet_kind(protocol, header) as usize]
    }

    /// Of a TCP segment, by the flags in the 14th byte of its header.
    pub const fn of_tcp(flags: u8) -> Self {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        match (flags & SYN != 0, flags & ACK != 0) {
            (false, _) => Self::Other,
            (true, false) => Self::Syn,
            (true, true) => Self::SynAck,
        }
    }
}

/// Which packets REDFavor protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedSet(u8);

impl ProtectedSet {
    /// None: REDFavor is RED then.
    pub const NONE: Self = Self(0);
    /// SYN and SYN/ACK: `[RF]`, "the TCP segments with the SYN flag set".
    pub const TCP: Self = Self::NONE.with(PacketKind::Syn).with(PacketKind::SynAck);
    /// INIT and INIT ACK.
    pub const SCTP: Self = Self::NONE.with(PacketKind::SctpInit).with(PacketKind::SctpInitAck);
    /// Request and Response.
    pub const DCCP: Self = Self::NONE.with(PacketKind::DccpRequest).with(PacketKind::DccpResponse);

    /// These, and another. [`PacketKind::Other`] cannot be protected.
    pub const fn with(self, kind: PacketKind) -> Self {
        match kind {
            PacketKind::Other => self,
            kind => Self(self.0 | 1 << kind as u8),
        }
    }

    /// Whether packets of that kind are protected.
    pub const fn contains(self, kind: PacketKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// The set as the qdisc has it: bit n stands for the kind with number n.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// `tcp`, `sctp`, `dccp`, or single kinds, joined by `+`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.split('+').try_fold(Self::NONE, |set, name| {
            let group = match name {
                "tcp" => Self::TCP,
                "sctp" => Self::SCTP,
                "dccp" => Self::DCCP,
                _ => {
                    let (_, kind) = PacketKind::NAMES.iter().find(|(known, _)| *known == name)?;
                    Self::NONE.with(*kind)
                }
            };
            Some(Self(set.0 | group.0))
        })
    }
}

impl fmt::Display for ProtectedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut names = Vec::new();
        for (name, group) in [("tcp", Self::TCP), ("sctp", Self::SCTP), ("dccp", Self::DCCP)] {
            if rest.0 & group.0 == group.0 {
                names.push(name);
                rest = Self(rest.0 & !group.0);
            }
        }
        names
            .extend(PacketKind::NAMES.iter().filter(|(_, kind)| rest.contains(*kind)).map(|(name, _)| *name));
        f.write_str(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_a_segment_is_told_by_syn_and_ack() {
        assert_eq!(PacketKind::of_tcp(0x02), PacketKind::Syn);
        assert_eq!(PacketKind::of_tcp(0x12), PacketKind::SynAck);
        assert_eq!(PacketKind::of_tcp(0xc2), PacketKind::Syn, "with ECE and CWR, as RFC 3168 has it");
        assert_eq!(PacketKind::of_tcp(0x10), PacketKind::Other);
        assert_eq!(PacketKind::of_tcp(0x14), PacketKind::Other, "RST");
    }

    #[test]
    fn kernel_and_simulator_tell_every_segment_the_same() {
        const TCP: u8 = 6;
        for flags in 0..=u8::MAX {
            let mut header = [0xff; 14];
            header[13] = flags;
            assert_eq!(PacketKind::of_transport(TCP, &header), PacketKind::of_tcp(flags), "{flags:#x}");
        }
    }

    #[test]
    fn packets_that_open_are_told_by_the_transport() {
        let with = |at: usize, byte| {
            let mut header = [0; 14];
            header[at] = byte;
            header
        };
        // RFC 9260: the chunk's type; RFC 4340: three reserved bits, four of the type, and whether
        // sequence numbers are long.
        assert_eq!(PacketKind::of_transport(132, &with(12, 1)), PacketKind::SctpInit);
        assert_eq!(PacketKind::of_transport(132, &with(12, 2)), PacketKind::SctpInitAck);
        assert_eq!(PacketKind::of_transport(132, &with(12, 0)), PacketKind::Other, "data");
        assert_eq!(PacketKind::of_transport(33, &with(8, 0x01)), PacketKind::DccpRequest);
        assert_eq!(PacketKind::of_transport(33, &with(8, 0x03)), PacketKind::DccpResponse);
        assert_eq!(PacketKind::of_transport(33, &with(8, 0x05)), PacketKind::Other, "data");
        assert_eq!(PacketKind::of_transport(17, &with(13, 0x02)), PacketKind::Other, "UDP");
    }

    #[test]
    fn numbers_are_those_of_the_kernel_side() {
        for (number, kind) in PacketKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(ProtectedSet::NONE.with(kind).bits(), if number == 0 { 0 } else { 1 << number });
        }
    }

    #[test]
    fn set_is_known_by_its_name() {
        assert_eq!(ProtectedSet::parse("tcp"), Some(ProtectedSet::TCP));
        assert_eq!(ProtectedSet::parse("syn+syn-ack"), Some(ProtectedSet::TCP));
        for name in ["tcp", "tcp+sctp+dccp", "syn", "tcp+dccp-request"] {
            let set = ProtectedSet::parse(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(set.to_string(), name);
        }
        assert!(!ProtectedSet::TCP.contains(PacketKind::Other));
        assert!(!ProtectedSet::TCP.contains(PacketKind::SctpInit));
        for wrong in ["", "udp", "tcp+", "other", "SYN"] {
            assert_eq!(ProtectedSet::parse(wrong), None, "{wrong}");
        }
    }
}
