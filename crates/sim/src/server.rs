//! The server's program: event-driven, one thread, as `tidegate serve` and the servers of `[Shu05]` section 3.1.1.
//!
//! A step is what it does between two looks at the CPU's clock: what it costs is known when it begins, and its system calls are made when it ends. It answers
//! requests for a page, and for what a workload names (`traffic::Object`). What it is not: no HTTP errors, no request bodies. [`Pool`] is the other kind of program.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use slotmap::SecondaryMap;
use units::Nanos;

use crate::http::{self, Request};
use crate::kernel::{Kernel, News, Outside, Read, SocketId};
use crate::profile::Steps;

/// What it learns of at once (`MAX_EVENTS` of `tidegate serve`), so that its listener has a turn at least so often.
const MOST_IN_LOOK: usize = 512;

/// How much of the accept queue is taken at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// All of it, before anything is served: *Accept-INF*.
    Inf,
    /// One connection, which is served before the next is taken: *Accept-1*.
    One,
    /// One connection by each of so many processes, which is served to its end before the next is taken: a process pool.
    Each(NonZeroU32),
}

/// How a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// How much of the accept queue is taken at a time.
    pub accept: Accept,
    /// CPU time that each request takes beside what it costs on the machine.
    pub cpu_time: Nanos,
    /// Length of a page, bytes.
    pub reply_bytes: u64,
    /// Connections that it may have open (`RLIMIT_NOFILE`), if that is bounded. With as many it no longer accepts until one is closed, as `tidegate serve`. A process of
    /// a pool has one.
    pub descriptors: Option<u32>,
}

/// What it is about to do.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Learn what is ready.
    Poll,
    Accept,
    /// A request is answered by so many bytes of body.
    Answer {
        to: SocketId,
        bytes: u64,
        closes: bool,
    },
    Close(SocketId),
}

/// The program.
#[derive(Debug)]
pub(crate) struct Server {
    service: Service,
    costs: Steps,
    /// A connection waits, as far as the program was told.
    is_acceptable: bool,
    /// Something came, in this order.
    ready: VecDeque<SocketId>,
    /// Of the look that it has had: it accepts, serves what it accepted, and then so many of the others.
    accepts: bool,
    fresh: VecDeque<SocketId>,
    serves: usize,
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

impl Server {
    pub(crate) fn new(service: Service, costs: Steps) -> Self {
        Self {
            service,
            costs,
            is_acceptable: false,
            ready: VecDeque::new(),
            accepts: false,
            fresh: VecDeque::new(),
            serves: 0,
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
            News::Acceptable => self.is_acceptable = true,
            News::Readable(id) => self.put(id),
            // It never waits for room.
            News::Writable(_) => {}
        }
    }

    /// Among what is ready.
    fn put(&mut self, id: SocketId) {
        if self.waiting.insert(id, ()).is_none() {
            self.ready.push_back(id);
        }
    }

    /// Whether it would do something, had it the CPU.
    pub(crate) fn has_steps(&self) -> bool {
        let of_look = self.accepts || !self.fresh.is_empty() || self.serves > 0;
        of_look || self.is_acceptable && !self.is_full || !self.ready.is_empty()
    }

    /// Begins its next step, and gives what that costs.
    pub(crate) fn begin(&mut self, kernel: &mut Kernel) -> Nanos {
        let (step, cost) = self.choose(kernel);
        self.doing = Some(step);
        cost
    }

    fn choose(&mut self, kernel: &mut Kernel) -> (Step, Nanos) {
        if self.accepts {
            let has_one = kernel.load().accept_qlen > 0 && self.has_room();
            return (Step::Accept, if has_one { self.costs.accept } else { self.costs.accept_nothing });
        }
        while let Some(id) = self.next_to_serve() {
            if let Some(step) = self.read(id, kernel) {
                return step;
            }
        }
        let woken = if std::mem::take(&mut self.is_woken) { self.costs.woken } else { Nanos::ZERO };
        (Step::Poll, self.costs.poll + woken)
    }

    /// Of the look that it has had.
    fn next_to_serve(&mut self) -> Option<SocketId> {
        let id = self.fresh.pop_front().or_else(|| {
            self.serves = self.serves.checked_sub(1)?;
            self.ready.pop_front()
        })?;
        self.waiting.remove(id);
        Some(id)
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
            return (got != Read::Nothing).then_some((Step::Poll, self.costs.request));
        };
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
            Step::Poll => {
                self.accepts = !self.is_full && std::mem::take(&mut self.is_acceptable);
                self.serves = self.ready.len().min(MOST_IN_LOOK - usize::from(self.accepts));
            }
            Step::Accept => {
                let accepted = if self.has_room() { kernel.accept() } else { None };
                // What waits then can be seen again when there is room: the listener is looked at by level.
                self.is_full = !self.has_room();
                self.is_acceptable |= self.is_full;
                if let Some((id, _)) = accepted {
                    self.open += 1;
                    // The request may be there already; what comes before it is served is found then.
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
        http::write_reply(&mut self.reply, bytes);
        match kernel.write(to, &self.reply, now, out) {
            Ok(()) => {
                self.answered += 1;
                if closes {
                    self.close(to, kernel, now, out);
                }
            }
            // The reset can be read, too.
            Err(_) => self.errors += 1,
        }
    }

    /// Whether it may accept another connection.
    fn has_room(&self) -> bool {
        self.service.descriptors.is_none_or(|most| self.open < most)
    }

    fn close(&mut self, id: SocketId, kernel: &mut Kernel, now: Nanos, out: &mut impl Outside) {
        self.open -= 1;
        self.is_full = false;
        self.partial.remove(id);
        if self.waiting.remove(id).is_some() {
            self.ready.retain(|other| *other != id);
            self.serves = self.serves.min(self.ready.len());
        }
        kernel.close(id, now, out);
    }
}
