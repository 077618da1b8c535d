//! What things cost on a machine, CPU time.

use serde::{Deserialize, Serialize};
use tcp::Stack;
use units::Nanos;

use crate::kernel::{Config, Generation, Looks, Work};

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// It is not TOML, or has an unknown or missing key.
    #[error("{}", .0.message().replace('\n', ", "))]
    Toml(Box<toml::de::Error>),
    /// It asks for a machine that cannot be: what, why, and what would do.
    #[error("{0}")]
    Invalid(String),
}

/// A machine: what each kind of work costs its CPU. TOML with times as numbers of microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// Where its numbers are from, and which published numbers were used to fit it.
    pub about: String,
    /// What its CPU took for a small datagram sent and received within itself while the costs were
    /// measured, us: how fast it was. The lab looks at the same in every cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    /// Share of its CPU that a program which works without a pause does not have for itself though
    /// nobody else runs: ticks, the hypervisor, and of what the lab measured its own watch. What
    /// was measured as a cost has it in it; what a program works as long as it is told to takes so
    /// much longer ([`Profile::working`]).
    #[serde(default)]
    pub taken: f64,
    /// How many times as fast as that the CPU is now; files do not say. What a program works as
    /// long as it is told to takes as long at any speed.
    #[serde(skip, default = "as_measured")]
    pub speed: f64,
    /// Work in softirq.
    pub softirq: Softirq,
    /// The server's program and its system calls.
    pub server: ProgramCosts,
    /// The same of a server in the kernel, where the machine had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_kernel: Option<ProgramCosts>,
    /// The same of a pool of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_pool: Option<ProgramCosts>,
    /// How packets wait.
    pub receive: Receive,
    /// How the crowd's end of the wire sends and receives.
    #[serde(default)]
    pub crowd: CrowdEnd,
    /// Whose rules; those of today where the profile says nothing.
    #[serde(default)]
    pub system: System,
}

/// What runs on the machine, and before it: rules, not costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct System {
    /// The server's kernel: `"2.2"`, `"2.4"`, or `"4.10"` for all since.
    pub linux: Generation,
    /// Its `net.ipv4.tcp_max_syn_backlog`, unless a policy says otherwise.
    pub syn_backlog: u32,
    /// Its `net.ipv4.tcp_syncookies`, in the same way.
    pub syncookies: u8,
    /// Connections that an event-driven program may have open (`RLIMIT_NOFILE`); no bound, unless
    /// it says one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<u32>,
    /// Ends of connections that its kernel has memory for (`[FTY97]`); no bound, unless it says
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_ends: Option<u32>,
    /// The clients' system by the names of `tidegate load --stacks`, where an experiment names
    /// none.
    pub clients: Option<String>,
}

impl Default for System {
    fn default() -> Self {
        let Config { generation, max_syn_backlog, syncookies, .. } = Config::default();
        Self {
            linux: generation,
            syn_backlog: max_syn_backlog,
            syncookies,
            descriptors: None,
            most_ends: None,
            clients: None,
        }
    }
}

impl System {
    /// The server's kernel as it comes.
    pub fn config(&self) -> Config {
        let usual = Config::default();
        Config {
            generation: self.linux,
            max_syn_backlog: self.syn_backlog,
            syncookies: self.syncookies,
            most_ends: self.most_ends,
            stack: match self.linux {
                Generation::Linux22 => Stack::by_name("linux-2.2").expect("the table has it"),
                Generation::Linux24 => Stack::by_name("linux-2.4").expect("the table has it"),
                Generation::Linux410 => usual.stack,
            },
            ..usual
        }
    }
}

/// Work in softirq, microseconds for each segment that comes; answers at once are part of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softirq {
    /// A SYN that the kernel answers by SYN/ACK.
    pub syn_answered: f64,
    /// A SYN that the guard answers by SYN/ACK with a cookie, which finds the caches as one does
    /// that it refuses. Where the profile does not say, it costs what one costs that the kernel
    /// answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_cookie: Option<f64>,
    /// A SYN that the kernel drops.
    pub syn_dropped: f64,
    /// A SYN that the guard answers by RST.
    pub syn_reset: f64,
    /// A SYN that the guard drops.
    pub syn_held: f64,
    /// The end of a handshake that becomes a connection.
    pub established: f64,
    /// The end of a handshake that is dropped.
    pub end_dropped: f64,
    /// The end of a handshake that is reset, and forgotten.
    pub end_reset: f64,
    /// Data, and the wake-up of who waits for it.
    pub data: f64,
    /// A FIN.
    pub fin: f64,
    /// An acknowledgment.
    pub ack: f64,
    /// A RST.
    pub reset: f64,
    /// A segment of no connection, which is answered by RST, as is the end of a handshake by cookie
    /// that the guard resets. `lab calibrate` has the guard's look in it, which is too much without
    /// a guard.
    pub stray: f64,
    /// A SYN/ACK, FIN or data that a timer sends again.
    pub sent_again: f64,
    /// The guard's look into a SYN that the kernel answers, and what it is with the rest of that
    /// connection. What it does with one that it refuses or answers itself is part of what that
    /// costs.
    #[serde(default)]
    pub guard_syn: f64,
    /// Its look into a SYN that the kernel drops.
    #[serde(default)]
    pub guard_dropped: f64,
    /// More for a segment with ACK, while a queue may be full; of the end of a handshake that is
    /// reset it is part of what that costs.
    #[serde(default)]
    pub guard_ack: f64,
    /// To turn to frames at all, once for all that come before the CPU has none: the interrupt.
    /// Where the profile does not say, it is part of what each segment costs.
    #[serde(default)]
    pub wake: f64,
    /// More for the first segment of a connection after the program ran, which has the caches by
    /// then.
    #[serde(default)]
    pub cold_connection: f64,
    /// The same for the first segment that is refused or dropped.
    #[serde(default)]
    pub cold_refusal: f64,
    /// Each end of a connection that is looked at on the way to a segment's own (`[FTY97]`); 0 is a
    /// kernel that finds them by a hash.
    #[serde(default)]
    pub examined: f64,
    /// Each KiB of data that a segment lets leave. Where the profile does not say, it is part of
    /// what the program pays for a KiB.
    #[serde(default)]
    pub kib: f64,
}

impl Softirq {
    fn syn_cookie(&self) -> f64 {
        self.syn_cookie.unwrap_or(self.syn_answered)
    }
}

/// The server's program and its system calls, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramCosts {
    /// To learn what is ready, once for all that is; in a process pool, to switch to a process that
    /// was woken.
    pub poll: f64,
    /// To go to sleep and be woken, for a program that finds nothing ready. Where the profile does
    /// not say, it is part of `poll`, which then costs as much where it does not sleep; not of a
    /// process pool.
    #[serde(default)]
    pub woken: f64,
    /// accept(2) of one connection, and what the program does to keep it.
    pub accept: f64,
    /// accept(2) that finds nothing.
    pub accept_nothing: f64,
    /// A request: to read it, find its answer and write that.
    pub request: f64,
    /// Each KiB that is written beyond the first segment.
    pub kib: f64,
    /// To see that a client has closed, and to close.
    pub close: f64,
    /// To see that a connection was reset, and to close: work in vain.
    pub error: f64,
}

impl ProgramCosts {
    fn costs(&self) -> [(&'static str, f64); 8] {
        [
            ("poll", self.poll),
            ("woken", self.woken),
            ("accept", self.accept),
            ("accept_nothing", self.accept_nothing),
            ("request", self.request),
            ("kib", self.kib),
            ("close", self.close),
            ("error", self.error),
        ]
    }
}

/// Between the wire and the kernel's TCP.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// Frames that the receive ring holds; more are lost.
    pub ring: u32,
    /// Least time between two interrupts for frames, microseconds: the moderation of a NIC. Frames
    /// that come meanwhile wait for the next, if the CPU is not at others.
    #[serde(default)]
    pub moderation: f64,
    /// Longest time in softirq, microseconds, before programs get a turn (`MAX_SOFTIRQ_TIME`,
    /// ksoftirqd); 0 is for ever, as long as frames come.
    pub longest: f64,
    /// How long such a turn is, and then that of the softirq, microseconds.
    pub turn: f64,
}

/// The crowd's end of the wire. Its work costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CrowdEnd {
    /// Of the wire, each way, microseconds: a switch and two NICs.
    pub delay: f64,
    /// Least time between two turns of a generator, microseconds: in each it takes what has come,
    /// answers it, and only then begins what was due meanwhile, all at one moment. With 0 whoever
    /// begins does so at a time of his own, and whoever was answered at that of the look that found
    /// it.
    pub turns: f64,
    /// Time between two looks of the crowd's end for what has come, microseconds, as a NIC
    /// moderates its interrupts. They are at multiples of it, whatever comes: in the lab the next
    /// is so long after one that found something is done, and a reply that comes after a long pause
    /// (a hundred looks in vain) is found at once, for which a calm crowd waits too long here. With
    /// 0 what comes is there at once.
    pub poll: f64,
}

impl Default for CrowdEnd {
    fn default() -> Self {
        Self { delay: 50.0, turns: 0.0, poll: 0.0 }
    }
}

impl CrowdEnd {
    /// Of the wire, each way.
    pub fn delay(&self) -> Nanos {
        micros(self.delay)
    }

    /// Least time between two turns.
    pub fn turns(&self) -> Nanos {
        micros(self.turns)
    }

    /// Time between two looks for frames.
    pub fn poll(&self) -> Nanos {
        micros(self.poll)
    }
}

fn as_measured() -> f64 {
    1.0
}

fn micros(cost: f64) -> Nanos {
    Nanos((cost * 1e3).round() as u64)
}

/// A cost above a second is a slip of the pen.
const MOST: f64 = 1e6;
/// Of a CPU, taken from who works.
const MOST_TAKEN: f64 = 0.5;

/// Profiles that come along, by their names.
const SHIPPED: [(&str, &str); 5] = [
    ("xeon-2005", include_str!("../profiles/xeon-2005.toml")),
    ("itanium-2005", include_str!("../profiles/itanium-2005.toml")),
    ("sparc-1997", include_str!("../profiles/sparc-1997.toml")),
    ("pentium-2002", include_str!("../profiles/pentium-2002.toml")),
    ("round-numbers", include_str!("../profiles/round-numbers.toml")),
];

impl Profile {
    /// The profile of this name that comes along; `None` when none has it.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(own, _)| *own == name)?;
        Some(Self::parse(text).expect("the tests read every profile that comes along"))
    }

    /// Names of the profiles that come along.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// Reads a profile as TOML.
    ///
    /// # Errors
    ///
    /// An unknown or missing key, a cost below zero or above a second, a ring that holds nothing,
    /// clients of no known system.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Toml(Box::new(error)))?;
        profile.check().map_err(ProfileError::Invalid)?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        for (key, text) in [("name", &self.name), ("about", &self.about)] {
            if text.contains(char::is_control) {
                return Err(format!("{key} = {text:?} is no line of text: take out what is escaped"));
            }
        }
        for (name, cost) in self.costs() {
            if !(0.0..=MOST).contains(&cost) {
                return Err(format!("{name} = {cost} us is no cost; 0 to {MOST} us"));
            }
        }
        if let Some(name) = self.system.clients.as_deref().filter(|name| Stack::by_name(name).is_none()) {
            return Err(format!("system.clients = {name:?} is no client stack; linux-2.4 is one"));
        }
        if self.system.syncookies > 2 {
            return Err(format!("system.syncookies = {} is none of 0, 1 and 2", self.system.syncookies));
        }
        if self.system.descriptors == Some(0) {
            return Err("system.descriptors = 0 lets a program accept nothing; 1024 is usual".to_owned());
        }
        if let Some(time) = self.round_trip_us.filter(|time| !(*time > 0.0 && *time <= MOST)) {
            return Err(format!(
                "round_trip_us = {time} is no time of a datagram; above 0 and up to {MOST} us, or leave it out where it is not known"
            ));
        }
        if !(0.0..=MOST_TAKEN).contains(&self.taken) {
            return Err(format!(
                "taken = {} is no share of a CPU on which something can be measured; 0 to {MOST_TAKEN}",
                self.taken
            ));
        }
        if self.receive.ring == 0 {
            return Err("receive.ring = 0 holds no frame; 256 is usual".to_owned());
        }
        if self.receive.longest > 0.0 && self.receive.turn <= 0.0 {
            return Err(
                "receive.turn = 0 gives programs no turn; 4000 us is usual, or set receive.longest to 0"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// As [`Profile::parse`] reads it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and names")
    }

    fn costs(&self) -> Vec<(String, f64)> {
        let Self { softirq, receive, crowd, .. } = self;
        let softirq = [
            ("softirq.syn_answered", softirq.syn_answered),
            ("softirq.syn_cookie", softirq.syn_cookie()),
            ("softirq.syn_dropped", softirq.syn_dropped),
            ("softirq.syn_reset", softirq.syn_reset),
            ("softirq.syn_held", softirq.syn_held),
            ("softirq.established", softirq.established),
            ("softirq.end_dropped", softirq.end_dropped),
            ("softirq.end_reset", softirq.end_reset),
            ("softirq.data", softirq.data),
            ("softirq.fin", softirq.fin),
            ("softirq.ack", softirq.ack),
            ("softirq.reset", softirq.reset),
            ("softirq.stray", softirq.stray),
            ("softirq.sent_again", softirq.sent_again),
            ("softirq.guard_syn", softirq.guard_syn),
            ("softirq.guard_dropped", softirq.guard_dropped),
            ("softirq.guard_ack", softirq.guard_ack),
            ("softirq.wake", softirq.wake),
            ("softirq.cold_connection", softirq.cold_connection),
            ("softirq.cold_refusal", softirq.cold_refusal),
            ("softirq.examined", softirq.examined),
            ("softirq.kib", softirq.kib),
            ("receive.moderation", receive.moderation),
            ("receive.longest", receive.longest),
            ("receive.turn", receive.turn),
            ("crowd.delay", crowd.delay),
            ("crowd.turns", crowd.turns),
            ("crowd.poll", crowd.poll),
        ];
        let servers = [
            ("server", Some(&self.server)),
            ("in_kernel", self.in_kernel.as_ref()),
            ("process_pool", self.process_pool.as_ref()),
        ];
        let servers = servers.into_iter().filter_map(|(table, server)| Some((table, server?)));
        let of_servers = servers
            .flat_map(|(table, server)| server.costs().map(|(name, cost)| (format!("{table}.{name}"), cost)));
        softirq.into_iter().map(|(name, cost)| (name.to_owned(), cost)).chain(of_servers).collect()
    }

    /// How fast the machine was, over this, when its CPU took so long for a small datagram; `None`
    /// where either is not known.
    pub fn speed_at(&self, round_trip_us: f64) -> Option<f64> {
        let speed = self.round_trip_us? / round_trip_us;
        (speed > 0.0 && speed.is_normal()).then_some(speed)
    }

    /// How long the CPU is busy when a program works for so long, by its own clock.
    pub fn working(&self, time: Nanos) -> Nanos {
        Nanos((time.0 as f64 / (1.0 - self.taken)).round() as u64)
    }

    /// Time of the CPU, at the speed that it has.
    fn work(&self, cost: f64) -> Nanos {
        micros(cost / self.speed)
    }

    /// What a segment costs that made the kernel do this.
    pub fn segment(&self, work: Work) -> Nanos {
        let softirq = &self.softirq;
        self.work(match work {
            Work::SynAnswered => softirq.syn_answered,
            Work::SynCookie => softirq.syn_cookie(),
            Work::SynDropped => softirq.syn_dropped,
            Work::SynReset => softirq.syn_reset,
            Work::SynHeld => softirq.syn_held,
            Work::Established => softirq.established,
            Work::EndDropped => softirq.end_dropped,
            Work::EndReset => softirq.end_reset,
            Work::Data => softirq.data,
            Work::Fin => softirq.fin,
            Work::Ack => softirq.ack,
            Work::Reset => softirq.reset,
            Work::Stray => softirq.stray,
        })
    }

    /// What a timer costs that sends something again.
    pub fn timer(&self) -> Nanos {
        self.work(self.softirq.sent_again)
    }

    /// Costs of work in softirq.
    pub(crate) fn frames(&self) -> Frames {
        let Softirq { guard_syn, guard_dropped, guard_ack, .. } = self.softirq;
        Frames {
            segments: Work::ALL.map(|work| self.segment(work)),
            guard_syn: self.work(guard_syn),
            guard_dropped: self.work(guard_dropped),
            guard_ack: self.work(guard_ack),
            timer: self.timer(),
            examined_us: self.softirq.examined / self.speed,
            byte_us: self.softirq.kib / self.speed / 1024.0,
        }
    }

    /// Costs of the program's steps.
    pub(crate) fn steps(&self) -> Steps {
        let ProgramCosts { poll, woken, accept, accept_nothing, request, kib, close, error } = self.server;
        Steps {
            poll: self.work(poll),
            woken: self.work(woken),
            accept: self.work(accept),
            accept_nothing: self.work(accept_nothing),
            request: self.work(request),
            kib: self.work(kib),
            close: self.work(close),
            error: self.work(error),
        }
    }

    /// Least time between two interrupts.
    pub(crate) fn moderation(&self) -> Nanos {
        micros(self.receive.moderation)
    }

    /// What it costs to turn to frames.
    pub(crate) fn turn_to_frames(&self) -> TurnToFrames {
        let Softirq { wake, cold_connection, cold_refusal, .. } = self.softirq;
        TurnToFrames {
            wake: self.work(wake),
            cold_connection: self.work(cold_connection),
            cold_refusal: self.work(cold_refusal),
        }
    }

    /// Longest time in softirq, and the turns after it; `None` where programs never get one as long
    /// as frames come.
    pub(crate) fn turns(&self) -> Option<(Nanos, Nanos)> {
        (self.receive.longest > 0.0).then(|| (micros(self.receive.longest), micros(self.receive.turn)))
    }
}

/// [`Softirq`] as spans.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frames {
    /// In the order of [`Work`].
    segments: [Nanos; Work::ALL.len()],
    guard_syn: Nanos,
    guard_dropped: Nanos,
    guard_ack: Nanos,
    pub(crate) timer: Nanos,
    examined_us: f64,
    byte_us: f64,
}

impl Frames {
    /// As [`Profile::segment`].
    pub(crate) fn segment(&self, work: Work) -> Nanos {
        self.segments[work as usize]
    }

    /// What it costs to look at so many ends of connections.
    pub(crate) fn search(&self, examined: u32) -> Nanos {
        micros(self.examined_us * f64::from(examined))
    }

    /// What it costs that so many bytes of data leave.
    pub(crate) fn data(&self, bytes: usize) -> Nanos {
        micros(self.byte_us * bytes as f64)
    }

    /// What the guard adds to that of a segment which goes on to the kernel.
    pub(crate) fn guarded(&self, work: Work, looks: Looks) -> Nanos {
        match (work, looks) {
            (_, Looks::Nowhere) => Nanos::ZERO,
            (Work::SynAnswered, _) => self.guard_syn,
            (Work::SynDropped, _) => self.guard_dropped,
            (_, Looks::IntoAcks) if work.is_acknowledgment() => self.guard_ack,
            _ => Nanos::ZERO,
        }
    }
}

/// What comes on top of segments, of [`Softirq`], as spans.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TurnToFrames {
    pub(crate) wake: Nanos,
    pub(crate) cold_connection: Nanos,
    pub(crate) cold_refusal: Nanos,
}

/// [`ProgramCosts`] as spans.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) poll: Nanos,
    pub(crate) woken: Nanos,
    pub(crate) accept: Nanos,
    pub(crate) accept_nothing: Nanos,
    pub(crate) request: Nanos,
    pub(crate) kib: Nanos,
    pub(crate) close: Nanos,
    pub(crate) error: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_comes_along_is_read_and_has_its_name() {
        for (name, _) in SHIPPED {
            assert_eq!(Profile::shipped(name).expect("shipped").name, name);
        }
        assert_eq!(Profile::shipped("no-such-machine"), None);
    }

    #[test]
    fn every_kind_of_work_costs_what_the_profile_says() {
        let mut profile = Profile::shipped("xeon-2005").expect("shipped");
        profile.softirq.stray += 10.0;
        assert_eq!(
            profile.frames().guarded(Work::Data, Looks::IntoAcks),
            Nanos::ZERO,
            "where it does not say"
        );
        let softirq = &mut profile.softirq;
        (softirq.guard_syn, softirq.guard_dropped, softirq.guard_ack) = (2.0, 1.0, 3.0);
        let us = |work| {
            [Looks::Nowhere, Looks::IntoSyns, Looks::IntoAcks]
                .map(|looks| profile.frames().guarded(work, looks).0 / 1000)
        };
        assert_eq!([Work::SynAnswered, Work::SynDropped].map(us), [[0, 2, 2], [0, 1, 1]]);
        assert_eq!(us(Work::Data), [0, 0, 3]);
        assert_eq!([Work::SynReset, Work::EndReset].map(us), [[0; 3]; 2], "part of them");
        for work in Work::ALL {
            assert_eq!(profile.frames().segment(work), profile.segment(work), "{work:?}");
        }
    }

    #[test]
    fn faster_machine_does_the_same_work_in_less_time_and_waits_as_long() {
        let text = Profile::shipped("round-numbers").expect("shipped").to_toml();
        let mut profile =
            Profile::parse(&format!("round_trip_us = 3.0\n{text}")).expect("a machine with a speed");
        let speeds = [1.5, 0.0, -1.0].map(|time| profile.speed_at(time));
        assert_eq!(speeds, [Some(2.0), None, None]);
        // Each another cost, and none zero.
        profile.server = ProgramCosts {
            poll: 2.0,
            woken: 4.0,
            accept: 6.0,
            accept_nothing: 8.0,
            request: 10.0,
            kib: 12.0,
            close: 14.0,
            error: 16.0,
        };
        (profile.softirq.wake, profile.softirq.cold_connection, profile.softirq.cold_refusal) =
            (2.0, 4.0, 6.0);
        let softirq = &mut profile.softirq;
        (softirq.guard_syn, softirq.guard_dropped, softirq.guard_ack) = (2.0, 6.0, 4.0);
        profile.receive = Receive { ring: 256, moderation: 50.0, longest: 2000.0, turn: 3000.0 };
        assert_eq!(Profile { round_trip_us: None, ..profile.clone() }.speed_at(1.5), None);
        let fast = Profile { speed: 2.0, ..profile.clone() };
        let half = |time: Nanos| Nanos(time.0 / 2);
        for work in Work::ALL {
            assert_eq!(fast.segment(work), half(profile.segment(work)), "{work:?}");
        }
        assert_eq!(fast.timer(), half(profile.timer()));
        for work in [Work::SynAnswered, Work::SynDropped, Work::Established] {
            let [fast, slow] =
                [&fast, &profile].map(|profile| profile.frames().guarded(work, Looks::IntoAcks));
            assert!(slow > Nanos::ZERO && fast == half(slow), "{work:?}");
        }
        let Steps { poll, woken, accept, accept_nothing, request, kib, close, error } = fast.steps();
        let steps = [poll, woken, accept, accept_nothing, request, kib, close, error];
        assert_eq!(steps, [1, 2, 3, 4, 5, 6, 7, 8].map(Nanos::from_micros));
        let TurnToFrames { wake, cold_connection, cold_refusal } = fast.turn_to_frames();
        assert_eq!([wake, cold_connection, cold_refusal], [1, 2, 3].map(Nanos::from_micros));
        assert_eq!(fast.moderation(), Nanos::from_micros(50));
        assert_eq!(fast.turns(), Some((Nanos::from_millis(2), Nanos::from_millis(3))));
        let ms = Nanos::from_millis;
        assert_eq!(Profile { taken: 0.2, ..fast }.working(ms(4)), ms(5), "at any speed");
        for share in ["-0.1", "0.6", "nan"] {
            let with_share = text.replace("taken = 0.0", &format!("taken = {share}"));
            let error = Profile::parse(&with_share).expect_err(share).to_string();
            assert!(error.contains("is no share of a CPU"), "{error}");
        }
        for time in ["0.0", "-1.0", "nan", "inf"] {
            let error =
                Profile::parse(&format!("round_trip_us = {time}\n{text}")).expect_err(time).to_string();
            assert!(error.contains("is no time of a datagram"), "{error}");
        }
    }

    #[test]
    fn profile_without_a_system_is_of_todays_linux() {
        let profile = Profile::shipped("round-numbers").expect("shipped");
        assert_eq!(profile.system, System::default());
        assert_eq!(profile.system.linux, Generation::Linux410);
        assert_eq!(Profile::parse(&profile.to_toml()).as_ref(), Ok(&profile));
    }

    #[test]
    fn machine_of_the_thesis_has_its_kernel_and_its_clients() {
        let profile = Profile::shipped("xeon-2005").expect("shipped");
        let System { linux, syn_backlog, syncookies, descriptors, clients, .. } = &profile.system;
        assert_eq!((*linux, *syn_backlog, *syncookies, *descriptors), (Generation::Linux24, 1024, 0, None));
        assert_eq!(clients.as_deref(), Some("linux-2.4"));
        assert_eq!(Profile::parse(&profile.to_toml()).as_ref(), Ok(&profile));
    }

    #[test]
    fn itanium_is_the_xeon_slowed_down() {
        let [xeon, itanium] = ["xeon-2005", "itanium-2005"].map(|name| Profile::shipped(name).expect(name));
        for ((name, fast), (_, slow)) in xeon.costs().into_iter().zip(itanium.costs()) {
            let is_no_work = name.starts_with("receive.") || name.starts_with("crowd.");
            let factor = if is_no_work { 1.0 } else { 1.0 / 0.62 };
            assert!((slow - fast * factor).abs() < 0.01, "{name}: {slow} for {fast}");
        }
    }

    #[test]
    fn what_no_machine_can_have_is_refused_by_name() {
        let text = Profile::shipped("xeon-2005").expect("shipped").to_toml();
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} is not in it: {text}");
            Profile::parse(&text.replacen(from, to, 1)).expect_err(to).to_string()
        };
        assert!(refused("linux = \"2.4\"", "linux = \"2.0\"").contains("2.0"));
        assert!(
            refused("clients = \"linux-2.4\"", "clients = \"beos\"").contains("\"beos\" is no client stack")
        );
        assert!(refused("[crowd]\ndelay = 50.0", "[crowd]\ndelay = -1.0").contains("crowd.delay = -1 us"));
        assert!(
            refused("turns = 0.0\npoll = 0.0", "turns = 0.0\npoll = -1.0").contains("crowd.poll = -1 us")
        );
        assert!(
            refused("[in_kernel]\npoll = 0.0", "[in_kernel]\npoll = -1.0").contains("in_kernel.poll = -1 us")
        );
    }
}
