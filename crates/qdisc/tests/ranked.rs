//! SRPT and LAS: the qdisc in the kernel against `crates/aqm` on the host, and what it knows of
//! responses.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use aqm::{Aqm, Config, DropReason, Packet, Queue, RandomNumbers};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use netns::Lan;
use nix::libc;
use qdisc::{Event, Order, Own, Replay, Setup, Status};

use crate::common::places::Placed;
use crate::common::{PATIENCE, add, drained, is_conserved, lan, paced, segment, setup, show};

const ACK: u8 = 0x10;

/// A packet as the host's queue is told it.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    number: u32,
    bytes: u32,
    flow: u32,
    rank: u64,
}

impl Packet for Arrival {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn left(&self) -> Option<u64> {
        Some(self.rank)
    }

    fn attained(&self) -> u64 {
        self.rank
    }
}

fn replayed(setup: Setup, events: u32) -> Setup {
    Setup { replay: Some(Replay { seed: 1, events }), ..setup }
}

fn trace(lan: &Lan) -> Vec<Event> {
    let (events, total) = lan.client.enter(|| qdisc::trace("c0")).expect("enter").expect("a trace");
    assert_eq!(events.len() as u64, total, "all were kept");
    events
}

fn order(status: &Status) -> &Order {
    match &status.own {
        Own::Ranked(order) => order,
        Own::RedFavor(_) => panic!("no order: {status:?}"),
    }
}

fn placed_by(status: &Status, source: &str) -> u64 {
    order(status).placed_by.iter().find(|(name, _)| *name == source).expect("every source is there").1
}

/// Tells the host's queue what the kernel's was told, and demands the same of it. Gives the most
/// flows that had packets at once.
fn replay(config: &Config, events: &[Event]) -> usize {
    let mut queue = Queue::new(config, 1).expect("it was parsed");
    let mut flows: HashMap<u64, u32> = HashMap::new();
    let (mut waiting, mut most): (HashMap<u32, u32>, usize) = (HashMap::new(), 0);
    let mut flow_of: HashMap<u32, u32> = HashMap::new();
    let mut rest = events.iter().peekable();
    while let Some(event) = rest.next() {
        let mut gone = Vec::new();
        match *event {
            Event::Arrived { at, packet, bytes, rank, flow, .. } => {
                let known = flows.len() as u32;
                let flow = *flows.entry(flow).or_insert(known);
                flow_of.insert(packet, flow);
                *waiting.entry(flow).or_default() += 1;
                let mut drops = Vec::new();
                let arrival = Arrival { number: packet, bytes, flow, rank };
                queue.enqueue(at, arrival, &mut |dropped, reason| drops.push((dropped.number, reason)));
                for (packet, reason) in drops {
                    assert_eq!(rest.next(), Some(&Event::Dropped { packet, reason }), "after {event:?}");
                    gone.push(packet);
                }
            }
            Event::Sent { at, packet } => {
                let sent = queue.dequeue(at, &mut |_, _| {}).map(|arrival| arrival.number);
                assert_eq!(sent, Some(packet), "{event:?}");
                gone.push(packet);
            }
            Event::Dropped { .. } => panic!("only the kernel: {event:?}"),
        }
        for packet in gone {
            let flow = flow_of[&packet];
            let count = waiting.get_mut(&flow).expect("it waited");
            *count -= 1;
            if *count == 0 {
                waiting.remove(&flow);
            }
        }
        most = most.max(waiting.len());
    }
    assert!(queue.is_empty(), "both have sent all");
    most
}

/// Bursts of frames of so many flows, with pauses in which the queue gets shorter, or empty for
/// some time. A flow's rank is mostly that of before, less what was sent.
fn send_all(lan: &Lan, frames: u32, flows: u32, seed: u64) {
    let sender = Placed::open(lan);
    let mut random = RandomNumbers::new(seed);
    let mut left = vec![0_u32; flows as usize];
    for number in 0..frames {
        // Some flows have many packets.
        let flow = random.next_u32() % (1 + random.next_u32() % flows);
        let left = &mut left[flow as usize];
        *left = match *left {
            0..2 => random.next_u32() % 100,
            left => left - 1,
        };
        sender.send(&segment(lan, 60 + random.next_u32() as usize % 1400, ACK), *left, flow);
        if number % 40 == 0 {
            let ms = if number % 800 == 0 { 300 } else { random.next_u32() % 50 };
            std::thread::sleep(Duration::from_millis(ms.into()));
        }
    }
}

fn kernel_and_host_decide_the_same(text: &str, reasons: &[DropReason]) {
    const FRAMES: u32 = 2400;
    let Some(lan) = lan() else { return };
    let replayed = replayed(paced(text, "10Mbit"), 4 * FRAMES);
    add(&lan, &replayed).expect("add");
    send_all(&lan, FRAMES, 40, 7);
    let status = drained(&lan);
    assert!(is_conserved(&status), "{status:?}");
    assert!(placed_by(&status, "told") >= FRAMES.into(), "the test said the places: {status:?}");
    for reason in reasons {
        assert!(status.dropped[*reason] > 0, "the load was to show {reason}: {status:?}");
    }
    let most = replay(&replayed.config, &trace(&lan));
    assert!(most > 3, "of {most} flows packets waited at once");
    assert_eq!(order(&status).flows, 0);
}

#[test]
fn root_replay_of_srpt_decides_the_same() {
    let reasons = [DropReason::FlowLimit, DropReason::PushedOut, DropReason::Tail];
    kernel_and_host_decide_the_same("srpt:limit=50,flow_limit=12", &reasons);
}

#[test]
fn root_replay_of_las_decides_the_same() {
    kernel_and_host_decide_the_same("las:limit=30,flow_limit=30", &[DropReason::PushedOut, DropReason::Tail]);
}

#[test]
fn root_replay_of_flows_with_one_packet_each_decides_the_same() {
    let reasons = [DropReason::FlowLimit, DropReason::PushedOut, DropReason::Tail];
    kernel_and_host_decide_the_same("srpt:limit=8,flow_limit=1", &reasons);
}

#[test]
fn root_replay_of_ten_thousand_flows_decides_the_same() {
    const FLOWS: u32 = 10_000;
    let Some(lan) = lan() else { return };
    // So slow that nothing leaves meanwhile.
    let setup = replayed(paced("srpt:limit=10000", "1kbit"), 4 * FLOWS);
    add(&lan, &setup).expect("add");
    let sender = Placed::open(&lan);
    let mut random = RandomNumbers::new(3);
    let frame = segment(&lan, 60, ACK);
    for flow in 0..FLOWS + 500 {
        sender.send(&frame, random.next_u32() % 4000, flow);
    }
    set_rate(100_000_000);
    let status = drained(&lan);
    assert!(is_conserved(&status), "{status:?}");
    assert!(replay(&setup.config, &trace(&lan)) >= FLOWS as usize);
}

/// Of the only qdisc, from now on.
fn set_rate(bits_per_s: u64) {
    let path = Path::new("/sys/fs/bpf/tidegate").join(&pinned()[0]).join("config");
    let config = MapHandle::from_pinned_path(path).expect("open the configuration");
    let only = 0_u32.to_ne_bytes();
    let mut bytes = config.lookup(&only, MapFlags::ANY).expect("read").expect("there is one");
    bytes[..8].copy_from_slice(&bits_per_s.to_ne_bytes());
    config.update(&only, &bytes, MapFlags::ANY).expect("write");
}

#[test]
fn root_whatever_comes_is_conserved() {
    let Some(lan) = lan() else { return };
    for seed in 0..8 {
        let mut random = RandomNumbers::new(seed);
        let (limit, flow_limit) = (1 + random.next_u32() % 60, 1 + random.next_u32() % 20);
        let kind = if seed % 2 == 0 { "srpt" } else { "las" };
        let text = format!("{kind}:limit={limit},flow_limit={flow_limit}");
        add(&lan, &paced(&text, "3Mbit")).expect("add");
        send_all(&lan, 300, 1 + random.next_u32() % 30, seed);
        let before = show(&lan);
        assert!(before.qlen_pkts <= limit.into() && order(&before).flows <= before.qlen_pkts, "{before:?}");
        // What waits is thrown away, or sent.
        let status = if seed % 4 < 2 {
            lan.client.ip(&["link", "set", "c0", "down"]).expect("down");
            show(&lan)
        } else {
            drained(&lan)
        };
        assert!(is_conserved(&status), "{text}: {status:?}");
        assert!(status.arrived.pkts >= 300 && status.qlen_pkts == 0, "{text}: {status:?}");
        assert_eq!((order(&status).flows, status.qlen_bytes), (0, 0), "{text}: {status:?}");
        lan.client.enter(|| qdisc::del("c0")).expect("enter").expect("del");
        lan.client.ip(&["link", "set", "c0", "up"]).expect("up");
    }
}

#[test]
fn root_largest_is_pushed_out_and_the_smallest_goes_first() {
    let Some(lan) = lan() else { return };
    // So slow that nothing leaves meanwhile but the first.
    let setup = replayed(paced("srpt:limit=4,flow_limit=3", "1kbit"), 1000);
    add(&lan, &setup).expect("add");
    let sender = Placed::open(&lan);
    let frame = segment(&lan, 500, ACK);
    let [other, large, middle, small] = [1, 2, 3, 4];
    let first = show(&lan).arrived.pkts as u32;
    sender.send(&frame, 0, other);
    for (rank, flow) in [(900, large), (899, large), (500, middle), (500, middle), (10, small)] {
        sender.send(&frame, rank, flow);
    }
    // The flow of a packet that comes may be the largest.
    sender.send(&frame, 950, 5);
    set_rate(100_000_000);
    let status = drained(&lan);
    assert_eq!(
        (status.dropped[DropReason::PushedOut], status.dropped[DropReason::Tail]),
        (1, 1),
        "{status:?}"
    );
    let events = trace(&lan);
    let of_the_test = |packet: &u32| packet.checked_sub(first).filter(|number| *number < 7);
    let dropped: Vec<u32> = dropped(&events).iter().filter_map(of_the_test).collect();
    assert_eq!(dropped, [2, 6], "the last one of the largest, and one that is larger than all");
    let sent: Vec<u32> = sent(&events).iter().filter_map(of_the_test).collect();
    assert_eq!(sent, [0, 5, 3, 4, 1]);
}

/// Packets that left, in this order.
fn sent(events: &[Event]) -> Vec<u32> {
    let packet = |event: &Event| match event {
        Event::Sent { packet, .. } => Some(*packet),
        _ => None,
    };
    events.iter().filter_map(packet).collect()
}

/// Packets that were dropped, in this order.
fn dropped(events: &[Event]) -> Vec<u32> {
    let packet = |event: &Event| match event {
        Event::Dropped { packet, .. } => Some(*packet),
        _ => None,
    };
    events.iter().filter_map(packet).collect()
}

/// A connection from `c0`'s host, which answers, to the other, which asks.
struct Connection {
    answering: TcpStream,
    asking: TcpStream,
}

impl Connection {
    fn open(lan: &Lan) -> Self {
        let listener =
            lan.client.enter(|| TcpListener::bind((Lan::CLIENT[0], 0))).expect("enter").expect("bind");
        let address = listener.local_addr().expect("an address");
        let asking = lan.server.enter(|| TcpStream::connect(address)).expect("enter").expect("connect");
        asking.set_read_timeout(Some(PATIENCE)).expect("set a time limit");
        Self { answering: listener.accept().expect("accept").0, asking }
    }

    fn ask(&mut self) {
        self.asking.write_all(b"GET").expect("ask");
        self.answering.read_exact(&mut [0; 3]).expect("read the request");
    }

    fn answer(&mut self, response: &[u8]) {
        let mut answering = self.answering.try_clone().expect("a descriptor");
        std::thread::scope(|scope| {
            scope.spawn(move || answering.write_all(response).expect("answer"));
            let mut read = vec![0; response.len()];
            self.asking.read_exact(&mut read).expect("read the response");
            assert!(read == response, "it arrives whole and in order");
        });
    }
}

fn http(body: usize) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n").into_bytes();
    response.resize(response.len() + body, b'x');
    response
}

/// Ranks of the packets with more than an acknowledgment's bytes, by flow, in the order in which
/// flows began.
fn ranks(events: &[Event]) -> Vec<Vec<u64>> {
    let mut flows: Vec<(u64, Vec<u64>)> = Vec::new();
    for event in events {
        if let Event::Arrived { bytes, rank, flow, .. } = *event
            && bytes > 100
        {
            match flows.iter_mut().find(|(known, _)| *known == flow) {
                Some((_, ranks)) => ranks.push(rank),
                None => flows.push((flow, vec![rank])),
            }
        }
    }
    flows.into_iter().map(|(_, ranks)| ranks).collect()
}

#[test]
fn root_responses_of_http_are_sent_shortest_first_as_the_host_would() {
    let Some(lan) = lan() else { return };
    // Each segment is a packet.
    lan.client.ip(&["link", "set", "c0", "gso_max_segs", "1"]).expect("set");
    let setup = replayed(paced("srpt:limit=200,flow_limit=50", "10Mbit"), 40_000);
    add(&lan, &setup).expect("add");
    let sizes = [400_000, 400_000, 400_000, 2_000, 20_000, 2_000, 20_000, 2_000];
    let mut connections: Vec<Connection> = sizes.iter().map(|_| Connection::open(&lan)).collect();
    std::thread::scope(|scope| {
        for (size, connection) in sizes.iter().zip(&mut connections) {
            scope.spawn(move || {
                connection.ask();
                connection.answer(&http(*size));
            });
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    drop(connections);
    let status = drained(&lan);
    assert!(is_conserved(&status), "{status:?}");
    assert!(placed_by(&status, "content-length") > 800, "{status:?}");
    assert_eq!(placed_by(&status, "untold"), 0, "{status:?}");
    let events = trace(&lan);
    assert!(!sent(&events).is_sorted(), "some went before others that had come first");
    let ranks = ranks(&events);
    assert!(ranks.iter().all(|ranks| ranks.iter().all(|rank| *rank <= ranks[0])), "{ranks:?}");
    let sorted = |mut all: Vec<u64>| {
        all.sort_unstable();
        all
    };
    let first = sorted(ranks.iter().map(|ranks| ranks[0]).collect());
    let whole = sorted(sizes.iter().map(|size| http(*size).len() as u64).collect());
    assert_eq!(first, whole, "a first segment has all of its response before it");
    replay(&setup.config, &events);
}

#[test]
fn root_order_of_las_goes_by_what_was_sent() {
    let Some(lan) = lan() else { return };
    add(&lan, &replayed(setup("las"), 10_000)).expect("add");
    let mut connection = Connection::open(&lan);
    for _ in 0..2 {
        connection.ask();
        connection.answer(&http(100_000));
    }
    let status = drained(&lan);
    assert_eq!(order(&status).sources, ["attained"]);
    let ranks = &ranks(&trace(&lan))[0];
    let begins = ranks.iter().filter(|rank| **rank == 0).count();
    assert_eq!(begins, 2, "each response begins at 0: {ranks:?}");
    assert!(ranks.windows(2).all(|pair| pair[0] < pair[1] || pair[1] == 0), "{ranks:?}");
}

#[test]
fn root_what_the_program_and_sendfile_say_is_the_rank() {
    const FILE_BYTES: usize = 150_000;
    let Some(lan) = lan() else { return };
    let added = add(&lan, &replayed(setup("srpt"), 10_000)).expect("add");
    assert_eq!(order(&added).sources, ["told", "content-length", "sendfile", "buffered", "attained"]);
    let mut told = Connection::open(&lan);
    told.ask();
    let bytes = 700_000_u64;
    // SAFETY: the kernel reads eight bytes.
    let done = unsafe {
        libc::setsockopt(
            told.answering.as_raw_fd(),
            0x7467,
            2,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as u32,
        )
    };
    assert_eq!(done, 0, "the qdisc hears it");
    told.answer(&[b'x'; 1_000]);
    told.answer(&[b'x'; 1_000]);
    let mut sending = Connection::open(&lan);
    sending.ask();
    let path = std::env::temp_dir().join(format!("tg-qdisc-{}", std::process::id()));
    fs::write(&path, vec![b'x'; FILE_BYTES]).expect("write");
    let file = fs::File::open(&path).expect("open");
    let socket = sending.answering.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut left = FILE_BYTES;
            while left > 0 {
                // SAFETY: without an offset the kernel reads and writes nothing of ours.
                let sent = unsafe {
                    libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut(), left)
                };
                left -= usize::try_from(sent).expect("it is sent");
            }
        });
        sending.asking.read_exact(&mut vec![0; FILE_BYTES]).expect("read");
    });
    fs::remove_file(&path).expect("remove");
    drained(&lan);
    let ranks = ranks(&trace(&lan));
    assert_eq!(ranks[0], [700_000, 699_000]);
    assert_eq!(ranks[1][0], FILE_BYTES as u64);
    assert!(ranks[1].is_sorted_by(|one, next| one > next), "{:?}", ranks[1]);
}

/// Of `kernel/srpt.bpf.c`, some.
const PROGRAMS: [&str; 5] = ["tell", "set_bytes", "note_sendfile", "enqueue", "dequeue"];

/// Those that the kernel has.
fn programs() -> Vec<String> {
    let names = ProgInfoIter::default().map(|program| program.name.to_string_lossy().into_owned());
    names.filter(|name| PROGRAMS.contains(&name.as_str())).collect()
}

/// What is pinned for our qdiscs.
fn pinned() -> Vec<String> {
    let entries = fs::read_dir("/sys/fs/bpf/tidegate").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The kernel frees programs a little later; as long as there is a link there is its program.
fn nothing_is_left() {
    let start = Instant::now();
    while !programs().is_empty() {
        assert!(start.elapsed() < PATIENCE, "{:?} are still there", programs());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pinned(), Vec::<String>::new());
}

#[test]
fn root_ranked_qdisc_that_goes_leaves_no_program_link_or_map() {
    let Some(lan) = lan() else { return };
    // Earlier tests left theirs to the next command, and the kernel removes their namespaces in its
    // own time.
    let start = Instant::now();
    while !programs().is_empty() {
        lan.client.enter(|| qdisc::del("c0")).expect("enter").expect_err("there is none");
        assert!(start.elapsed() < PATIENCE, "{:?} are still there", programs());
        std::thread::sleep(Duration::from_millis(20));
    }
    add(&lan, &setup("srpt")).expect("add");
    assert_eq!(programs().len(), PROGRAMS.len(), "{:?}", programs());
    assert!(Path::new("/sys/fs/bpf/tidegate").join(&pinned()[0]).join("tell").exists(), "{:?}", pinned());
    lan.client.enter(|| qdisc::del("c0")).expect("enter").expect("del");
    nothing_is_left();

    // Somebody else removes it: what tells sizes is at work no more, and gone with the next
    // command.
    add(&lan, &setup("las")).expect("add");
    lan.client.tc(&["qdisc", "del", "dev", "c0", "root"]).expect("tc");
    assert!(lan.client.enter(|| qdisc::show("c0")).expect("enter").is_err());
    lan.client.enter(|| qdisc::del("c0")).expect("enter").expect_err("it is gone");
    nothing_is_left();

    add(&lan, &setup("srpt")).expect("add");
    lan.client.ip(&["link", "del", "c0"]).expect("delete");
    lan.server.enter(|| qdisc::del("lo")).expect("enter").expect_err("there is none");
    nothing_is_left();
}

#[test]
fn root_limit_beyond_what_the_kernel_keeps_is_refused_in_a_line() {
    let Some(lan) = lan() else { return };
    let error = add(&lan, &setup("srpt:limit=1000001")).expect_err("too many").to_string();
    assert_eq!(error, "srpt: limit=1000001: the kernel keeps a place for each; say at most 1000000");
    lan.client.enter(|| qdisc::show("c0")).expect("enter").expect_err("nothing was made");
}
