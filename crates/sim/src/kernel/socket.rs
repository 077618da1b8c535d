//! A connection from its handshake's end on, and the system calls on it.

use std::fmt;

use pacer::Wait;
use tcp::{Change, Close, Connection, State};
use units::Nanos;
use verdict::Fin;
use wire::{Flags, Segment};

use super::{End, Kernel, News, Outside, Peer, SocketId, TIME_WAIT, TimeWait, Timer, Work};

/// Data that a send buffer holds, bytes: twice ten segments (`tcp_init_buffer_space()`, 6.18 `net/ipv4/tcp_input.c`). Differs: it does not grow with the window.
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

    pub(super) fn new(peer: Peer, connection: Connection) -> Self {
        Self {
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
            State::LastAck => SocketState::LastAck,
        }
    }

    /// Accepted, and not closed: whatever comes can be read.
    fn is_open(&self) -> bool {
        self.is_accepted && !self.is_closed
    }

    fn unread(&self) -> usize {
        self.received.len() - self.read
    }

    /// What was written and is not acknowledged fits the send buffer; or nobody will take it any more.
    fn has_room(&self) -> bool {
        let is_open = matches!(self.connection.state(), State::Established | State::CloseWait);
        !is_open || self.written.len() as u64 <= self.connection.acknowledged() + SEND_BUFFER
    }

    /// The program goes on, if it sleeps for want of room and there is some now.
    fn tell_writer(&mut self, id: SocketId, out: &mut impl Outside) {
        if self.waits_for_room && self.has_room() {
            self.waits_for_room = false;
            out.tell(News::Writable(id));
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
        let mut send = |segment: &Segment<'_>| out.send(peer, segment);
        let heard = socket.connection.on_segment(stack, segment, now, &mut send);
        socket.received.extend_from_slice(heard.data);
        socket.received.extend_from_slice(&heard.then);
        socket.is_over |= heard.change == Change::PeerClosed;
        socket.is_reset |= matches!(heard.change, Change::Reset | Change::GaveUp);
        socket.connection.transmit(stack, &socket.written, now, &mut send);
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
        let socket = &mut self.sockets[id];
        socket.waits_no_more(&mut self.followed, false, now);
        let (peer, connection) = (socket.peer, &socket.connection);
        let waits =
            matches!(before, State::FinWait1 | State::FinWait2 | State::Closing) && change == Change::Closed;
        if waits {
            let (snd_nxt, rcv_nxt) = (connection.sends_next(), connection.expects());
            let until = now + TIME_WAIT;
            let end = End::TimeWait(self.time_waits.insert(TimeWait { until, snd_nxt, rcv_nxt }));
            self.ends.insert(peer.number(), end);
        } else {
            self.ends.remove(peer.number());
        }
        if socket.is_closed {
            self.sockets.remove(id);
        }
    }

    /// The guard resets both ends.
    fn destroy(&mut self, id: SocketId, now: Nanos, out: &mut impl Outside) {
        let socket = &mut self.sockets[id];
        socket.waits_no_more(&mut self.followed, false, now);
        self.ends.remove(socket.peer.number());
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
        let mut send = |segment: &Segment<'_>| out.send(peer, segment);
        let change = socket.connection.on_deadline(stack, &socket.written, now, &mut send);
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
        socket.written.extend_from_slice(bytes);
        let peer = socket.peer;
        socket.connection.transmit(stack, &socket.written, now, &mut |segment| out.send(peer, segment));
        self.schedule(id, out);
        Ok(())
    }

    /// Whether a program that writes and waits may go on: what the send buffer does not hold was acknowledged. Otherwise it is told when.
    ///
    /// # Panics
    ///
    /// For one that was closed.
    pub fn wait_for_room(&mut self, id: SocketId) -> bool {
        let socket = &mut self.sockets[id];
        socket.waits_for_room = !socket.has_room();
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
        let mut send = |segment: &Segment<'_>| out.send(peer, segment);
        socket.connection.half_close(stack, &socket.written, now, &mut send);
        self.schedule(id, out);
    }

    /// close(2): by FIN, or where something was received and not read by RST (RFC 2525 section 2.17).
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
        let mut send = |segment: &Segment<'_>| out.send(peer, segment);
        if socket.unread() > 0 {
            self.counters.out_rsts += 1;
            socket.connection.close(stack, Close::Reset, now, &mut send);
        } else {
            socket.connection.close_after(stack, &socket.written, now, &mut send);
        }
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
