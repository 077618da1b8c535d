//! SYN cookies: the kernel's, which here keep a maximum segment size and nothing else, and the guard's, which are those of `kernel/cookie.h`.

use std::net::{Ipv6Addr, SocketAddrV6};

use units::Nanos;
use verdict::cookie::{Flow, Key, Options as Said};
use wire::{Options, Segment, SeqNumber};

use super::Peer;

/// A minute by the kernel's count (`tcp_cookie_time()`), after which a cookie is good for another.
const MINUTE: u64 = 60_000_000_000;
/// What a kernel's cookie says at least (`net/ipv4/syncookies.c`, `msstab[0]`).
const MSS: u16 = 536;

/// The secrets.
#[derive(Debug)]
pub(super) struct Cookies {
    secret: u64,
    own: Own,
}

/// The guard's key, which is no reading matter.
struct Own(Key);

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Own")
    }
}

/// Whose cookie came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Kernels,
    Guards,
}

impl Cookies {
    pub(super) fn new(seed: u64) -> Self {
        Self { secret: mix(seed, 1), own: Own(Key([mix(seed, 2), mix(seed, 3)])) }
    }

    /// The kernel's, for a SYN with this sequence number.
    pub(super) fn make(&self, peer: Peer, irs: SeqNumber, now: Nanos) -> SeqNumber {
        self.of_minute(peer, irs, now.0 / MINUTE)
    }

    fn of_minute(&self, peer: Peer, irs: SeqNumber, minute: u64) -> SeqNumber {
        SeqNumber(mix(self.secret ^ peer.0, u64::from(irs.0) << 32 | minute) as u32)
    }

    /// The guard's, for a SYN.
    pub(super) fn make_own(&self, peer: Peer, syn: &Segment<'_>, now: Nanos) -> SeqNumber {
        let said = Said {
            mss: syn.options.mss.unwrap_or(MSS),
            wscale: syn.options.window_scale.map(|by| by.min(14)),
            has_sack: syn.options.sack_permitted,
        };
        SeqNumber(self.own.0.make(&flow(peer, syn.seq), &said, now))
    }

    /// Whose cookie a segment acknowledges, if it is one, and what its SYN offered as far as that says.
    pub(super) fn open(&self, peer: Peer, segment: &Segment<'_>, now: Nanos) -> Option<(Whose, Options)> {
        let (irs, iss) = (SeqNumber(segment.seq.0.wrapping_sub(1)), SeqNumber(segment.ack.0.wrapping_sub(1)));
        let minute = now.0 / MINUTE;
        let is_kernels =
            [minute, minute.wrapping_sub(1)].iter().any(|minute| self.of_minute(peer, irs, *minute) == iss);
        if is_kernels {
            return Some((Whose::Kernels, Options::mss(MSS)));
        }
        let said = self.own.0.open(&flow(peer, irs), iss.0, now)?;
        let options = Options {
            mss: Some(said.mss),
            window_scale: said.wscale,
            sack_permitted: said.has_sack,
            timestamps: segment.options.timestamps,
            ..Options::NONE
        };
        Some((Whose::Guards, options))
    }
}

/// Addresses that stand for a client and the listener.
fn flow(peer: Peer, irs: SeqNumber) -> Flow {
    let address = Ipv6Addr::from(u128::from(peer.0 >> 16) | 0xffff << 96);
    Flow {
        source: SocketAddrV6::new(address, peer.0 as u16, 0, 0),
        destination: SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 0),
        client_isn: irs.0,
    }
}

/// splitmix64's finalizer.
pub(super) fn mix(seed: u64, n: u64) -> u64 {
    let mut mixed = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
