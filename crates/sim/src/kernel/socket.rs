//! A connection from its handshake's end on, and the system calls on it.

use std::fmt;

use pacer::Wait;
use tcp::{Change, Close, Connection, State, Stream};
use units::Nanos;
use verdict::Fin;
use wire::{Flags, Segment, SeqNumber};

use super::time_wait::TimeWait;
use super::{End, Kernel, News, Outgoing, Outside, Peer, Sending, SocketId, Timer, Work};

/// Data that a send buffer holds, bytes: twice ten segments (`tcp_init_buffer_space()`, 6.18
/// `net/ipv4/tcp_input.c`). Differs: it does not grow with the window.
const SEND_BUFFER: u64 = 20 * 1448;

/// A connection, with what was received and not read, and what was written.
#[derive(Debug)]
pub(super) struct Socket {
    peer: Peer,
    connection: Connection,
    /// Of the stream that is being sent.
    written: Vec<u8>,
    received: Vec<u8>,
    /// Of these, bytes that were read.
    read: usize,
    /// The client has sent FIN.
    is_over: bool,
    /// It was reset, or its client does not answer any more.
    is_reset: bool,
    /// The program has it: until then it hears nothing of it.
    is_accepted: bool,
    is_closed: bool,
    /// The program sleeps until more of what it wrote is acknowledged.
    waits_for_room: bool,
    /// Bytes that may be written and not acknowledged.
    send_buffer: u64,
    /// What is kept of long responses, where connections send such.
    outgoing: Option<Box<Outgoing>>,
    /// Until when a program waits for the client's end; [`Nanos::MAX`] if it does not, or for ever.
    lingers_until: Nanos,
    /// When its timer will come up; [`Nanos::MAX`] is never.
    wakes_at: Nanos,
    /// It waits for the server, where that is followed.
    pub(super) wait: Option<Wait>,
}

/// State of the server's end, by the kernel's names (include/net/tcp_states.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are TCP's")]
pub enum SocketState {
    SynRecv,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    /// Nothing is known of the client.
    Gone,
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes.
    Bytes(usize),
    /// The client has sent FIN.
    Eof,
    /// ECONNRESET: the connection is destroyed.
    Reset,
    /// There is nothing to read.
    Nothing,
}

/// Nothing can be written: the connection is destroyed, or its way to the client was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteError;

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is destroyed, or was closed for writing")
    }
}

impl std::error::Error for WriteError {}

impl Socket {
    /// Whether its timer comes up now.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.wakes_at <= now
    }

    pub(super) fn new(peer: Peer, mut connection: Connection, sending: Option<&Sending>) -> Self {
        if let Some(sending) = sending {
            connection.control(sending.control);
        }
        Self {
            send_buffer: sending.map_or(SEND_BUFFER, |sending| sending.send_buffer.into()),
            outgoing: sending.map(|_| Box::default()),
            lingers_until: Nanos::MAX,
            peer,
            connection,
            written: Vec::new(),
            received: Vec::new(),
            read: 0,
            is_over: false,
            is_reset: false,
            is_accepted: false,
            is_closed: false,
            waits_for_room: false,
            wakes_at: Nanos::MAX,
            wait: None,
        }
    }

    pub(super) fn state(&self) -> SocketState {
        match self.connection.state() {
            State::SynSent | State::Closed => SocketState::Gone,
            State::Established => SocketState::Established,
            State::CloseWait => SocketState::CloseWait,
            State::FinWait1 => SocketState::FinWait1,
            State::FinWait2 => SocketState::FinWait2,
            State::Closing => SocketState::Closing,
            State::LastAck | State::LastAckSwap => SocketState::LastAck,
            State::TimeWait => SocketState::TimeWait,
        }
    }

    /// Accepted, and not closed: whatever comes can be read.
    fn is_open(&self) -> bool {
        self.is_accepted && !self.is_closed
    }

    fn unread(&self) -> usize {
        self.received.len() - self.read
    }

    /// What was written and is not acknowledged fits the send buffer; or nobody will take it any
    /// more.
    fn has_room(&self) -> bool {
        let is_open = matches!(self.connection.state(), State::Established | State::CloseWait);
        !is_open || self.written.len() as u64 <= self.connection.acknowledged() + self.send_buffer
    }

    /// Whether the program has waited long enough for the client's end.
    pub(super) fn lingers_until(&self, now: Nanos) -> bool {
        self.lingers_until <= now
    }

    /// As many segments may leave as may be below TCP.
    fn allow(&mut self, sending: Option<&Sending>) {
        if let Some((outgoing, sending)) = self.outgoing.as_mut().zip(sending) {
            outgoing.acknowledge(sending, self.connection.first_unacknowledged());
            let room = outgoing.room(sending, self.connection.path_state(), self.connection.full_segment());
            self.connection.allow(room);
        }
    }

    /// The program goes on, if it sleeps for want of room and there is some now.
    fn tell_writer(&mut self, id: SocketId, out: &mut impl Outside) {
        if self.waits_for_room && self.has_room() {
            self.waits_for_room = false;
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.block(false);
            }
            out.tell(News::Writable(id));
        }
    }
}

/// What TCP may take of what a program has written: while that sleeps for want of room no more than
/// the send buffer holds, in whole segments, because the next write fills up the last.
struct Taken<'a> {
    written: &'a [u8],
    until: u64,
}

impl<'a> Taken<'a> {
    fn of(written: &'a [u8], connection: &Connection, send_buffer: u64, waits_for_room: bool) -> Self {
        let mut until = written.len() as u64;
        if waits_for_room && connection.path_state().is_some() {
            let mss = u64::from(connection.full_segment());
            until = until.min((connection.acknowledged() + send_buffer) / mss * mss);
        }
        Self { written, until }
    }
}

impl Stream for Taken<'_> {
    fn length(&self) -> u64 {
        self.until
    }

    fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.written.bytes(offset, len)
    }
}

/// How segments of a connection leave.
fn sender<'a>(
    peer: Peer,
    outgoing: Option<&'a mut Outgoing>,
    sending: Option<&'a Sending>,
    out: &'a mut impl Outside,
) -> impl FnMut(&Segment<'_>) + 'a {
    let mut marks = outgoing.zip(sending);
    move |segment| match &mut marks {
        None => out.send(peer, segment),
        Some((outgoing, sending)) => {
            if let Some(mark) = outgoing.leave(sending, segment) {
                out.send_marked(peer, segment, mark);
            }
        }
    }
}

impl Kernel {
    pub(super) fn receive_for_socket(
        &mut self,
        id: SocketId,
        segment: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let stack = self.config.stack;
        let socket = &mut self.sockets[id];
        let peer = socket.peer;
        if is_fin(segment) && socket.connection.state() == State::Established {
            let fin = Fin {
                payload: segment.payload.len() as u32,
                ahead: segment.seq.0.wrapping_sub(socket.connection.expects().0),
                unread: socket.unread() as u32,
                unacknowledged: socket.connection.sends_next() - segment.ack,
            };
            if self.guard.on_fin(&fin) {
                self.destroy(id, now, out);
                // The guard's, at the number that the client waits for.
                let reset = tcp::reset_for(segment).expect("a FIN is no RST");
                out.send(peer, &reset);
                return Work::Fin;
            }
        }
        let before = socket.connection.state();
        let sending = self.config.sending.as_ref();
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        let heard = socket.connection.on_segment(stack, segment, now, &mut send);
        drop(send);
        socket.allow(sending);
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        socket.received.extend_from_slice(heard.data);
        socket.received.extend_from_slice(&heard.then);
        socket.is_over |= matches!(heard.change, Change::PeerClosed | Change::Closed);
        socket.is_reset |= matches!(heard.change, Change::Reset | Change::GaveUp);
        let taken = Taken::of(&socket.written, &socket.connection, socket.send_buffer, socket.waits_for_room);
        socket.connection.transmit(stack, &taken, now, &mut send);
        drop(send);
        if !heard.data.is_empty() || !heard.then.is_empty() {
            socket.waits_on(&mut self.followed, now);
        }
        let has_news = !heard.data.is_empty() || heard.change != Change::None;
        if has_news && socket.is_open() {
            out.tell(News::Readable(id));
        }
        socket.tell_writer(id, out);
        if socket.connection.state() == State::Closed {
            self.gone(id, before, heard.change, now);
        } else {
            self.schedule(id, out);
        }
        work_of(segment)
    }

    /// The connection is over at this end. What was received can still be read.
    fn gone(&mut self, id: SocketId, before: State, change: Change, now: Nanos) {
        let has_bucket = self.has_bucket();
        let socket = &mut self.sockets[id];
        socket.waits_no_more(&mut self.followed, false, now);
        let (peer, connection) = (socket.peer, &socket.connection);
        let waits =
            matches!(before, State::FinWait1 | State::FinWait2 | State::Closing) && change == Change::Closed;
        let waiting = waits.then(|| TimeWait::of(connection)).filter(|_| has_bucket);
        match waiting {
            Some(waiting) => {
                let id = self.time_waits.begin(peer, waiting, now);
                self.ends.insert(peer, End::TimeWait(id));
            }
            None => self.ends.remove(peer),
        }
        self.counters.time_wait_overflows += u64::from(waits && waiting.is_none());
        if socket.is_closed {
            self.sockets.remove(id);
        }
    }

    /// The guard resets both ends.
    fn destroy(&mut self, id: SocketId, now: Nanos, out: &mut impl Outside) {
        let socket = &mut self.sockets[id];
        socket.waits_no_more(&mut self.followed, false, now);
        self.ends.remove(socket.peer);
        if socket.is_closed {
            self.sockets.remove(id);
            return;
        }
        socket.connection.forget();
        socket.is_reset = true;
        if socket.is_open() {
            out.tell(News::Readable(id));
        }
        socket.tell_writer(id, out);
    }

    /// Sees to it that its timer comes up in time. One that comes up too early looks again.
    fn schedule(&mut self, id: SocketId, out: &mut impl Outside) {
        let socket = &mut self.sockets[id];
        let deadline = socket.connection.deadline();
        if deadline < socket.wakes_at {
            socket.wakes_at = deadline;
            out.wake(deadline, Timer::Socket(id));
        }
    }

    pub(super) fn socket_timed_out(&mut self, id: SocketId, now: Nanos, out: &mut impl Outside) {
        let stack = self.config.stack;
        let Some(socket) = self.sockets.get_mut(id).filter(|socket| socket.is_due(now)) else {
            return; // it has ended, or another has taken its place
        };
        socket.wakes_at = Nanos::MAX;
        let (peer, before) = (socket.peer, socket.connection.state());
        let sending = self.config.sending.as_ref();
        socket.allow(sending);
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        let taken = Taken::of(&socket.written, &socket.connection, socket.send_buffer, socket.waits_for_room);
        let change = socket.connection.on_deadline(stack, &taken, now, &mut send);
        drop(send);
        if socket.connection.state() != State::Closed {
            self.schedule(id, out);
        } else if before != State::Closed {
            socket.is_reset |= change == Change::GaveUp;
            if socket.is_open() {
                out.tell(News::Readable(id));
            }
            socket.tell_writer(id, out);
            self.gone(id, before, change, now);
        }
    }

    /// accept(2): the next connection and its client, or `None` when none waits.
    pub fn accept(&mut self) -> Option<(SocketId, Peer)> {
        let id = self.accept_queue.pop_front()?;
        let socket = &mut self.sockets[id];
        socket.is_accepted = true;
        Some((id, socket.peer))
    }

    /// read(2) of at most `max` bytes into the end of `to`.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn read(&mut self, id: SocketId, max: usize, to: &mut Vec<u8>) -> Read {
        let socket = &mut self.sockets[id];
        let len = socket.unread().min(max);
        if len > 0 {
            to.extend_from_slice(&socket.received[socket.read..socket.read + len]);
            socket.read += len;
            if socket.unread() == 0 {
                socket.received.clear();
                socket.read = 0;
            }
            return Read::Bytes(len);
        }
        match (socket.is_reset, socket.is_over) {
            (true, _) => Read::Reset,
            (false, true) => Read::Eof,
            (false, false) => Read::Nothing,
        }
    }

    /// write(2). All is taken.
    ///
    /// # Errors
    ///
    /// When nobody can be sent anything any more.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn write(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        now: Nanos,
        out: &mut impl Outside,
    ) -> Result<(), WriteError> {
        let stack = self.config.stack;
        let socket = &mut self.sockets[id];
        if !matches!(socket.connection.state(), State::Established | State::CloseWait) {
            return Err(WriteError);
        }
        socket.waits_no_more(&mut self.followed, true, now);
        if socket.connection.next_stream() {
            socket.written.clear();
        }
        let sending = self.config.sending.as_ref();
        if let Some((outgoing, sending)) = socket.outgoing.as_mut().zip(sending) {
            let unsent = socket.written.len() as u64 - socket.connection.sent();
            let seq = socket.connection.sends_next() + unsent as u32;
            outgoing.respond(sending, seq, bytes.len() as u64);
        }
        socket.written.extend_from_slice(bytes);
        let peer = socket.peer;
        socket.allow(sending);
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        let taken = Taken::of(&socket.written, &socket.connection, socket.send_buffer, socket.waits_for_room);
        socket.connection.transmit(stack, &taken, now, &mut send);
        drop(send);
        self.schedule(id, out);
        Ok(())
    }

    /// Whether a program that writes and waits may go on: what the send buffer does not hold was
    /// acknowledged. Otherwise it is told when.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn wait_for_room(&mut self, id: SocketId) -> bool {
        let socket = &mut self.sockets[id];
        socket.waits_for_room = !socket.has_room();
        if let Some(outgoing) = &mut socket.outgoing {
            outgoing.block(socket.waits_for_room);
        }
        !socket.waits_for_room
    }

    /// shutdown(2) of the way to the client.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn shutdown(&mut self, id: SocketId, now: Nanos, out: &mut impl Outside) {
        let stack = self.config.stack;
        let socket = &mut self.sockets[id];
        socket.waits_no_more(&mut self.followed, false, now);
        let peer = socket.peer;
        let sending = self.config.sending.as_ref();
        socket.allow(sending);
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        socket.connection.half_close(stack, &socket.written, now, &mut send);
        drop(send);
        self.schedule(id, out);
    }

    /// Whether the client has ended its way, or the connection is destroyed: nobody will be told
    /// again.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn is_over(&self, id: SocketId) -> bool {
        let socket = &self.sockets[id];
        socket.is_over || socket.is_reset
    }

    /// The program waits for the client's end for so long at most: then it is told that something
    /// can be read, and finds nothing.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn linger(&mut self, id: SocketId, until: Nanos, out: &mut impl Outside) {
        self.sockets[id].lingers_until = until;
        out.wake(until, Timer::Linger(id));
    }

    /// The program asks another server for this connection, which answers at that moment.
    pub fn ask_another(&mut self, id: SocketId, answers: Nanos, out: &mut impl Outside) {
        out.wake(answers, Timer::Backend(id));
    }

    /// A segment of a connection was dropped before it left the host. TCP learns of it as of any
    /// that is lost.
    pub fn lost_below(&mut self, to: Peer, seq: SeqNumber) {
        if let Some(End::Socket(id)) = self.ends.get(to)
            && let Some(outgoing) = &mut self.sockets[id].outgoing
        {
            outgoing.left(seq);
        }
    }

    /// A segment of a connection has left the host: another may take its place below TCP.
    pub fn transmitted(&mut self, to: Peer, seq: SeqNumber, now: Nanos, out: &mut impl Outside) {
        let Some(End::Socket(id)) = self.ends.get(to) else {
            return;
        };
        let stack = self.config.stack;
        let sending = self.config.sending.as_ref();
        let socket = &mut self.sockets[id];
        let was_below = socket.outgoing.as_mut().is_some_and(|outgoing| outgoing.left(seq));
        if !was_below || !socket.connection.is_held() {
            return;
        }
        let peer = socket.peer;
        socket.allow(sending);
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        let taken = Taken::of(&socket.written, &socket.connection, socket.send_buffer, socket.waits_for_room);
        socket.connection.transmit(stack, &taken, now, &mut send);
        drop(send);
        self.schedule(id, out);
    }

    /// close(2): by FIN, or where something was received and not read by RST (RFC 2525 section
    /// 2.17).
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn close(&mut self, id: SocketId, now: Nanos, out: &mut impl Outside) {
        let stack = self.config.stack;
        let socket = &mut self.sockets[id];
        let (peer, before) = (socket.peer, socket.connection.state());
        socket.is_closed = true;
        if before == State::Closed {
            self.sockets.remove(id);
            return;
        }
        // The kernel's state changes with the FIN: `on_state()` of kernel/follow.bpf.h.
        socket.waits_no_more(&mut self.followed, false, now);
        let sending = self.config.sending.as_ref();
        socket.allow(sending);
        let mut send = sender(peer, socket.outgoing.as_deref_mut(), sending, out);
        if socket.received.len() > socket.read {
            self.counters.out_rsts += 1;
            socket.connection.close(stack, Close::Reset, now, &mut send);
        } else {
            socket.connection.close_after(stack, &socket.written, now, &mut send);
        }
        drop(send);
        if socket.connection.state() == State::Closed {
            self.gone(id, before, Change::Reset, now);
        } else {
            self.schedule(id, out);
        }
    }
}

fn is_fin(segment: &Segment<'_>) -> bool {
    let flags = segment.flags;
    flags.has(Flags::FIN | Flags::ACK) && !flags.has(Flags::SYN) && !flags.has(Flags::RST)
}

fn work_of(segment: &Segment<'_>) -> Work {
    match segment.flags {
        flags if flags.has(Flags::RST) => Work::Reset,
        flags if flags.has(Flags::FIN) => Work::Fin,
        _ if !segment.payload.is_empty() => Work::Data,
        _ => Work::Ack,
    }
}
