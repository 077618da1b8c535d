//! What a frame says.

use std::fmt;
use std::net::SocketAddr;
use std::ops::BitOr;

use crate::SeqNumber;

/// Ethernet addresses of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Sender.
    pub src: [u8; 6],
    /// Receiver.
    pub dst: [u8; 6],
}

/// Addresses and ports of a segment, in its own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Sender.
    pub src: SocketAddr,
    /// Receiver; the same address family as `src`.
    pub dst: SocketAddr,
}

/// A TCP segment without its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: SeqNumber,
    /// Acknowledgement number; means something only with [`Flags::ACK`].
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: Flags,
    /// Receive window, bytes, as on the wire: not scaled.
    pub window: u16,
    /// Options.
    pub options: Options,
    /// Data.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Length in sequence space: data, plus one for a SYN and one for a FIN (RFC 9293, SEG.LEN).
    pub fn len(&self) -> u32 {
        let controls = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        self.payload.len() as u32 + controls
    }

    /// Whether the segment takes no sequence space.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// TCP options. Others are skipped on the way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size, bytes (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Left shift of the windows in later segments (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Whether the peer may send selective acknowledgements (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// What arrived beyond the acknowledgement number (RFC 2018 section 3).
    pub sack: SackBlocks,
    /// Where the options of a segment with a maximum segment size stand. What was parsed has
    /// [`Options::LAYOUT`], whatever it was.
    pub layout: &'static [Place],
}

impl Options {
    /// The order in which they are written unless a layout says otherwise.
    pub const LAYOUT: &'static [Place] =
        &[Place::Mss, Place::SackPermitted, Place::Timestamps, Place::WindowScale];
    /// None at all.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::NONE,
        layout: Self::LAYOUT,
    };

    /// Only a maximum segment size, bytes.
    pub const fn mss(mss: u16) -> Self {
        Self { mss: Some(mss), ..Self::NONE }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::NONE
    }
}

/// A place in the options of a SYN. Systems differ in what is where, and are told apart by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// [`Options::mss`].
    Mss,
    /// [`Options::window_scale`].
    WindowScale,
    /// [`Options::sack_permitted`].
    SackPermitted,
    /// [`Options::timestamps`].
    Timestamps,
    /// One byte that says nothing.
    Nop,
    /// The end; zeros follow.
    End,
}

/// The timestamps option (RFC 7323 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock, TSval.
    pub value: u32,
    /// What it last heard of the receiver's, TSecr; 0 in a SYN.
    pub echo: u32,
}

/// Blocks of a selective acknowledgement, the most recent first: from a sequence number up to, and
/// not including, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNumber, SeqNumber); Self::MOST],
    len: u8,
}

impl SackBlocks {
    /// As many as there is room for: four, or three beside timestamps.
    pub const MOST: usize = 4;
    /// No block.
    pub const NONE: Self = Self { blocks: [(SeqNumber(0), SeqNumber(0)); Self::MOST], len: 0 };

    /// Adds a block, if there is room.
    pub fn push(&mut self, from: SeqNumber, to: SeqNumber) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.len)) {
            *block = (from, to);
            self.len += 1;
        }
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[(SeqNumber, SeqNumber)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// TCP control bits (RFC 9293 section 3.1).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number is significant.
    pub const ACK: Self = Self(0x10);
    /// Congestion was seen, or ECN is offered (RFC 3168 section 6.1).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced, or ECN is offered.
    pub const CWR: Self = Self(0x80);

    /// Whether every bit of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Flags {
    /// Letters of tcpdump, in its order.
    const LETTERS: [(Self, char); 7] = [
        (Self::FIN, 'F'),
        (Self::SYN, 'S'),
        (Self::RST, 'R'),
        (Self::PSH, 'P'),
        (Self::ACK, '.'),
        (Self::ECE, 'E'),
        (Self::CWR, 'W'),
    ];

    /// The flag with this letter.
    pub fn by_letter(letter: char) -> Option<Self> {
        Self::LETTERS.into_iter().find(|(_, known)| *known == letter).map(|(flag, _)| flag)
    }
}

/// Letters as in tcpdump: `S.`, `R`.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: String =
            Self::LETTERS.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, letter)| letter).collect();
        f.write_str(&set)
    }
}

/// As [`fmt::Display`], in brackets.
impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}
