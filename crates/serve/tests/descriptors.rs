//! A server that runs out of descriptors. The limit is the process's, and nextest gives it one of
//! its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serve::{Config, Server};

#[test]
fn server_out_of_descriptors_waits_for_one_and_serves_everybody() {
    let config = Config { listen: "127.0.0.1:0".parse().expect("an address"), ..Config::default() };
    let mut server = Server::bind(&config).expect("bind");
    // The kernel finishes the handshakes; the server, which does not run yet, will have room for
    // four of them.
    let mut clients: Vec<_> =
        (0..20).map(|_| TcpStream::connect(server.local_addr()).expect("connect")).collect();
    let highest = clients.iter().map(|client| client.as_raw_fd()).max().expect("clients");
    let limit = u64::try_from(highest).expect("a descriptor") + 1 + 4;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("read the limit");
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).expect("lower the limit");

    let stop = AtomicBool::new(false);
    let totals = thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop));
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("send");
        }
        // Each reply comes while the earlier clients have gone, which is what makes room for this
        // one.
        for mut client in clients {
            let mut status = [0; 15];
            client.read_exact(&mut status).expect("a reply");
            assert_eq!(&status, b"HTTP/1.1 200 OK");
        }
        stop.store(true, Ordering::Relaxed);
        running.join().expect("the server does not panic").expect("and does not fail")
    });
    assert_eq!((totals.accepted, totals.requests), (20, 20));
    assert!(totals.accept_failures > 0, "the limit was met: {totals:?}");
    // At most one for each connection that closed and one for each tick; a server that spins has
    // millions a second.
    assert!(totals.accept_failures < 1000, "spinning: {totals:?}");
}
