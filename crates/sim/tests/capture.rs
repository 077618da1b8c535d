//! What a capture of the server's link has of a connection.

use std::net::SocketAddr;

use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Window};
use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use sim::{Accept, Capture, Config, Profile, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Schedule, Workload};
use units::Nanos;
use wire::{Flags, parse};

const SERVER: &str = "10.76.0.1:80";

/// Of the frames of a crowd of so many a second, for a second, so many.
fn capture(rate: f64, most: usize) -> Capture {
    capture_before(Profile::shipped("round-numbers").expect("shipped"), rate, most)
}

/// The same before another machine.
fn capture_before(profile: Profile, rate: f64, most: usize) -> Capture {
    let end = Nanos::from_secs(1);
    let manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: Nanos::ZERO, end },
        stacks: Stacks::default(),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let asks = Asks::new(Workload::default(), 1, "server", "/");
    let clients = Clients::new("10.77.0.0/16".parse().expect("a network"));
    let crowd = Crowd::new(manners, asks, clients, Schedule::new(Arrivals::Fixed, rate, 1), 0);
    let setup = Setup {
        kernel: Config::default(),
        service: Serving {
            accept: Accept::Inf,
            cpu_time: Nanos::ZERO,
            backend: Nanos::ZERO,
            reply_bytes: 512,
            descriptors: None,
            closes: None,
        },
        profile,
    };
    let mut world = World::new(setup, crowd);
    world.capture(SERVER.parse().expect("an address"), most);
    world.run_until(end);
    world.take_capture().expect("it was asked for")
}

/// By an implementation that is not ours.
fn has_right_checksums(frame: &[u8]) -> bool {
    let headers = PacketHeaders::from_ethernet_slice(frame).expect("a frame");
    let (Some(NetHeaders::Ipv4(ip, _)), Some(TransportHeader::Tcp(tcp))) = (headers.net, headers.transport)
    else {
        return false;
    };
    let payload = headers.payload.slice();
    ip.header_checksum == ip.calc_header_checksum()
        && Ok(tcp.checksum) == tcp.calc_checksum_ipv4(&ip, payload)
}

#[test]
fn connection_is_there_from_syn_to_fin_with_the_times_of_the_simulation() {
    let capture = capture(1.0, 100);
    let server: SocketAddr = SERVER.parse().expect("an address");
    let mut said = Vec::new();
    let mut times = Vec::new();
    for (at, frame) in capture.frames() {
        assert!(has_right_checksums(frame), "{frame:?}");
        let (tuple, segment) = parse(frame).expect("a frame");
        assert!(tuple.src == server || tuple.dst == server, "{tuple:?}");
        let way = if tuple.dst == server { '>' } else { '<' };
        let text = str::from_utf8(segment.payload).expect("text");
        let what = match (segment.flags, text.split(' ').next()) {
            (flags, _) if flags == Flags::SYN => "SYN",
            (flags, _) if flags == Flags::SYN | Flags::ACK => "SYN/ACK",
            (flags, _) if flags.has(Flags::FIN) => "FIN",
            (_, Some("GET")) => "request",
            (_, Some("HTTP/1.1")) => "reply",
            _ => "ACK",
        };
        said.push(format!("{way} {what}"));
        times.push(at.0);
    }
    assert_eq!(
        said,
        ["> SYN", "< SYN/ACK", "> ACK", "> request", "< ACK", "< reply", "> ACK", "> FIN", "< FIN", "> ACK"]
    );
    // The machine takes 7 us to answer a SYN, and a round trip takes 100.
    assert_eq!(times[1] - times[0], 7_000);
    assert_eq!(times[2] - times[1], 100_000);
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn capture_of_a_crowd_is_in_the_order_of_time_and_no_longer_than_asked() {
    let whole = capture(20_000.0, usize::MAX);
    let times: Vec<Nanos> = whole.frames().map(|(at, _)| at).collect();
    assert!(times.is_sorted() && times.len() > 100_000, "{}", times.len());
    assert_eq!(whole.left_out(), 0);
    let short = capture(20_000.0, 1000);
    assert_eq!(short.frames().count(), 1000);
    assert_eq!(short.left_out(), times.len() as u64 - 1000);
}

/// What left for the server together, and when: of each frame whether it begins an attempt.
fn turns(capture: &Capture) -> Vec<(Nanos, Vec<bool>)> {
    let server: SocketAddr = SERVER.parse().expect("an address");
    let mut turns: Vec<(Nanos, Vec<bool>)> = Vec::new();
    for (at, frame) in capture.frames() {
        let (tuple, segment) = parse(frame).expect("a frame");
        if tuple.dst != server {
            continue;
        }
        let begins = segment.flags == Flags::SYN;
        match turns.last_mut() {
            Some((of, frames)) if *of == at => frames.push(begins),
            _ => turns.push((at, vec![begins])),
        }
    }
    turns
}

#[test]
fn turn_of_a_generator_ends_handshakes_before_it_begins_others() {
    let mut profile = Profile::shipped("round-numbers").expect("shipped");
    profile.crowd.turns = 1000.0;
    let turns = turns(&capture_before(profile, 10_000.0, usize::MAX));
    assert!(
        turns.windows(2).all(|pair| pair[1].0 - pair[0].0 >= Nanos::from_millis(1)),
        "a turn is a millisecond long"
    );
    let of_both = turns.iter().filter(|(_, frames)| frames.contains(&true) && frames.contains(&false));
    assert!(of_both.count() > 900, "{} turns", turns.len());
    assert!(turns.iter().all(|(_, frames)| frames.is_sorted()), "a SYN comes before an answer");
}

#[test]
fn crowd_that_looks_for_replies_by_a_timer_answers_them_all_then() {
    let mut profile = Profile::shipped("round-numbers").expect("shipped");
    let poll = Nanos::from_micros(200);
    (profile.crowd.delay, profile.crowd.poll) = (0.0, 200.0);
    let turns = turns(&capture_before(profile, 10_000.0, usize::MAX));
    let is_look = |at: Nanos| at.0.is_multiple_of(poll.0);
    let mut answers = turns.iter().filter(|(_, frames)| frames.contains(&false));
    assert!(answers.clone().count() > 4000, "{} answers", answers.clone().count());
    assert!(answers.all(|(at, _)| is_look(*at)), "what came in between waits");
    assert!(turns.iter().any(|(at, _)| !is_look(*at)), "who begins does not");
}
