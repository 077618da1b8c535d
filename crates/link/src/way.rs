//! The way of a direction: from hosts' own links, where they have some, through the bottleneck, to
//! hosts' own links.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::vec::Drain;

use aqm::PacketKind;
use path::{Arrival, ConfigError, Path};
use units::Nanos;

use crate::Access;
use crate::classify::Frame;

/// Packets that open a connection, SYN and SYN/ACK among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opening {
    /// That came to the bottleneck's queue.
    pub arrived: u64,
    /// Of these, those that it dropped, or the wire lost.
    pub dropped: u64,
}

/// One direction. Moments must not step back from call to call.
pub(crate) struct Way {
    path: Path<Frame>,
    opening: Opening,
    access: Option<Box<AccessLinks>>,
}

/// Hosts' own links, in one direction.
struct AccessLinks {
    numbers: HashMap<IpAddr, u16>,
    /// Those that lead to the bottleneck, by number.
    before: Links,
    /// Those that lead from it.
    behind: Links,
    /// What is at the far end.
    out: VecDeque<Arrival<Frame>>,
    dropped: u64,
}

/// Links beside each other.
struct Links {
    paths: Vec<Path<Frame>>,
    /// No path has anything to do before.
    due: Nanos,
    /// What has come out of them, for the moment: here so that nothing is allocated.
    arrived: Vec<Arrival<Frame>>,
}

impl Way {
    pub(crate) fn new(path: Path<Frame>, access: &[Access], seed: u64) -> Result<Self, ConfigError> {
        let access = (!access.is_empty()).then(|| AccessLinks::new(access, seed)).transpose()?;
        Ok(Self { path, opening: Opening::default(), access: access.map(Box::new) })
    }

    /// A frame has come in, from one address to another; `release` is given what is dropped.
    pub(crate) fn arrive(
        &mut self,
        now: Nanos,
        mut frame: Frame,
        ends: Option<[IpAddr; 2]>,
        release: &mut impl FnMut(Frame),
    ) {
        let Some(access) = &mut self.access else {
            return to_bottleneck((&mut self.path, &mut self.opening), now, frame, release);
        };
        let number = |address: IpAddr| access.numbers.get(&address).copied();
        let [from, to] = ends.map_or([None; 2], |ends| ends.map(number));
        frame.access = to;
        // What comes to the bottleneck before this frame must be there before it.
        self.cross_to(now, release);
        match (&mut self.access, from) {
            (Some(access), Some(from)) => {
                let AccessLinks { before, dropped, .. } = &mut **access;
                before.send(from, Arrival { at: now, packet: frame }, dropped, release);
            }
            _ => to_bottleneck((&mut self.path, &mut self.opening), now, frame, release),
        }
    }

    /// The frame that was first at the far end, if it was by now. To be asked until there is none.
    pub(crate) fn take(&mut self, now: Nanos, release: &mut impl FnMut(Frame)) -> Option<Arrival<Frame>> {
        self.cross_to(now, release);
        match &mut self.access {
            Some(access) => access.out.pop_front(),
            None => take_at_bottleneck((&mut self.path, &mut self.opening), now, release),
        }
    }

    /// Moves what is on hosts' links to where it is by now.
    fn cross_to(&mut self, now: Nanos, release: &mut impl FnMut(Frame)) {
        let Some(access) = &mut self.access else { return };
        let AccessLinks { before, behind, out, dropped, .. } = &mut **access;
        for Arrival { at, packet } in before.take(now, dropped, release) {
            to_bottleneck((&mut self.path, &mut self.opening), at, packet, release);
        }
        while let Some(arrival) = take_at_bottleneck((&mut self.path, &mut self.opening), now, release) {
            match arrival.packet.access {
                Some(to) => behind.send(to, arrival, dropped, release),
                None => behind.arrived.push(arrival),
            }
        }
        out.extend(behind.take(now, dropped, release));
    }

    /// When it has something to do next.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let of_access = self.access.as_ref().and_then(|access| {
            let out = access.out.front().map(|arrival| arrival.at);
            let links = [access.before.due, access.behind.due].into_iter().filter(|due| *due < Nanos::MAX);
            links.chain(out).min()
        });
        [self.path.next(), of_access].into_iter().flatten().min()
    }

    /// The bottleneck.
    pub(crate) fn path(&self) -> &Path<Frame> {
        &self.path
    }

    pub(crate) fn opening(&self) -> Opening {
        self.opening
    }

    /// Frames in the bottleneck's queue or on its wire.
    pub(crate) fn inside(&self) -> u64 {
        u64::from(self.path.qlen_pkts()) + self.path.in_flight() as u64
    }

    /// Frames on hosts' links, and those that these dropped.
    pub(crate) fn on_access(&self) -> (u64, u64) {
        self.access.as_ref().map_or((0, 0), |access| {
            let inside = access.before.inside() + access.behind.inside() + access.out.len() as u64;
            (inside, access.dropped)
        })
    }
}

fn to_bottleneck(
    (path, opening): (&mut Path<Frame>, &mut Opening),
    at: Nanos,
    frame: Frame,
    release: &mut impl FnMut(Frame),
) {
    opening.arrived += u64::from(opens(&frame));
    path.arrive(at, frame, &mut |frame, _| {
        opening.dropped += u64::from(opens(&frame));
        release(frame);
    });
}

fn take_at_bottleneck(
    (path, opening): (&mut Path<Frame>, &mut Opening),
    now: Nanos,
    release: &mut impl FnMut(Frame),
) -> Option<Arrival<Frame>> {
    path.take(now, &mut |frame, _| {
        opening.dropped += u64::from(opens(&frame));
        release(frame);
    })
}

fn opens(frame: &Frame) -> bool {
    frame.kind != PacketKind::Other
}

impl AccessLinks {
    fn new(access: &[Access], seed: u64) -> Result<Self, ConfigError> {
        let numbers = (0..).zip(access).map(|(number, access)| (access.host, number)).collect();
        let links = |side: u64| -> Result<Links, ConfigError> {
            // Each has random numbers of its own; two sides of a million links share none.
            let path = |(number, access): (u64, &Access)| {
                Path::new(&access.path, seed ^ (side << 20 | (number + 1)) << 32)
            };
            let paths = (0..).zip(access).map(path).collect::<Result<_, _>>()?;
            Ok(Links { paths, due: Nanos::MAX, arrived: Vec::new() })
        };
        Ok(Self { numbers, before: links(0)?, behind: links(1)?, out: VecDeque::new(), dropped: 0 })
    }
}

impl Links {
    fn send(
        &mut self,
        which: u16,
        Arrival { at, packet }: Arrival<Frame>,
        dropped: &mut u64,
        release: &mut impl FnMut(Frame),
    ) {
        let path = &mut self.paths[usize::from(which)];
        path.arrive(at, packet, &mut |frame, _| {
            *dropped += 1;
            release(frame);
        });
        self.due = path.next().map_or(self.due, |next| self.due.min(next));
    }

    /// What has come out by now, the first first. What comes out later is later: all of these are
    /// taken.
    fn take<'a>(
        &'a mut self,
        now: Nanos,
        dropped: &mut u64,
        release: &mut impl FnMut(Frame),
    ) -> Drain<'a, Arrival<Frame>> {
        if self.due <= now {
            for path in &mut self.paths {
                let mut drop = |frame, _| {
                    *dropped += 1;
                    release(frame);
                };
                while let Some(arrival) = path.take(now, &mut drop) {
                    self.arrived.push(arrival);
                }
            }
            self.due = self.paths.iter().filter_map(Path::next).min().unwrap_or(Nanos::MAX);
        }
        self.arrived.sort_by_key(|arrival| arrival.at);
        self.arrived.drain(..)
    }

    fn inside(&self) -> u64 {
        self.paths.iter().map(|path| u64::from(path.qlen_pkts()) + path.in_flight() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn frame(buffer: u32, kind: PacketKind) -> Frame {
        let service = path::Service::default();
        Frame { buffer, len: 1250, flow: 0, kind, band: 0, service, access: None }
    }

    fn way(path: &str, access: &[(u8, &str)]) -> Way {
        let config = |text: &str| text.parse::<path::Config>().expect("a path");
        let access: Vec<Access> =
            access.iter().map(|(last, path)| Access { host: address(*last), path: config(path) }).collect();
        Way::new(Path::new(&config(path), 1).expect("a path"), &access, 1).expect("they were parsed")
    }

    /// Numbers of the frames that come out, with when they did, milliseconds.
    fn all(way: &mut Way) -> Vec<(u32, f64)> {
        let mut out = Vec::new();
        while let Some(next) = way.next() {
            while let Some(arrival) = way.take(next, &mut |_| {}) {
                out.push((arrival.packet.buffer, arrival.at.as_millis_f64()));
            }
        }
        out
    }

    #[test]
    fn frame_takes_the_links_of_both_its_hosts() {
        // 1 ms for 1250 bytes at 10 Mbit/s, a tenth of that at 100.
        let hosts = [(1, "rate 100mbit delay 20ms"), (2, "rate 100mbit delay 3ms")];
        let mut way = way("rate 10mbit delay 1ms", &hosts);
        way.arrive(Nanos::ZERO, frame(0, PacketKind::Syn), Some([address(1), address(2)]), &mut |_| {});
        way.arrive(Nanos::ZERO, frame(1, PacketKind::Other), Some([address(9), address(2)]), &mut |_| {});
        way.arrive(Nanos::ZERO, frame(2, PacketKind::Other), Some([address(9), address(8)]), &mut |_| {});
        way.arrive(Nanos::ZERO, frame(3, PacketKind::Other), None, &mut |_| {});
        assert_eq!(way.on_access(), (1, 0));
        assert_eq!(all(&mut way), [(2, 3.0), (3, 4.0), (1, 5.1), (0, 25.2)]);
        assert_eq!((way.inside(), way.on_access()), (0, (0, 0)));
        assert_eq!(way.opening(), Opening { arrived: 1, dropped: 0 });
    }

    #[test]
    fn frames_of_many_hosts_come_to_the_bottleneck_in_the_order_of_their_moments() {
        let hosts = [(1, "delay 30ms"), (2, "delay 10ms"), (3, "delay 20ms")];
        let mut way = way("rate 10mbit", &hosts);
        for number in 1..=3 {
            way.arrive(
                Nanos::ZERO,
                frame(number.into(), PacketKind::Other),
                Some([address(number), address(9)]),
                &mut |_| {},
            );
        }
        // Nobody looks until all are there.
        let mut out = Vec::new();
        while let Some(arrival) = way.take(Nanos::from_secs(1), &mut |_| {}) {
            out.push((arrival.packet.buffer, arrival.at.as_millis_f64()));
        }
        assert_eq!(out, [(2, 11.0), (3, 21.0), (1, 31.0)]);
    }

    #[test]
    fn every_frame_comes_out_or_is_given_back_once() {
        let hosts = [(1, "rate 20mbit delay 5ms limit 3"), (2, "rate 5mbit delay 2ms limit 2")];
        let mut way = way("rate 10mbit delay 1ms limit 4", &hosts);
        let mut released = 0;
        let mut out = 0;
        for number in 0..2000_u32 {
            let kind = if number % 10 == 0 { PacketKind::Syn } else { PacketKind::Other };
            let ends = [address((number % 3) as u8), address((number % 2) as u8 + 1)];
            let now = Nanos::from_micros(u64::from(number) * 300);
            way.arrive(now, frame(number, kind), Some(ends), &mut |_| released += 1);
            while way.take(now, &mut |_| released += 1).is_some() {
                out += 1;
            }
        }
        let (on_access, dropped_there) = way.on_access();
        assert!(dropped_there > 0 && way.opening().dropped > 0, "{:?}", way.opening());
        assert_eq!(2000, out + released + on_access + way.inside());
        let counters = way.path().counters();
        assert_eq!(released, dropped_there + counters.dropped.packets);
    }
}
