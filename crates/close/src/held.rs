//! hold: lets in a FIN that was held too long, because its server may be gone.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use nix::errno::Errno;
use units::Nanos;
use wire::{Ethernet, Flags, FourTuple, Options, Segment, SeqNumber, Timestamps};

/// Longest time that a FIN is held. A server that is still there repeats it before: Linux after
/// some 0.2 s and a round trip (`tcp_schedule_loss_probe()`).
const LONGEST: Duration = Duration::from_secs(1);

/// A held FIN: `struct held_fin`.
#[derive(Debug)]
struct HeldFin {
    ifindex: u32,
    at: Nanos,
    ethernet: Ethernet,
    tuple: FourTuple,
    segment: Segment<'static>,
}

/// All FINs that the program has reported.
pub(crate) struct HeldFins {
    ring: RingBuffer<'static>,
    /// Oldest first.
    all: Arc<Mutex<VecDeque<HeldFin>>>,
}

impl HeldFins {
    pub(crate) fn new(map: &dyn MapCore) -> libbpf_rs::Result<Self> {
        let all = Arc::<Mutex<VecDeque<HeldFin>>>::default();
        let told = Arc::clone(&all);
        let mut ring = RingBufferBuilder::new();
        ring.add(map, move |bytes| {
            told.lock().unwrap_or_else(PoisonError::into_inner).extend(HeldFin::read(bytes));
            0
        })?;
        Ok(Self { ring: ring.build()?, all })
    }

    /// Lets in the FINs that are held too long at `now`, or all without `now`. The program drops a
    /// copy of one that is no longer held.
    pub(crate) fn let_in(&mut self, program: BorrowedFd<'_>, now: Option<Nanos>) -> io::Result<()> {
        self.ring.consume().map_err(io::Error::other)?;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |held: &HeldFin| now.is_none_or(|now| held.at + LONGEST.into() <= now);
        while let Some(held) = all.front().filter(|held| is_due(held)) {
            let mut frame = vec![0; wire::frame_len(&held.tuple, &held.segment)];
            wire::emit(&mut frame, &held.ethernet, &held.tuple, &held.segment);
            match bpf::run_at(program, &frame, held.ifindex) {
                // An interface that is gone has no connections.
                Err(error) if error.raw_os_error() != Some(Errno::ENODEV as i32) => return Err(error),
                _ => all.pop_front(),
            };
        }
        Ok(())
    }
}

impl HeldFin {
    fn read(bytes: &[u8]) -> Option<Self> {
        let address = |at: usize| Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?).to_canonical());
        let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let wire_number = |at: usize| number(at).map(u32::from_be);
        let mac = |at: usize| bytes.get(at..)?.first_chunk::<6>().copied();
        let end = |address: Option<IpAddr>, port: Option<u16>| Some(SocketAddr::new(address?, port?));
        let (value, echo) = (wire_number(48)?, wire_number(52)?);
        let timestamps = (value != 0 || echo != 0).then_some(Timestamps { value, echo });
        Some(Self {
            ifindex: number(44)?,
            at: Nanos(u64::from_ne_bytes(*bytes.get(72..)?.first_chunk()?)),
            ethernet: Ethernet { dst: mac(58)?, src: mac(64)? },
            tuple: FourTuple { src: end(address(16), port(34))?, dst: end(address(0), port(32))? },
            segment: Segment {
                seq: SeqNumber(number(36)?),
                ack: SeqNumber(number(40)?),
                flags: Flags::FIN | Flags::ACK,
                window: port(56)?,
                options: Options { timestamps, ..Options::NONE },
                payload: &[],
            },
        })
    }
}
