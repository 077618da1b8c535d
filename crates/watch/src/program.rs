//! The programs of `kernel/watch.bpf.c` and their maps, with types from their BTF.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use kernel::{Plain, from_bytes};
use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::{Counters, Error, Hook, Listener, Missing, Queues, Result};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    unused_qualifications,
    unreachable_pub
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/watch.skel.rs"));
}

use skel::types;

/// Counts of a listener as the kernel has them, from `struct listener_watch` of watch.bpf.c.
pub(crate) use skel::types::listener_watch as Raw;

/// The program that lists; needed always.
const LISTER: &str = "list_listeners";

/// Records of the list that are read together.
const AT_ONCE: usize = 64;

/// Loaded and attached programs; dropping it detaches them. The skeleton is closed at once; what
/// stays are descriptors, so there is no lifetime to carry.
#[derive(Debug)]
pub struct Watch {
    lister: OwnedFd,
    watched: MapHandle,
    hooks: BTreeSet<Hook>,
    missing: Vec<Missing>,
    _links: Vec<OwnedFd>,
}

/// What was counted at one listener, which may be gone by now.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Which. Its queues are not known here.
    pub listener: Listener,
    /// Since it is watched, which is since the first SYN or connection.
    pub counters: Counters,
}

impl Watch {
    /// Loads and attaches the programs of those of `wanted` that this kernel has; of none, it can
    /// still list the listeners.
    ///
    /// # Errors
    ///
    /// Without privileges, and on a kernel without BTF.
    pub fn start(wanted: &[Hook]) -> Result<Self> {
        // libbpf writes pages to stderr when a program is refused; our error is one line.
        libbpf_rs::set_print(None);
        let mut missing = not_in_btf(wanted)?;
        let mut hooks: Vec<Hook> =
            wanted.iter().copied().filter(|hook| !missing.iter().any(|known| known.hook == *hook)).collect();
        if let Ok(watch) = Self::load(&hooks) {
            return Ok(watch.and_missing(missing));
        }
        // One program that the kernel refuses makes the whole load fail: without any, then with
        // each alone.
        Self::load(&[]).map_err(load_error)?;
        hooks.retain(|&hook| match Self::load(&[hook]) {
            Ok(_) => true,
            Err(error) => {
                missing.push(Missing { hook, reason: refusal(&error) });
                false
            }
        });
        let watch = Self::load(&hooks).map_err(load_error)?;
        Ok(watch.and_missing(missing))
    }

    /// Hooks that were wanted and are not there.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// What is not known for want of them: a line for each reason.
    pub fn gaps(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Missing { hook, reason } in &self.missing {
            by_reason.entry(reason).or_default().push(hook.gives());
        }
        let line =
            |(reason, gives): (&str, Vec<&str>)| format!("{}: not available, {reason}", gives.join("; "));
        by_reason.into_iter().map(line).collect()
    }

    /// Hooks that count.
    pub fn hooks(&self) -> &BTreeSet<Hook> {
        &self.hooks
    }

    /// Every listener of the calling thread's network namespace, as it is now.
    pub fn list(&self) -> Result<Vec<Listener>> {
        const SIZE: usize = size_of::<types::listed>();
        let iterator = bpf::open_iterator(self.lister.as_fd()).map_err(Error::List)?;
        // All sockets come after the listeners: those are not to be read.
        let mut iterator = BufReader::with_capacity(AT_ONCE * SIZE, iterator);
        let mut listeners = Vec::new();
        let mut bytes = [0_u8; SIZE];
        while !iterator.fill_buf().map_err(Error::List)?.is_empty() {
            iterator.read_exact(&mut bytes).map_err(Error::List)?;
            let listed: types::listed = from_bytes(&bytes);
            if listed.is_listener == 0 {
                break;
            }
            let load = listed.load;
            let queues = Queues {
                accept_qlen: load.accept_qlen,
                accept_limit: Some(load.accept_limit),
                syn_qlen: Some(load.syn_qlen),
            };
            let drops = Some(listed.drops);
            listeners.push(Listener { queues: Some(queues), drops, ..listener(&listed.who) });
        }
        Ok(listeners)
    }

    /// What was counted at each listener of the host since [`Watch::start`]; those that nothing
    /// came to are not there.
    pub fn counters(&self) -> Result<Vec<Watched>> {
        let mut all = Vec::new();
        for key in self.watched.keys() {
            // It may be forgotten between key and value.
            let Some(value) = self.watched.lookup(&key, MapFlags::ANY).map_err(Error::Counters)? else {
                continue;
            };
            let watched: types::watched = from_bytes(&value);
            let is_ipv6 = watched.who.is_ipv6 != 0;
            let counters = Counters::new(watched.watch, &self.hooks, is_ipv6);
            all.push(Watched { listener: listener(&watched.who), counters });
        }
        Ok(all)
    }

    /// What a listener that nothing came to has counted.
    pub fn nothing(&self) -> Counters {
        Counters::none(&self.hooks)
    }

    fn load(hooks: &[Hook]) -> libbpf_rs::Result<Self> {
        let mut object = MaybeUninit::uninit();
        let mut open = skel::WatchSkelBuilder::default().open(&mut object)?;
        let programs_of = |hook: &Hook| hook.programs().iter().map(|(program, _)| *program);
        for mut program in open.open_object_mut().progs_mut() {
            let is_wanted = program.name() == LISTER
                || hooks.iter().flat_map(programs_of).any(|name| program.name() == name);
            program.set_autoload(is_wanted);
        }
        let loaded = open.load()?;
        let attach = |name: &str| -> libbpf_rs::Result<OwnedFd> {
            let program = loaded.object().progs_mut().find(|program| program.name() == name);
            let link = program.expect("the skeleton has every program of the table").attach()?;
            Ok(link.as_fd().try_clone_to_owned()?)
        };
        let lister = attach(LISTER)?;
        let (mut attached, mut missing, mut links) = (BTreeSet::new(), Vec::new(), Vec::new());
        for &hook in hooks {
            let all: libbpf_rs::Result<Vec<OwnedFd>> = programs_of(&hook).map(attach).collect();
            match all {
                Ok(all) => {
                    attached.insert(hook);
                    links.extend(all);
                }
                Err(error) => {
                    missing.push(Missing { hook, reason: format!("it cannot be attached: {error}") });
                }
            }
        }
        let watched = MapHandle::try_from(&loaded.maps.watched)?;
        Ok(Self { lister, watched, hooks: attached, missing, _links: links })
    }

    fn and_missing(mut self, others: Vec<Missing>) -> Self {
        self.missing.extend(others);
        self
    }
}

/// Hooks whose functions this kernel's BTF has not: another version, or the compiler put them into
/// others.
fn not_in_btf(wanted: &[Hook]) -> Result<Vec<Missing>> {
    let Ok(btf) = Btf::from_vmlinux() else {
        return Err(Error::NoBtf);
    };
    let missing = |&hook: &Hook| {
        let mut functions = hook.programs().iter().map(|(_, function)| *function);
        let absent = functions.find(|function| btf.type_by_name::<Func>(function).is_none())?;
        Some(Missing { hook, reason: format!("{absent}() is not in this kernel") })
    };
    Ok(wanted.iter().filter_map(missing).collect())
}

fn refusal(error: &libbpf_rs::Error) -> String {
    if is_forbidden(error) {
        return "this kernel permits no program at its functions; is it locked down?".to_owned();
    }
    format!("this kernel refuses the program: {error}")
}

fn is_forbidden(error: &libbpf_rs::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

pub(crate) fn load_error(error: libbpf_rs::Error) -> Error {
    if is_forbidden(&error) { Error::Forbidden(error) } else { Error::Refused(error) }
}

fn listener(who: &types::listener_identity) -> Listener {
    // SAFETY: an address is sixteen bytes, whatever they are.
    let octets: [u8; 16] = unsafe { std::mem::transmute(who.address) };
    let ip = Ipv6Addr::from(octets);
    let ip = if who.is_ipv6 == 0 { ip.to_canonical() } else { IpAddr::V6(ip) };
    Listener {
        address: SocketAddr::new(ip, who.port),
        is_v6only: who.is_v6only != 0,
        netns_inode: who.netns_inode.into(),
        socket_inode: who.socket_inode,
        cookie: Some(who.cookie),
        cgroup_id: (who.cgroup_id != 0).then_some(who.cgroup_id),
        queues: None,
        drops: None,
    }
}

// SAFETY: words, halves and bytes, ordered so that no hole is between them.
unsafe impl Plain for types::listed {}
// SAFETY: the same, and `__u64`, asserted in watch.bpf.c.
unsafe impl Plain for types::watched {}

impl Raw {
    const WORDS: usize = size_of::<Self>() / size_of::<u64>();

    /// Word by word.
    pub(crate) fn zip(&self, other: &Self, act: impl Fn(u64, u64) -> u64) -> Self {
        let (one, other) = (self.words(), other.words());
        let words: [u64; Self::WORDS] = std::array::from_fn(|index| act(one[index], other[index]));
        // SAFETY: `struct listener_watch` is `__u64` only, asserted in watch.bpf.c.
        unsafe { std::mem::transmute(words) }
    }

    fn words(&self) -> [u64; Self::WORDS] {
        // SAFETY: as above.
        unsafe { std::mem::transmute(*self) }
    }
}
