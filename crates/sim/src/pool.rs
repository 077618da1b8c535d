//! A pool of processes as the server's program: each has one connection from accept(2) to close(2),
//! as Apache's `mpm_prefork` has it.
//!
//! A process sleeps while its client is silent, or does not take what was written, so that half
//! requests and slow readers keep a process each, and all others wait in the accept queue. Who was
//! woken first is first on the CPU, and keeps it until it sleeps.
//!
//! Where the server closes first ([`crate::Closes`]) a process waits for the client's FIN before it
//! takes another connection.
//!
//! What it is not: no time slices, no other timeouts of the server's (Apache's `Timeout` is 300 s
//! on Debian, its `KeepAliveTimeout` 5 s), no processes that come and go.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use slotmap::SecondaryMap;
use units::Nanos;

use crate::http::{self, Request};
use crate::kernel::{Kernel, News, Outside, Read, SocketId};
use crate::profile::Steps;
use crate::server::Serving;

/// What a process is about when it has the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    /// accept(2).
    Accepts,
    /// It has this connection.
    Has(SocketId),
}

/// What is done until the CPU's clock is looked at next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Accept,
    /// A request is answered by so many bytes of body.
    Answer {
        to: SocketId,
        bytes: u64,
        closes: bool,
    },
    /// The same, by another server, which is asked for it.
    Ask {
        to: SocketId,
        bytes: u64,
        closes: bool,
    },
    /// Of its own way, before the client does.
    Shutdown(SocketId),
    Close(SocketId),
    /// It was woken, and sleeps again.
    Sleep,
}

/// A connection that a process has.
#[derive(Debug, Default)]
struct Held {
    /// Part of a request, or more than one.
    partial: Vec<u8>,
    /// Its process waits for news of it; otherwise that looks for itself before it sleeps.
    sleeps: bool,
    /// Until there is room for what was written; the connection ends then, if the request said so,
    /// or the server does.
    writes: bool,
    closes: bool,
    /// It waits for another server's answer, of so many bytes, after which the connection may end.
    asks: Option<(u64, bool)>,
    /// It has closed its way, and waits for the client's end.
    lingers: bool,
    /// Requests that were answered.
    answered: u32,
}

/// The processes.
#[derive(Debug)]
pub(crate) struct Pool {
    service: Serving,
    costs: Steps,
    /// They sleep in accept(2).
    idle: u32,
    held: SecondaryMap<SocketId, Held>,
    /// Has the CPU, and goes on.
    current: Option<Process>,
    /// Woken, in this order.
    ready: VecDeque<Process>,
    doing: Option<Step>,
    scratch: Vec<u8>,
    reply: Vec<u8>,
    /// Requests that were answered, and errors that they met.
    pub(crate) answered: u64,
    pub(crate) errors: u64,
}

impl Pool {
    pub(crate) fn new(service: Serving, costs: Steps, processes: NonZeroU32) -> Self {
        Self {
            service,
            costs,
            idle: processes.get(),
            held: SecondaryMap::new(),
            current: None,
            ready: VecDeque::new(),
            doing: None,
            scratch: Vec::new(),
            reply: Vec::new(),
            answered: 0,
            errors: 0,
        }
    }

    /// The kernel has something for it. Of those in accept(2) one is woken
    /// (`prepare_to_wait_exclusive()` in `inet_csk_wait_for_connect()`, 6.18
    /// `net/ipv4/inet_connection_sock.c`).
    pub(crate) fn hear(&mut self, news: News) {
        match news {
            News::Acceptable if self.idle > 0 => {
                self.idle -= 1;
                self.ready.push_back(Process::Accepts);
            }
            // Whoever is through with its connection looks for the next.
            News::Acceptable => {}
            // What the client sends meanwhile is read afterwards.
            News::Readable(id) if self.asks(id) => {}
            News::Readable(id) | News::Answered(id) => self.wake(id, false),
            News::Writable(id) => self.wake(id, true),
        }
    }

    fn asks(&self, id: SocketId) -> bool {
        self.held.get(id).is_some_and(|held| held.asks.is_some())
    }

    fn wake(&mut self, id: SocketId, writes: bool) {
        if let Some(held) = self.held.get_mut(id).filter(|held| held.sleeps && held.writes == writes) {
            held.sleeps = false;
            self.ready.push_back(Process::Has(id));
        }
    }

    /// Whether a process would do something, had it the CPU.
    pub(crate) fn has_steps(&self) -> bool {
        self.current.is_some() || !self.ready.is_empty()
    }

    /// Begins the next step, and gives what that costs.
    pub(crate) fn begin(&mut self, kernel: &mut Kernel) -> Nanos {
        let is_same = self.current.is_some();
        let process = self.current.take().or_else(|| self.ready.pop_front()).expect("a process is ready");
        let (step, cost) = match process {
            Process::Accepts if kernel.load().accept_qlen > 0 => (Step::Accept, self.costs.accept),
            // Another process has it.
            Process::Accepts => (Step::Accept, self.costs.accept_nothing),
            Process::Has(id) => self.go_on_with(id, kernel),
        };
        self.doing = Some(step);
        if is_same { cost } else { cost + self.costs.poll }
    }

    fn go_on_with(&mut self, id: SocketId, kernel: &mut Kernel) -> (Step, Nanos) {
        let held = &mut self.held[id];
        if held.writes {
            held.writes = false;
            if held.closes {
                return match self.service.closes {
                    None => (Step::Close(id), self.costs.close),
                    Some(_) => (Step::Shutdown(id), self.costs.close),
                };
            }
        }
        if held.lingers {
            return self.linger(id, kernel);
        }
        if let Some((bytes, closes)) = held.asks.take() {
            return (Step::Answer { to: id, bytes, closes }, Nanos::ZERO);
        }
        self.scratch.clear();
        self.scratch.append(&mut held.partial);
        match kernel.read(id, usize::MAX, &mut self.scratch) {
            // Of what came before there may be a request left.
            Read::Bytes(_) | Read::Nothing => {}
            Read::Eof => return (Step::Close(id), self.costs.close),
            Read::Reset => {
                self.errors += 1;
                return (Step::Close(id), self.costs.error);
            }
        }
        let Some(request) = Request::parse(&self.scratch) else {
            held.partial.append(&mut self.scratch);
            held.sleeps = true;
            return (Step::Sleep, Nanos::ZERO);
        };
        held.partial.extend_from_slice(&self.scratch[request.len..]);
        if request.is_client_close {
            // Its end may be here already.
            if kernel.read(id, usize::MAX, &mut held.partial) == Read::Eof {
                return (Step::Close(id), self.costs.request + self.costs.close);
            }
            held.sleeps = true;
            return (Step::Sleep, self.costs.request);
        }
        let bytes = request.bytes.unwrap_or(self.service.reply_bytes).min(http::LONGEST);
        let cost = self.costs.request + self.service.cpu_time + Nanos(self.costs.kib.0 * (bytes >> 10));
        let (to, closes) = (id, request.closes);
        let is_asked = self.service.backend > Nanos::ZERO;
        (if is_asked { Step::Ask { to, bytes, closes } } else { Step::Answer { to, bytes, closes } }, cost)
    }

    /// A process that has closed its way was woken: what the client still sends is read and
    /// forgotten.
    fn linger(&mut self, id: SocketId, kernel: &mut Kernel) -> (Step, Nanos) {
        self.scratch.clear();
        match kernel.read(id, usize::MAX, &mut self.scratch) {
            Read::Bytes(_) => {
                self.held[id].sleeps = true;
                (Step::Sleep, Nanos::ZERO)
            }
            // What it costs to close was paid when it closed its way.
            Read::Eof | Read::Reset | Read::Nothing => (Step::Close(id), Nanos::ZERO),
        }
    }

    /// The step is done: its system calls are made.
    pub(crate) fn end(&mut self, kernel: &mut Kernel, now: Nanos, out: &mut impl Outside) {
        match self.doing.take().expect("a step was begun") {
            Step::Accept => match kernel.accept() {
                Some((id, _)) => {
                    self.held.insert(id, Held::default());
                    self.current = Some(Process::Has(id));
                }
                None => self.idle += 1,
            },
            Step::Answer { to, bytes, closes } => {
                http::write_reply(&mut self.reply, bytes, kernel.has_uplink());
                let written = kernel.write(to, &self.reply, now, out).is_ok();
                self.answered += u64::from(written);
                let held = &mut self.held[to];
                held.answered += 1;
                let is_last = self.service.closes.is_some_and(|closes| closes.after.get() <= held.answered);
                // Of a connection that was reset that is read next.
                (held.writes, held.closes) = (true, (closes || is_last) && written);
                held.sleeps = !kernel.wait_for_room(to);
                self.current = (!held.sleeps).then_some(Process::Has(to));
            }
            Step::Ask { to, bytes, closes } => {
                let held = &mut self.held[to];
                (held.asks, held.sleeps) = (Some((bytes, closes)), true);
                kernel.ask_another(to, now + self.service.backend, out);
            }
            Step::Shutdown(id) => {
                kernel.shutdown(id, now, out);
                let held = &mut self.held[id];
                (held.lingers, held.sleeps) = (true, true);
                if kernel.is_over(id) {
                    self.current = Some(Process::Has(id));
                } else if let Some(closes) = self.service.closes {
                    kernel.linger(id, now + closes.lingers, out);
                }
            }
            Step::Close(id) => {
                self.held.remove(id);
                kernel.close(id, now, out);
                self.accept_next(kernel);
            }
            Step::Sleep => {}
        }
    }

    /// Looks whether another connection waits, before it sleeps.
    fn accept_next(&mut self, kernel: &Kernel) {
        if kernel.load().accept_qlen > 0 {
            self.current = Some(Process::Accepts);
        } else {
            self.idle += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tcp::{Connection, LINUX};
    use wire::{Segment, SeqNumber};

    use super::*;
    use crate::kernel::{Config, Peer, Timer};
    use crate::profile::Profile;
    use crate::server::Accept;

    const NOW: Nanos = Nanos::from_secs(1);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// Clients by their numbers, the kernel before them and the pool behind it; nothing takes any
    /// time.
    struct Testbed {
        kernel: Kernel,
        pool: Pool,
        clients: Vec<Client>,
    }

    struct Client {
        connection: Connection,
        /// Bytes that came.
        got: usize,
    }

    /// What is under way.
    #[derive(Default)]
    struct Wire {
        to_clients: VecDeque<(Peer, Owned)>,
        news: Vec<News>,
    }

    struct Owned {
        segment: Segment<'static>,
        payload: Vec<u8>,
    }

    fn owned(segment: &Segment<'_>) -> Owned {
        let Segment { seq, ack, flags, window, options, payload } = *segment;
        Owned {
            segment: Segment { seq, ack, flags, window, options, payload: &[] },
            payload: payload.to_vec(),
        }
    }

    impl Owned {
        fn segment(&self) -> Segment<'_> {
            Segment { payload: &self.payload, ..self.segment }
        }
    }

    impl Outside for Wire {
        fn send(&mut self, to: Peer, segment: &Segment<'_>) {
            self.to_clients.push_back((to, owned(segment)));
        }

        fn wake(&mut self, _: Nanos, _: Timer) {}

        fn tell(&mut self, news: News) {
            self.news.push(news);
        }
    }

    impl Testbed {
        fn new(processes: u32, reply_bytes: u64) -> Self {
            let processes = NonZeroU32::new(processes).expect("a process");
            let service = Serving {
                accept: Accept::Each(processes),
                cpu_time: Nanos::ZERO,
                backend: Nanos::ZERO,
                reply_bytes,
                descriptors: None,
                closes: None,
            };
            let costs = Profile::shipped("round-numbers").expect("shipped").steps();
            let pool = Pool::new(service, costs, processes);
            Self { kernel: Kernel::new(Config::default()), pool, clients: Vec::new() }
        }

        /// A client connects, and asks for something or not. Gives its number.
        fn come(&mut self, request: &[u8]) -> usize {
            let number = self.clients.len();
            let mut out = Vec::new();
            let connection =
                Connection::connect(&LINUX, SeqNumber(7), 0, NOW, &mut |segment| out.push(owned(segment)));
            self.clients.push(Client { connection, got: 0 });
            self.go_on(number, out);
            self.send(number, request);
            number
        }

        /// A client sends what of its request it has not sent yet.
        fn send(&mut self, number: usize, request: &[u8]) {
            let mut out = Vec::new();
            let client = &mut self.clients[number].connection;
            client.transmit(&LINUX, request, NOW, &mut |segment| out.push(owned(segment)));
            self.go_on(number, out);
        }

        fn leave(&mut self, number: usize, how: tcp::Close) {
            let mut out = Vec::new();
            self.clients[number].connection.close(&LINUX, how, NOW, &mut |segment| out.push(owned(segment)));
            self.go_on(number, out);
        }

        /// What a client sent reaches the server, and so on until nobody has anything to do.
        fn go_on(&mut self, from: usize, sent: Vec<Owned>) {
            let mut to_server: VecDeque<(usize, Owned)> =
                sent.into_iter().map(|owned| (from, owned)).collect();
            let mut wire = Wire::default();
            loop {
                if let Some((number, packet)) = to_server.pop_front() {
                    self.kernel.receive(Peer(number as u64), &packet.segment(), NOW, &mut wire);
                } else if self.pool.has_steps() {
                    self.pool.begin(&mut self.kernel);
                    self.pool.end(&mut self.kernel, NOW, &mut wire);
                } else {
                    return;
                }
                wire.news.drain(..).for_each(|news| self.pool.hear(news));
                while let Some((Peer(number), packet)) = wire.to_clients.pop_front() {
                    let number = number as usize;
                    let client = &mut self.clients[number];
                    let send = &mut |segment: &Segment<'_>| to_server.push_back((number, owned(segment)));
                    let heard = client.connection.on_segment(&LINUX, &packet.segment(), NOW, send);
                    client.got += heard.data.len() + heard.then.len();
                }
            }
        }

        fn answered(&self, number: usize) -> bool {
            self.clients[number].got > 0
        }
    }

    #[test]
    fn silent_clients_keep_a_process_each_and_when_they_have_all_nobody_else_is_served() {
        let mut testbed = Testbed::new(3, 512);
        // One of them has begun its request.
        let silent = [testbed.come(b""), testbed.come(b"GET / HT"), testbed.come(b"")];
        let other = testbed.come(REQUEST);
        let last = testbed.come(REQUEST);
        assert!(!testbed.answered(other) && !testbed.answered(last));
        assert_eq!(testbed.kernel.load().accept_qlen, 2, "they wait in the accept queue");
        testbed.leave(silent[0], tcp::Close::Reset);
        assert!(testbed.answered(other) && !testbed.answered(last), "one process, and one connection");
        testbed.leave(other, tcp::Close::Fin);
        assert!(testbed.answered(last));
    }

    #[test]
    fn process_goes_on_with_a_request_that_comes_in_parts_and_with_the_next_one() {
        let mut testbed = Testbed::new(1, 512);
        let client = testbed.come(b"GET / HT");
        assert!(!testbed.answered(client));
        testbed.send(client, REQUEST);
        let once = testbed.clients[client].got;
        assert!(once > 512, "{once}");
        assert!(testbed.clients[client].connection.next_stream(), "the request was acknowledged");
        testbed.send(client, &[REQUEST, REQUEST].concat());
        assert_eq!(testbed.clients[client].got, 3 * once);
        assert_eq!((testbed.pool.answered, testbed.pool.errors), (3, 0));
    }

    #[test]
    fn connection_that_ends_with_its_reply_frees_the_process_for_who_waits() {
        let mut testbed = Testbed::new(1, 512);
        let silent = testbed.come(b"");
        let last = testbed.come(REQUEST);
        testbed.send(silent, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(testbed.answered(silent) && testbed.answered(last));
    }

    #[test]
    fn reader_that_takes_nothing_keeps_its_process_until_it_leaves() {
        let mut testbed = Testbed::new(1, 1 << 20);
        // A first request is answered as far as the client lets; it acknowledges nothing of that.
        let slow = testbed.come(b"");
        let mut out = Vec::new();
        let client = &mut testbed.clients[slow].connection;
        client.transmit(&LINUX, REQUEST, NOW, &mut |segment| out.push(owned(segment)));
        let mut wire = Wire::default();
        for packet in &out {
            testbed.kernel.receive(Peer(slow as u64), &packet.segment(), NOW, &mut wire);
        }
        wire.news.drain(..).for_each(|news| testbed.pool.hear(news));
        while testbed.pool.has_steps() {
            testbed.pool.begin(&mut testbed.kernel);
            testbed.pool.end(&mut testbed.kernel, NOW, &mut wire);
        }
        assert!(!wire.to_clients.is_empty(), "the reply has begun");
        let other = testbed.come(REQUEST);
        assert!(!testbed.answered(other), "the process still writes");
        testbed.leave(slow, tcp::Close::Reset);
        assert!(testbed.answered(other));
        assert_eq!(testbed.pool.errors, 1, "it found the reset");
    }
}
