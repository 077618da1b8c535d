//! The server's program, of either kind: one that waits for all of its connections at once, or a
//! pool of processes.

use units::Nanos;

use crate::kernel::{Kernel, News, Outside};
use crate::pool::Pool;
use crate::profile::Steps;
use crate::server::{Accept, EventLoop, Serving};

/// The program.
#[derive(Debug)]
pub(crate) enum Program {
    EventLoop(EventLoop),
    Pool(Pool),
}

impl Program {
    pub(crate) fn new(service: Serving, costs: Steps) -> Self {
        match service.accept {
            Accept::Inf | Accept::One => Self::EventLoop(EventLoop::new(service, costs)),
            Accept::Each(processes) => Self::Pool(Pool::new(service, costs, processes)),
        }
    }

    /// The kernel has something for it.
    pub(crate) fn hear(&mut self, news: News) {
        match self {
            Self::EventLoop(server) => server.hear(news),
            Self::Pool(pool) => pool.hear(news),
        }
    }

    /// Whether it would do something, had it the CPU.
    pub(crate) fn has_steps(&self) -> bool {
        match self {
            Self::EventLoop(server) => server.has_steps(),
            Self::Pool(pool) => pool.has_steps(),
        }
    }

    /// Begins its next step, and gives what that costs.
    pub(crate) fn begin(&mut self, kernel: &mut Kernel) -> Nanos {
        match self {
            Self::EventLoop(server) => server.begin(kernel),
            Self::Pool(pool) => pool.begin(kernel),
        }
    }

    /// The step is done: its system calls are made.
    pub(crate) fn end(&mut self, kernel: &mut Kernel, now: Nanos, out: &mut impl Outside) {
        match self {
            Self::EventLoop(server) => server.end(kernel, now, out),
            Self::Pool(pool) => pool.end(kernel, now, out),
        }
    }

    /// Requests that it answered.
    pub(crate) fn answered(&self) -> u64 {
        match self {
            Self::EventLoop(server) => server.answered,
            Self::Pool(pool) => pool.answered,
        }
    }

    /// Connections that it found reset.
    pub(crate) fn errors(&self) -> u64 {
        match self {
            Self::EventLoop(server) => server.errors,
            Self::Pool(pool) => pool.errors,
        }
    }
}
