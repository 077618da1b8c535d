//! A hundred bulk flows: the setting in which queue disciplines are held against other simulators.

use aqm::{Config, DropTailConfig, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Algorithm, Estimator, LINUX, Rto, Stack};
use units::Nanos;

use super::{Bulk, Dumbbell};

const FLOWS: u32 = 100;

/// NewReno with SACK and timestamps in segments of 1000 bytes, which are frames of 1054; windows
/// that do not limit; a minimum timeout of 1 s; each second segment is acknowledged, and one alone
/// after 200 ms.
const STACK: Stack = Stack {
    name: "hundred",
    about: "the sender and receiver of the bulk reference",
    mss: 1000 + TIMESTAMPS,
    receive_buffer: Some(1 << 20),
    window_scale: Some(7),
    timestamps: true,
    initial_window: 10,
    rto: Rto {
        estimator: Estimator::Rfc,
        least_variation: Nanos::ZERO,
        slop: Nanos::ZERO,
        least: Nanos::from_secs(1),
        most: Nanos::from_secs(60),
    },
    tail_loss_probe: false,
    delayed_ack: Nanos::from_millis(200),
    quick_acks: 0,
    ..LINUX
};

const TIMESTAMPS: u16 = 12;
const PPP_HEADER: i32 = 2;
const ETHERNET_HEADER: i32 = 14;

impl Dumbbell {
    /// 100 flows of NewReno with SACK over 10 Mbit/s and 20 ms, access links of 100 Mbit/s, base
    /// round trips of 44 to 76 ms, begun within the first 5 s. The first 20 s are not counted.
    pub fn hundred(to_right: Config, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut start = || Nanos::from_secs_f64(5.0 * random.random::<f64>());
        let way = |queue| path::Config {
            rate: Rate::from_bits_per_s(10_000_000),
            overhead_bytes: PPP_HEADER - ETHERNET_HEADER,
            delay: Nanos::from_millis(20),
            queue,
            ..path::Config::default()
        };
        // Twice 1 to 9 ms on each side, and twice 20 ms.
        let delays: Vec<Nanos> = (0..FLOWS)
            .map(|host| Nanos::from_micros(1000 + 8000 * u64::from(host) / u64::from(FLOWS - 1)))
            .collect();
        Self {
            to_right: way(to_right),
            to_left: way(Config::DropTail(DropTailConfig::default())),
            access_rate_bps: 100_000_000,
            left: delays.clone(),
            right: delays,
            stack: STACK,
            algorithm: Algorithm::Classic,
            bulk: (0..FLOWS).map(|from| Bulk { from, to: FLOWS + from, starts: start() }).collect(),
            users: None,
            flood_per_s: 0.0,
            warm_up: Nanos::from_secs(20),
            seed,
        }
    }
}
