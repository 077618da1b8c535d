//! The server's program: event-driven, one thread, as `tidegate serve` and the servers of `[Shu05]`
//! section 3.1.1.
//!
//! A step is what it does between two looks at the CPU's clock: what it costs is known when it
//! begins, and its system calls are made when it ends. It answers requests for a page, and for what
//! a workload names (`traffic::Object`). What it is not: no HTTP errors, no request bodies.
//! [`Pool`] is the other kind of program.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use slotmap::SecondaryMap;
use units::Nanos;

use crate::http::{self, Request};
use crate::kernel::{Kernel, News, Outside, Read, SocketId};
use crate::profile::Steps;

/// What it learns of in one look (`MAX_EVENTS` of `tidegate serve`).
const MOST_IN_LOOK: usize = 512;

/// How much of the accept queue is taken at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// All of it, before anything is served: *Accept-INF*.
    Inf,
    /// One connection, which is served before the next is taken: *Accept-1*.
    One,
    /// One connection by each of so many processes, which is served to its end before the next is
    /// taken: a process pool.
    Each(NonZeroU32),
}

/// How a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// How much of the accept queue is taken at a time.
    pub accept: Accept,
    /// CPU time that each request takes beside what it costs on the machine.
    pub cpu_time: Nanos,
    /// How long a process of a pool then waits for another server, as a database, and leaves the
    /// CPU to others. An event-driven program waits for none.
    pub backend: Nanos,
    /// Length of a page, bytes.
    pub reply_bytes: u64,
    /// Connections that it may have open (`RLIMIT_NOFILE`), if that is bounded. With as many it no
    /// longer accepts until one is closed, as `tidegate serve`. A process of a pool has one.
    pub descriptors: Option<u32>,
    /// When a process of a pool closes by itself; an event-driven program never does.
    pub closes: Option<Closes>,
}

/// A process closes its connection before the client does, and waits for the client's end of it:
/// Apache's lingering close, in which the connection is in FIN-WAIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closes {
    /// After so many requests (`MaxKeepAliveRequests`; 1 is `KeepAlive Off`).
    pub after: NonZeroU32,
    /// How long a process waits for the client's FIN at most: 2 s as Apache 1.3 has it
    /// (`lingering_close()` in `http_main.c`). Then the kernel waits for it alone.
    pub lingers: Nanos,
}

/// What it is about to do.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Learn what is ready.
    Poll,
    Accept,
    /// Half a request was read.
    Read,
    /// A request is answered by so many bytes of body.
    Answer {
        to: SocketId,
        bytes: u64,
        closes: bool,
    },
    Close(SocketId),
}

/// What it may be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Listener,
    Socket(SocketId),
}

/// The program.
///
/// What is ready is told of in the order in which it came to be (`ep_send_events()`,
/// `fs/eventpoll.c`, 6.18). What one look has no room for is told of first in the next. The
/// listener is watched by level, and goes to the end whenever it was told of.
#[derive(Debug)]
pub(crate) struct EventLoop {
    service: Serving,
    costs: Steps,
    /// A connection waits, as far as the kernel has said.
    is_acceptable: bool,
    /// Something came, in this order; the first so many it was told of.
    ready: VecDeque<Ready>,
    told: usize,
    /// The listener is among what it was not told of yet.
    is_listener_ready: bool,
    /// It accepts, and then serves these before it goes on.
    accepts: bool,
    fresh: VecDeque<SocketId>,
    /// Part of a request that came alone.
    partial: SecondaryMap<SocketId, Vec<u8>>,
    /// Connections that it has open.
    open: u32,
    /// It has as many as it may: it does not look at its listener until one is closed.
    is_full: bool,
    /// Sockets in `ready` and `fresh`.
    waiting: SecondaryMap<SocketId, ()>,
    doing: Option<Step>,
    /// It slept, and something came for it.
    is_woken: bool,
    scratch: Vec<u8>,
    reply: Vec<u8>,
    /// Requests that were answered, and errors that it met.
    pub(crate) answered: u64,
    pub(crate) errors: u64,
}

impl EventLoop {
    pub(crate) fn new(service: Serving, costs: Steps) -> Self {
        Self {
            service,
            costs,
            is_acceptable: false,
            ready: VecDeque::new(),
            told: 0,
            is_listener_ready: false,
            accepts: false,
            fresh: VecDeque::new(),
            partial: SecondaryMap::new(),
            open: 0,
            is_full: false,
            waiting: SecondaryMap::new(),
            doing: None,
            is_woken: false,
            scratch: Vec::new(),
            reply: Vec::new(),
            answered: 0,
            errors: 0,
        }
    }

    /// The kernel has something for it.
    pub(crate) fn hear(&mut self, news: News) {
        self.is_woken |= self.doing.is_none() && !self.has_steps();
        match news {
            News::Acceptable => {
                self.is_acceptable = true;
                self.watch_listener();
            }
            News::Readable(id) => self.put(id),
            // It never waits for room, or for another server.
            News::Writable(_) | News::Answered(_) => {}
        }
    }

    /// Among what is ready.
    fn put(&mut self, id: SocketId) {
        if self.waiting.insert(id, ()).is_none() {
            self.ready.push_back(Ready::Socket(id));
        }
    }

    fn watch_listener(&mut self) {
        if self.may_accept() && !self.is_listener_ready {
            self.is_listener_ready = true;
            self.ready.push_back(Ready::Listener);
        }
    }

    /// Whether it would do something, had it the CPU.
    pub(crate) fn has_steps(&self) -> bool {
        self.accepts || !self.waiting.is_empty() || self.may_accept()
    }

    /// Somebody waits, and there is room. The listener may be among what is ready without: then
    /// nothing is told of it.
    fn may_accept(&self) -> bool {
        self.is_acceptable && !self.is_full
    }

    /// Begins its next step, and gives what that costs.
    pub(crate) fn begin(&mut self, kernel: &mut Kernel) -> Nanos {
        let (step, cost) = self.choose(kernel);
        self.doing = Some(step);
        cost
    }

    fn choose(&mut self, kernel: &mut Kernel) -> (Step, Nanos) {
        loop {
            if self.accepts {
                let has_one = kernel.load().accept_qlen > 0 && self.has_room();
                return (Step::Accept, if has_one { self.costs.accept } else { self.costs.accept_nothing });
            }
            match self.next_told() {
                Some(Ready::Listener) => self.accepts = self.may_accept(),
                Some(Ready::Socket(id)) => {
                    if let Some(step) = self.read(id, kernel) {
                        return step;
                    }
                }
                None => break,
            }
        }
        let woken = if std::mem::take(&mut self.is_woken) { self.costs.woken } else { Nanos::ZERO };
        (Step::Poll, self.costs.poll + woken)
    }

    /// What it has accepted, then what it was told of.
    fn next_told(&mut self) -> Option<Ready> {
        let next = self.fresh.pop_front().map(Ready::Socket).or_else(|| {
            self.told = self.told.checked_sub(1)?;
            self.ready.pop_front()
        })?;
        if let Ready::Socket(id) = next {
            self.waiting.remove(id);
        }
        Some(next)
    }

    /// Learns what is ready.
    fn look(&mut self) {
        self.told = self.ready.len().min(MOST_IN_LOOK);
        let is_told = |entry: &Ready| *entry == Ready::Listener;
        if self.is_listener_ready && self.ready.iter().take(self.told).any(is_told) {
            self.is_listener_ready = false;
            self.watch_listener();
        }
    }

    /// What a connection has for it; `None` when nothing is to be done.
    fn read(&mut self, id: SocketId, kernel: &mut Kernel) -> Option<(Step, Nanos)> {
        self.scratch.clear();
        if let Some(part) = self.partial.remove(id) {
            self.scratch.extend_from_slice(&part);
        }
        let got = kernel.read(id, usize::MAX, &mut self.scratch);
        match got {
            // Of what came before there may be a request left.
            Read::Bytes(_) | Read::Nothing => {}
            Read::Eof => return Some((Step::Close(id), self.costs.close)),
            Read::Reset => {
                self.errors += 1;
                return Some((Step::Close(id), self.costs.error));
            }
        }
        let Some(request) = Request::parse(&self.scratch) else {
            if !self.scratch.is_empty() {
                self.partial.insert(id, self.scratch.clone());
            }
            return (got != Read::Nothing).then_some((Step::Read, self.costs.request));
        };
        if request.is_client_close {
            // Its end may be here already.
            self.put(id);
            return Some((Step::Read, self.costs.request));
        }
        let bytes = request.bytes.unwrap_or(self.service.reply_bytes).min(http::LONGEST);
        let cost = self.costs.request + self.service.cpu_time + Nanos(self.costs.kib.0 * (bytes >> 10));
        if request.len < self.scratch.len() {
            self.partial.insert(id, self.scratch[request.len..].to_vec());
            self.put(id);
        }
        Some((Step::Answer { to: id, bytes, closes: request.closes }, cost))
    }

    /// The step is done: its system calls are made.
    pub(crate) fn end(&mut self, kernel: &mut Kernel, now: Nanos, out: &mut impl Outside) {
        match self.doing.take().expect("a step was begun") {
            Step::Poll => self.look(),
            Step::Read => {}
            Step::Accept => {
                let accepted = if self.has_room() { kernel.accept() } else { None };
                // What waits then can be seen again when there is room: the listener is looked at
                // by level.
                self.is_full = !self.has_room();
                self.is_acceptable = accepted.is_some() || self.is_full;
                if let Some((id, _)) = accepted {
                    self.open += 1;
                    // The request may be there already; what comes before it is served is found
                    // then.
                    self.waiting.insert(id, ());
                    self.fresh.push_back(id);
                }
                self.accepts = accepted.is_some() && self.service.accept == Accept::Inf;
                if self.service.accept == Accept::One {
                    self.is_acceptable = kernel.load().accept_qlen > 0;
                }
            }
            Step::Answer { to, bytes, closes } => self.answer(to, bytes, closes, kernel, now, out),
            Step::Close(id) => self.close(id, kernel, now, out),
        }
    }

    fn answer(
        &mut self,
        to: SocketId,
        bytes: u64,
        closes: bool,
        kernel: &mut Kernel,
        now: Nanos,
        out: &mut impl Outside,
    ) {
        http::write_reply(&mut self.reply, bytes, kernel.has_uplink());
        match kernel.write(to, &self.reply, now, out) {
            Ok(()) => {
                self.answered += 1;
                if closes {
                    self.close(to, kernel, now, out);
                }
            }
            Err(_) => {
                self.errors += 1;
                self.close(to, kernel, now, out);
            }
        }
    }

    /// Whether it may accept another connection.
    fn has_room(&self) -> bool {
        self.service.descriptors.is_none_or(|most| self.open < most)
    }

    fn close(&mut self, id: SocketId, kernel: &mut Kernel, now: Nanos, out: &mut impl Outside) {
        self.open -= 1;
        self.is_full = false;
        self.watch_listener();
        self.partial.remove(id);
        if self.waiting.remove(id).is_some()
            && let Some(place) = self.ready.iter().position(|entry| *entry == Ready::Socket(id))
        {
            self.ready.remove(place);
            self.told -= usize::from(place < self.told);
        }
        kernel.close(id, now, out);
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;
    use crate::profile::Profile;

    fn server() -> EventLoop {
        let service = Serving {
            accept: Accept::Inf,
            cpu_time: Nanos::ZERO,
            backend: Nanos::ZERO,
            reply_bytes: 64,
            descriptors: None,
            closes: None,
        };
        EventLoop::new(service, Profile::shipped("round-numbers").expect("shipped").steps())
    }

    #[test]
    fn look_tells_of_so_many_and_of_the_others_first_in_the_next_with_the_listener_at_their_end() {
        let mut sockets = SlotMap::with_key();
        let came: Vec<SocketId> = (0..MOST_IN_LOOK + 3).map(|_| sockets.insert(())).collect();
        let mut server = server();
        server.hear(News::Acceptable);
        came.iter().for_each(|&id| server.hear(News::Readable(id)));
        let mut look = || {
            server.look();
            std::iter::from_fn(|| server.next_told()).collect::<Vec<_>>()
        };
        let first = look();
        assert_eq!(
            (first.len(), first[0], first[1]),
            (MOST_IN_LOOK, Ready::Listener, Ready::Socket(came[0]))
        );
        let left = came[MOST_IN_LOOK - 1..].iter().map(|&id| Ready::Socket(id));
        assert_eq!(look(), left.chain([Ready::Listener]).collect::<Vec<_>>());
        assert_eq!(look(), [Ready::Listener], "a connection still waits");
    }
}
