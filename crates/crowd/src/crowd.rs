//! The crowd: every attempt from its start to its cause. Told the time and handed segments, without
//! I/O.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use results::Statuses;
use tcp::{Change, Close, Connection, State, reset_for};
use traffic::{Schedule, Sessions};
use units::Nanos;
use wire::{Segment, SeqNumber};

use crate::asks::Asks;
use crate::attempt::{Abort, Attempt, Cause, Ended, NO_SESSION, asker};
use crate::clients::{Clients, Endpoint};
use crate::ports::{Loop, Ports};
use crate::reply::{Progress, Reply};
use crate::stacks::Stacks;
use crate::table::Table;
use crate::tally::{Tally, Window};
use crate::wheel::Wheel;
use visits::{Visits, Wish};

mod visits;

/// What every attempt does.
#[derive(Debug, Clone)]
pub struct Manners {
    /// How long the application waits for a complete reply, from when the request should have been
    /// sent.
    pub timeout: Nanos,
    /// Users who stop waiting earlier, and reload.
    pub abort: Option<Abort>,
    /// Requests that a connection carries at most, of one user after the other: 1 is a connection
    /// for each. A user takes a connection that is idle and below that, the one idle for longest,
    /// and opens another if there is none (`[SH06]` section 2.4). A reload always opens another.
    pub reuse: u8,
    /// Groups of clients, at different distances from the server: users are of one after the other,
    /// and connections are reused within a group. 1 if all are alike.
    pub groups: u8,
    /// Users who go on to other pages; without, each asks once.
    pub sessions: Option<Sessions>,
    /// Which of the users are this crowd's.
    pub shard: Shard,
    /// How the connection is closed once the reply is complete, or the user has lost patience.
    pub close: Close,
    /// Attempts start from time zero to the end of this window; its start ends the warm-up.
    pub window: Window,
    /// The clients' systems.
    pub stacks: Stacks,
    /// What the clients' timestamps show at time zero, milliseconds.
    pub clock: u32,
    /// Seed of the initial sequence numbers, of who has which system, and of what users of sessions
    /// do.
    pub seed: u64,
    /// Number of the first endpoint: runs that follow each other should not begin at the same.
    pub first_endpoint: u64,
}

/// A part of a crowd that several generators send together: of so many parts this one, from 0. The
/// users of all parts are those of the whole crowd, each with his own time, system and questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// All of the crowd.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Most parts: more than there are hosts.
    pub const MOST: u32 = 1 << 20;

    /// Part `index` of `count`, from 0; none when there is no such part.
    pub fn new(index: u32, count: u32) -> Option<Self> {
        (index < count && count <= Self::MOST).then_some(Self { index, count })
    }

    /// What of this part one worker of so many sends, from 0: together they have its users, however
    /// many they are, so that other parts may have other numbers of workers.
    pub fn of_worker(self, worker: u32, workers: u32) -> Self {
        debug_assert!(worker < workers, "{worker} of {workers}");
        Self { index: self.index + self.count * worker, count: self.count * workers }
    }

    /// As it is asked for, `2/3`; none of the whole.
    pub fn name(self) -> Option<String> {
        (self.count > 1).then(|| format!("{}/{}", self.index + 1, self.count))
    }

    /// How many parts there are.
    pub fn count(self) -> u32 {
        self.count
    }
}

/// Who tries.
struct User {
    number: u64,
    /// As [`Attempt::session`] and [`Attempt::object`].
    session: u32,
    object: u32,
    /// Of the first attempt.
    start: Nanos,
    /// Attempts before this one.
    reloads: u8,
}

/// Users who come back, and when each does next.
#[derive(Debug)]
struct Turns {
    of: Loop,
    /// When, the user's number, and how often he has asked before.
    due: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
}

impl Turns {
    /// When the next of them asks.
    fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }
}

/// Where a connection comes from.
struct Origin {
    endpoint: Endpoint,
    iss: SeqNumber,
    /// What its timestamps show at time zero, milliseconds.
    clock: u32,
}

/// Connections of a group.
#[derive(Debug, Clone, Default)]
struct Pool {
    opened: u64,
    idle: VecDeque<u32>,
}

/// The crowd.
#[derive(Debug)]
pub struct Crowd {
    manners: Manners,
    asks: Asks,
    clients: Clients,
    schedule: Schedule,
    visits: Option<Visits>,
    /// In place of the schedule, where users come back.
    turns: Option<Turns>,
    /// Where four-tuples come back.
    ports: Option<Ports>,
    /// The server closes first, and clients when they have the end.
    server_closes_first: bool,
    /// Clients say so before they close.
    says_close: bool,
    /// Users whose turn has come, sent or not.
    users: u64,
    /// Attempts, with the reloads.
    started: u64,
    /// Of each group: connections so far, and those that are idle, by id, longest first.
    pools: Vec<Pool>,
    table: Table,
    wheel: Wheel,
    tally: Tally,
    /// What has ended since [`Crowd::take_ended`], if that is wanted.
    ended: Option<Vec<Ended>>,
    /// Attempts without a cause yet.
    open: usize,
    peak: usize,
}

impl Crowd {
    /// Memory for one live connection, bytes: its slot, its index entry, its timer.
    pub const BYTES_PER_CONNECTION: usize = Table::BYTES_PER_ATTEMPT + Wheel::BYTES_PER_ID;

    /// A crowd that has not started. `capacity` live connections fit without growing.
    pub fn new(manners: Manners, asks: Asks, clients: Clients, schedule: Schedule, capacity: usize) -> Self {
        assert!(manners.reuse > 0 && manners.groups > 0, "{manners:?} has no connection, or nobody");
        let mut crowd = Self {
            tally: Tally::new(manners.window, manners.groups),
            pools: vec![Pool::default(); manners.groups.into()],
            visits: manners.sessions.map(|sessions| Visits::new(sessions, manners.seed)),
            manners,
            asks,
            clients,
            schedule,
            turns: None,
            ports: None,
            server_closes_first: false,
            says_close: false,
            users: 0,
            started: 0,
            table: Table::new(clients, capacity),
            wheel: Wheel::with_capacity(capacity),
            ended: None,
            open: 0,
            peak: 0,
        };
        crowd.pass_others();
        crowd
    }

    /// Its clients have so many ports, which come back. Of a crowd that one worker sends.
    pub fn with_ports(mut self, ports: Ports) -> Self {
        assert!((1..=Ports::MOST).contains(&ports.count), "{ports:?}");
        self.ports = Some(ports);
        self
    }

    /// Its users come back as soon as they have an answer; nobody comes by the schedule. With
    /// [`Crowd::with_ports`] user `n` is of client `n`, and again from the first.
    pub fn in_a_loop(mut self, users: Loop) -> Self {
        let come = |user: u64| {
            let within = Loop::COME_WITHIN.0.min(self.manners.window.end.0 / 2).max(1);
            Reverse((Nanos(mix(self.manners.seed, user) % within), user, 0))
        };
        self.turns = Some(Turns { of: users, due: (0..users.users.into()).map(come).collect() });
        self
    }

    /// Each request says that the connection ends with its reply, and the client waits for the end
    /// before it closes.
    pub fn let_server_close_first(mut self) -> Self {
        self.asks.close_after_each();
        self.server_closes_first = true;
        self
    }

    /// After its last reply a client sends CLIENT_CLOSE, which has no reply, and closes
    /// (`[FTY97]`).
    pub fn say_client_close(mut self) -> Self {
        self.says_close = true;
        self
    }

    /// Goes on to the next user who is one of ours.
    fn pass_others(&mut self) {
        let Shard { index, count } = self.manners.shard;
        while self.users % u64::from(count) != u64::from(index) && self.next_user().is_some() {
            self.schedule.advance();
            self.users += 1;
        }
    }

    /// From now on it keeps a record of each attempt that ends, until it is taken.
    pub fn keep_ended(&mut self) {
        self.ended = Some(Vec::new());
    }

    /// The attempts that have ended since the last call. Of those that never left there is none.
    pub fn take_ended(&mut self) -> impl Iterator<Item = Ended> + '_ {
        self.ended.iter_mut().flat_map(|ended| ended.drain(..))
    }

    /// When the next attempt should start; `None` when there are no more.
    pub fn next_start(&self) -> Option<Nanos> {
        self.next_user().into_iter().chain(self.next_object()).min()
    }

    /// When the next user comes.
    fn next_user(&self) -> Option<Nanos> {
        let next = match &self.turns {
            Some(turns) => turns.next(),
            None => Some(self.schedule.intended_start()),
        };
        next.filter(|&next| next < self.manners.window.end)
    }

    /// When the next object of a session is asked for.
    fn next_object(&self) -> Option<Nanos> {
        self.visits.as_ref().and_then(Visits::next).filter(|&next| next < self.manners.window.end)
    }

    /// Who starts next. `None` when there are no more, and when it was one who has left.
    fn take_next(&mut self) -> Option<User> {
        let user = |wish: Wish| User {
            number: wish.user,
            session: wish.id,
            object: wish.object,
            start: wish.at,
            reloads: 0,
        };
        let (next_user, next_object) = (self.next_user(), self.next_object());
        let is_object = next_object.is_some_and(|at| next_user.is_none_or(|user| at < user));
        if is_object {
            return self.visits.as_mut().and_then(Visits::take_next).map(user);
        }
        let start = next_user?;
        if let Some(turns) = &mut self.turns {
            let Reverse((start, number, object)) = turns.due.pop()?;
            self.users += 1;
            return Some(User { number, session: NO_SESSION, object, start, reloads: 0 });
        }
        self.schedule.advance();
        let number = self.users;
        self.users += 1;
        self.pass_others();
        Some(match &mut self.visits {
            Some(visits) => user(visits.begin(number, start)),
            None => User { number, session: NO_SESSION, object: 0, start, reloads: 0 },
        })
    }

    /// Starts the next attempt when its time has come. Gives whether it did.
    pub fn start_next(&mut self, now: Nanos, send: &mut impl FnMut(Endpoint, &Segment<'_>)) -> bool {
        while self.next_start().is_some_and(|start| start <= now) {
            if let Some(user) = self.take_next() {
                let intended_start = user.start;
                self.start(user, intended_start, now, send);
                return true;
            }
        }
        false
    }

    fn start(
        &mut self,
        user: User,
        intended_start: Nanos,
        now: Nanos,
        send: &mut impl FnMut(Endpoint, &Segment<'_>),
    ) {
        let group = self.group(user.number);
        if user.reloads == 0
            && let Some(id) = self.take_idle(group)
        {
            self.reuse(id, &user, intended_start, now, send);
            return;
        }
        let origin = self.origin(user.number, group, now);
        // A user's system is the same after a reload.
        let stack = self.manners.stacks.pick(mix(self.manners.seed, user.number));
        self.started += 1;
        self.pools[group].opened += 1;
        let Origin { endpoint, iss, clock } = match origin {
            Ok(origin) => origin,
            Err(cause) => return self.not_begun(&user, cause, intended_start, now),
        };
        self.tally.started(intended_start, now);
        self.tally.syn(true, now);
        let mut connection =
            Connection::connect(stack, iss, clock, now, &mut |segment| send(endpoint, segment));
        if let Some(ports) = self.ports.filter(|ports| !ports.is_nat) {
            connection.keep_time_wait(ports.time_wait_s);
        }
        let mut attempt = Attempt {
            intended_start,
            asked_at: intended_start,
            user_start: user.start,
            user: user.number,
            session: user.session,
            object: user.object,
            reloads: user.reloads,
            requests: 1,
            request: 0,
            is_between: false,
            is_asked: false,
            status: 0,
            is_idle: false,
            served: 1,
            has_begun: false,
            stack,
            endpoint,
            ended: false,
            awaits_end: false,
            says_close: false,
            connection,
            reply: Reply::default(),
        };
        attempt.requests = self.asks.requests(attempt.asker());
        let id = self.table.insert(attempt);
        self.open += 1;
        self.peak = self.peak.max(self.table.len());
        self.set_deadline(id);
    }

    /// An attempt ends before it has begun.
    fn not_begun(&mut self, user: &User, cause: Cause, intended_start: Nanos, now: Nanos) {
        self.tally.ended(cause, intended_start, 0, now);
        self.tally.gave_up(user.start);
        // Nobody knows what a page would have been.
        self.tally.incomplete(self.asks.bytes(asker(user.number, user.object), 0).unwrap_or(0), now);
        self.left((user.number, user.object), user.session, false, now);
    }

    /// Where a user's next connection comes from, or why from nowhere.
    fn origin(&mut self, user: u64, group: usize, now: Nanos) -> Result<Origin, Cause> {
        let clock = self.manners.clock;
        let Some(ports) = self.ports else {
            let endpoint = self.next_endpoint(group);
            let iss = SeqNumber((mix(!self.manners.seed, self.started) >> 32) as u32);
            let is_free = self.table.find(endpoint).is_none();
            return if is_free { Ok(Origin { endpoint, iss, clock }) } else { Err(Cause::NotSent) };
        };
        let client = (user % u64::from(self.clients.count())) as u32;
        let random = mix(!self.manners.seed, self.started);
        let of_client = (0..ports.count).map(|step| {
            let place = (random.wrapping_add(step.into()) % u64::from(ports.count)) as u16;
            self.clients.endpoint_at(client, place)
        });
        for endpoint in of_client {
            let Some(id) = self.table.find(endpoint) else {
                let (iss, clock) = if ports.is_nat {
                    ((random >> 32) as u32, clock.wrapping_add(random as u32))
                } else {
                    (first_number(self.manners.seed, self.clients.number(endpoint), clock, now), clock)
                };
                return Ok(Origin { endpoint, iss: SeqNumber(iss), clock });
            };
            let last = &self.table.get_mut(id).connection;
            let age = last.in_time_wait(now).filter(|_| last.has_timestamps());
            if let Some(after) = ports.reuse_after
                && age.is_some_and(|age| age > after)
            {
                let iss = last.sends_next() + BEYOND_THE_LAST;
                self.wheel.remove(id);
                self.table.remove(id);
                return Ok(Origin { endpoint, iss, clock });
            }
        }
        Err(Cause::NoPort)
    }

    /// Which group a user is of.
    fn group(&self, user: u64) -> usize {
        (user % u64::from(self.manners.groups)) as usize
    }

    /// Where the next connection of a group comes from.
    fn next_endpoint(&self, group: usize) -> Endpoint {
        let n = self.manners.first_endpoint.wrapping_add(self.pools[group].opened);
        self.clients.endpoint_of_group(n, group as u8, self.manners.groups)
    }

    /// A connection of a group that is idle, and whose last request was acknowledged.
    fn take_idle(&mut self, group: usize) -> Option<u32> {
        let Self { pools, table, .. } = self;
        let idle = &mut pools[group].idle;
        let place = idle.iter().position(|id| table.get_mut(*id).connection.next_stream())?;
        idle.remove(place)
    }

    /// A user asks on a connection that is there.
    fn reuse(
        &mut self,
        id: u32,
        user: &User,
        intended_start: Nanos,
        now: Nanos,
        send: &mut impl FnMut(Endpoint, &Segment<'_>),
    ) {
        self.started += 1;
        self.tally.started(intended_start, now);
        let attempt = self.table.get_mut(id);
        let endpoint = attempt.endpoint;
        (attempt.intended_start, attempt.asked_at) = (intended_start, intended_start);
        (attempt.user, attempt.user_start, attempt.reloads) = (user.number, user.start, user.reloads);
        (attempt.session, attempt.object) = (user.session, user.object);
        attempt.requests = self.asks.requests(attempt.asker());
        (attempt.request, attempt.reply, attempt.status) = (0, Reply::default(), 0);
        (attempt.is_between, attempt.is_asked, attempt.has_begun) = (false, false, false);
        (attempt.is_idle, attempt.ended) = (false, false);
        attempt.served += 1;
        self.open += 1;
        self.ask(id, now, &mut |segment: &Segment<'_>| send(endpoint, segment));
        self.settle(id);
    }

    /// Takes in a segment for one of our endpoints.
    pub fn on_segment(
        &mut self,
        endpoint: Endpoint,
        segment: &Segment<'_>,
        now: Nanos,
        send: &mut impl FnMut(Endpoint, &Segment<'_>),
    ) {
        let send = &mut |segment: &Segment<'_>| send(endpoint, segment);
        let Some(id) = self.table.find(endpoint) else {
            // A port that is closed by now: the client's kernel would answer so.
            if let Some(reset) = reset_for(segment) {
                send(&reset);
            }
            return;
        };
        let attempt = self.table.get_mut(id);
        let stack = attempt.stack;
        let syns = attempt.connection.syns_sent();
        let heard = attempt.connection.on_segment(stack, segment, now, send);
        if attempt.connection.syns_sent() > syns {
            self.tally.syn(false, now);
        }
        let pieces = [heard.data, &heard.then];
        let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).peekable();
        let is_unasked = attempt.is_between && pieces.peek().is_some();
        if !attempt.ended && !is_unasked && pieces.peek().is_some() {
            if !attempt.has_begun {
                attempt.has_begun = true;
                self.tally.begun(attempt.asked_at, now);
            }
            self.tally.received(heard.data.len() + heard.then.len(), now);
        }
        let read =
            pieces.map(|piece| attempt.reply.feed(piece)).find(|progress| *progress != Progress::Partial);
        let ended = match (read, heard.change) {
            (None, Change::PeerClosed | Change::Closed) => Some(attempt.reply.end()),
            (read, _) => read,
        };
        let is_closed = matches!(heard.change, Change::PeerClosed | Change::Closed);
        if attempt.awaits_end && is_closed {
            attempt.awaits_end = false;
            attempt.connection.close(stack, self.manners.close, now, send);
        }
        if attempt.is_idle && (is_closed || heard.change == Change::Reset || is_unasked) {
            self.close_idle(id, now, send);
            return;
        }
        let cause = match (ended, heard.change) {
            _ if is_unasked => Some(Cause::Malformed),
            // Other requests were to follow.
            (Some(Progress::Complete), _) => self.replied(id, now).or(is_closed.then_some(Cause::Malformed)),
            (Some(Progress::Malformed), _) => Some(Cause::Malformed),
            (_, Change::Refused) => Some(Cause::Refused),
            (_, Change::Reset) => Some(Cause::Reset),
            _ => None,
        };
        if let Some(cause) = cause {
            self.end(id, cause, now, send);
        } else {
            self.ask(id, now, send);
        }
        self.settle(id);
    }

    /// A reply is complete. Gives the attempt's cause when it was the last.
    fn replied(&mut self, id: u32, now: Nanos) -> Option<Cause> {
        let attempt = self.table.get_mut(id);
        if attempt.ended {
            return None;
        }
        let statuses = Statuses::of_reply(attempt.reply.status(), attempt.reply.interim().into());
        self.tally.status(statuses, attempt.intended_start);
        attempt.status = attempt.reply.status();
        let bytes = attempt.asked_bytes(&self.asks);
        let user_start = (attempt.request == 0).then_some(attempt.user_start);
        self.tally.replied(bytes, attempt.asked_at, user_start, now);
        let first_asked = user_start.unwrap_or(attempt.asked_at);
        let group = (attempt.user % u64::from(self.manners.groups)) as usize;
        self.tally.replied_to_group(group, first_asked, now);
        if attempt.request + 1 == attempt.requests {
            return Some(Cause::Ok);
        }
        attempt.reply = Reply::default();
        attempt.has_begun = false;
        attempt.is_between = true;
        attempt.asked_at = now;
        None
    }

    /// The server has closed an idle connection, or sends what nobody asked for: it is closed here,
    /// too.
    fn close_idle(&mut self, id: u32, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        let attempt = self.table.get_mut(id);
        attempt.is_idle = false;
        let user = attempt.user;
        attempt.connection.close(attempt.stack, self.manners.close, now, send);
        self.forget_idle(user, id);
        self.settle(id);
    }

    /// A connection is idle no longer, or no more.
    fn forget_idle(&mut self, user: u64, id: u32) {
        let group = self.group(user);
        self.pools[group].idle.retain(|idle| *idle != id);
    }

    /// Sends what of the request is unsent; of the next one, once the last was acknowledged.
    fn ask(&mut self, id: u32, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        let attempt = self.table.get_mut(id);
        if attempt.ended {
            return;
        }
        if attempt.is_between && attempt.connection.next_stream() {
            (attempt.is_between, attempt.is_asked) = (false, false);
            attempt.request += 1;
        }
        if attempt.is_asked {
            return;
        }
        let request = self.asks.request(attempt.asker(), attempt.request);
        attempt.connection.transmit(attempt.stack, request, now, send);
        let connection = &attempt.connection;
        attempt.is_asked = connection.sent() >= request.len() as u64
            && connection.first_unacknowledged() == connection.sends_next();
    }

    /// Does what one passed deadline asks for. Gives false when none has passed.
    pub fn on_deadline(&mut self, now: Nanos, send: &mut impl FnMut(Endpoint, &Segment<'_>)) -> bool {
        let Some(id) = self.wheel.pop(now) else {
            return false;
        };
        let attempt = self.table.get_mut(id);
        let endpoint = attempt.endpoint;
        if !attempt.ended && attempt.patience_ends(&self.manners) <= now {
            self.lose_patience(id, now, send);
        } else if attempt.awaits_end && attempt.patience_ends(&self.manners) <= now {
            attempt.awaits_end = false;
            attempt.connection.close(attempt.stack, self.manners.close, now, &mut |segment| {
                send(endpoint, segment);
            });
        } else {
            let send = &mut |segment: &Segment<'_>| send(endpoint, segment);
            let syns = attempt.connection.syns_sent();
            let request = match attempt.says_close {
                true => self.asks.client_close(),
                false => self.asks.request(attempt.asker(), attempt.request),
            };
            let change = attempt.connection.on_deadline(attempt.stack, request, now, send);
            if attempt.connection.syns_sent() > syns {
                self.tally.syn(false, now);
            }
            if change == Change::GaveUp && !attempt.ended {
                let (cause, user_start) = (timed_out(attempt), attempt.user_start);
                self.end(id, cause, now, send);
                self.tally.gave_up(user_start);
            }
        }
        self.settle(id);
        true
    }

    /// The application gives up, or the user, who may load the page again.
    fn lose_patience(&mut self, id: u32, now: Nanos, send: &mut impl FnMut(Endpoint, &Segment<'_>)) {
        let attempt = self.table.get_mut(id);
        let Attempt { endpoint, user, session, object, user_start, reloads, asked_at, .. } = *attempt;
        let bytes = attempt.asked_bytes(&self.asks);
        let abort = self.manners.abort.filter(|abort| asked_at + abort.after <= now);
        let cause = if abort.is_some() { Cause::Aborted } else { timed_out(attempt) };
        self.settle_cause(id, cause, now, &mut |segment: &Segment<'_>| send(endpoint, segment));
        if abort.is_some_and(|abort| reloads < abort.reloads) {
            self.tally.reloaded(now);
            let user = User { number: user, session, object, start: user_start, reloads: reloads + 1 };
            self.start(user, now, now, send);
        } else {
            self.tally.gave_up(user_start);
            self.tally.incomplete(bytes, now);
            self.left((user, object), session, false, now);
        }
    }

    /// Which part this is.
    pub fn shard(&self) -> Shard {
        self.manners.shard
    }

    /// Where it comes from.
    pub fn clients(&self) -> Clients {
        self.clients
    }

    /// How many groups of clients there are.
    pub fn groups(&self) -> u8 {
        self.manners.groups
    }

    /// Live connections.
    pub fn live(&self) -> usize {
        self.table.len()
    }

    /// Most connections that were alive at once.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// Begins another interval of response times.
    pub fn begin_interval(&mut self) {
        self.tally.begin_interval();
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Holds the counts against each other.
    ///
    /// # Panics
    ///
    /// In debug builds, when an attempt that has started is neither open nor has one cause.
    pub fn check(&self) {
        debug_assert_eq!(self.tally.open(), Some(self.open as u64), "every attempt is open or has one cause");
        debug_assert_eq!(
            self.table.iter().filter(|attempt| !attempt.ended).count(),
            self.open,
            "every open attempt is in the table"
        );
    }

    /// Whether every attempt has its cause and no more will start.
    pub fn is_over(&self) -> bool {
        self.next_start().is_none() && self.open == 0
    }

    /// Stops: what is open is unfinished; what should have started `grace` ago and has not was not
    /// sent.
    pub fn stop(&mut self, now: Nanos, grace: Nanos) {
        for attempt in self.table.iter().filter(|attempt| !attempt.ended) {
            self.tally.ended(Cause::Unfinished, attempt.intended_start, attempt.syns(), now);
            if let Some(ended) = &mut self.ended {
                ended.push(record(attempt, &self.clients, Cause::Unfinished, now));
            }
        }
        while self.next_start().is_some_and(|start| start + grace <= now) {
            if let Some(user) = self.take_next() {
                self.tally.ended(Cause::NotSent, user.start, 0, now);
                if let Some(visits) = self.visits.as_mut().filter(|_| user.session != NO_SESSION) {
                    visits.ended(user.session, false, now);
                }
            }
        }
    }

    /// Settles the cause of an attempt, once, and closes its connection; what it was for is had, or
    /// not.
    fn end(&mut self, id: u32, cause: Cause, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        let attempt = self.table.get_mut(id);
        let (session, asked) = (attempt.session, (attempt.user, attempt.object));
        if !attempt.ended {
            if cause != Cause::Ok {
                self.tally.incomplete(attempt.asked_bytes(&self.asks), now);
            }
            self.settle_cause(id, cause, now, send);
            self.left(asked, session, cause == Cause::Ok, now);
        }
    }

    /// The same of an attempt without a cause, whose user may try again.
    fn settle_cause(&mut self, id: u32, cause: Cause, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        let attempt = self.table.get_mut(id);
        attempt.ended = true;
        self.open -= 1;
        self.tally.ended(cause, attempt.intended_start, attempt.syns(), now);
        if let Some(ended) = &mut self.ended {
            ended.push(record(attempt, &self.clients, cause, now));
        }
        let is_reusable = cause == Cause::Ok
            && attempt.served < self.manners.reuse
            && attempt.connection.state() == State::Established;
        if is_reusable {
            (attempt.is_idle, attempt.is_between) = (true, true);
            let user = attempt.user;
            let group = self.group(user);
            self.pools[group].idle.push_back(id);
        } else if self.server_closes_first
            && cause == Cause::Ok
            && attempt.connection.state() == State::Established
        {
            attempt.awaits_end = true;
        } else if self.says_close && cause == Cause::Ok && attempt.connection.next_stream() {
            attempt.says_close = true;
            let goodbye = self.asks.client_close();
            attempt.connection.close_after(attempt.stack, goodbye, now, send);
        } else {
            attempt.connection.close(attempt.stack, self.manners.close, now, send);
        }
    }

    /// What a user asked for, or a session, is there, or will not come.
    fn left(&mut self, (user, turn): (u64, u32), session: u32, is_there: bool, now: Nanos) {
        if let Some(turns) = &mut self.turns {
            let wait = if is_there { turns.of.think } else { turns.of.think.max(Loop::AFTER_FAILURE) };
            turns.due.push(Reverse((now + wait, user, turn.wrapping_add(1))));
        }
        if let Some(visits) = self.visits.as_mut().filter(|_| session != NO_SESSION) {
            visits.ended(session, is_there, now);
        }
    }

    /// Forgets an attempt whose connection is over; else sees to its next deadline.
    fn settle(&mut self, id: u32) {
        let attempt = self.table.get_mut(id);
        if attempt.connection.state() == State::Closed {
            if attempt.is_idle {
                let user = attempt.user;
                self.forget_idle(user, id);
            }
            self.wheel.remove(id);
            self.table.remove(id);
        } else {
            self.set_deadline(id);
        }
    }

    fn set_deadline(&mut self, id: u32) {
        let attempt = self.table.get_mut(id);
        let mut deadline = attempt.connection.deadline();
        if !attempt.ended || attempt.awaits_end {
            deadline = deadline.min(attempt.patience_ends(&self.manners));
        }
        self.wheel.set(id, deadline);
    }
}

fn record(attempt: &Attempt, clients: &Clients, cause: Cause, now: Nanos) -> Ended {
    // Between two requests the last is answered already, and the last of all is when the attempt is
    // ok.
    let is_answered = attempt.is_between || cause == Cause::Ok;
    Ended {
        user: attempt.user,
        reloads: attempt.reloads,
        stack: attempt.stack,
        client: SocketAddr::new(clients.address(attempt.endpoint.client), attempt.endpoint.port),
        intended_start: attempt.intended_start,
        ended: now,
        cause,
        syns: attempt.syns(),
        replies: attempt.request + u8::from(is_answered),
        requests: attempt.requests,
        object: attempt.object,
        status: attempt.status,
    }
}

fn timed_out(attempt: &Attempt) -> Cause {
    if attempt.connection.has_connected() { Cause::TimedOutResponse } else { Cause::TimedOutConnect }
}

/// How far behind the last connection of a four-tuple in TIME-WAIT the next begins
/// (`tcp_twsk_unique()`, Linux 6.18 `net/ipv4/tcp_ipv4.c`).
const BEYOND_THE_LAST: u32 = 65_535 + 2;

/// Initial sequence number of a four-tuple at a moment: it rises by one each 64 ns, also from one
/// run to the next (RFC 6528; `secure_tcp_seq()`, Linux 6.18 `net/core/secure_seq.c`). `clock` is
/// that of timestamps at time zero, milliseconds.
fn first_number(seed: u64, endpoint: u64, clock: u32, now: Nanos) -> u32 {
    let since = (u64::from(clock) * 1_000_000 + now.0) >> 6;
    ((mix(!seed, endpoint) >> 32) as u32).wrapping_add(since as u32)
}

/// Spread over the whole space, so that a forged segment cannot guess what follows from it
/// (splitmix64's finalizer).
fn mix(seed: u64, n: u64) -> u64 {
    let mut mixed = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
