//! Where TIME_WAIT is after a server has closed first.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use close::{Counts, Setup, Way};
use nix::sys::socket::{MsgFlags, send};

use crate::world::{RESPONSE, SERVERS, World, connect_unless_quarantined, settled, start};

/// TIME_WAIT at the server and at the client after so many connections, in quarantine, and what was
/// counted.
fn closes(world: &World, way: Way, count: usize) -> ((usize, usize), usize, Counts) {
    // However often the kernel comes back to a port in quarantine, which takes 0.2 s each time,
    // none is over at the end.
    let quarantine = Duration::from_secs(240);
    let mut closing = start(world, &Setup { quarantine, ..world.setup(way) });
    let mut renewed = Instant::now();
    for number in 0..count {
        if renewed.elapsed() > Duration::from_secs(1) {
            closing.renew().expect("renew");
            renewed = Instant::now();
        }
        let server = 2 + number % SERVERS;
        let address =
            if world.address.is_ipv6() { format!("fd08::{server}") } else { format!("10.8.0.{server}") };
        let ip: IpAddr = address.parse().expect("an address");
        let address = (ip, world.address.port()).into();
        let stream = world.client.enter(|| connect_unless_quarantined(address)).expect("enter");
        let asked = stream.and_then(|stream| world.ask_over(stream, Some(&closing)));
        asked.unwrap_or_else(|error| panic!("{number}: {error}: {:?}", closing.counts()));
    }
    let left = settled(world);
    (left, closing.quarantined().expect("read"), closing.counts().expect("read")[0])
}

/// IPv4 and IPv6, with and without timestamps, whether a RST may end TIME_WAIT at the server or
/// not.
fn check_all(count: usize) {
    for is_ipv6 in [false, true] {
        for timestamps in ["1", "0"] {
            for (way, rfc1337) in [(Way::Swap, "0"), (Way::Swap, "1"), (Way::Hold, "0"), (Way::Hold, "1")] {
                let Some(world) = World::create(is_ipv6) else { return };
                world.client.set_sysctl("net.ipv4.tcp_timestamps", timestamps).expect("sysctl");
                world.server.set_sysctl("net.ipv4.tcp_rfc1337", rfc1337).expect("sysctl");
                // On a slow machine the server would repeat a FIN before the client closes.
                world.make_server_patient();
                // A machine of little memory has fewer.
                world.client.set_sysctl("net.ipv4.tcp_max_tw_buckets", "20000").expect("sysctl");
                // Of connections that the server keeps for 60 s fewer, on a slow machine: the
                // kernel comes back to ports in quarantine.
                let count = if (way, rfc1337) == (Way::Swap, "1") { count / 4 } else { count };
                let (left, quarantined, counts) = closes(&world, way, count);
                let wanted = match (way, rfc1337) {
                    (Way::Swap, "0") => ((0, 0), count),
                    (Way::Swap, _) => ((count, 0), count),
                    (Way::Hold, _) => ((0, count), 0),
                };
                let what = format!(
                    "IPv6 {is_ipv6}, timestamps {timestamps}, rfc1337 {rfc1337}, {way:?}: {counts:?}"
                );
                println!("{what}: {left:?}, {quarantined}");
                assert_eq!((left, quarantined), wanted, "{what}");
            }
        }
    }
}

#[test]
fn root_time_wait_is_where_the_way_says() {
    check_all(50);
}

/// Before the first of them is forgotten, after a minute.
#[test]
#[ignore = "long"]
fn root_ten_thousand_time_waits_are_where_the_way_says() {
    check_all(10_000);
}

fn connect(world: &World) -> TcpStream {
    let stream = world.client.enter(|| TcpStream::connect(world.address)).expect("enter").expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream
}

/// Who waits for the end of the connection gets it, and all before it.
#[test]
fn root_client_that_waits_for_the_end_of_file_gets_it() {
    let Some(world) = World::create(false) else { return };
    let mut closing = start(&world, &world.setup(Way::Hold));
    for _ in 0..10 {
        closing.renew().expect("renew");
        let mut stream = connect(&world);
        world.await_close(&mut stream, Some(&closing));
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("read");
        assert_eq!(response, RESPONSE);
    }
    let counts = closing.counts().expect("read")[0];
    assert_eq!((counts.held, counts.given_up, counts.released), (10, 10, 0), "{counts:?}");
}

/// A FIN that is held when the programs go comes again from the server.
#[test]
fn root_end_of_file_is_not_lost_with_the_programs() {
    let Some(world) = World::create(false) else { return };
    let closing = start(&world, &world.setup(Way::Hold));
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&world)).collect();
    for stream in &mut streams {
        world.await_close(stream, Some(&closing));
    }
    assert!(closing.counts().expect("read")[0].held > 0);
    drop(closing);
    for stream in &mut streams {
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("read");
        assert_eq!(response, RESPONSE);
    }
}

/// A pool whose connections are idle learns at once that the server has closed.
#[test]
fn root_fin_is_not_held_when_there_is_nothing_to_read() {
    let Some(world) = World::create(false) else { return };
    let listener = world.server.enter(|| TcpListener::bind("10.8.0.2:8081")).expect("enter").expect("bind");
    let address = listener.local_addr().expect("address");
    let destinations = vec![address.to_string().parse().expect("a destination")];
    let closing = start(&world, &Setup { destinations, ..world.setup(Way::Hold) });
    let mut client = world.client.enter(|| TcpStream::connect(address)).expect("enter").expect("connect");
    let (server, _) = listener.accept().expect("accept");
    drop(server);
    assert_eq!(client.read(&mut [0; 9]).expect("the end"), 0);
    let counts = closing.counts().expect("read")[0];
    assert_eq!((counts.idle, counts.held), (1, 0), "{counts:?}");
}

/// What is not ours is left alone: another port of the same server.
#[test]
fn root_other_destination_keeps_its_time_wait() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let destinations = vec!["10.8.0.0/24:8081".parse().expect("a destination")];
        let closing = start(&world, &Setup { destinations, ..world.setup(way) });
        world.ask(Some(&closing)).expect("an answer");
        assert_eq!(settled(&world), (1, 0));
        assert_eq!(closing.counts().expect("read")[0], Counts::default());
    }
}

#[test]
fn root_dry_run_changes_nothing() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let mut closing = start(&world, &Setup { is_dry_run: true, ..world.setup(way) });
        for _ in 0..20 {
            closing.renew().expect("renew");
            world.ask(Some(&closing)).expect("an answer");
        }
        assert_eq!(settled(&world), (20, 0));
        let counts = closing.counts().expect("read")[0];
        let would = counts.answered + counts.held;
        assert_eq!((would, counts.resets, counts.released), (20, 0, 0), "{way:?}: {counts:?}");
    }
}

/// With few ports a swap must wait for its quarantine, and gets its connection then.
#[test]
fn root_port_in_quarantine_is_not_used_before_its_time() {
    let Some(world) = World::create(false) else { return };
    world.client.set_sysctl("net.ipv4.ip_local_port_range", "2000 2009").expect("sysctl");
    let quarantine = Duration::from_secs(2);
    let mut closing = start(&world, &Setup { quarantine, ..world.setup(Way::Swap) });
    let mut first_swap = None;
    for _ in 0..11 {
        closing.renew().expect("renew");
        world.ask(Some(&closing)).expect("an answer");
        first_swap.get_or_insert_with(Instant::now);
    }
    let since = first_swap.expect("one at least").elapsed();
    assert!(since + Duration::from_millis(500) > quarantine, "{since:?}: a port was used again too early");
    assert!(closing.counts().expect("read")[0].quarantined > 0);
}

/// The server's host is gone while its FIN is held, and will never send it again: it comes in from
/// here after a second, or when the command ends.
#[test]
fn root_fin_that_is_held_comes_in_although_its_server_is_gone() {
    for (is_ipv6, half_closes) in [(false, false), (false, true), (true, false)] {
        for ends in [false, true] {
            let Some(world) = World::create(is_ipv6) else { return };
            // On a slow machine it would send its FIN again before it is gone.
            world.make_server_patient();
            let mut closing = start(&world, &world.setup(Way::Hold));
            let connect = || TcpStream::connect(world.address);
            let mut stream = world.client.enter(connect).expect("enter").expect("connect");
            world.await_close(&mut stream, Some(&closing));
            // Without a carrier the client forgets whom to send to, and its FIN would not leave.
            world.keep_neighbour();
            world.server.ip(&["link", "set", "s0", "down"]).expect("take the server away");
            let mut all = vec![0; RESPONSE.len()];
            stream.read_exact(&mut all).expect("what came before it");
            if half_closes {
                // With data in it the client's FIN does not bring the server's.
                send(stream.as_raw_fd(), b"more", MsgFlags::from_bits_retain(libc::MSG_MORE)).expect("send");
                stream.shutdown(Shutdown::Write).expect("shut down");
            }
            stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
            let counts = closing.counts().expect("read")[0];
            assert!(stream.read(&mut all).is_err(), "it is held: {counts:?}");
            let start = Instant::now();
            if ends {
                world.client.enter(|| drop(closing)).expect("enter");
                assert_eq!(stream.read(&mut all).expect("the end"), 0);
            } else {
                while stream.read(&mut all).is_err() {
                    assert!(start.elapsed() < Duration::from_secs(5), "{counts:?}");
                    world.client.enter(|| closing.renew()).expect("enter").expect("renew");
                }
                let counts = closing.counts().expect("read")[0];
                let seen = (counts.held, counts.overdue, counts.failed, counts.late);
                assert_eq!(seen, (1, 1, 0, u64::from(half_closes)), "{counts:?}");
            }
        }
    }
}

/// Clients who wait for the end get it when the server sends its FIN again. After ten of them none
/// is held there.
#[test]
fn root_destination_whose_clients_wait_for_the_end_is_left_alone() {
    let Some(world) = World::create(false) else { return };
    let mut closing = start(&world, &world.setup(Way::Hold));
    let mut read_to_the_end = || {
        let mut stream = connect(&world);
        world.await_close(&mut stream, Some(&closing));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the end");
        assert_eq!(all, RESPONSE);
        closing.renew().expect("renew")
    };
    let begun: Vec<Vec<usize>> = (0..10).map(|_| read_to_the_end()).collect();
    assert_eq!(begun.concat(), [0], "{begun:?}");
    world.ask(None).expect("an answer");
    let counts = closing.counts().expect("read")[0];
    assert_eq!((counts.held, counts.given_up + counts.overdue, counts.backed_off), (10, 10, 1), "{counts:?}");
}

/// A process that is stopped changes nothing any more.
#[test]
fn root_programs_without_a_lease_let_all_pass() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let closing = start(&world, &world.setup(way));
        std::thread::sleep(Duration::from_millis(5_500));
        world.ask(Some(&closing)).expect("an answer");
        assert_eq!(settled(&world), (1, 0));
        drop(closing);
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The programs come and go under load: no connection hangs, and none loses a byte or its end.
#[test]
fn root_programs_come_and_go_while_connections_close() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let stop = AtomicBool::new(false);
        let asked = std::thread::scope(|scope| {
            let readers: Vec<_> = [true, false]
                .into_iter()
                .map(|to_the_end| {
                    let (world, stop) = (&world, &stop);
                    scope.spawn(move || {
                        let mut asked = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let mut stream = connect(world);
                            stream.write_all(b"GET\n").expect("write");
                            let mut response = vec![0; RESPONSE.len()];
                            stream.read_exact(&mut response).expect("read");
                            if to_the_end {
                                assert_eq!(stream.read(&mut [0; 9]).expect("the end"), 0);
                            }
                            assert_eq!(response, RESPONSE);
                            asked += 1;
                        }
                        asked
                    })
                })
                .collect();
            // Whatever happens here, they end.
            let _stop = StopAtEnd(&stop);
            for turn in 0..20_u64 {
                let closing = start(&world, &world.setup(way));
                std::thread::sleep(Duration::from_millis(20 + 37 * turn % 60));
                drop(closing);
            }
            stop.store(true, Ordering::Relaxed);
            readers.into_iter().map(|reader| reader.join().expect("no panic")).sum::<u32>()
        });
        assert!(asked > 100, "{way:?}: {asked}");
        settled(&world);
    }
}

/// A client with few ports, as a proxy before one backend: to keep TIME_WAIT is to run out of them.
#[test]
fn root_client_with_few_ports_runs_out_of_them_if_it_keeps_time_wait() {
    const PORTS: usize = 100;
    for (way, succeeded) in [(None, 2 * PORTS), (Some(Way::Hold), PORTS), (Some(Way::Swap), 2 * PORTS)] {
        let Some(world) = World::create(false) else { return };
        world.client.set_sysctl("net.ipv4.ip_local_port_range", "2000 2099").expect("sysctl");
        let setup = |way| Setup { quarantine: Duration::from_secs(1), ..world.setup(way) };
        let mut closing = way.map(|way| start(&world, &setup(way)));
        let mut asked = 0;
        let refused = (0..2 * PORTS).find_map(|_| {
            if let Some(closing) = &mut closing {
                closing.renew().expect("renew");
            }
            let error = world.ask(closing.as_ref()).err();
            asked += usize::from(error.is_none());
            error
        });
        let kind = refused.map(|error| error.kind());
        let wanted = (succeeded < 2 * PORTS).then_some(ErrorKind::AddrNotAvailable);
        assert_eq!((asked, kind), (succeeded, wanted), "{way:?}");
    }
}

/// Every second FIN of the client is lost: its kernel sends it again.
#[test]
fn root_fin_that_is_lost_comes_again() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let rules = "add table ip lost; add chain ip lost in { type filter hook input priority 0; }; \
                     add rule ip lost in tcp flags & fin == fin numgen inc mod 2 == 0 drop";
        match world.server.command("nft").expect("command").arg(rules).output() {
            Ok(output) if output.status.success() => {}
            refused => return eprintln!("skipped: no nft here: {refused:?}"),
        }
        let (left, _, counts) = closes(&world, way, 20);
        let wanted = if way == Way::Swap { (0, 0) } else { (left.0, 20) };
        assert_eq!(left, wanted, "{way:?}: {counts:?}");
    }
}

/// Every fourth RST is lost. After a swap the server keeps TIME_WAIT, as if we were not there;
/// under hold it sends its FIN again, and the next RST frees it.
#[test]
fn root_server_whose_rst_is_lost_keeps_time_wait_or_asks_again() {
    const COUNT: usize = 40;
    for (way, wanted) in [(Way::Swap, (COUNT / 4, 0)), (Way::Hold, (0, COUNT))] {
        let Some(world) = World::create(false) else { return };
        let rules = "add table ip lost; add chain ip lost in { type filter hook input priority 0; }; \
                     add rule ip lost in tcp flags & rst == rst numgen inc mod 4 == 0 drop";
        let nft = world.server.command("nft").expect("command").arg(rules).output();
        match nft {
            Ok(output) if output.status.success() => {}
            refused => return eprintln!("skipped: no nft here: {refused:?}"),
        }
        let (left, _, counts) = closes(&world, way, COUNT);
        // On a slow machine the server may repeat a FIN before the client closes: that close is as
        // ever.
        let given_up = counts.given_up as usize;
        assert!(given_up < COUNT / 4, "{way:?}: {counts:?}");
        assert_eq!(left, (wanted.0 + given_up, wanted.1), "{way:?}: {counts:?}");
        let again = if way == Way::Hold { COUNT / 4 - given_up } else { 0 };
        let swapped = counts.answered as usize + given_up;
        assert!(swapped == COUNT && counts.resets as usize >= again, "{way:?}: {counts:?}");
    }
}
