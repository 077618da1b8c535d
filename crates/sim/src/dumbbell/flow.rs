//! A flow: a TCP connection between two hosts, with both of its ends.

use tcp::{Change, Connection, Control, Handshake, Stack, State, Zeros, reset_for};
use units::Nanos;
use wire::{Flags, Options, Segment};

use super::packet::{FlowKey, ISS, Role, Route};

/// What a flow is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Goes on to the end of the run; by its number.
    Bulk(u32),
    /// An object of a user's page.
    Object { user: u32 },
}

/// Where a flow is and what it carries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) purpose: Purpose,
    pub(super) opener: u32,
    pub(super) acceptor: u32,
    /// Bytes that the opener sends; `u64::MAX` do not end.
    pub(super) ask: u64,
    /// Bytes that the acceptor sends once it has these, before it closes.
    pub(super) reply: u64,
}

/// The end that is opened.
#[derive(Debug)]
enum Acceptor {
    Listening,
    /// With when the SYN/ACK is sent again.
    Requested(Handshake, Nanos),
    Open(Connection),
    /// The handshake has failed.
    Gone,
}

/// What a flow tells the user, or whoever wants it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Bytes that the opener has got, and the acceptor.
    pub(super) heard: [u64; 2],
    /// The whole reply is there.
    pub(super) is_complete: bool,
    /// It will never be.
    pub(super) has_failed: bool,
}

/// A connection, both ends of it.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) plan: Plan,
    pub(super) started: Nanos,
    opener: Connection,
    acceptor: Acceptor,
    is_replying: bool,
    /// Bytes that each end has got.
    heard: [u64; 2],
    is_told: bool,
    /// For when each end's deadline is in the event queue.
    pub(super) woken_at: [Nanos; 2],
    hash: u32,
}

/// What each end is given: its TCP, and how it sends large streams.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) stack: &'a Stack,
    pub(super) control: Control,
}

impl Flow {
    /// The SYN leaves.
    pub(super) fn open(
        plan: Plan,
        (key, hash): (FlowKey, u32),
        ends: Ends<'_>,
        now: Nanos,
        send: &mut impl FnMut(Route, &Segment<'_>),
    ) -> Self {
        let route = route(&plan, key, hash, Role::Acceptor);
        let mut opener = Connection::connect(ends.stack, ISS, 0, now, &mut |segment| send(route, segment));
        ends.take_control(&mut opener, plan.ask);
        Self {
            plan,
            started: now,
            opener,
            acceptor: Acceptor::Listening,
            is_replying: false,
            heard: [0; 2],
            is_told: false,
            woken_at: [Nanos::MAX; 2],
            hash,
        }
    }

    /// Takes in a segment for one end.
    pub(super) fn receive(
        &mut self,
        (key, to): (FlowKey, Role),
        segment: &Segment<'_>,
        ends: Ends<'_>,
        now: Nanos,
        send: &mut impl FnMut(Route, &Segment<'_>),
    ) -> News {
        let before = self.heard;
        match to {
            Role::Opener => {
                let route = route(&self.plan, key, self.hash, Role::Acceptor);
                self.receive_at_opener(segment, ends, now, &mut |segment| send(route, segment));
            }
            Role::Acceptor => {
                let route = route(&self.plan, key, self.hash, Role::Opener);
                self.receive_at_acceptor(segment, ends, now, &mut |segment| send(route, segment));
            }
        }
        self.news(before)
    }

    fn receive_at_opener(
        &mut self,
        segment: &Segment<'_>,
        ends: Ends<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let ask = Zeros(self.plan.ask);
        if self.opener.state() == State::Closed {
            if let Some(reset) = reset_for(segment) {
                send(&reset);
            }
            return;
        }
        let heard = self.opener.on_segment(ends.stack, segment, now, send);
        self.heard[Role::Opener as usize] += (heard.data.len() + heard.then.len()) as u64;
        self.opener.transmit(ends.stack, &ask, now, send);
        if heard.change == Change::PeerClosed {
            self.opener.close_after(ends.stack, &ask, now, send);
        }
    }

    fn receive_at_acceptor(
        &mut self,
        segment: &Segment<'_>,
        ends: Ends<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let is_syn = segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK);
        match &mut self.acceptor {
            Acceptor::Listening if is_syn => {
                let handshake = Handshake::begin(segment, ISS, now);
                send(&handshake.syn_ack(ends.stack, 0, now));
                self.acceptor = Acceptor::Requested(handshake, now + ends.syn_ack_timeout(&handshake));
            }
            // A SYN that is sent again is answered again, which puts the timer off
            // (`tcp_check_req()`, Linux 6.18 `net/ipv4/tcp_minisocks.c`).
            Acceptor::Requested(handshake, again_at) if is_syn => {
                send(&handshake.syn_ack(ends.stack, 0, now));
                handshake.repeat();
                *again_at = now + ends.syn_ack_timeout(handshake);
            }
            Acceptor::Requested(..) if segment.flags.has(Flags::RST) => self.acceptor = Acceptor::Gone,
            Acceptor::Requested(handshake, _) if handshake.is_acknowledged_by(segment) => {
                let mut connection = handshake.established(ends.stack, 0, now);
                ends.take_control(&mut connection, self.plan.reply);
                self.acceptor = Acceptor::Open(connection);
                self.receive_at_open_acceptor(segment, ends, now, send);
            }
            Acceptor::Open(_) => self.receive_at_open_acceptor(segment, ends, now, send),
            Acceptor::Listening | Acceptor::Requested(..) | Acceptor::Gone => {}
        }
    }

    fn receive_at_open_acceptor(
        &mut self,
        segment: &Segment<'_>,
        ends: Ends<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let Acceptor::Open(connection) = &mut self.acceptor else {
            return;
        };
        if connection.state() == State::Closed {
            // It closed first: TIME-WAIT acknowledges again what is sent again (RFC 9293 section
            // 3.10.7.4).
            if !segment.is_empty() && !segment.flags.has(Flags::RST) {
                let (seq, ack) = (connection.sends_next(), connection.expects());
                let options = Options::NONE;
                send(&Segment { seq, ack, flags: Flags::ACK, window: 0, options, payload: &[] });
            }
            return;
        }
        let heard = connection.on_segment(ends.stack, segment, now, send);
        let got = &mut self.heard[Role::Acceptor as usize];
        *got += (heard.data.len() + heard.then.len()) as u64;
        if !self.is_replying && self.plan.reply > 0 && *got >= self.plan.ask {
            self.is_replying = true;
            connection.close_after(ends.stack, &Zeros(self.plan.reply), now, send);
        } else {
            let reply = if self.is_replying { self.plan.reply } else { 0 };
            connection.transmit(ends.stack, &Zeros(reply), now, send);
        }
    }

    /// What is due at one end.
    pub(super) fn on_deadline(
        &mut self,
        (key, at): (FlowKey, Role),
        ends: Ends<'_>,
        now: Nanos,
        send: &mut impl FnMut(Route, &Segment<'_>),
    ) -> News {
        let to = if at == Role::Opener { Role::Acceptor } else { Role::Opener };
        let route = route(&self.plan, key, self.hash, to);
        let send = &mut |segment: &Segment<'_>| send(route, segment);
        let reply = if self.is_replying { self.plan.reply } else { 0 };
        match (at, &mut self.acceptor) {
            (Role::Opener, _) => {
                self.opener.on_deadline(ends.stack, &Zeros(self.plan.ask), now, send);
            }
            (Role::Acceptor, Acceptor::Open(connection)) => {
                connection.on_deadline(ends.stack, &Zeros(reply), now, send);
            }
            (Role::Acceptor, Acceptor::Requested(handshake, again_at)) if *again_at <= now => {
                if handshake.timeouts >= SYN_ACK_RETRIES {
                    self.acceptor = Acceptor::Gone;
                } else {
                    send(&handshake.syn_ack(ends.stack, 0, now));
                    handshake.time_out();
                    *again_at = now + ends.syn_ack_timeout(handshake);
                }
            }
            (Role::Acceptor, _) => {}
        }
        self.news(self.heard)
    }

    /// When an end wants to be called.
    pub(super) fn deadline(&self, of: Role) -> Nanos {
        match (of, &self.acceptor) {
            (Role::Opener, _) => self.opener.deadline(),
            (Role::Acceptor, Acceptor::Open(connection)) => connection.deadline(),
            (Role::Acceptor, Acceptor::Requested(_, again_at)) => *again_at,
            (Role::Acceptor, Acceptor::Listening | Acceptor::Gone) => Nanos::MAX,
        }
    }

    /// Whether both ends are closed, so that nothing will ever be sent again.
    pub(super) fn is_over(&self) -> bool {
        let is_accepted_over = match &self.acceptor {
            Acceptor::Open(connection) => connection.state() == State::Closed,
            Acceptor::Requested(..) => false,
            Acceptor::Listening | Acceptor::Gone => true,
        };
        self.opener.state() == State::Closed && is_accepted_over
    }

    fn news(&mut self, before: [u64; 2]) -> News {
        let heard = [self.heard[0] - before[0], self.heard[1] - before[1]];
        if self.is_told {
            return News { heard, ..News::default() };
        }
        let is_complete = self.plan.reply > 0 && self.heard[Role::Opener as usize] >= self.plan.reply;
        let has_failed = !is_complete && self.opener.state() == State::Closed;
        self.is_told = is_complete || has_failed;
        News { heard, is_complete, has_failed }
    }
}

impl Ends<'_> {
    /// A stream that fits the initial window needs no control.
    fn take_control(&self, connection: &mut Connection, stream: u64) {
        if stream > u64::from(self.stack.mss) {
            connection.control(self.control);
        }
    }

    fn syn_ack_timeout(&self, handshake: &Handshake) -> Nanos {
        handshake.timeout(self.stack.initial_rto, self.stack.rto.most)
    }
}

/// Times that an unanswered SYN/ACK is sent again (`net.ipv4.tcp_synack_retries`).
const SYN_ACK_RETRIES: u8 = 5;

fn route(plan: &Plan, flow: FlowKey, hash: u32, to: Role) -> Route {
    let (from_host, to_host) = match to {
        Role::Acceptor => (plan.opener, plan.acceptor),
        Role::Opener => (plan.acceptor, plan.opener),
    };
    let is_short = matches!(plan.purpose, Purpose::Object { .. });
    // Only an object's reply has a head with its length.
    let response_bytes = if is_short && to == Role::Opener { plan.reply } else { 0 };
    Route { flow, to, from_host, to_host, hash, is_short, response_bytes }
}
