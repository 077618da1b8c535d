//! The telemetry against the kernel's own counters: each cause provoked for real, in namespaces of
//! the test.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use netns::{Namespace, VethEnd, VethPair};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, listen, setsockopt, socket,
    sockopt,
};
use watch::{Cgroups, Counter, Counters, Hook, Host, Listener, Owners, Watch};

const SERVER4: &str = "10.12.0.2:8080";
const SERVER6: &str = "[fd12::2]:8080";
/// Longest wait for what must happen; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing comes into a full accept queue of this backlog but two connections.
const SMALL: i32 = 1;

/// Client and server, joined by c0 and s0.
struct World {
    client: Namespace,
    server: Namespace,
    c0: VethEnd,
    watch: Watch,
}

impl World {
    /// `None`, with the reason printed, where this cannot run.
    fn create(wanted: &[Hook]) -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let watch = start(wanted)?;
        let client = Namespace::create("client").expect("create client");
        let server = Namespace::create("server").expect("create server");
        let VethPair { a: c0, b: s0 } = VethPair::create(&client, "c0", &server, "s0").expect("create veth");
        // Neighbours are static, so that nothing but TCP has to pass.
        for (namespace, end, own4, own6, peer4, peer6, peer) in [
            (&client, &c0, "10.12.0.1/24", "fd12::1/64", "10.12.0.2", "fd12::2", &s0),
            (&server, &s0, "10.12.0.2/24", "fd12::2/64", "10.12.0.1", "fd12::1", &c0),
        ] {
            let mac = netns::mac_text(peer.mac);
            namespace.ip(&["addr", "add", own4, "dev", &end.name]).expect("address");
            namespace.ip(&["addr", "add", own6, "dev", &end.name, "nodad"]).expect("address");
            for address in [peer4, peer6] {
                let add = ["neigh", "replace", address, "lladdr", &mac, "dev", &end.name];
                namespace.ip(&add).expect("neighbour");
            }
        }
        Some(Self { client, server, c0, watch })
    }

    fn listen(&self, address: &str, backlog: i32) -> TcpListener {
        let address: SocketAddr = address.parse().expect("address");
        self.server.enter(|| listen_at(address, backlog)).expect("enter")
    }

    /// Starts a handshake and does not wait for its end.
    fn begin(&self, address: &str) -> OwnedFd {
        let address: SocketAddr = address.parse().expect("address");
        self.client
            .enter(|| {
                let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
                let fd = socket(family(address), SockType::Stream, flags, None).expect("socket");
                let result = connect(fd.as_raw_fd(), &SockaddrStorage::from(address));
                assert!(matches!(result, Ok(()) | Err(Errno::EINPROGRESS)), "{result:?}");
                fd
            })
            .expect("enter")
    }

    fn connect(&self, address: &str) -> TcpStream {
        let address: SocketAddr = address.parse().expect("address");
        let stream = self.client.enter(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("enter");
        stream.expect("there is room")
    }

    /// Until it is dropped the client hears nothing, so that its handshakes stay half open at the
    /// server.
    fn deafen(&self) -> bpf::SoleLink {
        const XDP_DROP: i32 = 1;
        let program = bpf::constant_program(bpf::Hook::XdpGeneric, XDP_DROP).expect("load");
        self.client
            .enter(|| bpf::SoleLink::attach(program.as_fd(), self.c0.ifindex, bpf::Hook::XdpGeneric))
            .expect("enter")
            .expect("attach XDP_DROP")
    }

    fn sysctl(&self, name: &str, value: &str) {
        self.server.set_sysctl(name, value).expect("sysctl");
    }

    /// A counter of the server's kernel.
    fn kernel(&self, name: &str) -> u64 {
        let counters = netns::namespace_counters(&self.server).expect("read the kernel's counters");
        counters.get(&format!("TcpExt.{name}")).copied().unwrap_or_else(|| panic!("the kernel has no {name}"))
    }

    /// The listener as it is now.
    fn listener(&self, socket: &TcpListener) -> Listener {
        let inode = inode(socket);
        let all = self.server.enter(|| self.watch.list()).expect("enter").expect("list");
        all.into_iter().find(|listener| listener.socket_inode == inode).expect("it listens")
    }

    fn counters(&self, socket: &TcpListener) -> Counters {
        let inode = inode(socket);
        let all = self.watch.counters().expect("read");
        let of_it = all.into_iter().find(|watched| watched.listener.socket_inode == inode);
        of_it.map_or_else(|| self.watch.nothing(), |watched| watched.counters)
    }

    /// Waits until a counter is at least `least`.
    fn wait(&self, socket: &TcpListener, counter: Counter, least: u64) -> Counters {
        let start = Instant::now();
        loop {
            let counters = self.counters(socket);
            if counters.get(counter).expect("its hook is there") >= least {
                return counters;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {counter:?} {least}: {counters:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// `None`, with the reason printed, where a hook is missing: all of them where the kernel permits
/// no fentry.
fn start(wanted: &[Hook]) -> Option<Watch> {
    let watch = Watch::start(wanted).expect("load and attach");
    match watch.missing() {
        [] => return Some(watch),
        all if all.len() == wanted.len() => eprintln!("skipped: fentry is not in this kernel"),
        some => {
            for missing in some {
                eprintln!("skipped: the hook for {} is not in this kernel", missing.hook.gives());
            }
        }
    }
    None
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn listen_at(address: SocketAddr, backlog: i32) -> TcpListener {
    let fd = socket(family(address), SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("socket");
    setsockopt(&fd, sockopt::ReuseAddr, &true).expect("reuse");
    setsockopt(&fd, sockopt::ReusePort, &true).expect("reuse");
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
    listen(&fd, Backlog::new(backlog).expect("backlog")).expect("listen");
    TcpListener::from(fd)
}

fn inode(socket: &TcpListener) -> u64 {
    nix::sys::stat::fstat(socket).expect("fstat").st_ino
}

fn get(counters: &Counters, counter: Counter) -> u64 {
    counters.get(counter).unwrap_or_else(|| panic!("{counter:?} is not available"))
}

/// What was dropped at the SYN stage, and `syns` as the sum of its parts.
fn dropped_syns(counters: &Counters) -> u64 {
    let dropped = [
        Counter::ListenQFullAtSyn,
        Counter::SynQFullDropped,
        Counter::SynQ34Full,
        Counter::SynsDroppedOtherwise,
    ]
    .map(|counter| get(counters, counter))
    .iter()
    .sum::<u64>();
    let [syns, answered, cookies] =
        [Counter::Syns, Counter::Answered, Counter::Cookies].map(|counter| get(counters, counter));
    assert_eq!(syns, answered + cookies + dropped, "every SYN ends in one way: {counters:?}");
    dropped
}

/// The drops that were counted are those that the kernel counted.
fn assert_as_kernel(world: &World, counters: &Counters) {
    let ends =
        [Counter::ListenQOverflow, Counter::EndsDroppedOtherwise].map(|counter| get(counters, counter));
    let overflows = get(counters, Counter::ListenQFullAtSyn) + ends[0];
    let drops = dropped_syns(counters) + ends.iter().sum::<u64>();
    assert_eq!(world.kernel("ListenOverflows"), overflows, "{counters:?}");
    assert_eq!(world.kernel("ListenDrops"), drops, "{counters:?}");
    assert_eq!(world.kernel("TCPReqQFullDrop"), get(counters, Counter::SynQFullDropped), "{counters:?}");
}

const CAUSES: [Hook; 4] = [Hook::Syn, Hook::Request, Hook::EndV4, Hook::EndV6];

#[test]
fn root_syn_at_a_full_accept_queue_is_listenq_full_at_syn_and_its_repetition_is_known() {
    for address in [SERVER4, SERVER6] {
        let Some(world) = World::create(&CAUSES) else { return };
        let server = world.listen(address, SMALL);
        let _waiting = [world.connect(address), world.connect(address)];
        let client = world.begin(address);
        let counters = world.wait(&server, Counter::ListenQFullAtSyn, 1);
        assert_eq!(get(&counters, Counter::Answered), 2);
        // The client's kernel sends it again after a second.
        world.wait(&server, Counter::SynsRepeated, 1);
        drop(client);
        let counters = world.counters(&server);
        assert_eq!(get(&counters, Counter::SynsRepeated), get(&counters, Counter::ListenQFullAtSyn) - 1);
        assert_as_kernel(&world, &counters);
    }
}

#[test]
fn root_handshake_that_ends_at_a_full_accept_queue_is_listenq_overflow() {
    for address in [SERVER4, SERVER6] {
        let Some(world) = World::create(&CAUSES) else { return };
        let server = world.listen(address, SMALL);
        let deaf = world.deafen();
        let client = world.begin(address);
        world.wait(&server, Counter::Answered, 1);
        let target: SocketAddr = address.parse().expect("address");
        let local = || TcpStream::connect_timeout(&target, PATIENCE).expect("there is room");
        let _waiting = world.server.enter(|| [local(), local()]).expect("enter");
        drop(deaf);
        // Its SYN or the server's SYN/ACK comes again, and the client's ACK finds the queue full.
        let counters = world.wait(&server, Counter::ListenQOverflowAcks, 1);
        assert!(get(&counters, Counter::ListenQOverflow) >= 1, "{counters:?}");
        assert_eq!(get(&counters, Counter::EndsDroppedOtherwise), 0);
        drop(client);
        // It was established for the client: its FIN comes, and comes again, without an end that we
        // could wait for.
        assert!(world.kernel("ListenOverflows") >= get(&counters, Counter::ListenQOverflow));
        world.wait(&server, Counter::ListenQOverflow, get(&counters, Counter::ListenQOverflow) + 1);
        let counters = world.counters(&server);
        assert!(get(&counters, Counter::ListenQOverflow) > get(&counters, Counter::ListenQOverflowAcks));
    }
}

#[test]
fn root_syn_at_a_full_syn_queue_is_dropped_or_gets_a_cookie() {
    for address in [SERVER4, SERVER6] {
        for cookies in ["0", "1"] {
            let Some(world) = World::create(&CAUSES) else { return };
            world.sysctl("net.ipv4.tcp_syncookies", cookies);
            let server = world.listen(address, SMALL);
            let _deaf = world.deafen();
            // Older kernels call a queue full that has reached its limit, newer ones one that is
            // above it.
            let half_open = [world.begin(address), world.begin(address)];
            world.wait(&server, Counter::Syns, 2);
            let late = world.begin(address);
            let (cause, never) = match cookies {
                "0" => (Counter::SynQFullDropped, Counter::SynQFullCookie),
                _ => (Counter::SynQFullCookie, Counter::SynQFullDropped),
            };
            world.wait(&server, cause, 1);
            world.wait(&server, Counter::SynsRepeated, 1);
            drop((late, half_open));
            let counters = world.counters(&server);
            assert_eq!(get(&counters, never), 0, "{counters:?}");
            assert!((1..=2).contains(&get(&counters, Counter::Answered)), "{counters:?}");
            assert_as_kernel(&world, &counters);
            assert_eq!(world.kernel("TCPReqQFullDoCookies"), get(&counters, Counter::SynQFullCookie));
        }
    }
}

#[test]
fn root_syn_beyond_three_quarters_of_the_syn_backlog_is_synq_3_4_full() {
    let Some(world) = World::create(&CAUSES) else { return };
    world.sysctl("net.ipv4.tcp_syncookies", "0");
    // The last quarter, two of eight, is for known peers: it begins when less than two are left.
    world.sysctl("net.ipv4.tcp_max_syn_backlog", "8");
    let server = world.listen(SERVER4, 128);
    let _deaf = world.deafen();
    let half_open: Vec<OwnedFd> = (0..7).map(|_| world.begin(SERVER4)).collect();
    world.wait(&server, Counter::Answered, 7);
    let late = world.begin(SERVER4);
    world.wait(&server, Counter::SynQ34Full, 1);
    drop((late, half_open));
    let counters = world.counters(&server);
    assert_eq!(get(&counters, Counter::Answered), 7, "{counters:?}");
    assert_eq!(dropped_syns(&counters), get(&counters, Counter::SynQ34Full), "{counters:?}");
    assert_as_kernel(&world, &counters);
}

#[test]
fn root_cookies_sent_always_are_not_a_full_syn_queue() {
    let Some(world) = World::create(&CAUSES) else { return };
    world.sysctl("net.ipv4.tcp_syncookies", "2");
    let server = world.listen(SERVER4, SMALL);
    let _client = world.connect(SERVER4);
    let counters = world.wait(&server, Counter::Cookies, 1);
    assert_eq!((get(&counters, Counter::Cookies), get(&counters, Counter::SynQFullCookie)), (1, 0));
}

#[test]
fn root_syn_without_a_way_back_is_dropped_otherwise() {
    let Some(world) = World::create(&CAUSES) else { return };
    let server = world.listen(SERVER4, SMALL);
    world.sysctl("net.ipv4.conf.all.rp_filter", "0");
    world.sysctl("net.ipv4.conf.s0.rp_filter", "0");
    world.client.ip(&["addr", "add", "10.13.0.1/32", "dev", "lo"]).expect("address");
    world.client.ip(&["route", "replace", "10.12.0.2/32", "dev", "c0", "src", "10.13.0.1"]).expect("route");
    let client = world.begin(SERVER4);
    world.wait(&server, Counter::SynsDroppedOtherwise, 1);
    drop(client);
    assert_as_kernel(&world, &world.counters(&server));
}

#[test]
fn root_syn_repeated_in_a_handshake_is_counted_beside_new_ones() {
    for address in [SERVER4, SERVER6] {
        let Some(world) = World::create(&CAUSES) else { return };
        let server = world.listen(address, SMALL);
        let _deaf = world.deafen();
        let _half_open = world.begin(address);
        let counters = world.wait(&server, Counter::SynsOfRequests, 1);
        assert_eq!((get(&counters, Counter::Syns), get(&counters, Counter::SynsRepeated)), (1, 0));
        assert_eq!(counters.all_syns(), Some(1 + get(&counters, Counter::SynsOfRequests)));
    }
}

#[test]
fn root_every_accepted_connection_has_its_time_in_the_accept_queue() {
    const WAIT: Duration = Duration::from_millis(60);
    for address in [SERVER4, SERVER6] {
        let Some(world) = World::create(&[Hook::Enqueue, Hook::Accept]) else { return };
        let server = world.listen(address, 128);
        let clients: Vec<TcpStream> = (0..5).map(|_| world.connect(address)).collect();
        world.wait(&server, Counter::Enqueued, 5);
        let queues = world.listener(&server).queues.expect("the kernel's list has them");
        assert_eq!((queues.accept_qlen, queues.accept_limit, queues.syn_qlen), (5, Some(128), Some(0)));
        std::thread::sleep(WAIT);
        clients.iter().for_each(|_| drop(server.accept().expect("it is there")));
        let counters = world.counters(&server);
        assert_eq!((get(&counters, Counter::Accepted), get(&counters, Counter::SojournUnknown)), (5, 0));
        let sojourns = counters.sojourns_us().expect("both hooks are there");
        assert_eq!(sojourns.count(), 5);
        let shortest =
            sojourns.buckets().into_iter().find(|(_, count)| *count > 0).expect("there are five").0;
        assert!(u128::from(shortest) * 2 > WAIT.as_micros(), "{sojourns:?}");
        assert!(counters.mean_sojourn_us().expect("of five") >= WAIT.as_micros() as f64);
        // One met an empty queue, one a queue of one, two of two or three, one of four.
        let lengths = counters.lengths().expect("its hook is there");
        assert_eq!(lengths.buckets(), [(0, 1), (1, 1), (2, 2), (4, 1)]);
        assert_eq!(counters.get(Counter::Syns), None, "not asked for, so not known");
    }
}

#[test]
fn root_connection_from_before_the_watch_has_no_known_time() {
    let Some(world) = World::create(&[]) else { return };
    let server = world.listen(SERVER4, 128);
    let _client = world.connect(SERVER4);
    let World { client, server: namespace, c0, .. } = world;
    let Some(watch) = start(&[Hook::Enqueue, Hook::Accept]) else { return };
    let world = World { client, server: namespace, c0, watch };
    server.accept().expect("it is there");
    let counters = world.counters(&server);
    assert_eq!((get(&counters, Counter::Accepted), get(&counters, Counter::SojournUnknown)), (1, 1));
    assert_eq!(counters.sojourns_us().map(|all| all.count()), Some(0));
}

#[test]
fn root_members_of_a_reuseport_group_are_counted_apart_and_add_up() {
    let Some(world) = World::create(&[Hook::Syn, Hook::Request, Hook::Enqueue, Hook::Accept]) else { return };
    let servers = [world.listen(SERVER4, 128), world.listen(SERVER4, 128)];
    let _clients: Vec<TcpStream> = (0..32).map(|_| world.connect(SERVER4)).collect();
    let mut sum = world.watch.nothing();
    for server in &servers {
        server.set_nonblocking(true).expect("non-blocking");
        let mut accepted = 0;
        while server.accept().is_ok() {
            accepted += 1;
        }
        let counters = world.counters(server);
        assert_eq!(get(&counters, Counter::Accepted), accepted);
        assert!(accepted > 0, "with 32 clients each gets one, but in one of two billion runs");
        sum = sum.plus(&counters);
    }
    assert_eq!((get(&sum, Counter::Accepted), get(&sum, Counter::Answered)), (32, 32));
}

#[test]
fn root_listeners_of_every_namespace_are_found_with_name_owner_and_load() {
    let Some(world) = World::create(&[]) else { return };
    let server = world.listen("0.0.0.0:8080", SMALL);
    let other = world.client.enter(|| listen_at("[::1]:8081".parse().expect("address"), 7)).expect("enter");
    let _clients = [world.connect(SERVER4), world.connect(SERVER4)];
    // Connections and their ends come after the listeners in the kernel's list.
    let host = Host::look().expect("look");
    let survey = host.survey(Some(&world.watch));
    let find = |socket: &TcpListener| {
        let found = survey.listeners.iter().find(|listener| listener.socket_inode == inode(socket));
        found.unwrap_or_else(|| panic!("{socket:?} is not in {:?}", survey.gaps))
    };
    for (socket, namespace, accept_qlen, limit) in
        [(&server, &world.server, 2, SMALL), (&other, &world.client, 0, 7)]
    {
        let listener = find(socket);
        assert_eq!(listener.address, socket.local_addr().expect("address"));
        assert_eq!(host.name(listener.netns_inode), Some(namespace.name()));
        let queues = listener.queues.expect("the kernel's list has them");
        assert_eq!((queues.accept_qlen, queues.accept_limit), (accept_qlen, Some(limit as u32)));
        let owners = Owners::find([listener.socket_inode]).expect("read /proc");
        let pids: Vec<i32> = owners.of(listener.socket_inode).iter().map(|process| process.pid).collect();
        assert!(pids.contains(&std::process::id().cast_signed()), "{pids:?}");
    }
    let late = world.begin(SERVER4);
    let start = Instant::now();
    while world.listener(&server).drops.expect("the kernel's list has them") == 0 {
        assert!(start.elapsed() < PATIENCE, "the queue was full, and its SYN was not dropped");
    }
    drop(late);
    assert_eq!(world.listener(&server).drops.map(u64::from), Some(world.kernel("ListenDrops")));
    // Without programs procfs shows the same sockets, as far as it goes.
    let unprivileged = host.survey(None);
    let found = unprivileged.listeners.iter().find(|listener| listener.socket_inode == inode(&server));
    let queues = found.expect("procfs has it").queues.expect("procfs has one");
    assert_eq!((queues.accept_qlen, queues.accept_limit, queues.syn_qlen), (2, None, None));
    assert!(unprivileged.gaps.iter().any(|gap| gap.contains("CAP_BPF")), "{:?}", unprivileged.gaps);
}

#[test]
fn root_listener_is_labelled_by_the_cgroup_where_it_was_made() {
    let Some(world) = World::create(&[]) else { return };
    let Some(group) = Group::enter() else { return };
    let server = world.listen(SERVER4, SMALL);
    let id = world.listener(&server).cgroup_id.expect("the kernel keeps it");
    let cgroups = Cgroups::read().expect("read the hierarchy");
    let path = cgroups.path(id).expect("it is there");
    assert!(path.ends_with(&group.name), "{path}");
}

/// A cgroup that this process is in until it is dropped.
struct Group {
    name: String,
    folder: std::path::PathBuf,
    home: std::path::PathBuf,
}

impl Group {
    fn enter() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("read the mounts");
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (path, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| std::path::PathBuf::from(path))
        });
        let Some(root) = root else {
            eprintln!("skipped: no version 2 cgroups are mounted here");
            return None;
        };
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("read our cgroup");
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).expect("there is a version 2");
        let name = format!("tg-watch-{}", std::process::id());
        let group = Self { folder: root.join(&name), home: root.join(own), name };
        let entered = std::fs::create_dir(&group.folder)
            .and_then(|()| std::fs::write(group.folder.join("cgroup.procs"), "0"));
        if let Err(error) = entered {
            eprintln!("skipped: no cgroup can be made here: {error}");
            return None;
        }
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        std::fs::write(self.home.join("cgroup.procs"), "0").expect("go home");
        // What other tests started meanwhile was born in it, and is gone soon.
        let start = Instant::now();
        while let Err(error) = std::fs::remove_dir(&self.folder) {
            assert!(start.elapsed() < PATIENCE, "remove the cgroup: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
