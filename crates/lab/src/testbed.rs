//! Two namespaces joined by a veth pair: a server's end and a crowd's end.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use experiment::{Layout, Receive};
use ipnet::Ipv4Net;
use netns::{Namespace, Offload, VethPair, set_offload};
use nix::net::if_::if_nametoindex;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::middle::{LINK_LEFT, LINK_RIGHT, Middle};
use crate::relay;

/// Interface names: short enough for any kernel, and plain in reports.
pub const SERVER_INTERFACE: &str = "tgs0";
/// The crowd's.
pub const CROWD_INTERFACE: &str = "tgc0";
/// The server's end of a flood's way in, and the flood's.
pub(crate) const FLOODED_INTERFACE: &str = "tgs1";
/// In the crowd's namespace.
pub(crate) const FLOOD_INTERFACE: &str = "tgf0";
/// The two ends of the flood's pair.
const FLOODED_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 5);
const FLOOD_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 6);
/// Where its SYNs pretend to come from (RFC 2544 appendix C.2.2).
const FLOOD_SOURCES: &str = "198.18.0.0/15";
/// The server's end of the way in of held connections, and theirs: the crowd's generator takes
/// every frame that comes to its interface.
const HELD_INTERFACE: &str = "tgs2";
/// In the crowd's namespace.
pub(crate) const HOLDER_INTERFACE: &str = "tgh0";
/// The two ends of their pair.
const HELD_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 9);
const HOLDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 10);
/// How often the crowd's end looks for replies: its ring of 256 frames is full after 1 ms at
/// 256,000 frames/s, and after half of that before the server of `bench load`. To set a timer and
/// be woken costs a virtual CPU some 40 us, so that every 50 us would take half of the generator's.
pub const CROWD_POLL: Duration = Duration::from_micros(150);

/// A testbed; it is gone when this is dropped. Fresh for every cell, because sockets that an
/// earlier crowd left behind answer a new SYN with a challenge ACK.
#[derive(Debug)]
pub struct Testbed {
    /// The server's namespace.
    pub server: Namespace,
    /// The crowd's namespace.
    pub crowd: Namespace,
    /// Where the server's clients come in.
    pub(crate) server_interfaces: Vec<&'static str>,
    /// Between the two, where they are far from each other: nothing goes through before a link runs
    /// in it.
    pub(crate) middle: Option<Middle>,
    /// Between the two, where the server's end receives as a driver does: the crowd's first.
    relays: Vec<Relay>,
    /// The threads that receive at the crowd's end, where they have been given a CPU.
    crowd_threads: Vec<Pid>,
}

impl Testbed {
    /// Makes the namespaces, joins them and puts receive processing where the layout says.
    /// `clients` is routed to the crowd.
    pub fn create(layout: &Layout, clients: Ipv4Net) -> Result<Self> {
        let mut testbed = Self::apart()?;
        let pair = testbed.pair(layout, SERVER_INTERFACE, CROWD_INTERFACE)?;
        testbed.route(&pair, clients)?;
        testbed.place(layout)?;
        Ok(testbed)
    }

    /// The same with a namespace for a link between the two.
    pub(crate) fn create_far(layout: &Layout, clients: Ipv4Net) -> Result<Self> {
        let mut testbed = Self::apart()?;
        let middle = Middle::join((&testbed.server, SERVER_INTERFACE), (&testbed.crowd, CROWD_INTERFACE))?;
        let [a, b] = middle.ends.clone();
        // What the server sends is received in the link's time, as without a link it is in the
        // crowd's.
        receive_in_thread(&middle.namespace, LINK_LEFT, link_cpu(layout), Priority::RealTime)?;
        receive_by_timer(&middle.namespace, LINK_LEFT, CROWD_POLL)?;
        testbed.middle = Some(middle);
        testbed.route(&VethPair { a, b }, clients)?;
        testbed.place(layout)?;
        Ok(testbed)
    }

    /// Makes the namespaces and joins them. Each end receives on the CPU of whoever sent, as veth
    /// does by itself.
    pub fn join(clients: Ipv4Net) -> Result<Self> {
        let testbed = Self::apart()?;
        let pair = VethPair::create(&testbed.server, SERVER_INTERFACE, &testbed.crowd, CROWD_INTERFACE)?;
        testbed.route(&pair, clients)?;
        Ok(testbed)
    }

    /// The same with a CPU for each end, which looks for frames so far apart as long as there are
    /// any. Where an end is full the other's sockets hold back; what an XDP program sends there is
    /// lost.
    pub fn join_apart(clients: Ipv4Net, server: (usize, Duration), crowd: (usize, Duration)) -> Result<Self> {
        let testbed = Self::join(clients)?;
        let ends = [(&testbed.server, SERVER_INTERFACE, server), (&testbed.crowd, CROWD_INTERFACE, crowd)];
        for (namespace, interface, (cpu, interval)) in ends {
            wait_for_room(namespace, interface)?;
            receive_in_thread(namespace, interface, cpu, Priority::RealTime)?;
            receive_by_timer(namespace, interface, interval)?;
        }
        Ok(testbed)
    }

    /// Two namespaces that nothing joins.
    fn apart() -> Result<Self> {
        Ok(Self {
            server: Namespace::create("server")?,
            crowd: Namespace::create("crowd")?,
            server_interfaces: vec![SERVER_INTERFACE],
            middle: None,
            relays: Vec::new(),
            crowd_threads: Vec::new(),
        })
    }

    /// Joins them by two interfaces; by a relay where the server's end receives as a driver does.
    fn pair(&mut self, layout: &Layout, at_server: &str, at_crowd: &str) -> Result<VethPair> {
        let (server, crowd) = (&self.server, &self.crowd);
        if layout.receive != Receive::Driver {
            return Ok(VethPair::create(server, at_server, crowd, at_crowd)?);
        }
        let relay = Relay::join((server, at_server), (crowd, at_crowd), layout)?;
        let [a, b] = relay.middle.ends.clone();
        self.relays.push(relay);
        Ok(VethPair { a, b })
    }

    /// The crowd is many hosts behind one router: the server resolves the router only.
    fn route(&self, pair: &VethPair, clients: Ipv4Net) -> Result<()> {
        self.address(pair, *Layout::SERVER.ip(), Layout::ROUTER)?;
        Ok(self.server.ip(&["route", "add", &clients.to_string(), "via", &Layout::ROUTER.to_string()])?)
    }

    /// Sets the congestion control of what the server sends to these clients, which may be one that
    /// a namespace's sysctl does not take.
    pub(crate) fn set_congestion_control(&self, clients: Ipv4Net, name: &str) -> Result<()> {
        let (clients, router) = (clients.to_string(), Layout::ROUTER.to_string());
        Ok(self.server.ip(&["route", "replace", &clients, "via", &router, "congctl", name])?)
    }

    /// Adds a pair for a flood of spoofed SYNs: what is sent in answer to them must not take the
    /// place of replies.
    pub(crate) fn join_flood(&mut self, layout: &Layout) -> Result<()> {
        self.join_beside(layout, (FLOODED_INTERFACE, FLOODED_ADDRESS), (FLOOD_INTERFACE, FLOOD_ADDRESS))?;
        Ok(self.server.ip(&["route", "add", FLOOD_SOURCES, "via", &FLOOD_ADDRESS.to_string()])?)
    }

    /// Adds a pair for connections that are held beside the crowd, from sockets that are bound to
    /// `tgh0`.
    pub(crate) fn join_holders(&mut self, layout: &Layout) -> Result<()> {
        self.join_beside(layout, (HELD_INTERFACE, HELD_ADDRESS), (HOLDER_INTERFACE, HOLDER_ADDRESS))?;
        if layout.receive == Receive::Driver {
            // Of a checksum that is still to be made an XDP redirect says nothing (docs/kernel.md),
            // and both ends are Linux here, which looks at it.
            set_offload(&self.server, HELD_INTERFACE, Offload::TransmitChecksum, false)?;
            set_offload(&self.crowd, HOLDER_INTERFACE, Offload::TransmitChecksum, false)?;
        }
        // Answers come from an address that the best route has at another interface.
        Ok(self.crowd.set_sysctl(&format!("net.ipv4.conf.{HOLDER_INTERFACE}.rp_filter"), "2")?)
    }

    /// Adds a pair beside the crowd's, with a way to the server for who asks for it.
    fn join_beside(
        &mut self,
        layout: &Layout,
        (at_server, server_address): (&'static str, Ipv4Addr),
        (at_crowd, crowd_address): (&str, Ipv4Addr),
    ) -> Result<()> {
        let pair = self.pair(layout, at_server, at_crowd)?;
        self.address(&pair, server_address, crowd_address)?;
        let (server, way) = (Layout::SERVER.ip().to_string(), server_address.to_string());
        // After the crowd's and those that were there before.
        let metric = (1000 + self.server_interfaces.len()).to_string();
        self.crowd.ip(&["route", "add", &server, "via", &way, "dev", at_crowd, "metric", &metric])?;
        self.place_crowd(layout, at_crowd)?;
        self.place_server(layout, at_server)?;
        self.server_interfaces.push(at_server);
        Ok(())
    }

    /// The namespace between the two that the crowd's frames go through, if there is one.
    pub(crate) fn between(&self) -> Option<&Namespace> {
        let middle = self.middle.as_ref().or(self.relays.first().map(|relay| &relay.middle));
        middle.map(|middle| &middle.namespace)
    }

    /// How often the crowd's end has looked for replies: its thread sleeps after each look.
    pub(crate) fn looks(&self) -> Result<u64> {
        self.crowd_threads.iter().map(|thread| Ok(netns::sleeps(thread.as_raw() as u32)?)).sum()
    }

    /// Where the server listens.
    pub fn server_address(&self) -> SocketAddr {
        Layout::SERVER.into()
    }

    fn address(&self, pair: &VethPair, at_server: Ipv4Addr, at_crowd: Ipv4Addr) -> Result<()> {
        let ends = [
            (&self.server, &pair.a, at_server, at_crowd, pair.b.mac),
            (&self.crowd, &pair.b, at_crowd, at_server, pair.a.mac),
        ];
        for (namespace, end, own, other, other_mac) in ends {
            namespace.ip(&["address", "add", &format!("{own}/30"), "dev", &end.name])?;
            let mac = netns::mac_text(other_mac);
            let other = other.to_string();
            namespace.ip(&[
                "neighbour",
                "replace",
                &other,
                "lladdr",
                &mac,
                "dev",
                &end.name,
                "nud",
                "permanent",
            ])?;
        }
        Ok(())
    }

    /// Puts receive processing on the CPUs of the layout. Without this, veth does it on the
    /// sender's CPU, and a server would never feel its own packets.
    fn place(&mut self, layout: &Layout) -> Result<()> {
        self.crowd_threads = self.place_crowd(layout, CROWD_INTERFACE)?;
        wait_for_room(&self.server, SERVER_INTERFACE)?;
        self.place_server(layout, SERVER_INTERFACE)
    }

    /// In a thread that runs ahead of the generator: at ordinary priority it would wait for a busy
    /// generator's time slice to end, and the 256 frames that a veth holds are full before that.
    /// Gives its threads.
    fn place_crowd(&self, layout: &Layout, interface: &str) -> Result<Vec<Pid>> {
        let threads = receive_in_thread(&self.crowd, interface, layout.crowd_cpu, Priority::RealTime)?;
        // A relay looks for replies by a timer of its own.
        if layout.receive != Receive::Driver {
            receive_by_timer(&self.crowd, interface, CROWD_POLL)?;
        }
        Ok(threads)
    }

    fn place_server(&self, layout: &Layout, interface: &str) -> Result<()> {
        let (server, cpu) = (&self.server, layout.server_cpu);
        let in_thread = |priority| receive_in_thread(server, interface, cpu, priority).map(drop);
        match layout.receive {
            Receive::Softirq => receive_in_softirq(server, interface, cpu),
            Receive::Napi | Receive::Driver => in_thread(Priority::RealTime),
            Receive::ThreadedNapi => in_thread(Priority::Ordinary),
        }
    }
}

/// A namespace between the two that hands frames on by XDP redirect, on the crowd's CPU: what
/// leaves it is a page with a frame in it, and no socket buffer. Its timers are those of a NIC:
/// when the server's end gets frames, and when the crowd's does.
#[derive(Debug)]
struct Relay {
    middle: Middle,
    _both_ways: [relay::Relay; 2],
}

impl Relay {
    fn join(server: (&Namespace, &str), crowd: (&Namespace, &str), layout: &Layout) -> Result<Self> {
        let middle = Middle::join(server, crowd)?;
        for (interface, interval) in [(LINK_LEFT, CROWD_POLL), (LINK_RIGHT, layout.coalesce)] {
            receive_in_thread(&middle.namespace, interface, layout.crowd_cpu, Priority::RealTime)?;
            receive_by_timer(&middle.namespace, interface, interval)?;
        }
        let redirect = || -> Result<_> {
            let [left, right] = [if_nametoindex(LINK_LEFT)?, if_nametoindex(LINK_RIGHT)?];
            Ok([relay::Relay::attach(left, right)?, relay::Relay::attach(right, left)?])
        };
        let both_ways = middle.namespace.enter(redirect)?.context("join two veth pairs by XDP redirect")?;
        Ok(Self { middle, _both_ways: both_ways })
    }
}

/// Of a thread that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priority {
    /// Shares its CPU with processes.
    Ordinary,
    /// Runs before every process.
    RealTime,
}

/// CPU of the link, where the clients are far away: one that neither end has, or else the crowd's.
pub(crate) fn link_cpu(layout: &Layout) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cpus).find(|cpu| ![layout.server_cpu, layout.crowd_cpu].contains(cpu)).unwrap_or(layout.crowd_cpu)
}

/// Receive packet steering to one CPU (`Documentation/networking/scaling.rst`).
fn receive_in_softirq(namespace: &Namespace, interface: &str, cpu: usize) -> Result<()> {
    Ok(namespace.write_sysfs(&format!("class/net/{interface}/queues/rx-0/rps_cpus"), &cpu_mask(cpu))?)
}

/// A CPU mask as sysfs takes it: hexadecimal words of 32 bits, the highest first (`bitmap_parse`).
fn cpu_mask(cpu: usize) -> String {
    format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu / 32))
}

/// Threaded NAPI (`Documentation/networking/napi.rst`); on veth, NAPI comes with GRO or with native
/// XDP. Gives the threads.
fn receive_in_thread(
    namespace: &Namespace,
    interface: &str,
    cpu: usize,
    priority: Priority,
) -> Result<Vec<Pid>> {
    set_offload(namespace, interface, Offload::GenericReceive, true)?;
    // The threads of other runs may have the same name, so ours are those that appear in our turn.
    let turn = netns::turn()?;
    let before = napi_threads(interface)?;
    namespace.write_sysfs(&format!("class/net/{interface}/threaded"), "1")?;
    let threads: Vec<Pid> =
        napi_threads(interface)?.into_iter().filter(|thread| !before.contains(thread)).collect();
    drop(turn);
    ensure!(
        !threads.is_empty(),
        "no kernel thread napi/{interface}-*: this kernel has no threaded NAPI for veth"
    );
    for &thread in &threads {
        let mut set = CpuSet::new();
        set.set(cpu).with_context(|| format!("CPU {cpu} is beyond what this system can number"))?;
        sched_setaffinity(thread, &set).with_context(|| format!("pin the receive thread of {interface}"))?;
        if priority == Priority::RealTime {
            make_real_time(thread).with_context(|| format!("raise the receive thread of {interface}"))?;
        }
    }
    Ok(threads)
}

/// Makes NAPI look for frames at a fixed interval while there are any, as a NIC's interrupt
/// moderation does. Without it every single reply wakes the receive thread, and the waking is work
/// of the server's CPU.
fn receive_by_timer(namespace: &Namespace, interface: &str, interval: Duration) -> Result<()> {
    let file = |name: &str| format!("class/net/{interface}/{name}");
    namespace.write_sysfs(&file("gro_flush_timeout"), &interval.as_nanos().to_string())?;
    // Intervals without a frame before the next one is announced again.
    Ok(namespace.write_sysfs(&file("napi_defer_hard_irqs"), "100")?)
}

/// Makes frames wait in a queue while the peer's ring of 256 is full, where they would be dropped
/// without: a veth with a qdisc holds back since Linux 6.16 (`veth_xmit`, `NETDEV_TX_BUSY`), and
/// AF_XDP is told to ask again. A NIC has a qdisc, too.
fn wait_for_room(namespace: &Namespace, interface: &str) -> Result<()> {
    Ok(namespace.tc(&["qdisc", "replace", "dev", interface, "root", "pfifo", "limit", "100000"])?)
}

/// The kernel threads `napi/<interface>-<id>`.
fn napi_threads(interface: &str) -> Result<Vec<Pid>> {
    // The kernel cuts thread names at 15 characters.
    let prefix: String = format!("napi/{interface}-").chars().take(15).collect();
    let thread = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(&prefix).then_some(Pid::from_raw(pid))
    };
    Ok(fs::read_dir("/proc").context("list processes")?.flatten().filter_map(thread).collect())
}

fn make_real_time(thread: Pid) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, which only reads them.
    let result =
        unsafe { libc::sched_setscheduler(thread.as_raw(), libc::SCHED_FIFO, &raw const parameters) };
    nix::errno::Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
    };
    use nix::sys::time::TimeVal;

    use super::*;

    #[test]
    fn cpu_masks_have_a_comma_for_every_32_cpus() {
        assert_eq!(cpu_mask(1), "2");
        assert_eq!(cpu_mask(31), "80000000");
        assert_eq!(cpu_mask(64), "1,00000000,00000000");
    }

    #[test]
    fn root_held_connection_goes_through_a_relay_where_the_server_receives_as_a_driver_does() {
        if let Err(reason) = netns::root_or_reason() {
            return eprintln!("{reason}");
        }
        let layout = Layout { receive: Receive::Driver, ..Layout::default() };
        let mut testbed =
            Testbed::create(&layout, "10.77.0.0/16".parse().expect("a network")).expect("a testbed");
        testbed.join_flood(&layout).expect("a way in");
        testbed.join_holders(&layout).expect("a way in");
        let [_, _, of_holders] = &testbed.relays[..] else { panic!("one for each way in") };

        let to = testbed.server_address();
        let listener =
            testbed.server.enter(|| TcpListener::bind(to)).expect("a thread").expect("a free port");
        let sent = [b'a'; 100];
        let send = || -> Result<TcpStream> {
            let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
                .expect("a socket");
            setsockopt(&socket, sockopt::BindToDevice, &HOLDER_INTERFACE.into())?;
            // A frame with a wrong checksum is dropped in silence.
            setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(5, 0))?;
            connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
            let mut client = TcpStream::from(socket);
            client.write_all(&sent)?;
            Ok(client)
        };
        let client = testbed.crowd.enter(send).expect("a thread").expect("a connection");
        let mut server = listener.accept().expect("it has come").0;
        server.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        let mut received = [0; 100];
        server.read_exact(&mut received).expect("all that was sent");
        assert_eq!(received, sent);
        drop(client);
        let frames = netns::link_counters(&of_holders.middle.namespace, LINK_RIGHT).expect("counters");
        assert!(frames.received >= 3, "SYN, ACK and data: {frames:?}");
    }

    #[test]
    fn root_runs_at_once_have_each_its_own_receive_threads() {
        if let Err(reason) = netns::root_or_reason() {
            return eprintln!("{reason}");
        }
        let run = || {
            let testbed = Testbed::join("10.77.0.0/16".parse().expect("a network")).expect("a testbed");
            receive_in_thread(&testbed.crowd, CROWD_INTERFACE, 0, Priority::Ordinary).expect("threads")
        };
        let runs = |_| std::array::from_fn::<_, 4, _>(|_| std::thread::spawn(run));
        for run in (0..4).flat_map(runs) {
            let threads = run.join().expect("a run");
            assert_eq!(threads.len(), 1, "a pair with one queue has one thread: {threads:?}");
        }
    }
}
