//! Ethernet, IP and TCP: bytes to meaning and back, for whole frames of one segment each.
//!
//! What it is not: it has no VLAN tags, no IPv6 extension headers and no fragments. It has no IP
//! options on the way out, and no TCP options but those of [`Options`]. A frame that has them is a
//! [`ParseError`], not a guess; unknown TCP options are skipped. The programs in `kernel/` parse
//! all of these for themselves; this crate is for the crowd's own traffic.
//!
//! Checksums are written and not verified. A veth hands over segments whose checksum the sender
//! left to a device that is not there (`CHECKSUM_PARTIAL`). A receiver in user space cannot tell a
//! wrong one from an unfinished one.
//!
//! [`parse`] never panics, whatever the bytes. [`emit`] panics only when the buffer is shorter than
//! [`frame_len`].

mod emit;
mod finish;
mod parse;
mod segment;
mod seq;

pub use emit::{emit, frame_len};
pub use finish::finish_checksum;
pub use parse::{ParseError, parse};
pub use segment::{Ethernet, Flags, FourTuple, Options, Place, SackBlocks, Segment, Timestamps};
pub use seq::SeqNumber;

/// Offsets and lengths, bytes. Sources: IEEE 802.3, RFC 791, RFC 8200, RFC 9293.
mod layout {
    pub const ETHERNET: usize = 14;
    pub const IPV4: usize = 20;
    pub const IPV6: usize = 40;
    pub const TCP: usize = 20;
    pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
    pub const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
    pub const PROTOCOL_TCP: u8 = 6;
    pub const OPTION_END: u8 = 0;
    pub const OPTION_NOP: u8 = 1;
    pub const OPTION_MSS: u8 = 2;
    pub const OPTION_WINDOW_SCALE: u8 = 3;
    pub const OPTION_SACK_PERMITTED: u8 = 4;
    pub const OPTION_SACK: u8 = 5;
    pub const OPTION_TIMESTAMPS: u8 = 8;
}
