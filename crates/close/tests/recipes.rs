//! What docs/closing.md advises a proxy's operator, with the real program.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use netlink::TcpState;
use netns::{Namespace, VethPair};

/// Where Debian has it.
const NGINX: &str = "/usr/sbin/nginx";
const HAPROXY: &str = "/usr/sbin/haproxy";
const APACHE: &str = "/usr/sbin/apache2";
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";
const BACKEND: u16 = 8081;
const REQUESTS: usize = 20;
/// Lets the proxy close first.
pub const HTTP_1_1: &str = "proxy_http_version 1.1; proxy_set_header Connection \"\";";

/// A program, until it is dropped.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("start the program"))
    }

    fn nginx(namespace: &Namespace, folder: &Path, http: &str) -> Self {
        let text = format!(
            "daemon off;\nmaster_process off;\nworker_processes 1;\npid {0}/pid;\nerror_log {0}/error.log;\n\
             events {{}}\nhttp {{\naccess_log off;\nclient_body_temp_path {0}/body;\nproxy_temp_path {0}/proxy;\n\
             fastcgi_temp_path {0}/fastcgi;\nuwsgi_temp_path {0}/uwsgi;\nscgi_temp_path {0}/scgi;\n{http}\n}}\n",
            folder.display()
        );
        fs::create_dir_all(folder).expect("folder");
        fs::write(folder.join("nginx.conf"), text).expect("write");
        let mut command = namespace.command(NGINX).expect("command");
        Self::start(command.arg("-c").arg(folder.join("nginx.conf")).arg("-p").arg(folder))
    }

    fn haproxy(namespace: &Namespace, folder: &Path, backend: &str) -> Self {
        let text = format!(
            "defaults\nmode http\ntimeout connect 5s\ntimeout client 5s\ntimeout server 5s\n\
             frontend f\nbind 10.8.0.1:8080\ndefault_backend b\nbackend b\n{backend}\nserver s 10.8.0.2:8081\n"
        );
        fs::create_dir_all(folder).expect("folder");
        fs::write(folder.join("haproxy.cfg"), text).expect("write");
        let mut command = namespace.command(HAPROXY).expect("command");
        Self::start(command.arg("-q").arg("-f").arg(folder.join("haproxy.cfg")))
    }

    fn apache(namespace: &Namespace, folder: &Path, pass: &str) -> Self {
        let modules = ["mpm_event", "authz_core", "proxy", "proxy_http"];
        let modules =
            modules.map(|name| format!("LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n")).concat();
        let text = format!(
            "ServerRoot {0}\nServerName proxy\nPidFile {0}/pid\nErrorLog {0}/error.log\nListen 10.8.0.1:8080\n\
             {modules}ProxyPass / http://10.8.0.2:8081/ {pass}\n",
            folder.display()
        );
        fs::create_dir_all(folder).expect("folder");
        fs::write(folder.join("apache.conf"), text).expect("write");
        let mut command = namespace.command(APACHE).expect("command");
        // One process, which is the one to end.
        Self::start(command.arg("-X").arg("-f").arg(folder.join("apache.conf")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

/// Connections in TIME_WAIT between the proxy and the backend.
fn time_wait(namespace: &Namespace) -> usize {
    let count = || {
        let mut count = 0;
        netlink::each_tcp_socket(|socket| {
            let is_between = socket.local.port() == BACKEND || socket.remote.port() == BACKEND;
            count += usize::from(is_between && socket.state == TcpState::TimeWait);
        })
        .expect("ask");
        count
    };
    namespace.enter(count).expect("enter")
}

fn connect(namespace: &Namespace, address: &str) -> TcpStream {
    let start = Instant::now();
    loop {
        match namespace.enter(|| TcpStream::connect(address)).expect("enter") {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who answers the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// nginx, which says how long its response is, so that the proxy often closes at the same time.
    Nginx,
    /// A server whose responses end where it closes.
    EndsByClose,
}

/// Which proxy, and what its configuration says besides.
#[derive(Debug, Clone, Copy)]
pub enum Proxy {
    /// In `upstream` and in `location`.
    Nginx { upstream: &'static str, location: &'static str },
    /// In `backend`.
    Haproxy(&'static str),
    /// Behind `ProxyPass`.
    Apache(&'static str),
}

impl Proxy {
    fn program(self) -> &'static str {
        match self {
            Self::Nginx { .. } => NGINX,
            Self::Haproxy(_) => HAPROXY,
            Self::Apache(_) => APACHE,
        }
    }
}

/// A proxy before a backend, in namespaces of their own.
pub struct Proxied {
    _programs: Vec<Program>,
    folder: tempfile::TempDir,
    pub proxy: Namespace,
    backend: Namespace,
}

impl Proxied {
    /// `None` where it cannot be.
    pub fn create(kind: Backend, which: Proxy) -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        for program in [NGINX, which.program()] {
            if !Path::new(program).exists() {
                eprintln!("skipped: no {program} here");
                return None;
            }
        }
        let (proxy, backend) =
            (Namespace::create("proxy").expect("create"), Namespace::create("backend").expect("create"));
        VethPair::create(&proxy, "p0", &backend, "b0").expect("create veth");
        proxy.ip(&["addr", "add", "10.8.0.1/24", "dev", "p0"]).expect("address");
        backend.ip(&["addr", "add", "10.8.0.2/24", "dev", "b0"]).expect("address");
        let folder = tempfile::tempdir().expect("folder");
        let serve = "server { listen 10.8.0.2:8081; location / { return 200 \"hello\"; } }";
        let mut programs = Vec::new();
        match kind {
            Backend::Nginx => programs.push(Program::nginx(&backend, &folder.path().join("backend"), serve)),
            Backend::EndsByClose => {
                let bind = || TcpListener::bind("10.8.0.2:8081");
                let listener = backend.enter(bind).expect("enter").expect("bind");
                std::thread::spawn(move || listener.incoming().try_for_each(|stream| answer(stream?)));
            }
        }
        let (place, socket) = (folder.path().join("proxy"), folder.path().join("socket"));
        programs.push(match which {
            Proxy::Nginx { upstream, location } => {
                let pass = format!(
                    "upstream backend {{ server 10.8.0.2:8081 max_fails=0; {upstream} }}\n\
                     server {{ listen 10.8.0.1:8080; listen unix:{}; location / {{ proxy_pass http://backend; {location} }} }}",
                    socket.display()
                );
                Program::nginx(&proxy, &place, &pass)
            }
            Proxy::Haproxy(backend) => Program::haproxy(&proxy, &place, backend),
            Proxy::Apache(pass) => Program::apache(&proxy, &place, pass),
        });
        drop(connect(&proxy, "10.8.0.2:8081"));
        drop(connect(&proxy, "10.8.0.1:8080"));
        Some(Proxied { _programs: programs, folder, proxy, backend })
    }

    /// Where an nginx listens besides.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

/// Whoever goes away is no failure.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 1024];
    if stream.read(&mut request).is_ok_and(|read| read > 0) {
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").ok();
    }
    Ok(())
}

/// TIME_WAIT at the backend and at the proxy after some requests.
fn proxied(which: Proxy) -> Option<(usize, usize)> {
    let Proxied { ref proxy, ref backend, .. } = Proxied::create(Backend::Nginx, which)?;
    std::thread::sleep(Duration::from_millis(200));
    let before = (time_wait(backend), time_wait(proxy));
    for _ in 0..REQUESTS {
        let mut stream = connect(proxy, "10.8.0.1:8080");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
    }
    std::thread::sleep(Duration::from_millis(100));
    Some((time_wait(backend) - before.0, time_wait(proxy) - before.1))
}

#[test]
fn root_nginx_as_a_proxy_keeps_time_wait_where_its_configuration_says() {
    let nginx = |upstream, location| proxied(Proxy::Nginx { upstream, location });
    let Some((backend, proxy)) = nginx("", "") else { return };
    // The proxy knows the length, so either end may be first.
    assert_eq!(backend + proxy, REQUESTS, "as it comes each request has a connection: {backend}, {proxy}");
    assert_eq!(nginx("", HTTP_1_1), Some((0, REQUESTS)), "the proxy closes first, and keeps its ports");
    let Some((backend, proxy)) = nginx("keepalive 8;", HTTP_1_1) else { return };
    assert!(backend + proxy <= 1, "connections are kept: {backend}, {proxy}");
}

#[test]
fn root_haproxy_and_apache_as_proxies_keep_connections_unless_told_otherwise() {
    for (kept, told) in [
        (Proxy::Haproxy(""), Proxy::Haproxy("option http-server-close")),
        (Proxy::Apache(""), Proxy::Apache("disablereuse=On")),
    ] {
        let Some((backend, proxy)) = proxied(kept) else { continue };
        assert!(backend + proxy <= 1, "{kept:?}: connections are kept: {backend}, {proxy}");
        let Some((backend, proxy)) = proxied(told) else { continue };
        assert!(backend > REQUESTS / 2, "{told:?}: the backend closes first: {backend}, {proxy}");
    }
}
