//! Queue disciplines of a bottleneck: they say which packet waits, which goes next, and which is
//! dropped, with the reason.
//!
//! [`Aqm`] is what they have in common. [`Queue`] is any of them, made from a [`Config`]
//! (`red:limit=180,min=30,max=90`). RED and REDFavor's guard compute by `kernel/red.h`, compiled
//! for the host: a qdisc that includes it decides the same about the same packets at the same
//! times.
//!
//! What this is not: a link, because it knows no rate, except for RED's idle time. It parses no
//! frame ([`Packet`] is what it needs to know of one) and classifies nothing. It has no ECN: a
//! packet that would be marked is dropped. It has no clock, socket or thread, and allocates nothing
//! for a packet once a queue was at its longest.
//!
//! ```
//! use aqm::{Aqm, Config, DropReason, Packet, Queue};
//! use units::Nanos;
//!
//! struct Frame(u32);
//! impl Packet for Frame {
//!     fn bytes(&self) -> u32 {
//!         self.0
//!     }
//!     fn flow(&self) -> u32 {
//!         0
//!     }
//! }
//!
//! let config: Config = "droptail:limit=1".parse()?;
//! let mut queue = Queue::new(&config, 1)?;
//! let mut drops = Vec::new();
//! for bytes in [1500, 40] {
//!     let mut drop = |packet: Frame, reason| drops.push((packet.0, reason));
//!     queue.enqueue(Nanos::ZERO, Frame(bytes), &mut drop);
//! }
//! assert_eq!(drops, [(40, DropReason::Tail)]);
//! # Ok::<(), aqm::ConfigError>(())
//! ```

mod amount;
mod arena;
mod arithmetic;
mod bands;
mod cake;
mod choke;
mod cobalt;
mod codel;
mod config;
mod droptail;
mod fifo;
pub mod fluid;
mod fq;
mod fq_codel;
mod heap;
mod packet;
mod queue;
mod ranked;
mod reason;
mod red;
mod redfavor;
mod sfq;
mod turns;
mod words;

use units::Nanos;

pub use amount::{Amount, Rate};
pub use arithmetic::{FixedPoint, RandomNumbers, base_probability, probability};
pub use bands::Bands;
pub use cake::Cake;
pub use choke::Choke;
pub use codel::Codel;
pub use config::{
    BandsConfig, CakeConfig, CodelConfig, Config, ConfigError, DropTailConfig, FqCodelConfig, FqConfig,
    Guard, RankedConfig, RedConfig, RedFavorConfig, SfqConfig,
};
pub use droptail::DropTail;
pub use fq::Fq;
pub use fq_codel::FqCodel;
pub use packet::{Packet, PacketKind, ProtectedSet};
pub use queue::Queue;
pub use ranked::Ranked;
pub use reason::{DropCounts, DropReason};
pub use red::Red;
pub use redfavor::RedFavor;
pub use sfq::Sfq;
pub use words::fraction;

/// A queue discipline.
///
/// Moments must not step back from call to call. A packet that was enqueued comes out exactly once:
/// from [`Aqm::dequeue`], or through `dropped`.
pub trait Aqm {
    /// What waits.
    type Packet: Packet;

    /// Takes a packet, or drops it; others may be dropped for it, or with it.
    fn enqueue(
        &mut self,
        now: Nanos,
        packet: Self::Packet,
        dropped: &mut impl FnMut(Self::Packet, DropReason),
    );

    /// The packet that goes next; several may be dropped before one is found, or none is.
    fn dequeue(
        &mut self,
        now: Nanos,
        dropped: &mut impl FnMut(Self::Packet, DropReason),
    ) -> Option<Self::Packet>;

    /// Packets that wait.
    fn qlen_pkts(&self) -> u32;

    /// Bytes that wait.
    fn qlen_bytes(&self) -> u64;

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.qlen_pkts() == 0
    }
}
