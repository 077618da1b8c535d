//! The programs of `kernel/admit.bpf.c` and their maps, with types from their BTF.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, ensure};
use bpf::{Capabilities, Capability, Hook, cgroup};
use ipnet::IpNet;
use kernel::{ListenerPolicy, ListenerStats, Pace, PathStats, Plain, Service, bytes_of, from_bytes, same};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, Map, MapCore, MapFlags, MapHandle, ProgramType};
use units::Nanos;
use verdict::ListenerLoad;
use verdict::cookie::{KEY_LIFE, idle_key};

use crate::Listener;
use crate::routes::{Way, Ways};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    unused_qualifications,
    unreachable_pub
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/admit.skel.rs"));
}

use skel::types;

/// The kernel's own types; without them no program that reads kernel structs can load.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Of a map with one row; also a value that means nothing.
const INDEX: u32 = 0;
/// As in rules.bpf.h.
pub const MAX_LISTENERS: usize = 64;
/// Interfaces of one guard (`MAX_GUARDED_INTERFACES`).
pub const MAX_INTERFACES: usize = 4096;
/// As in rules.bpf.h.
pub const MAX_SOURCES: usize = 1024;
/// As in rules.bpf.h.
pub const MAX_OWN_ADDRESSES: usize = 4096;
/// As in route.bpf.h.
pub const MAX_ROUTES: usize = 4096;
/// The program that follows sockets.
const FOLLOWER: &str = "follow_socket";
/// The programs of a guard, by the names that the kernel has of them.
pub const PROGRAM_NAMES: [&str; 4] = ["admit_tc", "finish_tc", "admit_xdp", "admit_xdp_skb"];
/// SYNs that a dry run remembers, to tell the first of a client from its repetitions: 8 bytes each.
const SENT_SYNS: u32 = 1 << 20;
/// Refusals that may come at once: what the budget brings in a tenth of a second.
const BUDGET_BURSTS_PER_S: u32 = 10;
/// `FOUND_LISTENER` of listener.bpf.h.
const FOUND_LISTENER: u32 = 0;

/// What a guard that takes over keeps of the one before, so that no handshake and no server
/// notices.
#[derive(Debug, Default)]
pub struct Inherited {
    cookie_keys: Option<OwnedFd>,
    asked: Option<OwnedFd>,
}

impl Inherited {
    /// From the maps of the other guard's programs; one that lacks them, or has others of that
    /// name, leaves nothing.
    pub fn from(maps: Vec<(String, OwnedFd)>) -> Self {
        let mut inherited = Self::default();
        for (name, fd) in maps {
            match name.as_str() {
                "cookie_keys" => inherited.cookie_keys = Some(fd),
                "asked" => inherited.asked = Some(fd),
                _ => {}
            }
        }
        inherited
    }
}

/// Keys of the map `listeners`, and the index that each leads to.
pub type Keys = BTreeMap<Vec<u8>, [u8; 4]>;

/// Loaded programs. The skeleton is closed at once; what stays are descriptors, so there is no
/// lifetime to carry.
#[derive(Debug)]
pub struct Programs {
    /// The one for each hook that may be tried.
    entries: Vec<(Hook, OwnedFd)>,
    finish_tc: OwnedFd,
    ask_listener: OwnedFd,
    /// `None` on a kernel without BPF LSM, or that forbids it.
    admit_request: Option<OwnedFd>,
    set_option: OwnedFd,
    get_option: OwnedFd,
    /// Loaded when a listener first asks who waits for its server.
    follow_socket: OnceLock<OwnedFd>,
    /// All there are, for a program that is loaded later.
    maps: Vec<(OsString, OwnedFd)>,
    interfaces: MapHandle,
    listeners: MapHandle,
    hints: MapHandle,
    own_addresses: MapHandle,
    rules: MapHandle,
    sources: MapHandle,
    budget: MapHandle,
    listener_stat: MapHandle,
    path_stat: MapHandle,
    schedules: MapHandle,
    lease: MapHandle,
    query: MapHandle,
    services: MapHandle,
    paces: MapHandle,
    cookie_keys: MapHandle,
    routes: MapHandle,
    /// The last run of [`KEY_LIFE`] in which a key was replaced, counted from the clock's start.
    replaced_key: AtomicU64,
}

impl Programs {
    /// Loads the programs for these hooks into the kernel, with what goes beside them; attaches
    /// none. What cookies were made with and which servers have asked is `inherited`. With a dry
    /// run they remember SYNs.
    pub fn load(hooks: &[Hook], has_dry_run: bool, inherited: &Inherited) -> Result<Self> {
        ensure!(
            Path::new("/sys/kernel").exists(),
            "load the programs: sysfs is not mounted at /sys; mount -t sysfs none /sys"
        );
        ensure!(
            Path::new(KERNEL_BTF).exists(),
            "load the programs: this kernel has no {KERNEL_BTF}; boot one built with CONFIG_DEBUG_INFO_BTF=y (every current distribution's is)"
        );
        require_capabilities()?;
        // libbpf writes pages to stderr when a program is refused; our error is one line.
        libbpf_rs::set_print(None);
        // A tiny program tells sooner than ours whether BPF LSM is to be had: a refusal costs all
        // that was loaded before it.
        let has_lsm = ProgramType::Lsm.is_supported().unwrap_or(true);
        let load_with = |inherited: &Inherited| {
            let loaded = Self::load_with(has_lsm, hooks, has_dry_run, inherited);
            // This hook may be forbidden all the same; what is wrong with the rest, the second
            // attempt says.
            if has_lsm {
                loaded.or_else(|_| Self::load_with(false, hooks, has_dry_run, inherited))
            } else {
                loaded
            }
        };
        // Another version may have other maps.
        let loaded = load_with(inherited).or_else(|_| load_with(&Inherited::default()));
        loaded.map_err(|error| match error.downcast() {
            Ok(error) => load_error(error),
            Err(error) => error.context("load the programs, which takes some 100 descriptors (ulimit -n)"),
        })
    }

    fn load_with(has_lsm: bool, hooks: &[Hook], has_dry_run: bool, inherited: &Inherited) -> Result<Self> {
        let mut object = MaybeUninit::uninit();
        let mut open = skel::AdmitSkelBuilder::default().open(&mut object)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.flow_seed = u32::from_ne_bytes(random_bytes()?);
            rodata.label_key.word =
                [u64::from_ne_bytes(random_bytes()?), u64::from_ne_bytes(random_bytes()?)];
            rodata.guarded_netns = own_netns()?;
            rodata.guarded_netns_cookie = own_netns_cookie()?;
            rodata.sent_syn_places = if has_dry_run { SENT_SYNS } else { 0 };
        }
        if has_dry_run {
            open.maps.sent_syns.set_max_entries(SENT_SYNS)?;
        }
        if let Some(keys) = &inherited.cookie_keys {
            open.maps.cookie_keys.reuse_fd(keys.as_fd())?;
        }
        if let Some(asked) = &inherited.asked {
            open.maps.asked.reuse_fd(asked.as_fd())?;
        }
        if let Some(bss) = open.maps.bss_data.as_deref_mut().filter(|_| inherited.asked.is_some()) {
            bss.is_any_asked = 1;
        }
        if let Some(bss) = open.maps.bss_data.as_deref_mut().filter(|_| inherited.cookie_keys.is_some()) {
            bss.armed_until_ns = now_ns()? + verdict::cookie::LIFE.0;
            bss.cookies_until_ns = bss.armed_until_ns;
        }
        open.progs.admit_request.set_autoload(has_lsm);
        open.progs.admit_tc.set_autoload(hooks.contains(&Hook::TcxIngress));
        open.progs.admit_xdp.set_autoload(hooks.contains(&Hook::XdpNative));
        open.progs.admit_xdp_skb.set_autoload(hooks.contains(&Hook::XdpGeneric));
        open.progs.follow_socket.set_autoload(false);
        let loaded = open.load()?;
        if inherited.cookie_keys.is_none() {
            let keys: [u8; size_of::<types::cookie_keys>()] = random_bytes()?;
            write_cookie_keys(&loaded.maps.cookie_keys, &keys)?;
        }
        let progs = &loaded.progs;
        let admit_request = has_lsm.then(|| progs.admit_request.as_fd().try_clone_to_owned());
        let entry = |&hook: &Hook| {
            let program = match hook {
                Hook::TcxIngress | Hook::TcxEgress => &progs.admit_tc,
                Hook::XdpNative => &progs.admit_xdp,
                Hook::XdpGeneric => &progs.admit_xdp_skb,
            };
            Ok((hook, program.as_fd().try_clone_to_owned()?))
        };
        let handle = |map: Map<'_>| Ok((map.name().to_owned(), map.as_fd().try_clone_to_owned()?));
        let maps = &loaded.maps;
        Ok(Self {
            entries: hooks.iter().map(entry).collect::<Result<_>>()?,
            finish_tc: progs.finish_tc.as_fd().try_clone_to_owned()?,
            ask_listener: progs.ask_listener.as_fd().try_clone_to_owned()?,
            admit_request: admit_request.transpose()?,
            set_option: progs.set_option.as_fd().try_clone_to_owned()?,
            get_option: progs.get_option.as_fd().try_clone_to_owned()?,
            follow_socket: OnceLock::new(),
            maps: loaded.object().maps().map(handle).collect::<Result<_>>()?,
            interfaces: MapHandle::try_from(&maps.interfaces)?,
            listeners: MapHandle::try_from(&maps.listeners)?,
            hints: MapHandle::try_from(&maps.hints)?,
            own_addresses: MapHandle::try_from(&maps.own_addresses)?,
            rules: MapHandle::try_from(&maps.rules)?,
            sources: MapHandle::try_from(&maps.sources)?,
            budget: MapHandle::try_from(&maps.budget)?,
            listener_stat: MapHandle::try_from(&maps.listener_stat)?,
            path_stat: MapHandle::try_from(&maps.path_stat)?,
            schedules: MapHandle::try_from(&maps.schedules)?,
            lease: MapHandle::try_from(&maps.lease)?,
            query: MapHandle::try_from(&maps.query)?,
            services: MapHandle::try_from(&maps.services)?,
            paces: MapHandle::try_from(&maps.paces)?,
            cookie_keys: MapHandle::try_from(&maps.cookie_keys)?,
            routes: MapHandle::try_from(&maps.routes)?,
            replaced_key: AtomicU64::new(u64::MAX),
        })
    }

    /// The program for the FIN stage and cookies at tcx, where the other stages are in XDP.
    pub fn for_beside(&self) -> BorrowedFd<'_> {
        self.finish_tc.as_fd()
    }

    /// The program for a hook: the SYN stage, and at tcx the later stages, too.
    ///
    /// # Panics
    ///
    /// When it was not loaded for that hook.
    pub fn for_hook(&self, hook: Hook) -> BorrowedFd<'_> {
        let entry = self.entries.iter().find(|(of, _)| *of == hook);
        entry.expect("a program is loaded for each hook that may be tried").1.as_fd()
    }

    /// Whether the program with this number is one for an interface.
    pub fn has(&self, id: u32) -> bool {
        let of_hooks = self.entries.iter().map(|(_, program)| program);
        let mut all = of_hooks.chain([&self.finish_tc]);
        all.any(|program| bpf::program_id(program.as_fd()).is_ok_and(|own| own == id))
    }

    /// The program for the LSM hook where the kernel makes a request socket, if this kernel has the
    /// hook.
    pub fn for_requests(&self) -> Option<BorrowedFd<'_>> {
        self.admit_request.as_ref().map(AsFd::as_fd)
    }

    /// The program that follows sockets, to see which wait for their server. A guard that never
    /// asks is spared its verification, which takes as long as that of all others at a hook.
    pub fn for_sockets(&self) -> Result<(BorrowedFd<'_>, cgroup::Hook)> {
        if self.follow_socket.get().is_none() {
            let program = self.load_follower().map_err(load_error)?;
            // If another thread was first, its is as good.
            let _ = self.follow_socket.set(program);
        }
        let program = self.follow_socket.get().expect("it is loaded");
        Ok((program.as_fd(), cgroup::Hook::SocketOps))
    }

    /// How long the programs at the hooks and the one that follows sockets have run, while the
    /// kernel counted.
    pub fn run_time(&self) -> Result<Duration> {
        let entries = self.entries.iter().map(|(_, program)| program);
        let programs = entries.chain([&self.finish_tc]).chain(self.follow_socket.get());
        let times: std::io::Result<Vec<_>> = programs.map(|program| bpf::run_time(program.as_fd())).collect();
        Ok(times.context("ask how long programs ran")?.into_iter().sum())
    }

    /// With the maps of the programs that are loaded.
    fn load_follower(&self) -> libbpf_rs::Result<OwnedFd> {
        let mut object = MaybeUninit::uninit();
        let mut open = skel::AdmitSkelBuilder::default().open(&mut object)?;
        for mut map in open.open_object_mut().maps_mut() {
            let ours = self.maps.iter().find(|(name, _)| name == map.name());
            map.reuse_fd(ours.expect("it is the same object").1.as_fd())?;
        }
        for mut program in open.open_object_mut().progs_mut() {
            program.set_autoload(program.name() == FOLLOWER);
        }
        Ok(open.load()?.progs.follow_socket.as_fd().try_clone_to_owned()?)
    }

    /// The programs for setsockopt(2) and getsockopt(2).
    pub fn for_sockopt(&self) -> [(BorrowedFd<'_>, cgroup::Hook); 2] {
        [
            (self.set_option.as_fd(), cgroup::Hook::SetSockopt),
            (self.get_option.as_fd(), cgroup::Hook::GetSockopt),
        ]
    }

    /// Forgets one that was added; its index may become another's.
    pub fn forget_interface(&self, ifindex: u32) {
        // One that was never added is forgotten, too.
        let _ = self.interfaces.delete(&ifindex.to_ne_bytes());
    }

    /// Lets the LSM hook act on SYNs that came by this interface.
    pub fn add_interface(&self, ifindex: u32) -> Result<()> {
        self.interfaces
            .update(&ifindex.to_ne_bytes(), &INDEX.to_ne_bytes(), MapFlags::ANY)
            .context("write a guarded interface")
    }

    /// Sets what happens at a listener, by its index, and whose its server is.
    pub fn set_rule(&self, index: u32, listener: &Listener, service: u32) -> Result<()> {
        let policy = same(&ListenerPolicy::from(&listener.policy));
        let dry_run = u32::from(listener.dry_run);
        let has_sources = u32::from(named_sources(listener).next().is_some());
        let rule = types::listener_rule { policy, dry_run, has_sources, service };
        self.rules.update(&index.to_ne_bytes(), bytes_of(&rule), MapFlags::ANY).context("write the policy")
    }

    /// Adds the networks that the listener with this index treats otherwise.
    pub fn add_sources(&self, index: u32, listener: &Listener) -> Result<()> {
        for (source, kind) in named_sources(listener) {
            self.sources
                .update(bytes_of(&source_key(index, source)), &kind.0.to_ne_bytes(), MapFlags::ANY)
                .with_context(|| format!("write what is said of {source}"))?;
        }
        Ok(())
    }

    /// Forgets the networks of the listener with this index that it does not name any more.
    pub fn forget_other_sources(&self, index: u32, listener: &Listener) -> Result<()> {
        let wanted: Vec<_> = named_sources(listener).map(|(source, _)| source_key(index, source)).collect();
        self.forget_sources(|key| {
            key.index == index && !wanted.iter().any(|of| bytes_of(of) == bytes_of(key))
        })
    }

    /// Forgets the networks of listeners with indices that `is_used` denies.
    pub fn forget_sources_of_others(&self, is_used: impl Fn(u32) -> bool) -> Result<()> {
        self.forget_sources(|key| !is_used(key.index))
    }

    fn forget_sources(&self, is_meant: impl Fn(&types::source_key) -> bool) -> Result<()> {
        let known: Vec<Vec<u8>> = self.sources.keys().collect();
        for key in known.iter().filter(|key| is_meant(&from_bytes(key))) {
            self.sources.delete(key).context("forget a network of clients")?;
        }
        Ok(())
    }

    /// Caps the answers to SYNs.
    pub fn set_budget(&self, per_s: Option<NonZeroU32>) -> Result<()> {
        let per_s = per_s.map_or(0, NonZeroU32::get);
        let rate = types::rate { per_s, burst: per_s.div_ceil(BUDGET_BURSTS_PER_S) };
        let budget = types::refusal_budget { rate, schedule_ns: 0 };
        self.budget
            .update(&INDEX.to_ne_bytes(), bytes_of(&budget), MapFlags::ANY)
            .context("write the budget of refusals")
    }

    /// What leads to the rules of these listeners: keys of `listeners`, each with its index.
    pub fn keys(&self, listeners: &[(SocketAddr, u32)]) -> Result<Keys> {
        let mut keys = Keys::new();
        for &(listen, index) in listeners {
            keys.insert(bytes_of(&key(listen)).to_vec(), index.to_ne_bytes());
        }
        let known = self.known_keys()?;
        for &(listen, index) in listeners.iter().filter(|(listen, _)| is_ipv6_wildcard(listen)) {
            let ipv4 = SocketAddr::from(([0_u8; 4], listen.port()));
            let (key, index) = (bytes_of(&key(ipv4)).to_vec(), index.to_ne_bytes());
            let answer = self.query(ipv4)?;
            // While no server is there it is as it was.
            let serves_ipv4 = if answer.found == FOUND_LISTENER {
                answer.family == libc::AF_INET6 as u32
            } else {
                known.get(&key) == Some(&index)
            };
            if serves_ipv4 {
                // Where 0.0.0.0 is named, too, it is another listener.
                keys.entry(key).or_insert(index);
            }
        }
        Ok(keys)
    }

    /// Forgets the wildcards of ports at which addresses of their own come or go: a SYN to one of
    /// these meets its own rule or the kernel.
    pub fn forget_wildcards_beside_changes(&self, wanted: &Keys) -> Result<()> {
        let known = self.known_keys()?;
        let own = |keys: &Keys| -> BTreeMap<Vec<u8>, [u8; 4]> {
            keys.iter()
                .filter(|(key, _)| !hints::is_wildcard(key))
                .map(|(key, index)| (key.clone(), *index))
                .collect()
        };
        let (before, after) = (own(&known), own(wanted));
        let port = |key: &Vec<u8>| from_bytes::<types::listener_key>(key).port;
        let changed: BTreeSet<u16> = before
            .iter()
            .filter(|(key, index)| after.get(*key) != Some(index))
            .chain(after.iter().filter(|(key, index)| before.get(*key) != Some(index)))
            .map(|(key, _)| port(key))
            .collect();
        let is_beside = |key: &Vec<u8>| hints::is_wildcard(key) && changed.contains(&port(key));
        self.forget_keys(known.into_keys().filter(is_beside))
    }

    /// Forgets the keys that are not among `wanted`, or lead elsewhere there: their SYNs are the
    /// kernel's.
    pub fn forget_other_keys(&self, wanted: &Keys) -> Result<()> {
        let others = self.known_keys()?.into_iter().filter(|(key, index)| wanted.get(key) != Some(index));
        self.forget_keys(others.map(|(key, _)| key))
    }

    /// Forgets those of listeners whose address is another host's now.
    pub fn forget_keys_of(&self, away: &BTreeSet<SocketAddr>) -> Result<()> {
        if away.is_empty() {
            return Ok(());
        }
        let known = self.known_keys()?;
        let keys = away.iter().map(|listen| bytes_of(&key(*listen)).to_vec());
        self.forget_keys(keys.filter(|key| known.contains_key(key)))
    }

    /// Forgets `0.0.0.0` where it stood for a dual-stack `[::]` and another socket listens there
    /// now, which nobody named. While none listens it stays: a server that restarts finds itself
    /// guarded.
    pub fn forget_others_listeners(&self, wanted: &Keys) -> Result<()> {
        let mut others = Vec::new();
        for key in self.known_keys()?.into_keys().filter(|key| !wanted.contains_key(key)) {
            let ipv4 =
                SocketAddr::from(([0_u8; 4], u16::from_be(from_bytes::<types::listener_key>(&key).port)));
            if self.query(ipv4)?.found == FOUND_LISTENER {
                others.push(key);
            }
        }
        self.forget_keys(others.into_iter())
    }

    /// Adds the keys of `wanted` that are not there yet.
    pub fn add_keys(&self, wanted: &Keys) -> Result<()> {
        let known = self.known_keys()?;
        let mut new: Vec<_> = wanted.iter().filter(|(key, _)| !known.contains_key(*key)).collect();
        // An address before the wildcard that would stand for it.
        new.sort_by_key(|(key, _)| hints::is_wildcard(key));
        for (key, index) in &new {
            // It may have been a wildcard's alone.
            self.forget_hint(key)?;
            self.listeners.update(key, *index, MapFlags::ANY).context("write the listener's address")?;
        }
        if new.is_empty() { Ok(()) } else { self.set_hints() }
    }

    fn forget_keys(&self, keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        let mut is_any = false;
        for key in keys {
            self.forget_hint(&key)?;
            self.listeners.delete(&key).context("forget a listener's address")?;
            is_any = true;
        }
        if is_any { self.set_hints() } else { Ok(()) }
    }

    fn known_keys(&self) -> Result<Keys> {
        let mut known = Keys::new();
        for key in self.listeners.keys() {
            let index = self.listeners.lookup(&key, MapFlags::ANY).context("read a listener's index")?;
            if let Some(index) = index {
                known.insert(key, index.try_into().expect("an index has four bytes"));
            }
        }
        Ok(known)
    }

    /// Forgets what the listener with this index has counted, and the server with this index;
    /// connections that still wait for that are nobody's.
    pub fn clear(&self, index: u32) -> Result<()> {
        let cpus = libbpf_rs::num_possible_cpus().context("count the CPUs")?;
        let zero = vec![vec![0; size_of::<ListenerStats>()]; cpus];
        self.listener_stat
            .update_percpu(&index.to_ne_bytes(), &zero, MapFlags::ANY)
            .context("clear the listener's counters")?;
        let generation = self.service(index)?.generation.wrapping_add(1);
        let service = Service::idle(generation, Nanos(now_ns()?));
        self.services
            .update(&index.to_ne_bytes(), bytes_of(&service), MapFlags::LOCK)
            .context("clear who waits for the server")?;
        self.schedules
            .update(&index.to_ne_bytes(), &[0; 8], MapFlags::ANY)
            .context("clear the listener's token bucket")
    }

    /// What the server with this index has done, and who waits for it, all at one moment.
    pub fn service(&self, index: u32) -> Result<Service> {
        let value = self
            .services
            .lookup(&index.to_ne_bytes(), MapFlags::LOCK)
            .context("read who waits for the server")?;
        Ok(from_bytes(&value.expect("an array map has every index")))
    }

    /// Sets what was found out about it.
    pub fn set_pace(&self, index: u32, pace: &Pace) -> Result<()> {
        self.paces
            .update(&index.to_ne_bytes(), bytes_of(pace), MapFlags::ANY)
            .context("write how the server does")
    }

    /// Replaces the cookies' key that is not in use, once in each [`KEY_LIFE`]. Call it each minute
    /// at least.
    pub fn replace_idle_cookie_key(&self) -> Result<()> {
        let now = Nanos(now_ns()?);
        let Some(index) = idle_key(now) else { return Ok(()) };
        let run = now.0 / KEY_LIFE.0;
        if self.replaced_key.load(Ordering::Relaxed) == run {
            return Ok(());
        }
        let keys =
            self.cookie_keys.lookup(&INDEX.to_ne_bytes(), MapFlags::ANY).context("read the cookies' keys")?;
        let mut keys = from_bytes::<types::cookie_keys>(&keys.expect("an array map has every index"));
        keys.key[index].word = [u64::from_ne_bytes(random_bytes()?), u64::from_ne_bytes(random_bytes()?)];
        write_cookie_keys(&self.cookie_keys, bytes_of(&keys))?;
        self.replaced_key.store(run, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the decisions stand for so long from now.
    pub fn lease(&self, lease: Duration) -> Result<()> {
        let until = now_ns()? + lease.as_nanos() as u64;
        self.lease
            .update(&INDEX.to_ne_bytes(), &until.to_ne_bytes(), MapFlags::ANY)
            .context("renew the lease")
    }

    /// Makes `addresses` what a wildcard stands for; those that are no longer among them are
    /// forgotten.
    pub fn set_own_addresses(&self, addresses: &BTreeSet<IpAddr>) -> Result<()> {
        let keys: BTreeSet<[u8; 16]> = addresses.iter().map(|&address| mapped(address)).collect();
        let known: BTreeSet<Vec<u8>> = self.own_addresses.keys().collect();
        for gone in known.iter().filter(|&known| !keys.iter().any(|key| key[..] == known[..])) {
            self.own_addresses.delete(gone).context("forget an address of this host")?;
        }
        for key in keys.iter().filter(|key| !known.contains(&key[..])) {
            self.own_addresses
                .update(key, &INDEX.to_ne_bytes(), MapFlags::ANY)
                .context("write this host's addresses")?;
        }
        Ok(())
    }

    /// Puts `ways` into force, of which `before` are there.
    pub fn set_routes(&self, before: &Ways, ways: &Ways) -> Result<()> {
        for (net, way) in ways.iter().filter(|(net, way)| before.get(net) != Some(way)) {
            let route = match *way {
                Way::Back => types::route { kind: types::route_kind::ROUTE_BACK, ..Default::default() },
                Way::Router { interface, mac } => {
                    types::route { kind: types::route_kind::ROUTE_ROUTER, ifindex: interface, mac }
                }
                Way::Nowhere => types::route { kind: types::route_kind::ROUTE_NONE, ..Default::default() },
            };
            let write = self.routes.update(bytes_of(&route_key(net)), bytes_of(&route), MapFlags::ANY);
            write.with_context(|| format!("write the route to {net}"))?;
        }
        for net in before.keys().filter(|net| !ways.contains_key(net)) {
            // One that is not there is forgotten already.
            let _ = self.routes.delete(bytes_of(&route_key(net)));
        }
        Ok(())
    }

    /// The queues of the listener that a SYN to `listen` would reach now, if there is one.
    pub fn ask(&self, listen: SocketAddr) -> Result<Option<ListenerLoad>> {
        let answer = self.query(listen)?;
        Ok((answer.found == FOUND_LISTENER).then(|| same(&answer.load)))
    }

    fn query(&self, listen: SocketAddr) -> Result<types::listener_query> {
        let key = key(listen);
        let question = types::listener_query {
            address: key.address,
            port: key.port,
            is_ipv6: u16::from(listen.is_ipv6()),
            ..Default::default()
        };
        self.query
            .update(&INDEX.to_ne_bytes(), bytes_of(&question), MapFlags::ANY)
            .context("ask for the listener's queues")?;
        bpf::test_run(self.ask_listener.as_fd(), &[0; 64], 1).context("ask for the listener's queues")?;
        let answer = self
            .query
            .lookup(&INDEX.to_ne_bytes(), MapFlags::ANY)
            .context("read the listener's queues")?
            .expect("an array map has every index");
        Ok(from_bytes(&answer))
    }

    /// Counters of the listener with this index, over all CPUs.
    pub fn stats(&self, index: u32) -> Result<ListenerStats> {
        sum_cpus(&self.listener_stat, index).context("read the listener's counters")
    }

    /// Counters of all frames, over all CPUs.
    pub fn path(&self) -> Result<PathStats> {
        sum_cpus(&self.path_stat, INDEX).context("read the path counters")
    }
}

/// How much of its lease a guard has left whose map `lease` has this id, none if it has run out;
/// `Duration::MAX` without an end.
pub fn lease_left(map_id: u32) -> Result<Duration> {
    let map = MapHandle::from_map_id(map_id)?;
    let until = map.lookup(&INDEX.to_ne_bytes(), MapFlags::ANY)?.context("an array map has every index")?;
    let until = u64::from_ne_bytes(until.as_slice().try_into().context("a lease is a number")?);
    Ok(match until {
        0 => Duration::MAX,
        until => Duration::from_nanos(until.saturating_sub(now_ns()?)),
    })
}

/// What bpf_ktime_get_ns() gives.
pub fn now_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).context("read the clock")?;
    Ok(Duration::from(now).as_nanos() as u64)
}

/// Inode of the calling thread's network namespace, as `struct ns_common` has it.
fn own_netns() -> Result<u32> {
    let path = "/proc/thread-self/ns/net";
    let inode = std::fs::metadata(path).with_context(|| format!("read {path}"))?.ino();
    u32::try_from(inode).with_context(|| format!("{path} has inode {inode}"))
}

/// The same namespace as programs know it that see a socket.
pub(crate) fn own_netns_cookie() -> Result<u64> {
    bpf::netns_cookie().context("ask for the network namespace's cookie")
}

fn require_capabilities() -> Result<()> {
    let held = Capabilities::effective().context("read /proc/self/status for our privileges")?;
    let missing = held.missing(&[Capability::NetAdmin, Capability::Perfmon, Capability::Bpf]);
    ensure!(
        missing.is_empty(),
        "load the programs: no {}; run as root or grant it (setcap or systemd's AmbientCapabilities=)",
        missing.join(", ")
    );
    Ok(())
}

fn load_error(error: libbpf_rs::Error) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow!(
                "load the programs: {error}; does a container, lockdown or a security module forbid BPF here?"
            )
        }
        _ => anyhow!(
            "load the programs: {error}; they need Linux 6.1 or newer, and some 100 descriptors (ulimit -n)"
        ),
    }
}

/// It stands for IPv4, too, if the socket there serves it (`IPV6_V6ONLY` is off): the kernel tells.
fn is_ipv6_wildcard(listen: &SocketAddr) -> bool {
    *listen == SocketAddr::from(([0_u16; 8], listen.port()))
}

fn key(listen: SocketAddr) -> types::listener_key {
    types::listener_key { address: from_bytes(&mapped(listen.ip())), port: listen.port().to_be(), zero: 0 }
}

/// What a listener says of networks of clients.
fn named_sources(listener: &Listener) -> impl Iterator<Item = (&IpNet, types::source_kind)> {
    let reserved = listener.reserved.iter().map(|source| (source, types::source_kind::SOURCE_RESERVED));
    reserved.chain(listener.exempt.iter().map(|source| (source, types::source_kind::SOURCE_EXEMPT)))
}

fn source_key(index: u32, source: &IpNet) -> types::source_key {
    let types::route_key { prefix_bits, address } = route_key(source);
    types::source_key { prefix_bits: u32::BITS + prefix_bits, index, address }
}

fn route_key(net: &IpNet) -> types::route_key {
    // IPv4 networks are ::ffff:0:0/96 and more.
    let mapped_bits = if matches!(net, IpNet::V4(_)) { 96 } else { 0 };
    types::route_key {
        prefix_bits: mapped_bits + u32::from(net.prefix_len()),
        address: from_bytes(&mapped(net.network())),
    }
}

/// An address as `struct address` of segment.bpf.h has it.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn write_cookie_keys(map: &impl MapCore, keys: &[u8]) -> Result<()> {
    map.update(&INDEX.to_ne_bytes(), keys, MapFlags::ANY).context("write the cookies' keys")
}

fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    // SAFETY: getrandom writes at most N bytes into the array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    ensure!(usize::try_from(got) == Ok(N), "read random bytes: {}", std::io::Error::last_os_error());
    Ok(bytes)
}

// SAFETY: sixteen bytes in four words.
unsafe impl Plain for types::address {}
// SAFETY: sixteen bytes and two halves of a word.
unsafe impl Plain for types::listener_key {}
// SAFETY: words around a key, which is words and two halves of one.
unsafe impl Plain for types::listener_hint {}
// SAFETY: words only.
unsafe impl Plain for types::listener_rule {}
// SAFETY: words only.
unsafe impl Plain for types::source_key {}
// SAFETY: words only.
unsafe impl Plain for types::route_key {}
// SAFETY: two words and twelve bytes.
unsafe impl Plain for types::route {}
// SAFETY: double words only.
unsafe impl Plain for types::cookie_keys {}
// SAFETY: two words and an aligned double word.
unsafe impl Plain for types::refusal_budget {}
// SAFETY: an address, two halves of a word, words.
unsafe impl Plain for types::listener_query {}
// SAFETY: words only.
unsafe impl Plain for types::listener_policy {}
// SAFETY: words only.
unsafe impl Plain for types::listener_load {}

// What maps have and crates/kernel reads and writes; both are of one definition.
const _: () = assert!(size_of::<Service>() == size_of::<types::service>());
const _: () = assert!(size_of::<Pace>() == size_of::<types::pace>());
const _: () = assert!(size_of::<ListenerStats>() == size_of::<types::listener_stats>());
const _: () = assert!(size_of::<PathStats>() == size_of::<types::path_stats>());

/// Adds up a per-CPU struct of `__u64` counters, word by word.
fn sum_cpus<T: Plain>(map: &MapHandle, index: u32) -> Result<T> {
    let cpus = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)?.expect("an array map has every index");
    let mut sums = vec![0_u64; size_of::<T>() / 8];
    for cpu in &cpus {
        for (sum, word) in sums.iter_mut().zip(cpu.as_chunks::<8>().0) {
            *sum += u64::from_ne_bytes(*word);
        }
    }
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_ne_bytes()).collect();
    Ok(from_bytes(&bytes))
}

mod hints;
#[cfg(test)]
mod tests;
