//! What the guard must leave alone. Every test shows by a counter that the program saw the frame
//! and why it let it go. The accept queue is full in all of them, so that a SYN that was taken by
//! mistake would be reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::common::frame::{ACK, ECE_CWR, FIN, RST, SYN, Segment};
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, PathStats, Policy};
use rand::{Rng, RngExt, SeedableRng};

const HOOKS: [Attach; 3] = [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric];
const LISTEN4: &str = "10.9.0.2:8080";
const LISTEN6: &str = "[fd09::2]:8080";

/// Runs `test` with a full listener on every hook.
fn with_full_listener(listen: &str, test: impl Fn(&World, &Guarded, &Tap)) {
    for hook in HOOKS {
        let Some(world) = World::create_for(hook) else {
            continue;
        };
        let _peer = world.peer_for(hook);
        let _listener = world.listen(listen);
        let guarded = world.guard(listen, Policy::RST_SYN, hook, false);
        let _streams = world.fill(&guarded);
        test(&world, &guarded, &world.tap());
    }
}

/// Sends a frame and waits until the counter has seen it; no decision may have been made.
fn is_passed(tap: &Tap, guarded: &Guarded, name: &str, frame: &[u8], counter: fn(&PathStats) -> u64) {
    let before = guarded.sample();
    tap.send(frame);
    let after = guarded.wait_more(name, &before, |sample| counter(&sample.path));
    assert_undecided(name, &before, &after);
}

fn assert_undecided(name: &str, before: &Sample, after: &Sample) {
    assert_eq!(before.stats.seen, after.stats.seen, "{name}");
    assert_eq!(before.stats.reset, after.stats.reset, "{name}");
}

#[test]
fn root_syn_to_a_port_that_is_not_guarded_is_untouched() {
    with_full_listener(LISTEN4, |world, guarded, _| {
        let ssh = world.listen("10.9.0.2:22");
        let before = guarded.sample();
        world.connect("10.9.0.2:22").expect("ssh answers");
        ssh.accept().expect("it was accepted");
        let after = guarded.wait_more("the SYN", &before, |sample| sample.path.not_guarded);
        assert_undecided("ssh", &before, &after);
        let closed = world.connect("10.9.0.2:9").expect_err("nothing listens there");
        assert_eq!(closed.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn root_connection_from_the_guarded_host_works_while_its_queue_is_full() {
    with_full_listener(LISTEN4, |world, guarded, _| {
        let outside =
            world.client.enter(|| TcpListener::bind("10.9.0.1:8080")).expect("enter").expect("bind");
        let before = guarded.sample();
        // The remote port is the guarded one's number, too.
        let mut stream = world
            .server
            .enter(|| TcpStream::connect("10.9.0.1:8080"))
            .expect("enter")
            .expect("SYN/ACK arrives");
        let after = guarded.wait_more("the SYN/ACK", &before, |sample| sample.path.syn_ack);
        assert_undecided("SYN/ACK", &before, &after);
        let (mut accepted, _) = outside.accept().expect("accept");
        accepted.write_all(b"hello").expect("write");
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).expect("read");
        assert_eq!(&buffer, b"hello");
    });
}

#[test]
fn root_segment_to_the_guarded_port_that_is_no_syn_is_untouched() {
    with_full_listener(LISTEN4, |_, guarded, tap| {
        let plain = Segment::syn("", GHOST4, SERVER4, PORT);
        for flags in [ACK, RST, FIN, FIN | ACK, SYN | RST, SYN | FIN, 0, ECE_CWR] {
            let segment = plain.clone().with("no SYN", |segment| segment.flags = flags);
            let name = format!("flags {flags:#x}");
            is_passed(tap, guarded, &name, &segment.to_bytes(), |path| path.not_syn);
        }
        let syn_ack = plain.with("SYN/ACK", |segment| segment.flags = SYN | ACK);
        is_passed(tap, guarded, "SYN/ACK", &syn_ack.to_bytes(), |path| path.syn_ack);
    });
}

#[test]
fn root_syn_for_another_ethernet_address_is_untouched() {
    with_full_listener(LISTEN4, |_, guarded, tap| {
        let syn = Segment::syn("other host", GHOST4, SERVER4, PORT)
            .with("other host", |syn| syn.to_mac = [2, 0, 0, 0, 0, 0x99]);
        is_passed(tap, guarded, syn.name, &syn.to_bytes(), |path| path.other_host);
    });
}

#[test]
fn root_syn_that_the_host_forwards_is_untouched_by_a_wildcard_guard() {
    with_full_listener("0.0.0.0:8080", |world, guarded, tap| {
        for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            world.server.set_sysctl(name, "1").expect("sysctl");
        }
        let syn = Segment::syn("forwarded", GHOST4, "10.9.0.1", PORT);
        is_passed(tap, guarded, syn.name, &syn.to_bytes(), |path| path.other_host);
        // The router itself is still guarded.
        let error = world.connect(LISTEN4).expect_err("the queue is full");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// A wildcard stands for the host's own addresses, on a host that does not forward as well.
#[test]
fn root_syn_for_an_address_that_the_host_has_not_is_untouched_by_a_wildcard_guard() {
    with_full_listener("0.0.0.0:8080", |_, guarded, tap| {
        for destination in ["203.0.113.9", "10.9.0.255"] {
            let syn = Segment::syn("not ours", GHOST4, destination, PORT);
            is_passed(tap, guarded, destination, &syn.to_bytes(), |path| path.other_host);
        }
        for destination in ["255.255.255.255", "224.0.0.1", "0.0.0.0"] {
            let syn = Segment::syn("nobody's", GHOST4, destination, PORT);
            is_passed(tap, guarded, destination, &syn.to_bytes(), |path| path.martian);
        }
    });
}

/// Stock Linux is silent, too: the answer would go to many, to itself, or to nobody.
#[test]
fn root_syn_between_martian_addresses_is_untouched() {
    with_full_listener(LISTEN4, |_, guarded, tap| {
        for source in ["255.255.255.255", "224.0.0.5", "0.0.0.0", "127.0.0.1", SERVER4] {
            let syn = Segment::syn("martian", source, SERVER4, PORT);
            is_passed(tap, guarded, source, &syn.to_bytes(), |path| path.martian);
        }
        let mut from_many = Segment::syn("from many", GHOST4, SERVER4, PORT).to_bytes();
        from_many[6] |= 1;
        is_passed(tap, guarded, "a multicast Ethernet source", &from_many, |path| path.martian);
    });
    with_full_listener(LISTEN6, |_, guarded, tap| {
        for source in ["ff02::5", "::1", "::", "::ffff:10.9.0.77", SERVER6] {
            let syn = Segment::syn("martian", source, SERVER6, PORT);
            is_passed(tap, guarded, source, &syn.to_bytes(), |path| path.martian);
        }
    });
}

#[test]
fn root_udp_and_icmp_are_untouched() {
    with_full_listener(LISTEN4, |world, guarded, tap| {
        let receiver =
            world.server.enter(|| std::net::UdpSocket::bind(LISTEN4)).expect("enter").expect("bind");
        let before = guarded.sample();
        let sender =
            world.client.enter(|| std::net::UdpSocket::bind("10.9.0.1:0")).expect("enter").expect("bind");
        sender.send_to(b"datagram", LISTEN4).expect("send");
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv(&mut buffer).expect("receive"), 8);
        let after = guarded.wait_more("UDP", &before, |sample| sample.path.not_tcp);
        assert_undecided("UDP", &before, &after);

        let mut icmp = Segment::syn("ICMP", GHOST4, SERVER4, PORT).to_bytes();
        icmp[23] = 1;
        fix_ipv4_checksum(&mut icmp);
        is_passed(tap, guarded, "ICMP", &icmp, |path| path.not_tcp);
    });
}

#[test]
fn root_arp_is_untouched() {
    with_full_listener(LISTEN4, |_, guarded, tap| {
        let mut request = [[0xff; 6], frame::CLIENT_MAC].concat();
        request.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
        request.extend(frame::CLIENT_MAC);
        request.extend(Ipv4Addr::new(10, 9, 0, 1).octets());
        request.extend([0; 6]);
        request.extend(Ipv4Addr::new(10, 9, 0, 2).octets());
        let before = guarded.sample();
        tap.send(&request);
        guarded.wait_more("ARP", &before, |sample| sample.path.not_ip);
        tap.receive("the ARP reply", |frame| frame[12..14] == [0x08, 0x06] && frame[20..22] == [0, 2]);
    });
}

/// Of a frame with IPv4 and no options. Without SYN a program does not look further than it must.
const FLAGS_AT: usize = 14 + 20 + 13;

#[test]
fn root_fragments_are_untouched() {
    with_full_listener(LISTEN4, |_, guarded, tap| {
        let plain = Segment::syn("", GHOST4, SERVER4, PORT).to_bytes();
        for (name, bits) in
            [("first fragment", [0x20, 0]), ("middle fragment", [0x20, 1]), ("last fragment", [0, 1])]
        {
            for flags in [SYN, ACK] {
                let mut frame = plain.clone();
                frame[20..22].copy_from_slice(&bits);
                frame[FLAGS_AT] = flags;
                fix_ipv4_checksum(&mut frame);
                is_passed(tap, guarded, name, &frame, |path| path.fragment);
            }
        }
    });
    with_full_listener(LISTEN6, |_, guarded, tap| {
        for (name, bits) in [("first fragment", [0, 1]), ("last fragment", [0, 8]), ("atomic", [0, 0])] {
            let fragment = Segment::syn("fragment", GHOST6, SERVER6, PORT).with("fragment", |segment| {
                segment.first_extension = 44;
                segment.extra = [&[6, 0], &bits[..], &[0, 0, 0, 1]].concat();
            });
            is_passed(tap, guarded, name, &fragment.to_bytes(), |path| path.fragment);
        }
    });
}

#[test]
fn root_ipv6_chains_that_are_not_ours_are_untouched() {
    let chain = |first: u8, extra: Vec<u8>| {
        Segment::syn("chain", GHOST6, SERVER6, PORT)
            .with("chain", |segment| {
                segment.first_extension = first;
                segment.extra = extra;
            })
            .to_bytes()
    };
    let padding = |next: u8| vec![next, 0, 1, 4, 0, 0, 0, 0];
    with_full_listener(LISTEN6, |_, guarded, tap| {
        let seven =
            [padding(60), padding(60), padding(60), padding(60), padding(60), padding(60), padding(6)];
        for (name, frame) in [
            ("AH", chain(51, vec![6, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0])),
            ("no next header", chain(59, Vec::new())),
            ("hop-by-hop in second place", chain(60, [padding(0), padding(6)].concat())),
            ("segments left", chain(43, vec![6, 0, 4, 1, 0, 0, 0, 0])),
            ("seven headers", chain(60, seven.concat())),
        ] {
            is_passed(tap, guarded, name, &frame, |path| path.not_tcp);
        }
        let endless = chain(60, vec![60, 255, 1, 4, 0, 0, 0, 0]);
        is_passed(tap, guarded, "header longer than the packet", &endless, |path| path.malformed);
    });
}

#[test]
fn root_truncated_frames_are_untouched() {
    for (listen, syn) in [
        (LISTEN4, Segment::syn("IPv4", GHOST4, SERVER4, PORT)),
        (LISTEN6, Segment::syn("IPv6", GHOST6, SERVER6, PORT)),
    ] {
        with_full_listener(listen, |_, guarded, tap| {
            let whole = syn.to_bytes();
            // A packet socket does not send less than an Ethernet header, and an empty packet
            // reaches no program.
            for length in 15..whole.len() {
                for flags in [SYN, ACK] {
                    let name = format!("{} cut to {length}, flags {flags:#x}", syn.name);
                    let mut frame = whole.clone();
                    let is_ipv4 = frame[12..14] == [0x08, 0x00];
                    frame[if is_ipv4 { FLAGS_AT } else { FLAGS_AT + 20 }] = flags;
                    is_passed(tap, guarded, &name, &frame[..length], |path| path.malformed);
                }
            }
            let third_tag = syn.clone().with("three tags", |syn| {
                syn.tags = vec![(0x88a8, 1), (0x8100, 2), (0x8100, 3)];
            });
            // At tcx the kernel has taken the first tag out, so the third is the program's second
            // there.
            let before = guarded.sample();
            tap.send(&third_tag.to_bytes());
            guarded.wait_more("three tags", &before, |sample| sample.path.frames);
        });
    }
}

#[test]
fn root_lengths_that_contradict_each_other_are_untouched() {
    with_full_listener(LISTEN4, |_, guarded, tap| {
        let plain = Segment::syn("", GHOST4, SERVER4, PORT).to_bytes();
        for (name, at, value) in [
            ("version 5", 14, 0x55),
            ("IP header of 16 bytes", 14, 0x44),
            ("IP header beyond the packet", 14, 0x4f),
            ("total length beyond the frame", 16, 0xff),
            ("total length shorter than the headers", 17, 30),
            ("TCP header of 16 bytes", 46, 0x40),
            ("TCP header beyond the packet", 46, 0xf0),
        ] {
            for flags in [SYN, ACK] {
                let mut frame = plain.clone();
                frame[FLAGS_AT] = flags;
                frame[at] = value;
                fix_ipv4_checksum(&mut frame);
                is_passed(tap, guarded, name, &frame, |path| path.malformed);
            }
        }
    });
}

#[test]
fn root_garbage_is_seen_and_untouched() {
    const FRAMES: u64 = 3000;
    with_full_listener(LISTEN4, |world, guarded, tap| {
        let mut random = rand_pcg::Pcg32::seed_from_u64(20);
        let before = guarded.sample();
        for _ in 0..FRAMES {
            tap.send(&garbage(&mut random));
        }
        let after = guarded.wait("all frames", |sample| sample.path.frames >= before.path.frames + FRAMES);
        assert_undecided("garbage", &before, &after);
        let path = after.path;
        let passed = path.not_ip
            + path.not_tcp
            + path.fragment
            + path.malformed
            + path.not_syn
            + path.syn_ack
            + path.not_guarded
            + path.other_host
            + path.martian
            + path.again
            + path.no_listener
            + path.known;
        assert_eq!(path.frames, passed + after.stats.seen, "every frame is accounted for");
        assert!(path.not_ip > 0 && path.malformed > 0 && path.not_tcp > 0 && path.fragment > 0);
        world.connect(LISTEN4).expect_err("and the guard still works");
    });
}

/// Random bytes, behind a start that is right for longer and longer, so that every part of the
/// parser is reached. Never a SYN to the guarded port: the destination port is random but for that
/// one.
fn garbage(random: &mut impl Rng) -> Vec<u8> {
    let pattern = match random.random_range(0..3) {
        0 => Segment::syn("", GHOST4, SERVER4, PORT + 1).to_bytes(),
        1 => Segment::syn("", GHOST6, SERVER6, PORT + 1).to_bytes(),
        _ => Segment::syn("", GHOST6, SERVER6, PORT + 1)
            .with("", |segment| {
                segment.first_extension = 60;
                segment.extra = vec![6, 0, 1, 4, 0, 0, 0, 0];
                segment.tags = vec![(0x8100, 5)];
            })
            .to_bytes(),
    };
    // The kernel drops a tagged frame of less than 20 bytes before any tc program sees it.
    let length = random.random_range(20..200);
    let kept = random.random_range(12..pattern.len().min(length).max(13));
    let mut frame: Vec<u8> = (0..length).map(|_| random.random()).collect();
    let kept = kept.min(length);
    frame[..kept].copy_from_slice(&pattern[..kept]);
    // Random bytes contain the guarded port about as often as any other; keep it out wherever it
    // may be read.
    for at in 13..frame.len() {
        if frame[at - 1] == 0x1f && frame[at] == 0x90 {
            frame[at] = 0x91;
        }
    }
    frame
}

fn fix_ipv4_checksum(frame: &mut [u8]) {
    let length = usize::from(frame[14] & 0xf) * 4;
    let end = (14 + length).min(frame.len());
    frame[24..26].fill(0);
    let sum = frame::checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}
