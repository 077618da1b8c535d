//! What each stack puts on the wire, as scripts that can be read: `tests/scripts/STACK.pkt`.
//!
//! A line is something that happens, `+SECONDS` after the line before (at the same moment,
//! without):
//!
//! ```text
//! connect                                   the application connects; everything begins anew
//! +1 > S 0:0(0) win 64240 <mss 1460>    the client sends this, then; what is not written is any
//! +0.01 < S. 0:0(0) ack 1 win 5840 <mss 1460>    this comes to it
//! write 80, close, abort    the application does this; abort is a close with SO_LINGER 0
//! is ESTABLISHED                            the connection stands there
//! +30 silence                               nothing was sent by then
//! ```
//!
//! Segments are written as tcpdump prints them, numbers from each end's SYN. A segment that no line
//! has, or that comes at another time, fails.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use script::Pattern;
use tcp::{Close, Connection, STACKS, Stack};
use units::Nanos;
use wire::{Options, Place, Segment, SeqNumber};

const CLIENT_ISS: SeqNumber = SeqNumber(u32::MAX - 40);
const SERVER_ISS: SeqNumber = SeqNumber(5_000_000);
/// What the client's timestamps show at time zero.
const CLOCK: u32 = 1000;

/// A client, and what it has sent that no line has had yet.
struct Player {
    stack: &'static Stack,
    connection: Connection,
    stream: Vec<u8>,
    now: Nanos,
    sent: VecDeque<(Nanos, String)>,
}

impl Player {
    fn connect(stack: &'static Stack) -> Self {
        let mut sent = VecDeque::new();
        let connection = Connection::connect(stack, CLIENT_ISS, CLOCK, Nanos::ZERO, &mut |segment| {
            sent.push_back((Nanos::ZERO, shown(segment)));
        });
        Self { stack, connection, stream: Vec::new(), now: Nanos::ZERO, sent }
    }

    fn act(&mut self, act: impl FnOnce(&mut Connection, &Stack, &[u8], Nanos, &mut dyn FnMut(&Segment<'_>))) {
        let Self { stack, connection, stream, now, sent } = self;
        act(connection, stack, stream, *now, &mut |segment| sent.push_back((*now, shown(segment))));
    }

    /// Lets time pass, timer by timer.
    fn advance(&mut self, to: Nanos) {
        while self.connection.deadline() <= to {
            self.now = self.connection.deadline();
            self.act(|connection, stack, stream, now, mut send| {
                connection.on_deadline(stack, stream, now, &mut send);
            });
        }
        self.now = to;
    }

    fn play(&mut self, line: &str) -> Result<(), String> {
        let (after, action) = match line.strip_prefix('+').and_then(|rest| rest.split_once(' ')) {
            Some((seconds, action)) => (seconds, action),
            None => ("0", line),
        };
        let seconds = after.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let at = self.now + seconds.ok_or_else(|| format!("+{after} is no time"))?.into();
        let (word, rest) = action.trim().split_once(' ').unwrap_or((action.trim(), ""));
        if word != ">" {
            self.advance(at);
            if let Some((when, segment)) = self.sent.pop_front() {
                return Err(format!("it had sent {segment} at {when}"));
            }
        }
        match (word, rest) {
            (">", wanted) => return self.expect(at, wanted.trim()),
            ("<", pattern) => self.hear(&Pattern::parse(pattern)?),
            ("write", bytes) => {
                let bytes: usize = bytes.parse().map_err(|_| format!("{bytes:?} are no bytes"))?;
                self.stream.resize(self.stream.len() + bytes, b'q');
                self.act(|connection, stack, stream, now, mut send| {
                    connection.transmit(stack, stream, now, &mut send)
                });
            }
            ("close", "") => self.act(|connection, stack, _, now, mut send| {
                connection.close(stack, Close::Fin, now, &mut send);
            }),
            ("abort", "") => self.act(|connection, stack, _, now, mut send| {
                connection.close(stack, Close::Reset, now, &mut send);
            }),
            ("is", state) if self.connection.state().to_string() != state => {
                return Err(format!("it is {}", self.connection.state()));
            }
            ("is" | "silence", _) => {}
            _ => return Err(format!("{action:?} is nothing that happens")),
        }
        Ok(())
    }

    fn expect(&mut self, at: Nanos, wanted: &str) -> Result<(), String> {
        self.advance(at);
        let (when, segment) = self.sent.pop_front().ok_or("it has sent nothing")?;
        // Window and options stand behind the rest.
        let is_it = segment.strip_prefix(wanted).is_some_and(|more| more.is_empty() || more.starts_with(' '));
        if when != at || !is_it {
            return Err(format!("it sent {segment} at {when}, and not at {at}"));
        }
        Ok(())
    }

    fn hear(&mut self, pattern: &Pattern) {
        let segment = Segment {
            seq: SERVER_ISS + pattern.seq,
            ack: pattern.ack.map_or(SeqNumber(0), |ack| CLIENT_ISS + ack),
            flags: pattern.flags,
            window: pattern.window.unwrap_or(60_000),
            options: pattern.options.unwrap_or(Options::NONE),
            payload: &vec![b'r'; pattern.len as usize],
        };
        self.act(|connection, stack, _, now, mut send| {
            connection.on_segment(stack, &segment, now, &mut send);
        });
    }
}

/// A segment of the client, as tcpdump would print it.
fn shown(segment: &Segment<'_>) -> String {
    let pattern = Pattern::describe(segment, CLIENT_ISS.0, SERVER_ISS.0);
    let bare = Pattern { options: None, ..pattern };
    let Options { mss, window_scale, timestamps, layout, sack, .. } = segment.options;
    let stamp = || timestamps.map(|of| format!("TS val {} ecr {}", of.value, of.echo));
    let mut words: Vec<String> = Vec::new();
    if mss.is_some() {
        words.extend(layout.iter().filter_map(|place| match place {
            Place::Mss => mss.map(|mss| format!("mss {mss}")),
            Place::WindowScale => window_scale.map(|bits| format!("wscale {bits}")),
            Place::SackPermitted => segment.options.sack_permitted.then(|| "sackOK".to_owned()),
            Place::Timestamps => stamp(),
            Place::Nop => Some("nop".to_owned()),
            Place::End => Some("eol".to_owned()),
        }));
    } else {
        words.extend(stamp());
        words.extend(
            sack.as_slice()
                .iter()
                .map(|(from, to)| format!("sack {}:{}", *from - SERVER_ISS, *to - SERVER_ISS)),
        );
    }
    format!("{bare} <{}>", words.join(","))
}

fn check(stack: &'static Stack) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/scripts/{}.pkt", stack.name));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut player = Player::connect(stack);
    let mut connects = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().expect("a part").trim();
        if line.is_empty() {
            continue;
        }
        let place = format!("{}.pkt:{number}: {line}", stack.name);
        if line == "connect" {
            assert_eq!(player.sent.pop_front().filter(|_| connects > 0), None, "{place}: before it");
            player = Player::connect(stack);
            connects += 1;
        } else if let Err(why) = player.play(line) {
            panic!("{place}: {why}; then {:?}", player.sent);
        }
    }
    assert_eq!(player.sent.pop_front(), None, "{}: at the end", stack.name);
    assert!(connects >= 4, "{}: handshake, close, failure, refusal", stack.name);
}

#[test]
fn every_stack_does_as_its_script_says() {
    STACKS.into_iter().for_each(check);
}
