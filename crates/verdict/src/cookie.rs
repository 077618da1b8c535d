//! The SYN cookies of `kernel/cookie.h`, called on the host.

use std::net::SocketAddrV6;

use kernel::{CookieFlow, CookieKey, CookieKeys, CookieOptions};
use units::Nanos;

/// Secrets: each in turn makes the cookies of [`KEY_LIFE`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys(pub [[u64; 2]; kernel::COOKIE_KEYS as usize]);

/// Whose handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The client; IPv4 as `::ffff:a.b.c.d`.
    pub source: SocketAddrV6,
    /// The listener's address that it called.
    pub destination: SocketAddrV6,
    /// Sequence number of the SYN.
    pub client_isn: u32,
}

/// What the SYN offered, as far as a cookie can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes; the next lower of four sizes comes back.
    pub mss: u16,
    /// The client's shift, 0 to 14.
    pub wscale: Option<u8>,
    /// Selective acknowledgments.
    pub has_sack: bool,
}

/// When cookies were sent: `cookie_times` of `kernel/syn_ack.bpf.h`.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// By place; empty until one is sent.
    stamps: Vec<u64>,
}

impl Times {
    /// One is sent.
    pub fn remember(&mut self, cookie: u32, now: Nanos) {
        self.stamps.resize(kernel::COOKIE_PLACES as usize, 0);
        self.stamps[place(cookie)] = kernel::stamp_cookie(cookie, now.0);
    }

    /// How long ago it was sent, in whole microseconds and one at least; `None` if another has come
    /// to its place since.
    pub fn age(&self, cookie: u32, now: Nanos) -> Option<Nanos> {
        let stamp = *self.stamps.get(place(cookie))?;
        let age_us = kernel::cookie_age_us(stamp, cookie, now.0);
        (age_us > 0).then(|| Nanos::from_micros(age_us.into()))
    }
}

fn place(cookie: u32) -> usize {
    kernel::cookie_place(cookie) as usize
}

/// A cookie may be good for so long: its own period and the next.
pub const LIFE: Nanos = Nanos((kernel::COOKIE_PERIODS as u64) << kernel::COOKIE_PERIOD_SHIFT);
/// How long cookies are made with one key.
pub const KEY_LIFE: Nanos = Nanos(1 << (kernel::COOKIE_PERIOD_SHIFT + kernel::COOKIE_KEY_SHIFT));
/// Stands for no window scale.
const NO_WSCALE: u8 = kernel::COOKIE_NO_WSCALE as u8;

/// The index of the key that may be replaced now; `None` while cookies made with it may be in
/// flight, or will soon be.
pub fn idle_key(now: Nanos) -> Option<usize> {
    let (run, since) = (now.0 / KEY_LIFE.0, now.0 % KEY_LIFE.0);
    (LIFE.0..KEY_LIFE.0 - LIFE.0)
        .contains(&since)
        .then_some((run + 1) as usize % kernel::COOKIE_KEYS as usize)
}

impl Keys {
    /// The initial sequence number of the SYN/ACK.
    pub fn make(&self, flow: &Flow, options: &Options, now: Nanos) -> u32 {
        let options = CookieOptions {
            mss_index: kernel::cookie_mss_index(options.mss, flow.is_ipv6()),
            wscale: options.wscale.unwrap_or(NO_WSCALE),
            has_sack: options.has_sack.into(),
        };
        kernel::make_cookie(&self.words(), &flow.into(), &options, period(now))
    }

    /// What the SYN offered, if the cookie is ours and of this period or the one before: 69 to 137
    /// s old at most.
    pub fn open(&self, flow: &Flow, cookie: u32, now: Nanos) -> Option<Options> {
        let mut said = CookieOptions::default();
        let is_ours = kernel::open_cookie(&self.words(), &flow.into(), cookie, period(now), &mut said);
        is_ours.then(|| Options {
            mss: kernel::cookie_mss(said.mss_index, flow.is_ipv6()),
            wscale: (said.wscale != NO_WSCALE).then_some(said.wscale),
            has_sack: said.has_sack == 1,
        })
    }

    fn words(&self) -> CookieKeys {
        CookieKeys { key: self.0.map(|word| CookieKey { word }) }
    }
}

impl Flow {
    fn is_ipv6(&self) -> bool {
        self.source.ip().to_ipv4_mapped().is_none()
    }
}

impl From<&Flow> for CookieFlow {
    fn from(flow: &Flow) -> Self {
        let words = |address: &SocketAddrV6| {
            let bytes = address.ip().octets();
            [0, 4, 8, 12].map(|at| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
        };
        Self {
            source: words(&flow.source),
            destination: words(&flow.destination),
            source_port: flow.source.port().to_be(),
            destination_port: flow.destination.port().to_be(),
            client_isn: flow.client_isn,
        }
    }
}

fn period(now: Nanos) -> u32 {
    (now.0 >> kernel::COOKIE_PERIOD_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Keys = Keys([[0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908], [1, 2]]);
    const NOW: Nanos = Nanos(1_000_000_000_000);
    const PERIOD: u64 = 1 << kernel::COOKIE_PERIOD_SHIFT;

    fn flow(source: &str, client_isn: u32) -> Flow {
        let parse = |text: &str| text.parse().expect("address");
        Flow { source: parse(source), destination: parse("[::ffff:10.8.0.2]:80"), client_isn }
    }

    fn every_option() -> impl Iterator<Item = Options> {
        let shifts = (0..=14).map(Some).chain([None]);
        shifts.flat_map(|wscale| {
            [536, 1300, 1440, 1460]
                .into_iter()
                .flat_map(move |mss| [false, true].map(|has_sack| Options { mss, wscale, has_sack }))
        })
    }

    #[test]
    fn cookie_gives_back_what_the_syn_offered() {
        let flow = flow("[::ffff:10.8.0.77]:40000", 12345);
        for options in every_option() {
            let cookie = KEY.make(&flow, &options, NOW);
            assert_eq!(KEY.open(&flow, cookie, NOW), Some(options), "{options:?}");
        }
    }

    #[test]
    fn mss_between_two_sizes_is_the_lower_and_below_all_the_lowest() {
        for (source, offered, given) in [
            ("[::ffff:10.8.0.77]:40000", 1459, 1440),
            ("[::ffff:10.8.0.77]:40000", 65495, 1460),
            ("[::ffff:10.8.0.77]:40000", 100, 536),
            ("[fd00::77]:40000", 1439, 1420),
            ("[fd00::77]:40000", 8940, 1440),
        ] {
            let flow = flow(source, 1);
            let options = Options { mss: offered, wscale: None, has_sack: false };
            let opened = KEY.open(&flow, KEY.make(&flow, &options, NOW), NOW).expect("ours");
            assert_eq!(opened.mss, given, "{source} {offered}");
        }
    }

    #[test]
    fn cookie_is_good_in_its_period_and_the_next() {
        let flow = flow("[::ffff:10.8.0.77]:40000", 7);
        for options in every_option() {
            for period in [3, 4, (1 << 28) - 4] {
                let made = period * PERIOD;
                let cookie = KEY.make(&flow, &options, Nanos(made));
                let opens = |now: u64| KEY.open(&flow, cookie, Nanos(now)) == Some(options);
                assert!(opens(made + PERIOD - 1) && opens(made + 2 * PERIOD - 1), "{options:?}");
                assert!(!opens(made + 2 * PERIOD) && !opens(made + 3 * PERIOD), "{options:?}");
                assert!(!opens(made - 1), "{options:?}: not before it was made");
            }
        }
    }

    #[test]
    fn cookie_of_another_flow_key_or_sequence_number_is_not_ours() {
        let options = Options { mss: 1460, wscale: Some(7), has_sack: true };
        let mine = flow("[::ffff:10.8.0.77]:40000", 12345);
        let cookie = KEY.make(&mine, &options, NOW);
        for other in [
            flow("[::ffff:10.8.0.78]:40000", 12345),
            flow("[::ffff:10.8.0.77]:40001", 12345),
            flow("[::ffff:10.8.0.77]:40000", 12346),
            Flow { destination: "[::ffff:10.8.0.2]:81".parse().expect("address"), ..mine },
            Flow { destination: "[::ffff:10.8.0.3]:80".parse().expect("address"), ..mine },
        ] {
            assert_eq!(KEY.open(&other, cookie, NOW), None, "{other:?}");
        }
        let used = (NOW.0 / KEY_LIFE.0) as usize % 2;
        let mut others = KEY;
        others.0[used][1] ^= 1;
        assert_eq!(others.open(&mine, cookie, NOW), None);
    }

    #[test]
    fn replacing_the_idle_key_loses_no_cookie_in_flight() {
        let flow = flow("[::ffff:10.8.0.77]:40000", 7);
        let options = Options { mss: 1460, wscale: Some(7), has_sack: true };
        let mut keys = KEY;
        let mut replaced = [0, 0];
        let mut sent: Vec<(u64, u32)> = Vec::new();
        for turn in 0..3 * KEY_LIFE.0 / (PERIOD / 4) {
            let now = turn * (PERIOD / 4);
            if let Some(index) = idle_key(Nanos(now)) {
                keys.0[index] = [now, !now];
                replaced[index] += 1;
            }
            sent.retain(|&(at, _)| now - at < PERIOD);
            for &(at, cookie) in &sent {
                assert_eq!(
                    keys.open(&flow, cookie, Nanos(now)),
                    Some(options),
                    "sent at {at}, back at {now}"
                );
            }
            sent.push((now, keys.make(&flow, &options, Nanos(now))));
        }
        assert!(replaced.iter().all(|&count| count > 0), "{replaced:?}");
    }

    #[test]
    fn age_of_a_cookie_is_known_until_another_has_come_to_its_place() {
        let mut times = Times::default();
        assert_eq!(times.age(0, NOW), None);
        times.remember(1, NOW);
        assert_eq!(times.age(0, NOW), None, "nothing stands there");
        let neighbours = [0x1234_5678, 0x1234_5679];
        neighbours.into_iter().for_each(|cookie| times.remember(cookie, NOW));
        for cookie in neighbours {
            let age = |after| times.age(cookie, NOW + Nanos(after)).map(|age| age.0);
            assert_eq!([0, 1_999, 250_000_000].map(age), [Some(1_000), Some(1_000), Some(250_000_000)]);
        }
        let [mine, other] = [neighbours[0], neighbours[0] ^ 1 << 31];
        assert_eq!(times.age(other, NOW), None, "never sent");
        times.remember(other, NOW);
        assert_eq!((times.age(mine, NOW), times.age(other, NOW).is_some()), (None, true));
    }

    /// Microseconds are counted in 32 bits.
    #[test]
    fn age_is_right_when_the_microseconds_begin_anew() {
        let (mut times, sent) = (Times::default(), Nanos(((1 << 32) - 10) * 1000));
        times.remember(7, sent);
        assert_eq!(times.age(7, sent + Nanos::from_millis(3)), Some(Nanos::from_millis(3)));
    }

    #[test]
    fn guess_is_right_about_once_in_2_to_the_24() {
        let flow = flow("[::ffff:10.8.0.77]:40000", 12345);
        // Each of 256 upper bytes has one proof that fits.
        let right = (0..1_u32 << 23).filter(|guess| KEY.open(&flow, guess << 9, NOW).is_some()).count();
        assert!(right <= 4, "{right} of 2^23 spread guesses; 0.5 are expected");
    }
}
