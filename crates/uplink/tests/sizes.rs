//! How it is known how much a response still has to send.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::libc;
use uplink::{Endpoint, Order, Setup, Source, Uplink};

use crate::world::{ADDRESSES, World, http, packets, sent, setup};

/// Cutoffs between which each response of these tests is far away.
const CUTOFFS: [u64; 3] = [2_000, 20_000, 200_000];

fn with_cutoffs() -> Setup {
    Setup { cutoffs: Some(CUTOFFS.to_vec()), ..setup() }
}

#[test]
fn root_content_length_places_each_response_of_a_connection() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        for address in ADDRESSES {
            let mut uplink = Uplink::start(&with_cutoffs()).expect("start");
            let mut connection = world.connect(address);
            let sizes = [500, 100_000, 5_000];
            for size in sizes {
                connection.exchange(&http(size, size));
            }
            let all = sent(&mut uplink, 3);
            for (response, size) in all.iter().zip(sizes) {
                assert_eq!(response.source, Source::Length);
                assert_eq!(response.bytes, http(size, size).len() as u64);
                assert!(response.began_ns <= response.ended_ns);
            }
            let packets = packets(&uplink);
            assert!(packets[..3].iter().all(|count| *count > 0) && packets[3] == 0, "{address}: {packets:?}");
        }
    });
}

#[test]
fn root_content_length_that_lies_is_dropped_and_the_response_arrives() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let mut uplink = Uplink::start(&with_cutoffs()).expect("start");
        for (said, is_short) in [(10, true), (1 << 40, false)] {
            let mut connection = world.connect(ADDRESSES[0]);
            connection.exchange(&http(said, 300_000));
            connection.server.shutdown(Shutdown::Write).expect("send FIN");
            assert_eq!(connection.client.read(&mut [0; 1]).expect("the end"), 0);
            let all = sent(&mut uplink, if is_short { 2 } else { 1 });
            let total: u64 = all.iter().map(|response| response.bytes).sum();
            assert_eq!(total, http(said, 300_000).len() as u64, "{all:?}");
            let last = all.last().expect("one").source;
            assert_eq!(last, if is_short { Source::Buffered } else { Source::Length });
        }
    });
}

#[test]
fn root_program_tells_how_many_bytes_will_come() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let mut uplink = Uplink::start(&with_cutoffs()).expect("start");
        if let Some((_, why)) = uplink.missing().iter().find(|(source, _)| *source == Source::Told) {
            return eprintln!("skipped: {why}");
        }
        let mut connection = world.connect(ADDRESSES[0]);
        connection.ask();
        tell(&connection.server, 500_000).expect("the uplink hears it");
        // As a program that makes its response bit by bit: nobody could guess.
        for _ in 0..5 {
            connection.answer(&[b'x'; 1_000]);
        }
        assert!(top_bytes(&uplink) < 1_000, "acknowledgments alone");
        assert!(packets(&uplink)[3] >= 5);
        connection.answer(&vec![b'x'; 495_000]);
        let all = sent(&mut uplink, 1);
        assert_eq!((all[0].bytes, all[0].source), (500_000, Source::Told));
        // The most that there is, and nothing; and a value that is cut short.
        tell(&connection.server, u64::MAX).expect("heard");
        tell(&connection.server, 0).expect("heard");
        assert_eq!(
            tell_with(&connection.server, 5, 4).expect_err("refused").raw_os_error(),
            Some(libc::EINVAL)
        );
        connection.exchange(b"and it goes on");
        drop(uplink);
        let is_unknown = || tell(&connection.server, 1).is_err();
        assert!((0..100).any(|_| is_unknown() || wait_a_little()), "the option is still there");
    });
}

#[test]
fn root_sendfile_tells_the_kernel() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let insisted = Setup { insisted: Some(Source::Sendfile), ..with_cutoffs() };
        let mut uplink = match Uplink::start(&insisted) {
            Ok(uplink) => uplink,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![b'x'; 150_000]).expect("write");
        let mut connection = world.connect(ADDRESSES[0]);
        connection.ask();
        let server = connection.server.try_clone().expect("a descriptor");
        std::thread::scope(|scope| {
            scope.spawn(|| send_file(&server, &mut file, 150_000));
            connection.client.read_exact(&mut vec![0; 150_000]).expect("read");
        });
        assert!(top_bytes(&uplink) < 1_000, "150,000 bytes are in no upper band at their start");
        assert!(packets(&uplink)[2] > 0);
        connection.server.shutdown(Shutdown::Write).expect("send FIN");
        let all = sent(&mut uplink, 1);
        assert_eq!((all[0].bytes, all[0].source), (150_000, Source::Sendfile));
    });
}

#[test]
fn root_response_of_unknown_size_goes_by_what_it_has_got() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let las = Setup { order: Order::Las, ..with_cutoffs() };
        let mut uplink = Uplink::start(&las).expect("start");
        let mut connection = world.connect(ADDRESSES[0]);
        connection.exchange(&http(400_000, 400_000));
        let after_large = packets(&uplink);
        assert!(after_large[..4].iter().all(|count| *count > 0), "it sinks: {after_large:?}");
        connection.exchange(&http(500, 500));
        connection.server.shutdown(Shutdown::Write).expect("send FIN");
        let all = sent(&mut uplink, 2);
        assert!(all.iter().all(|response| response.source == Source::Attained));
        assert_eq!(packets(&uplink)[3], after_large[3], "the next one begins at the top again");
    });
}

/// TLS of the program, HTTP/2 and a chunked response: none says a length that the kernel could
/// read.
#[test]
fn root_response_that_hides_its_length_goes_by_the_send_buffer() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let tls_record = [0x17, 3, 3, 0x40, 0];
        let http2_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n";
        for beginning in [&tls_record[..], &http2_settings, chunked] {
            let mut uplink = Uplink::start(&with_cutoffs()).expect("start");
            let mut connection = world.connect(ADDRESSES[0]);
            let response = [beginning, &[b'x'; 100_000]].concat();
            connection.exchange(&response);
            connection.exchange(&response[..1_000]);
            connection.server.shutdown(Shutdown::Write).expect("send FIN");
            let all = sent(&mut uplink, 2);
            assert_eq!([all[0].bytes, all[1].bytes], [response.len() as u64, 1_000]);
            assert!(all.iter().all(|response| response.source == Source::Buffered), "{all:?}");
            let packets = packets(&uplink);
            assert!(packets[1] + packets[2] > 0, "the large one waits below: {packets:?}");
        }
    });
}

#[test]
fn root_response_in_kernel_tls_goes_by_the_send_buffer() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let mut uplink = Uplink::start(&with_cutoffs()).expect("start");
        let mut connection = world.connect(ADDRESSES[0]);
        connection.ask();
        if let Err(why) = encrypt(&connection.server) {
            return eprintln!("skipped: no kernel TLS here: {why}");
        }
        // Seven records, each with a header, a nonce and a tag of 29 bytes.
        let on_the_wire = 100_000 + 7 * 29;
        let mut server = connection.server.try_clone().expect("a descriptor");
        std::thread::scope(|scope| {
            scope.spawn(move || server.write_all(&[b'x'; 100_000]).expect("write"));
            connection.client.read_exact(&mut vec![0; on_the_wire]).expect("read");
        });
        connection.server.shutdown(Shutdown::Write).expect("send FIN");
        let all = sent(&mut uplink, 1);
        assert_eq!((all[0].bytes, all[0].source), (on_the_wire as u64, Source::Buffered));
        assert!(packets(&uplink)[1..].iter().sum::<u64>() > 0, "it waits below small ones");
    });
}

#[test]
fn root_only_named_addresses_are_placed() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let (mut named, mut other) = (world.connect(ADDRESSES[0]), world.connect(ADDRESSES[0]));
        let address = named.server.local_addr().expect("an address");
        for any in [false, true] {
            let ip = if any { "0.0.0.0".parse().expect("address") } else { address.ip() };
            let endpoints = vec![Endpoint { address: ip, port: address.port() }];
            let mut uplink = Uplink::start(&Setup { endpoints, ..with_cutoffs() }).expect("start");
            other.exchange(&http(50_000, 50_000));
            assert!(packets(&uplink)[..4].iter().all(|count| *count == 0));
            named.exchange(&http(50_000, 50_000));
            assert_eq!(sent(&mut uplink, 1).len(), 1);
        }
    });
}

/// A server of examples/ that is killed with this.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn example_says_how_many_bytes_come(command: &mut Command) {
    const PORT: u16 = 8080;
    let Some(world) = World::create() else { return };
    world.run(|| {
        let mut uplink = Uplink::start(&with_cutoffs()).expect("start");
        if let Some((_, why)) = uplink.missing().iter().find(|(source, _)| *source == Source::Told) {
            return eprintln!("skipped: {why}");
        }
        let mut child =
            command.arg(PORT.to_string()).stdout(Stdio::piped()).spawn().expect("start the example");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let _example = Example(child);
        let mut client = world.connect_to(ADDRESSES[0], PORT);
        client.write_all(b"30000\n").expect("ask");
        let mut response = Vec::new();
        client.read_to_end(&mut response).expect("read");
        assert_eq!(lines.next().expect("it prints").expect("text"), "30000 bytes will come");
        assert_eq!(response.len(), 30_000);
        let all = sent(&mut uplink, 1);
        assert_eq!((all[0].bytes, all[0].source), (30_000, Source::Told));
    });
}

#[test]
fn root_python_example_says_how_many_bytes_come() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bytes_to_come.py");
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return eprintln!("skipped: no python3 here");
    }
    example_says_how_many_bytes_come(Command::new("python3").arg(path));
}

#[test]
fn root_c_example_says_how_many_bytes_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bytes_to_come.c");
    let program = folder.path().join("bytes_to_come");
    let compiled =
        Command::new("cc").args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).status();
    match compiled {
        Err(_) => return eprintln!("skipped: no cc here"),
        Ok(status) => assert!(status.success()),
    }
    example_says_how_many_bytes_come(&mut Command::new(program));
}

fn top_bytes(uplink: &Uplink) -> u64 {
    uplink.bands().expect("count")[0].bytes
}

fn tell(socket: &impl AsRawFd, bytes: u64) -> std::io::Result<()> {
    tell_with(socket, bytes, 8)
}

fn tell_with(socket: &impl AsRawFd, bytes: u64, length: u32) -> std::io::Result<()> {
    let pointer = (&raw const bytes).cast();
    // SAFETY: the kernel reads eight bytes at most.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), 0x7467, 2, pointer, length) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Has the kernel encrypt what the program writes (`Documentation/networking/tls.rst`).
fn encrypt(socket: &impl AsRawFd) -> std::io::Result<()> {
    const TLS_TX: libc::c_int = 1;
    // struct tls12_crypto_info_aes_gcm_128: TLS 1.2, AES-GCM-128, then nonce, key, salt and number,
    // all 0.
    let mut keys = [0u8; 40];
    keys[..4].copy_from_slice(&[3, 3, 51, 0]);
    let set = |level, name, value: &[u8]| {
        // SAFETY: the kernel reads the value, which outlives the call.
        let done = unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as u32)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    set(libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")?;
    set(libc::SOL_TLS, TLS_TX, &keys)
}

fn send_file(socket: &impl AsRawFd, file: &mut File, bytes: usize) {
    file.seek(SeekFrom::Start(0)).expect("seek");
    let mut left = bytes;
    while left > 0 {
        // SAFETY: without an offset the kernel reads and writes nothing of ours.
        let sent =
            unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut(), left) };
        left -= usize::try_from(sent).expect("it is sent");
    }
}

fn wait_a_little() -> bool {
    std::thread::sleep(std::time::Duration::from_millis(20));
    false
}
