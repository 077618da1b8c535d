//! Who waits for the server, by `kernel/unserved.h`, and the agent that finds out how many may, by
//! crates/pacer: what `kernel/follow.bpf.h` is told by the sockets, the sockets of the simulator
//! tell here.

use kernel::ListenerStats;
use pacer::{Demand, LOOK_EVERY, Look, Pacer, SILENT, Service, WAITING, Wait, limit_of};
use units::Nanos;
use verdict::{Attempt, ListenerLoad, Policy, Trigger, Verdict};

use super::cookies::mix;
use super::socket::Socket;
use super::{Kernel, Outside, Peer, Timer};

/// The service's clock must not show 0, which is never.
const CLOCK: Nanos = Nanos::from_secs(1);

/// The listener's server.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) service: Box<Service>,
    pacer: Pacer,
    trigger: Trigger,
}

fn clock(now: Nanos) -> Nanos {
    now + CLOCK
}

impl Followed {
    /// One that a policy asks for.
    pub(super) fn of(policy: &Policy) -> Option<Self> {
        if policy.trigger == Trigger::Queue {
            return None;
        }
        let service = Box::new(Service::idle(0, clock(Nanos::ZERO)));
        let look = Look {
            at: clock(Nanos::ZERO),
            counts: *service,
            demand: demand(policy, false, &ListenerStats::default()),
        };
        Some(Self { service, pacer: Pacer::new(look), trigger: policy.trigger })
    }

    pub(super) fn decide(
        &mut self,
        policy: &Policy,
        load: &ListenerLoad,
        attempt: &Attempt,
        now: Nanos,
    ) -> (Verdict, bool) {
        policy.decide_syn(load, attempt, &mut self.service, self.pacer.pace(), clock(now))
    }

    /// Whether the kernel decides alone, until a crowd is there.
    pub(super) fn leaves_to_kernel(&self, now: Nanos) -> bool {
        self.trigger == Trigger::Unserved(None) && !self.service.is_refusing(self.pacer.pace(), clock(now))
    }

    /// A handshake that took so long, if that is known, has ended.
    pub(super) fn begin(&mut self, peer: Peer, handshake: Option<Nanos>, now: Nanos) -> Option<Wait> {
        let handshake = handshake.unwrap_or_default();
        let handshake_us = u32::try_from(handshake.as_micros()).unwrap_or(u32::MAX);
        let random = mix(peer.0, now.0) as u32;
        self.service.begin(self.pacer.pace(), random, handshake_us, clock(now))
    }

    fn go_on(&mut self, wait: &mut Wait, now: Nanos) {
        self.service.go_on(self.pacer.pace(), wait, clock(now));
    }

    fn end(&mut self, wait: &Wait, is_answered: bool, now: Nanos) {
        self.service.end(self.pacer.pace(), wait, is_answered, clock(now));
    }
}

fn demand(policy: &Policy, dry_run: bool, stats: &ListenerStats) -> Demand {
    let mut demand = Demand::default();
    demand.add(policy, dry_run, stats);
    demand
}

/// Who waits for the server, and sums since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Now, and no byte of a request was seen.
    pub silent: u32,
    /// Now, with a request, and the response has not begun.
    pub waiting: u32,
    /// Of these, those that wait for the server and not for something else.
    pub counted: u32,
    /// How many may.
    pub limit: Option<u32>,
    /// Handshakes that ended.
    pub established: u64,
    /// Responses that began.
    pub answered: u64,
    /// Of these, before a byte of a request was seen.
    pub answered_silent: u64,
    /// Connections that ended without.
    pub ended: u64,
}

impl Kernel {
    /// Who waits for the server, where the policy asks.
    pub fn waiting(&self) -> Option<Waiting> {
        let followed = self.followed.as_ref()?;
        let Service { in_stage, established, answered, answered_silent, ended, .. } = *followed.service;
        let pace = followed.pacer.pace();
        Some(Waiting {
            silent: in_stage[SILENT],
            waiting: in_stage[WAITING],
            counted: followed.service.counted(pace),
            limit: limit_of(pace, followed.trigger),
            established,
            answered,
            answered_silent,
            ended,
        })
    }

    /// What is counted of the server, where the policy asks.
    pub fn service(&self) -> Option<&Service> {
        Some(&self.followed.as_ref()?.service)
    }

    pub(super) fn agent_looks(&mut self, now: Nanos, out: &mut impl Outside) {
        let demand = demand(&self.config.policy, self.config.dry_run, &self.guard.stats.listener);
        if let Some(followed) = &mut self.followed {
            followed.pacer.tick(Look { at: clock(now), counts: *followed.service, demand });
            out.wake(now + LOOK_EVERY, Timer::Agent);
        }
    }
}

impl Socket {
    /// More of a request has come.
    pub(super) fn waits_on(&mut self, followed: &mut Option<Followed>, now: Nanos) {
        if let (Some(followed), Some(wait)) = (followed, &mut self.wait) {
            followed.go_on(wait, now);
        }
    }

    /// The response begins, or never will.
    pub(super) fn waits_no_more(&mut self, followed: &mut Option<Followed>, is_answered: bool, now: Nanos) {
        if let (Some(followed), Some(wait)) = (followed, self.wait.take()) {
            followed.end(&wait, is_answered, now);
        }
    }
}
