//! SYN cookies: the kernel's (`net/ipv4/syncookies.c` of 6.18, also where 2.4 is simulated), which
//! keep one of four segment sizes, and in the timestamp of the SYN/ACK what else the SYN offered;
//! and the guard's, which are those of `kernel/cookie.h`.

use std::net::{Ipv6Addr, SocketAddrV6};

use units::Nanos;
use verdict::cookie::{Flow, Keys, Options as Said, Times};
use wire::{Options, Segment, SeqNumber, Timestamps};

use super::Peer;

/// A minute by the kernel's count (`tcp_cookie_time()`), after which a cookie is good for another.
const MINUTE: u64 = 60_000_000_000;
/// The segment sizes that a kernel's cookie can say (`msstab`).
const MSS: [u16; 4] = [536, 1300, 1440, 1460];
/// Bits of the timestamp that are the cookie's (`TSBITS`): the window scale, all ones where there
/// is none, and selective acknowledgements.
const STAMPED: u32 = (1 << 6) - 1;
const SCALE: u32 = 0xf;
const SACK: u32 = 1 << 4;

/// The secrets.
#[derive(Debug)]
pub(super) struct Cookies {
    secret: u64,
    own: Own,
    /// When the guard has sent which.
    times: Times,
}

/// The guard's key, which is no reading matter.
struct Own(Keys);

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
        Self {
            secret: mix(seed, 1),
            own: Own(Keys([[mix(seed, 2), mix(seed, 3)], [mix(seed, 4), mix(seed, 5)]])),
            times: Times::default(),
        }
    }

    /// The kernel's, for a SYN.
    pub(super) fn make(&self, peer: Peer, syn: &Segment<'_>, now: Nanos) -> SeqNumber {
        let offered = syn.options.mss.unwrap_or(MSS[0]);
        let number = MSS.iter().rposition(|mss| *mss <= offered).unwrap_or(0);
        self.of_minute(peer, syn.seq, now.0 / MINUTE) + number as u32
    }

    fn of_minute(&self, peer: Peer, irs: SeqNumber, minute: u64) -> SeqNumber {
        SeqNumber(mix(self.secret ^ peer.0, u64::from(irs.0) << 32 | minute) as u32)
    }

    /// How long ago one was sent, if the guard knows.
    pub(super) fn age(&self, cookie: SeqNumber, now: Nanos) -> Option<Nanos> {
        self.times.age(cookie.0, now)
    }

    /// The guard's, for a SYN, which it sends now.
    pub(super) fn make_own(&mut self, peer: Peer, syn: &Segment<'_>, now: Nanos) -> SeqNumber {
        let said = Said {
            mss: syn.options.mss.unwrap_or(MSS[0]),
            wscale: syn.options.window_scale.map(|by| by.min(14)),
            has_sack: syn.options.sack_permitted,
        };
        let cookie = self.own.0.make(&flow(peer, syn.seq), &said, now);
        self.times.remember(cookie, now);
        SeqNumber(cookie)
    }

    /// Whose cookie a segment acknowledges, if it is one, and what its SYN offered as far as that
    /// says.
    pub(super) fn open(&self, peer: Peer, segment: &Segment<'_>, now: Nanos) -> Option<(Whose, Options)> {
        let (irs, iss) = (SeqNumber(segment.seq.0.wrapping_sub(1)), SeqNumber(segment.ack.0.wrapping_sub(1)));
        let minute = now.0 / MINUTE;
        let number = |minute| iss.0.wrapping_sub(self.of_minute(peer, irs, minute).0) as usize;
        let mut kernels =
            [minute, minute.wrapping_sub(1)].into_iter().filter_map(|minute| MSS.get(number(minute)));
        if let Some(mss) = kernels.next() {
            return Some((Whose::Kernels, kept(*mss, segment.options.timestamps)));
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

/// What the kernel answers of a SYN's offer by cookie: without timestamps nothing else can be kept
/// (`tcp_clear_options()`).
pub(super) fn answered(offered: Options) -> Options {
    match offered.timestamps {
        Some(_) => offered,
        None => Options { mss: offered.mss, ..Options::NONE },
    }
}

/// The timestamp of such an answer: up to 63 ms in the past (`cookie_init_timestamp()`).
pub(super) fn stamp(now_ms: u32, offered: &Options) -> u32 {
    let scale = offered.window_scale.map_or(SCALE, |by| u32::from(by.min(14)));
    let said = scale | if offered.sack_permitted { SACK } else { 0 };
    let stamped = now_ms & !STAMPED | said;
    if stamped > now_ms { stamped.wrapping_sub(STAMPED + 1) } else { stamped }
}

/// What is known again of the offer (`cookie_timestamp_decode()`).
fn kept(mss: u16, timestamps: Option<Timestamps>) -> Options {
    let Some(Timestamps { echo, .. }) = timestamps else { return Options::mss(mss) };
    Options {
        mss: Some(mss),
        window_scale: Some((echo & SCALE) as u8).filter(|by| u32::from(*by) != SCALE),
        sack_permitted: echo & SACK != 0,
        timestamps,
        ..Options::NONE
    }
}

/// Addresses that stand for a client and the listener.
fn flow(peer: Peer, irs: SeqNumber) -> Flow {
    let address = Ipv6Addr::from(u128::from(peer.address()) | 0xffff << 96);
    Flow {
        source: SocketAddrV6::new(address, peer.port(), 0, 0),
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
