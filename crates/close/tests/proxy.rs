//! An nginx with 200 ports before a backend that closes first: what it answers under each way.
//! Long, and a table: `cargo nextest run -p close --run-ignored only --no-capture proxy`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use close::{Closing, Setup, Sockets, Way};

use crate::recipes::{Backend, HTTP_1_1, Proxied, Proxy};

/// Users, each of whom asks again 5 ms after an answer.
const USERS: usize = 8;
const THINK: Duration = Duration::from_millis(5);
/// All ports are used within the first.
const WARMUP: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(5);
/// A SYN was sent twice.
const SLOW: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Answers {
    ok: AtomicU64,
    slow: AtomicU64,
    failed: AtomicU64,
}

/// Status 200, or another.
fn ask(socket: &Path) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"))
}

/// Answers per second: at once, after half a second or more, and failures.
fn measure(proxied: &Proxied, closing: Option<Closing>) -> [f64; 3] {
    let (answers, stop) = (Answers::default(), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..USERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let is_ok = ask(&proxied.socket()).expect("the proxy answers");
                    let count = match (is_ok, asked.elapsed() >= SLOW) {
                        (true, false) => &answers.ok,
                        (true, true) => &answers.slow,
                        (false, _) => &answers.failed,
                    };
                    let in_window = (WARMUP..WARMUP + WINDOW).contains(&start.elapsed());
                    count.fetch_add(in_window.into(), Ordering::Relaxed);
                    std::thread::sleep(THINK);
                }
            });
        }
        let mut closing = closing;
        while start.elapsed() < WARMUP + WINDOW {
            if let Some(closing) = &mut closing {
                proxied.proxy.enter(|| closing.renew()).expect("enter").expect("renew");
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        stop.store(true, Ordering::Relaxed);
    });
    [answers.ok, answers.slow, answers.failed].map(|count| count.into_inner() as f64 / WINDOW.as_secs_f64())
}

/// What a proxy is told.
struct Case {
    name: &'static str,
    backend: Backend,
    upstream: &'static str,
    location: &'static str,
    reuses: bool,
    way: Option<Way>,
}

#[test]
#[ignore = "long: a minute and a half"]
fn root_proxy_of_200_ports_answers_as_long_as_it_keeps_no_time_wait() {
    let plain = |name, backend, reuses, way| Case { name, backend, upstream: "", location: "", reuses, way };
    let told = |name, upstream, reuses| Case {
        name,
        backend: Backend::Nginx,
        upstream,
        location: HTTP_1_1,
        reuses,
        way: None,
    };
    let (nginx, by_close) = (Backend::Nginx, Backend::EndsByClose);
    let cases = [
        plain("the backend's end: stock", by_close, false, None),
        plain("the backend's end: swap", by_close, false, Some(Way::Swap)),
        plain("the backend's end: hold", by_close, false, Some(Way::Hold)),
        plain("a length: stock", nginx, false, None),
        plain("a length: stock, tcp_tw_reuse", nginx, true, None),
        plain("a length: swap, tcp_tw_reuse", nginx, true, Some(Way::Swap)),
        plain("a length: hold", nginx, false, Some(Way::Hold)),
        plain("a length: hold, tcp_tw_reuse", nginx, true, Some(Way::Hold)),
        told("HTTP/1.1: stock", "", false),
        told("HTTP/1.1: stock, tcp_tw_reuse", "", true),
        told("HTTP/1.1, keepalive 8: stock", "keepalive 8;", false),
    ];
    let mut table = Vec::new();
    for Case { name, backend, upstream, location, reuses, way } in cases {
        let Some(proxied) = Proxied::create(backend, Proxy::Nginx { upstream, location }) else { return };
        let proxy = &proxied.proxy;
        proxy.set_sysctl("net.ipv4.ip_local_port_range", "2000 2199").expect("sysctl");
        proxy.set_sysctl("net.ipv4.tcp_tw_reuse", if reuses { "1" } else { "2" }).expect("sysctl");
        let setup = |way| Setup {
            destinations: vec!["10.8.0.0/24:8081".parse().expect("a destination")],
            way,
            quarantine: Duration::from_secs(1),
            sockets: Sockets::All,
            interfaces: Vec::new(),
            is_dry_run: false,
        };
        let start = |way| proxy.enter(|| Closing::start(&setup(way))).expect("enter").expect("start");
        let [ok, slow, failed] = measure(&proxied, way.map(start));
        println!("{name:30} ok {ok:6.0}/s   after a second {slow:4.1}/s   failed {failed:6.0}/s");
        table.push((name, ok, failed));
    }
    let of = |wanted: &str| table.iter().find(|(name, ..)| *name == wanted).expect("measured");
    for name in ["the backend's end: stock", "HTTP/1.1, keepalive 8: stock"] {
        assert!(of(name).1 > 0.0 && of(name).2 == 0.0, "{name}: {table:?}");
    }
    // All ports are in TIME_WAIT at the proxy after the first second.
    for name in ["a length: hold", "HTTP/1.1: stock"] {
        assert!(of(name).1 < 1.0 && of(name).2 > 0.0, "{name}: {table:?}");
    }
}
