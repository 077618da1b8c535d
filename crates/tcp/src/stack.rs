//! What a client's operating system chooses.

use units::Nanos;
use wire::{Options, Place, Timestamps};

use crate::connection::data_bytes;

/// The constants of a client's TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack {
    /// What it is called on a command line.
    pub name: &'static str,
    /// Whose it is, and from which source the numbers are.
    pub about: &'static str,
    /// Maximum segment size that the SYN offers over IPv4 and Ethernet, bytes.
    pub mss: u16,
    /// Receive buffer, bytes: the window that the SYN offers.
    pub window: u16,
    /// Receive buffer of an open connection, bytes, where it is another; no more than a scaled
    /// window can say. None of [`STACKS`] has one: what they send must not depend on how much a
    /// crowd could take. A receiver of large streams wants the product of bandwidth and delay.
    pub receive_buffer: Option<u32>,
    /// Left shift of later windows, when the peer has one, too (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Offers selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offers timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// In which order the SYN carries these.
    pub layout: &'static [Place],
    /// How long each SYN waits for an answer; after the last the attempt fails.
    pub syn_timeouts: &'static [Nanos],
    /// How often a RST that answers a SYN is answered by another SYN (\[Shu05\] section 4.1.5,
    /// *win-syn-retry*).
    pub reset_retries: u8,
    /// How long after such a RST.
    pub reset_pause: Nanos,
    /// Segments that may be in flight before the first acknowledgment.
    pub initial_window: u8,
    /// Retransmission timeout of data before any round trip was measured.
    pub initial_rto: Nanos,
    /// How a retransmission timeout follows from round trips.
    pub rto: Rto,
    /// Retransmissions of data or FIN before the connection fails.
    pub data_retries: u8,
    /// The first retransmission is a probe for a lost tail, after which the timeout is not doubled,
    /// where there are selective acknowledgements; of a controlled sender with more than a segment
    /// out it comes after two round trips (RFC 8985 section 7).
    pub tail_loss_probe: bool,
    /// How long the ACK of a single segment may wait for company.
    pub delayed_ack: Nanos,
    /// So many of the first segments are acknowledged at once, unless the connection has begun to
    /// answer them with data.
    pub quick_acks: u8,
}

/// A retransmission timeout, from the smoothed round trip and four times its variation (RFC 6298
/// section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rto {
    /// Which round trips it is from, and how they are averaged.
    pub estimator: Estimator,
    /// Least variation term.
    pub least_variation: Nanos,
    /// Added to the sum.
    pub slop: Nanos,
    /// Least timeout.
    pub least: Nanos,
    /// Longest timeout, backed off.
    pub most: Nanos,
}

/// How round trips are measured and averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// RFC 6298 section 2: one segment is timed at a time, and with timestamps each acknowledgment
    /// of something new is a sample besides (RFC 7323 section 4). Each sample has the same weight,
    /// as FreeBSD has it (`tcp_xmit_timer()`, `sys/netinet/tcp_input.c`).
    Rfc,
    /// Each acknowledgment is a sample, by when its segments were sent, or by the timestamp that it
    /// echoes where those were sent again (`tcp_ack_update_rtt()`). The variation follows the
    /// largest deviation of each round trip (`tcp_rtt_estimator()`, both Linux 6.18
    /// `net/ipv4/tcp_input.c`). Of a sender without [`crate::Connection::control`], and of
    /// [`crate::Algorithm::Classic`], it is as [`Estimator::Rfc`].
    Linux,
}

const fn millis<const N: usize>(millis: [u64; N]) -> [Nanos; N] {
    let mut times = [Nanos::ZERO; N];
    let mut at = 0;
    while at < N {
        times[at] = Nanos::from_millis(millis[at]);
        at += 1;
    }
    times
}

/// Linux puts the floor under the variation term, not under the sum (`__tcp_set_rto`,
/// `tcp_rtt_estimator`, v6.18).
const LINUX_RTO: Rto = Rto {
    estimator: Estimator::Linux,
    least_variation: Nanos::from_millis(200),
    slop: Nanos::ZERO,
    least: Nanos::ZERO,
    most: Nanos::from_secs(120),
};
const LINUX_LAYOUT: &[Place] =
    &[Place::Mss, Place::SackPermitted, Place::Timestamps, Place::Nop, Place::WindowScale];
const WINDOWS_LAYOUT: &[Place] =
    &[Place::Mss, Place::Nop, Place::WindowScale, Place::Nop, Place::Nop, Place::SackPermitted];
const OLD_BSD_LAYOUT: &[Place] =
    &[Place::Mss, Place::Nop, Place::WindowScale, Place::Nop, Place::Nop, Place::Timestamps];

/// Linux since 6.5, with its default sysctls.
///
/// SYNs leave at 0, 1, 2, 3, 4, 5, 7, 11, 19, 35 and 67 s; the attempt fails at 131 s. Source:
/// `Documentation/networking/ip-sysctl.rst` (v6.18: `tcp_syn_retries` 6, `tcp_syn_linear_timeouts`
/// 4, `tcp_retries2` 15), `include/net/tcp.h` (`TCP_RTO_MIN`, `TCP_DELACK_MIN`),
/// `tcp_incr_quickack()`, `tcp_schedule_loss_probe()`. Differs: the kernel's timer wheel fires up
/// to 2% late; ours does not. Its receive buffer grows; this one does not.
pub const LINUX: Stack = Stack {
    name: "linux",
    about: "Linux since 6.5; checked against the running kernel",
    mss: 1460,
    window: 64_240,
    receive_buffer: None,
    window_scale: Some(10),
    sack: true,
    timestamps: true,
    layout: LINUX_LAYOUT,
    syn_timeouts: &millis([1000, 1000, 1000, 1000, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]),
    reset_retries: 0,
    reset_pause: Nanos::ZERO,
    initial_window: 10,
    initial_rto: Nanos::from_secs(1),
    rto: LINUX_RTO,
    data_retries: 15,
    tail_loss_probe: true,
    delayed_ack: Nanos::from_millis(40),
    quick_acks: 16,
};

/// Linux 3.1 to 6.4: SYNs at 0, 1, 3, 7, 15, 31 and 63 s, failure at 127 s (`tcp_syn_retries` 6,
/// before linear timeouts); `tcp_rmem` up to 6 MB, where today's has 32 MB, which is what the
/// window scale follows from.
const LINUX_6_4: Stack = Stack {
    name: "linux-6.4",
    about: "Linux 3.1 to 6.4",
    window_scale: Some(7),
    syn_timeouts: &millis([1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]),
    ..LINUX
};

/// Linux 2.4 and 2.6: `[Shu05]` table 4.3; the window and its scale as in figure 4.5 (`win 5840`)
/// and `wscale 0`.
const LINUX_2_4: Stack = Stack {
    name: "linux-2.4",
    about: "Linux 2.4 and 2.6 [Shu05] table 4.3",
    window: 5840,
    window_scale: Some(0),
    syn_timeouts: &millis([3000, 6000, 12_000, 24_000, 48_000, 96_000]),
    tail_loss_probe: false,
    initial_window: 3,
    initial_rto: Nanos::from_secs(3),
    ..LINUX
};

/// Linux 2.2, that of `[SH06]`: a window of 22 segments, as it is known on the wire (`32120`),
/// `tcp_syn_retries` 10, two segments before the first acknowledgment, and the least timeout under
/// the whole sum (2.2.16 `net/ipv4/tcp_input.c`, `tcp_bound_rto()`). Differs: a timeout has no
/// quarter more, and timers are not of 10 ms.
const LINUX_2_2: Stack = Stack {
    name: "linux-2.2",
    about: "Linux 2.2 [SH06]",
    window: 32_120,
    syn_timeouts: &millis([
        3000, 6000, 12_000, 24_000, 48_000, 96_000, 120_000, 120_000, 120_000, 120_000, 120_000,
    ]),
    initial_window: 2,
    rto: Rto { least_variation: Nanos::ZERO, least: Nanos::from_millis(200), ..LINUX_RTO },
    ..LINUX_2_4
};

/// Windows 9x and NT: `[Shu05]` table 4.3 and section 4.1.5, which has three retries after a RST at
/// NT.
const WINDOWS_NT: Stack = Stack {
    name: "windows-nt",
    about: "Windows 9x and NT [Shu05] table 4.3; sends its SYN again after a RST, 3 times",
    window: 8760,
    window_scale: None,
    sack: false,
    layout: &[Place::Mss],
    syn_timeouts: &millis([3000, 6000, 12_000, 24_000]),
    reset_retries: 3,
    initial_window: 2,
    ..WINDOWS_XP
};

/// Windows 2000 and XP: `[Shu05]` table 4.3 (`TcpMaxConnectRetransmissions` 2, `TcpInitialRTT` 3 s:
/// failure at 21 s) and section 4.1.5 (2 retries after a RST), `TcpMaxDataRetransmissions` 5, ACKs
/// delayed by up to 200 ms.
const WINDOWS_XP: Stack = Stack {
    name: "windows-xp",
    about: "Windows 2000 and XP [Shu05] table 4.3; sends its SYN again after a RST, twice",
    mss: 1460,
    window: 65_535,
    receive_buffer: None,
    window_scale: None,
    sack: true,
    timestamps: false,
    layout: &[Place::Mss, Place::Nop, Place::Nop, Place::SackPermitted],
    syn_timeouts: &millis([3000, 6000, 12_000]),
    reset_retries: 2,
    reset_pause: Nanos::ZERO,
    initial_window: 2,
    initial_rto: Nanos::from_secs(3),
    rto: Rto {
        estimator: Estimator::Rfc,
        least_variation: Nanos::ZERO,
        slop: Nanos::ZERO,
        least: Nanos::from_millis(300),
        most: Nanos::from_secs(240),
    },
    data_retries: 5,
    tail_loss_probe: false,
    delayed_ack: Nanos::from_millis(200),
    quick_acks: 0,
};

/// Windows 10 and 11: `Get-NetTCPSetting` of the Internet template (initial timeout 1 s, four
/// retransmissions of a SYN, at least 300 ms). Not measured: after a RST it is said to send up to
/// three SYNs half a second apart.
const WINDOWS_10: Stack = Stack {
    name: "windows-10",
    about: "Windows 10 and 11; sends its SYN again half a second after a RST, 3 times (not measured here)",
    window: 64_240,
    window_scale: Some(8),
    layout: WINDOWS_LAYOUT,
    syn_timeouts: &millis([1000, 2000, 4000, 8000, 16_000]),
    reset_retries: 3,
    reset_pause: Nanos::from_millis(500),
    initial_window: 10,
    initial_rto: Nanos::from_secs(1),
    delayed_ack: Nanos::from_millis(40),
    ..WINDOWS_XP
};

/// The clients of `[Shu05]` section 4.1.6, *win-emu*: Linux 2.4, patched to send its SYN again at
/// once after a RST, three times.
const WIN_EMU: Stack = Stack {
    name: "win-emu",
    about: "Linux 2.4 that sends its SYN again at once after a RST, 3 times [Shu05] section 4.1.6",
    reset_retries: 3,
    ..LINUX_2_4
};

/// FreeBSD of today: `tcp_syn_backoff[]` (1, 1, 1, 1, 1, 2, 4, 8, 16, 32 ...) times a second, and
/// 200 ms more for each but the first (`tcp_rexmit_slop` in `TCPT_RANGESET`), 75 s in all
/// (`TCPTV_KEEP_INIT`); `sys/netinet/tcp_timer.c` and `.h`.
const FREEBSD: Stack = Stack {
    name: "freebsd",
    about: "FreeBSD of today (from its source)",
    mss: 1460,
    window: 65_535,
    receive_buffer: None,
    window_scale: Some(6),
    sack: true,
    timestamps: true,
    layout: &[Place::Mss, Place::Nop, Place::WindowScale, Place::SackPermitted, Place::Timestamps],
    syn_timeouts: &millis([1000, 1200, 1200, 1200, 1200, 2200, 4200, 8200, 16_200, 32_200, 6200]),
    reset_retries: 0,
    reset_pause: Nanos::ZERO,
    initial_window: 10,
    initial_rto: Nanos::from_secs(1),
    rto: Rto {
        estimator: Estimator::Rfc,
        least_variation: Nanos::ZERO,
        slop: Nanos::from_millis(200),
        least: Nanos::from_millis(30),
        most: Nanos::from_secs(64),
    },
    data_retries: 12,
    tail_loss_probe: false,
    delayed_ack: Nanos::from_millis(40),
    quick_acks: 0,
};

/// FreeBSD 5.3: `[Shu05]` table 4.3; 75 s in all.
const FREEBSD_5: Stack = Stack {
    name: "freebsd-5.3",
    about: "FreeBSD 5.3 [Shu05] table 4.3",
    window_scale: Some(1),
    sack: false,
    layout: OLD_BSD_LAYOUT,
    syn_timeouts: &millis([3000, 3200, 3200, 3200, 3200, 6200, 12_200, 24_200, 16_600]),
    initial_window: 3,
    initial_rto: Nanos::from_secs(3),
    delayed_ack: Nanos::from_millis(100),
    ..FREEBSD
};

/// macOS of today: as FreeBSD's back-off, without its slop; 75 s in all; `bsd/netinet/tcp_timer.c`,
/// `TCPTV_RTOBASE`, `tcp_delack`.
const MACOS: Stack = Stack {
    name: "macos",
    about: "macOS of today (from its source)",
    layout: &[
        Place::Mss,
        Place::Nop,
        Place::WindowScale,
        Place::Nop,
        Place::Nop,
        Place::Timestamps,
        Place::SackPermitted,
        Place::End,
    ],
    syn_timeouts: &millis([1000, 1000, 1000, 1000, 1000, 2000, 4000, 8000, 16_000, 32_000, 8000]),
    rto: Rto { slop: Nanos::ZERO, least: Nanos::from_millis(230), ..FREEBSD.rto },
    delayed_ack: Nanos::from_millis(100),
    ..FREEBSD
};

/// Mac OS X 10.3: `[Shu05]` table 4.3; 75 s in all.
const MACOS_10_3: Stack = Stack {
    name: "macos-10.3",
    about: "Mac OS X 10.3 [Shu05] table 4.3",
    window_scale: Some(0),
    sack: false,
    layout: OLD_BSD_LAYOUT,
    syn_timeouts: &millis([3000, 3000, 3000, 3000, 3000, 6000, 12_000, 24_000, 18_000]),
    initial_window: 3,
    initial_rto: Nanos::from_secs(3),
    ..MACOS
};

/// Every stack, by [`Stack::name`].
pub const STACKS: [&Stack; 12] = [
    &LINUX,
    &LINUX_6_4,
    &LINUX_2_4,
    &LINUX_2_2,
    &WIN_EMU,
    &WINDOWS_10,
    &WINDOWS_XP,
    &WINDOWS_NT,
    &FREEBSD,
    &FREEBSD_5,
    &MACOS,
    &MACOS_10_3,
];

/// The same over IPv6, in the same order.
static OVER_IPV6: [Stack; STACKS.len()] = {
    let mut stacks = [LINUX; STACKS.len()];
    let mut at = 0;
    while at < stacks.len() {
        stacks[at] = STACKS[at].with_mss_of_ipv6();
        at += 1;
    }
    stacks
};

/// Bytes by which IPv6's header is longer than IPv4's.
const LONGER_HEADER: u16 = 20;

impl Stack {
    /// The same system over IPv6.
    pub fn over_ipv6(&self) -> &'static Self {
        OVER_IPV6.iter().find(|stack| stack.name == self.name).expect("each stack is in both tables")
    }

    /// Data of a full segment to a peer of the same stack, bytes: timestamps take of it.
    pub fn data_mss(&self) -> u32 {
        data_bytes(self.mss, self.timestamps)
    }

    /// A window that is whole segments stays so: as many, or as fill the field
    /// (`tcp_select_initial_window()`).
    const fn with_mss_of_ipv6(&self) -> Self {
        let mss = self.mss - LONGER_HEADER;
        let segments = if self.window / self.mss == u16::MAX / self.mss {
            u16::MAX / mss
        } else {
            self.window / self.mss
        };
        let window = if self.window.is_multiple_of(self.mss) { segments * mss } else { self.window };
        Self { mss, window, ..*self }
    }

    /// The stack with a name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        STACKS.into_iter().find(|stack| stack.name == name)
    }

    /// How long to wait for an answer to a SYN when so many have waited in vain; `None` when the
    /// attempt has failed.
    pub fn syn_timeout(&self, waited: u8) -> Option<Nanos> {
        self.syn_timeouts.get(usize::from(waited)).copied()
    }

    /// Options of a SYN that leaves when the sender's clock shows `clock`, milliseconds.
    pub fn syn_options(&self, clock: u32) -> Options {
        Options {
            mss: Some(self.mss),
            window_scale: self.window_scale,
            sack_permitted: self.sack,
            timestamps: self.timestamps.then_some(Timestamps { value: clock, echo: 0 }),
            layout: self.layout,
            ..Options::NONE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When SYNs leave and when the attempt fails, in tenths of a second.
    fn schedule(name: &str) -> Vec<u64> {
        let stack = Stack::by_name(name).expect("a stack");
        let mut at = 0;
        let mut schedule = vec![0];
        for timeout in stack.syn_timeouts {
            at += timeout.0 / 100_000_000;
            schedule.push(at);
        }
        schedule
    }

    #[test]
    fn todays_systems_send_syns_on_their_documented_schedules() {
        let seconds = |times: &[u64]| times.iter().map(|time| time * 10).collect::<Vec<_>>();
        assert_eq!(schedule("linux"), seconds(&[0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67, 131]));
        assert_eq!(schedule("linux-6.4"), seconds(&[0, 1, 3, 7, 15, 31, 63, 127]));
        assert_eq!(schedule("windows-10"), seconds(&[0, 1, 3, 7, 15, 31]));
        assert_eq!(schedule("macos"), seconds(&[0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67, 75]));
        assert_eq!(schedule("freebsd"), [0, 10, 22, 34, 46, 58, 80, 122, 204, 366, 688, 750]);
    }

    /// `[Shu05]` table 4.3 has the times between SYNs; how long the last one waits is not in it.
    #[test]
    fn systems_of_the_paper_send_syns_on_the_schedules_of_table_4_3() {
        let table: [(&str, &[u64]); 6] = [
            ("linux-2.4", &[30, 60, 120, 240, 480]),
            ("win-emu", &[30, 60, 120, 240, 480]),
            ("freebsd-5.3", &[30, 32, 32, 32, 32, 62, 122, 242]),
            ("macos-10.3", &[30, 30, 30, 30, 30, 60, 120, 240]),
            ("windows-nt", &[30, 60, 120]),
            ("windows-xp", &[30, 60]),
        ];
        for (name, gaps) in table {
            let schedule = schedule(name);
            let ours: Vec<u64> = schedule.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(&ours[..ours.len() - 1], gaps, "{name}");
        }
    }

    #[test]
    fn windows_over_ipv6_are_whole_segments_where_they_were() {
        let of =
            |name: &str| Stack::by_name(name).map(Stack::over_ipv6).map(|stack| (stack.mss, stack.window));
        assert_eq!(of("linux"), Some((1440, 64_800)));
        assert_eq!(of("linux-2.4"), Some((1440, 5760)));
        assert_eq!(of("macos"), Some((1440, 65_535)));
    }

    #[test]
    fn names_are_told_apart() {
        for stack in STACKS {
            assert_eq!(Stack::by_name(stack.name), Some(stack));
            assert_eq!(stack.over_ipv6().name, stack.name);
        }
        assert_eq!(Stack::by_name("beos"), None);
    }
}
