//! Any discipline, chosen at run time.

use units::Nanos;

use crate::config::{Config, ConfigError};
use crate::{
    Aqm, Bands, Cake, Choke, Codel, DropReason, DropTail, Fq, FqCodel, Packet, Ranked, Red, RedFavor, Sfq,
};

/// Any discipline, chosen at run time.
#[derive(Debug, Clone)]
pub enum Queue<P> {
    /// First in, first out.
    DropTail(DropTail<P>),
    /// Random Early Detection.
    Red(Red<P>),
    /// RED that punishes flows which fill the queue.
    Choke(Choke<P>),
    /// RED that protects packets which open connections.
    RedFavor(RedFavor<P>),
    /// Controlled Delay.
    Codel(Codel<P>),
    /// Flow queues with CoDel.
    FqCodel(FqCodel<P>),
    /// Priority bands.
    Bands(Bands<P>),
    /// Shortest remaining processing time.
    Srpt(Ranked<P>),
    /// Least attained service.
    Las(Ranked<P>),
    /// Flow queues.
    Fq(Fq<P>),
    /// Hashed flow queues.
    Sfq(Sfq<P>),
    /// Flow queues with Cobalt.
    Cake(Cake<P>),
}

/// The same for each discipline.
macro_rules! each {
    ($queue:expr, $discipline:ident => $answer:expr) => {
        match $queue {
            Queue::DropTail($discipline) => $answer,
            Queue::Red($discipline) => $answer,
            Queue::Choke($discipline) => $answer,
            Queue::RedFavor($discipline) => $answer,
            Queue::Codel($discipline) => $answer,
            Queue::FqCodel($discipline) => $answer,
            Queue::Bands($discipline) => $answer,
            Queue::Srpt($discipline) => $answer,
            Queue::Las($discipline) => $answer,
            Queue::Fq($discipline) => $answer,
            Queue::Sfq($discipline) => $answer,
            Queue::Cake($discipline) => $answer,
        }
    };
}

impl<P: Packet> Queue<P> {
    /// An empty queue. `seed` is for the disciplines that drop by chance: the same packets at the
    /// same times have the same fate.
    ///
    /// Fails for a configuration that was not parsed, but put together, and contradicts itself.
    pub fn new(config: &Config, seed: u64) -> Result<Self, ConfigError> {
        Ok(match config {
            Config::DropTail(config) => Self::DropTail(DropTail::new(config)?),
            Config::Red(config) => Self::Red(Red::new(config, seed)?),
            Config::Choke(config) => Self::Choke(Choke::new(config, seed)?),
            Config::RedFavor(config) => Self::RedFavor(RedFavor::new(config, seed)?),
            Config::Codel(config) => Self::Codel(Codel::new(config)?),
            Config::FqCodel(config) => Self::FqCodel(FqCodel::new(config)?),
            Config::Bands(config) => Self::Bands(Bands::new(config)?),
            Config::Srpt(config) => Self::Srpt(Ranked::srpt(config)?),
            Config::Las(config) => Self::Las(Ranked::las(config)?),
            Config::Fq(config) => Self::Fq(Fq::new(config)?),
            Config::Sfq(config) => Self::Sfq(Sfq::new(config)?),
            Config::Cake(config) => Self::Cake(Cake::new(config, seed)?),
        })
    }
}

impl<P: Packet> Aqm for Queue<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        each!(self, discipline => discipline.enqueue(now, packet, dropped));
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        each!(self, discipline => discipline.dequeue(now, dropped))
    }

    fn qlen_pkts(&self) -> u32 {
        each!(self, discipline => discipline.qlen_pkts())
    }

    fn qlen_bytes(&self) -> u64 {
        each!(self, discipline => discipline.qlen_bytes())
    }
}
