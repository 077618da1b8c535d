//! Two namespaces joined by a veth pair: a server's end and a crowd's end.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use netns::{Namespace, Offload, VethPair, set_offload};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::experiment::{Receive, Testbed as Layout};

/// Interface names: short enough for any kernel, and plain in reports.
pub const SERVER_INTERFACE: &str = "tgs0";
/// The crowd's.
pub const CROWD_INTERFACE: &str = "tgc0";
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 1);
const CROWD_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);
/// Port of every server in the lab, as in Debian's nginx configuration.
pub const PORT: u16 = 80;

/// A testbed; it is gone when this is dropped. Fresh for every cell, because sockets that an earlier crowd left behind
/// answer a new SYN with a challenge ACK.
#[derive(Debug)]
pub struct Testbed {
    /// The server's namespace.
    pub server: Namespace,
    /// The crowd's namespace.
    pub crowd: Namespace,
}

impl Testbed {
    /// Makes the namespaces, joins them and puts receive processing where the layout says. `clients` is routed to the
    /// crowd.
    pub fn create(layout: &Layout, clients: &str) -> Result<Self> {
        let testbed = Self::join(clients)?;
        testbed.place(layout)?;
        Ok(testbed)
    }

    /// Makes the namespaces and joins them. Each end receives on the CPU of whoever sent, as veth does by itself.
    pub fn join(clients: &str) -> Result<Self> {
        let testbed = Self {
            server: Namespace::create("server")?,
            crowd: Namespace::create("crowd")?,
        };
        let (server, crowd) = (&testbed.server, &testbed.crowd);
        let pair = VethPair::create(server, SERVER_INTERFACE, crowd, CROWD_INTERFACE)?;
        testbed.address(&pair)?;
        // The crowd is many hosts behind one router: the server resolves the router only.
        server.ip(&["route", "add", clients, "via", &CROWD_ADDRESS.to_string()])?;
        Ok(testbed)
    }

    /// Where the server listens.
    pub fn server_address(&self) -> SocketAddr {
        (IpAddr::from(SERVER_ADDRESS), PORT).into()
    }

    fn address(&self, pair: &VethPair) -> Result<()> {
        let ends = [
            (&self.server, &pair.a, SERVER_ADDRESS, CROWD_ADDRESS, pair.b.mac),
            (&self.crowd, &pair.b, CROWD_ADDRESS, SERVER_ADDRESS, pair.a.mac),
        ];
        for (namespace, end, own, other, other_mac) in ends {
            namespace.ip(&["address", "add", &format!("{own}/30"), "dev", &end.name])?;
            let mac = other_mac.map(|byte| format!("{byte:02x}")).join(":");
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

    /// Puts receive processing on the CPUs of the layout. Without this, veth does it on the sender's CPU, and a server
    /// would never feel its own packets.
    fn place(&self, layout: &Layout) -> Result<()> {
        // Replies are received in softirq on the crowd's CPU, ahead of the generator: none waits for its turn.
        steer_receive(&self.crowd, CROWD_INTERFACE, layout.crowd_cpu)?;
        match layout.receive {
            Receive::Softirq => steer_receive(&self.server, SERVER_INTERFACE, layout.server_cpu),
            Receive::ThreadedNapi => {
                // On veth, NAPI comes with GRO.
                set_offload(&self.server, SERVER_INTERFACE, Offload::GenericReceive, true)?;
                self.server
                    .write_sysfs(&format!("class/net/{SERVER_INTERFACE}/threaded"), "1")?;
                pin_napi_threads(SERVER_INTERFACE, layout.server_cpu)
            }
        }
    }
}

/// Receive packet steering to one CPU (`Documentation/networking/scaling.rst`).
fn steer_receive(namespace: &Namespace, interface: &str, cpu: usize) -> Result<()> {
    let mask = format!("{:x}", 1u64 << cpu);
    namespace.write_sysfs(&format!("class/net/{interface}/queues/rx-0/rps_cpus"), &mask)
}

/// Pins the kernel threads `napi/<interface>-<id>`.
fn pin_napi_threads(interface: &str, cpu: usize) -> Result<()> {
    // The kernel cuts thread names at 15 characters.
    let prefix: String = format!("napi/{interface}-").chars().take(15).collect();
    let mut set = CpuSet::new();
    set.set(cpu)
        .with_context(|| format!("CPU {cpu} is beyond what this system can number"))?;
    let mut pinned = 0;
    for entry in fs::read_dir("/proc").context("list processes")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else {
            continue;
        };
        if name.starts_with(&prefix) {
            sched_setaffinity(Pid::from_raw(pid), &set).with_context(|| format!("pin {}", name.trim()))?;
            pinned += 1;
        }
    }
    anyhow::ensure!(
        pinned > 0,
        "no kernel thread {prefix}*: this kernel has no threaded NAPI for veth"
    );
    Ok(())
}
