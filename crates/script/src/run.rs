//! A script is played to a system.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;

use units::Nanos;
use wire::{Flags, FourTuple, Options, Segment, SeqNumber};

use crate::{Action, Ends, Pattern, Read, Script, State, Step, System};

/// Longest wait for what must happen, beyond what the script says: a slow machine is no failure.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Kernel timers tick: what must come after a second may come after four fifths of it.
const EARLY: f64 = 0.8;
/// The same segment again, at least so much later, is a timer's work (TCP_RTO_MIN is 200 ms). Two
/// at once are none.
const RESEND_AFTER: Nanos = Nanos::from_millis(150);
/// Source ports of clients; below the ephemeral ones of kernels.
const FIRST_PORT: u16 = 20_000;
/// Hosts that try until one is chosen; with half of them refused, all but one in 2^64 searches end.
const MAX_SEARCH: usize = 64;
/// Clients count from here, so that their numbers wrap at once.
const CLIENT_ISN: u32 = 0xffff_ffff;
const WINDOW: u16 = 64_240;
const MSS: u16 = 1400;

/// Where a script and a system differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Of the script.
    pub file: String,
    /// Of the script, from 1.
    pub line: usize,
    /// What was expected and what came, or what went wrong.
    pub what: String,
    /// Every segment until then.
    pub transcript: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)?;
        if !self.transcript.is_empty() {
            write!(f, "\n  so far:")?;
        }
        self.transcript.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl std::error::Error for Failure {}

/// Why a line does not hold.
struct Unmet(String);

impl<E: fmt::Display> From<E> for Unmet {
    fn from(error: E) -> Self {
        Self(format!("{error:#}"))
    }
}

type Result<T, E = Unmet> = std::result::Result<T, E>;

macro_rules! bail {
    ($($what:tt)*) => {
        return Err(Unmet(format!($($what)*)))
    };
}

macro_rules! ensure {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            bail!($($what)*);
        }
    };
}

/// Plays a script; every segment that comes to a client must be one that a line expects, in order.
///
/// `+SECONDS` before a line that acts is how long it waits first, and before an expected segment
/// how much later than the client's last one it must come, at least, less a fifth. What a server's
/// timers send again needs no line, so that a slow machine may take its time: the same segment at
/// least 150 ms later is passed over where another is expected. Only in a silence with a time it is
/// a breach.
///
/// Gives every segment that was sent or expected, with the time since the start.
///
/// # Errors
///
/// The first line that does not hold.
pub fn run(script: &Script, system: &mut impl System) -> Result<Vec<String>, Failure> {
    let mut run = Run::new(system);
    let mut line = 0;
    match run.play(&script.steps, &mut line) {
        Ok(()) => Ok(run.transcript),
        Err(Unmet(what)) => {
            Err(Failure { file: script.file.clone(), line, what, transcript: run.transcript })
        }
    }
}

/// A host that sends what a script says.
#[derive(Debug)]
struct Client {
    port: u16,
    /// Once it has answered with SYN.
    server_isn: Option<u32>,
    /// Came, and was not looked at yet.
    inbox: VecDeque<Heard>,
    /// When the last segment that was looked at came.
    last: Option<Nanos>,
    /// Bytes that the server's program has read from it and written to it.
    read: u32,
    written: u32,
    /// What was looked at, and when the same came last.
    seen: Vec<(Pattern, Nanos)>,
}

/// A segment that came.
#[derive(Debug)]
struct Heard {
    at: Nanos,
    seq: SeqNumber,
    ack: SeqNumber,
    flags: Flags,
    window: u16,
    options: Options,
    payload: Vec<u8>,
}

impl Heard {
    fn segment(&self) -> Segment<'_> {
        let Self { seq, ack, flags, window, options, .. } = *self;
        Segment { seq, ack, flags, window, options, payload: &self.payload }
    }
}

impl Client {
    fn new(port: u16) -> Self {
        let (inbox, seen) = (VecDeque::new(), Vec::new());
        Self { port, server_isn: None, inbox, last: None, read: 0, written: 0, seen }
    }

    fn describe(&self, heard: &Heard) -> Pattern {
        let is_syn_ack = heard.flags.has(Flags::SYN | Flags::ACK);
        let first = if is_syn_ack { heard.seq.0 } else { 0 };
        Pattern::describe(&heard.segment(), self.server_isn.unwrap_or(first), CLIENT_ISN)
    }

    /// Whether a timer of the server may have sent it again.
    fn is_resent(&self, got: &Pattern, at: Nanos) -> bool {
        let takes_sequence_space = got.len > 0 || got.flags.has(Flags::SYN) || got.flags.has(Flags::FIN);
        let is_same = |(seen, before): &(Pattern, Nanos)| {
            (seen.flags, seen.seq, seen.len) == (got.flags, got.seq, got.len)
                && at.since(*before) >= RESEND_AFTER
        };
        takes_sequence_space && !got.flags.has(Flags::RST) && self.seen.iter().any(is_same)
    }

    fn remember(&mut self, got: Pattern, heard: &Heard) {
        if heard.flags.has(Flags::SYN | Flags::ACK) {
            self.server_isn.get_or_insert(heard.seq.0);
        }
        self.last = Some(heard.at);
        self.seen.push((got, heard.at));
    }
}

struct Run<'a, S> {
    system: &'a mut S,
    ends: Ends,
    clients: BTreeMap<String, Client>,
    /// Ports of the hosts that `fill` has used.
    fillers: BTreeSet<u16>,
    next_port: u16,
    /// As of the last `count`.
    counted: BTreeMap<String, u64>,
    started: Nanos,
    /// When the last step ended.
    previous: Nanos,
    transcript: Vec<String>,
}

impl<'a, S: System> Run<'a, S> {
    fn new(system: &'a mut S) -> Self {
        let now = system.now();
        Self {
            ends: system.ends(),
            system,
            clients: BTreeMap::new(),
            fillers: BTreeSet::new(),
            next_port: FIRST_PORT,
            counted: BTreeMap::new(),
            started: now,
            previous: now,
            transcript: Vec::new(),
        }
    }

    /// `line` is where it was when it ended.
    fn play(&mut self, steps: &[Step], line: &mut usize) -> Result<()> {
        self.counted = self.system.counters()?;
        for step in steps {
            *line = step.line;
            self.step(step)?;
            self.previous = self.system.now();
        }
        self.settle()?;
        let labels: Vec<String> = self.clients.keys().cloned().collect();
        labels.iter().try_for_each(|label| self.hear_nothing(label, None, "the end of the script"))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        if let Action::Expect(label, pattern) = &step.action {
            return self.expect(label, pattern, step.after);
        }
        if let Some(after) = step.after {
            self.wait(self.previous + after)?;
        }
        match &step.action {
            Action::Send(label, pattern) => self.send(label, pattern),
            Action::Expect(label, pattern) => self.expect(label, pattern, None),
            Action::Silence(label, span) => self.silence(label, *span),
            Action::Connect(label) => self.connect(label),
            Action::Search(label, counter) => self.search(label, counter),
            Action::Fill => self.fill(),
            Action::Accept(label) => self.accept(label),
            Action::Read(label, bytes) => self.read(label, *bytes),
            Action::ReadEof(label) => self.read_end(label, &Read::Eof),
            Action::ReadReset(label) => self.read_end(label, &Read::Reset),
            Action::Write(label, bytes) => self.write(label, *bytes),
            Action::Shutdown(label) => {
                let peer = self.peer(label)?;
                Ok(self.system.shutdown(peer)?)
            }
            Action::Close(label) => {
                let peer = self.peer(label)?;
                Ok(self.system.close(peer)?)
            }
            Action::State(label, state) => self.state(label, *state),
            Action::Queues { accept, syn } => self.queues(*accept, *syn),
            Action::Count(expected) => self.count(expected),
        }
    }

    // What clients do.

    fn client(&mut self, label: &str) -> &mut Client {
        if !self.clients.contains_key(label) {
            let client = self.new_client();
            self.clients.insert(label.to_owned(), client);
        }
        self.clients.get_mut(label).expect("it was there, or is now")
    }

    fn new_client(&mut self) -> Client {
        self.next_port += 1;
        Client::new(self.next_port)
    }

    fn peer(&self, label: &str) -> Result<SocketAddr> {
        let client = self.clients.get(label);
        let client =
            client.ok_or_else(|| Unmet(format!("client {label} has sent nothing yet; correct the label")))?;
        Ok(SocketAddr::new(self.ends.client, client.port))
    }

    fn send(&mut self, label: &str, pattern: &Pattern) -> Result<()> {
        let ends = self.ends;
        let Client { port, server_isn, .. } = *self.client(label);
        ensure!(
            pattern.ack.is_none() || server_isn.is_some(),
            "client {label} cannot acknowledge: it has got no SYN; expect one first"
        );
        let payload = stream(pattern.seq, pattern.len);
        let segment = Segment {
            seq: SeqNumber(CLIENT_ISN) + pattern.seq,
            ack: SeqNumber(server_isn.unwrap_or(0)) + pattern.ack.unwrap_or(0),
            flags: pattern.flags,
            window: pattern.window.unwrap_or(WINDOW),
            options: pattern.options.unwrap_or_default(),
            payload: &payload,
        };
        let tuple = FourTuple { src: SocketAddr::new(ends.client, port), dst: ends.server };
        let mut frame = vec![0; wire::frame_len(&tuple, &segment)];
        wire::emit(&mut frame, &ends.ethernet, &tuple, &segment);
        self.note(self.system.now(), label, '>', pattern);
        Ok(self.system.send(&frame)?)
    }

    fn connect(&mut self, label: &str) -> Result<()> {
        let syn = Pattern { options: Some(Options::mss(MSS)), ..Pattern::new(Flags::SYN, 0) };
        let syn_ack = Pattern { ack: Some(1), ..Pattern::new(Flags::SYN | Flags::ACK, 0) };
        let ack = Pattern { ack: Some(1), ..Pattern::new(Flags::ACK, 1) };
        self.send(label, &syn)?;
        self.expect(label, &syn_ack, None)?;
        self.send(label, &ack)
    }

    fn fill(&mut self) -> Result<()> {
        let limit = self.system.load()?.accept_limit;
        for number in 0..=limit + 1 {
            self.settle()?;
            let load = self.system.load()?;
            if load.is_accept_queue_full() {
                return Ok(());
            }
            let label = format!("fill{}-{number}", self.fillers.len());
            self.connect(&label)?;
            // What more comes to it is of no interest.
            let client = self.clients.remove(&label).expect("it has just connected");
            self.fillers.insert(client.port);
        }
        let load = self.system.load()?;
        bail!(
            "fill: {} connections wait and the queue is not full, {load:?}; is the policy in the way?",
            limit + 2
        )
    }

    fn search(&mut self, label: &str, counter: &str) -> Result<()> {
        let syn = Pattern::new(Flags::SYN, 0);
        let before = self.counter(counter)?;
        for _ in 0..MAX_SEARCH {
            let client = self.new_client();
            self.clients.insert(label.to_owned(), client);
            self.send(label, &syn)?;
            self.settle()?;
            if self.counter(counter)? > before {
                return Ok(());
            }
        }
        bail!("search: {MAX_SEARCH} hosts tried, and {counter} did not move")
    }

    // What comes to them.

    fn expect(&mut self, label: &str, expected: &Pattern, after: Option<Nanos>) -> Result<()> {
        let deadline = self.system.now() + after.unwrap_or_default() + PATIENCE;
        loop {
            let Some(heard) = self.next(label, deadline)? else {
                let patience = (after.unwrap_or_default() + PATIENCE).as_secs_f64();
                bail!("{label}: expected {expected}, and nothing came within {patience} s");
            };
            let client = self.client(label);
            let got = client.describe(&heard);
            let mut differences = expected.differences(&got);
            if differences.is_empty() && heard.payload != stream(got.seq, got.len) {
                differences.push("other bytes than were written".to_owned());
            }
            if !differences.is_empty() && client.is_resent(&got, heard.at) {
                self.note(heard.at, label, '<', &format!("{got} (again)"));
                continue;
            }
            if let (Some(after), Some(last)) = (after.map(Nanos::as_secs_f64), client.last) {
                let came = heard.at.since(last).as_secs_f64();
                if came < after * EARLY {
                    differences.push(format!("{came:.3} s after the last and not {after}"));
                }
            }
            self.note(heard.at, label, '<', &got);
            if !differences.is_empty() {
                bail!("{label}: expected {expected}, got {got}: {}", differences.join(", "));
            }
            self.client(label).remember(got, &heard);
            return Ok(());
        }
    }

    fn silence(&mut self, label: &str, span: Nanos) -> Result<()> {
        self.client(label);
        self.settle()?;
        let begin = self.system.now();
        if span > Nanos::ZERO {
            self.wait(begin + span)?;
            self.settle()?;
        }
        let resent_from = (span > Nanos::ZERO).then_some(begin);
        self.hear_nothing(label, resent_from, &format!("silence for {} s", span.as_secs_f64()))
    }

    /// Fails if anything came; what timers sent again only from `resent_from` on.
    fn hear_nothing(&mut self, label: &str, resent_from: Option<Nanos>, instead: &str) -> Result<()> {
        while let Some(heard) = self.client(label).inbox.pop_front() {
            let got = self.client(label).describe(&heard);
            self.note(heard.at, label, '<', &got);
            let is_excused = resent_from.is_none_or(|from| heard.at < from);
            if !(is_excused && self.client(label).is_resent(&got, heard.at)) {
                bail!("{label}: expected {instead}, got {got}");
            }
        }
        Ok(())
    }

    /// The next segment that came to a client.
    fn next(&mut self, label: &str, until: Nanos) -> Result<Option<Heard>> {
        loop {
            if let Some(heard) = self.client(label).inbox.pop_front() {
                return Ok(Some(heard));
            }
            if !self.pump(until)? {
                return Ok(None);
            }
        }
    }

    /// Lets time pass, and keeps what comes.
    fn wait(&mut self, until: Nanos) -> Result<()> {
        while self.pump(until)? {}
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.system.settle()?;
        self.wait(self.system.now())
    }

    /// Takes one frame in; false when none came by `until`.
    fn pump(&mut self, until: Nanos) -> Result<bool> {
        let Some(arrival) = self.system.receive(until)? else {
            return Ok(false);
        };
        // Not ours to judge: neighbour discovery and the like.
        let Ok((tuple, segment)) = wire::parse(&arrival.frame) else {
            return Ok(true);
        };
        let Segment { seq, ack, flags, window, options, payload } = segment;
        let is_to = |client: &&mut Client| {
            tuple.src == self.ends.server && tuple.dst == SocketAddr::new(self.ends.client, client.port)
        };
        if let Some(client) = self.clients.values_mut().find(is_to) {
            let payload = payload.to_vec();
            let heard = Heard { at: arrival.at, seq, ack, flags, window, options, payload };
            client.inbox.push_back(heard);
        }
        Ok(true)
    }

    // What the server's program does.

    fn accept(&mut self, label: &str) -> Result<()> {
        let wanted = if label == "fill" { None } else { Some(self.peer(label)?) };
        let peer = self.patiently(|system| system.accept())?;
        let peer = peer.ok_or_else(|| Unmet(format!("expected a connection of {label}, and none waits")))?;
        let is_wanted = match wanted {
            Some(wanted) => wanted == peer,
            None => self.fillers.contains(&peer.port()),
        };
        ensure!(is_wanted, "expected a connection of {label}, got that of {}", self.name(peer));
        Ok(())
    }

    fn read(&mut self, label: &str, bytes: usize) -> Result<()> {
        let peer = self.peer(label)?;
        let mut got = Vec::new();
        while got.len() < bytes {
            let max = bytes - got.len();
            let read = self.patiently(|system| match system.read(peer, max)? {
                Read::Nothing => Ok(None),
                read => Ok(Some(read)),
            })?;
            match read {
                Some(Read::Bytes(more)) => got.extend(more),
                Some(end) => bail!("expected {bytes} bytes of {label}, got {} and then {end:?}", got.len()),
                None => bail!("expected {bytes} bytes of {label}, got {}", got.len()),
            }
        }
        let client = self.client(label);
        ensure!(got == stream(1 + client.read, got.len() as u32), "{label}: read other bytes than were sent");
        client.read += got.len() as u32;
        Ok(())
    }

    fn read_end(&mut self, label: &str, wanted: &Read) -> Result<()> {
        let peer = self.peer(label)?;
        let read = self.patiently(|system| match system.read(peer, 1)? {
            Read::Nothing => Ok(None),
            read => Ok(Some(read)),
        })?;
        match read {
            Some(read) if read == *wanted => Ok(()),
            Some(read) => bail!("expected {wanted:?} from {label}, got {read:?}"),
            None => bail!("expected {wanted:?} from {label}, and there is nothing to read"),
        }
    }

    fn write(&mut self, label: &str, bytes: usize) -> Result<()> {
        let peer = self.peer(label)?;
        let client = self.client(label);
        let bytes = stream(1 + client.written, u32::try_from(bytes)?);
        client.written += bytes.len() as u32;
        Ok(self.system.write(peer, &bytes)?)
    }

    /// Asks until there is an answer, for as long as patience lasts.
    fn patiently<T>(
        &mut self,
        mut ask: impl FnMut(&mut S) -> Result<Option<T>, S::Error>,
    ) -> Result<Option<T>> {
        self.settle()?;
        let deadline = self.system.now() + PATIENCE;
        loop {
            let answer = ask(self.system)?;
            let now = self.system.now();
            if answer.is_some() || now >= deadline {
                return Ok(answer);
            }
            self.wait(now + Nanos::from_millis(10))?;
        }
    }

    fn name(&self, peer: SocketAddr) -> String {
        if self.fillers.contains(&peer.port()) {
            return "fill".to_owned();
        }
        let found = self.clients.iter().find(|(_, client)| client.port == peer.port());
        found.map_or_else(|| peer.to_string(), |(label, _)| label.clone())
    }

    // What can be seen of the server.

    fn state(&mut self, label: &str, wanted: State) -> Result<()> {
        self.settle()?;
        let peer = self.peer(label)?;
        let state = self.system.state(peer)?;
        ensure!(state == wanted, "expected state {wanted} for {label}, got {state}");
        Ok(())
    }

    fn queues(&mut self, accept: u32, syn: u32) -> Result<()> {
        self.settle()?;
        let load = self.system.load()?;
        let got = (load.accept_qlen, load.syn_qlen);
        ensure!(
            got == (accept, syn),
            "expected queues accept {accept} syn {syn}, got accept {} syn {}",
            got.0,
            got.1
        );
        Ok(())
    }

    fn count(&mut self, expected: &[(String, u64)]) -> Result<()> {
        self.settle()?;
        let now = self.system.counters()?;
        for (name, wanted) in expected {
            // A gauge, such as Tcp.CurrEstab, may have fallen.
            let moved = i128::from(lookup(&now, name)?) - i128::from(lookup(&self.counted, name)?);
            ensure!(moved == i128::from(*wanted), "expected count {name} {wanted}, got {moved}");
        }
        self.counted = now;
        Ok(())
    }

    fn counter(&mut self, name: &str) -> Result<u64> {
        lookup(&self.system.counters()?, name)
    }

    fn note(&mut self, at: Nanos, label: &str, direction: char, segment: &dyn fmt::Display) {
        let seconds = at.since(self.started).as_secs_f64();
        self.transcript.push(format!("{seconds:8.3} {label}: {direction} {segment}"));
    }
}

fn lookup(counters: &BTreeMap<String, u64>, name: &str) -> Result<u64> {
    counters.get(name).copied().ok_or_else(|| {
        let guards: Vec<&str> =
            counters.keys().map(String::as_str).filter(|name| !name.contains('.')).collect();
        Unmet(format!(
            "there is no counter {name}; the guard's are {}, the kernel's have a dot, as Tcp.OutRsts",
            guards.join(", ")
        ))
    })
}

/// What is written to every connection: letters by their place in it, 1 being the first. Segments
/// without data have none.
fn stream(seq: u32, len: u32) -> Vec<u8> {
    (0..len).map(|index| b'a' + (seq.wrapping_add(index) % 26) as u8).collect()
}

#[cfg(test)]
mod tests;
