//! The programs of a discipline and their maps.

use aqm::RandomNumbers;
use libbpf_rs::btf::{Btf, types::Struct};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{ErrorKind, Map, MapCore, MapFlags, MapHandle, Object};

use crate::discipline::{Discipline, Making, State};
use crate::error::{Act, Wanted};
use crate::pins::Pinned;
use crate::{Error, Event, Replay, Result, tc};

/// By which the kernel takes qdiscs, and its BTF says so.
const SUPPORT: &str = "bpf_struct_ops_Qdisc_ops";
/// Key of a map with one value.
const ONLY: [u8; 4] = 0_u32.to_ne_bytes();
/// Maps for a replay.
const TRACE: &str = "trace";
const RANDOM: &str = "random_numbers";
const OTHER_VERSION: &str = "the qdisc is of another version of tidegate; del removes it";

/// What stays of a qdisc for us.
pub(crate) struct Maps {
    pub(crate) discipline: &'static dyn Discipline,
    pub(crate) config: MapHandle,
    pub(crate) queue: MapHandle,
    pub(crate) trace: MapHandle,
}

impl Maps {
    /// Whether the qdisc is still there.
    pub(crate) fn is_attached(&self) -> Result<bool> {
        self.discipline.is_attached(&read(&self.queue)?).or_refuse(OTHER_VERSION)
    }

    /// What they say, of the interface with this name.
    pub(crate) fn state(&self, interface: &str) -> Result<State> {
        self.discipline.state(interface, &read(&self.config)?, &read(&self.queue)?).or_refuse(OTHER_VERSION)
    }

    /// All events that were kept, and how many there were.
    pub(crate) fn trace(&self) -> Result<(Vec<Event>, u64)> {
        let total = self.state("")?.traced;
        let kept = total.min(self.trace.max_entries().into()) as u32;
        let mut events = Vec::new();
        for index in 0..kept {
            let bytes = self.trace.lookup(&index.to_ne_bytes(), MapFlags::ANY).act("read the trace")?;
            let raw = bytes.or_refuse("the trace is shorter than it says")?;
            events.push(self.discipline.event(&raw).or_refuse("the trace has an event of another version")?);
        }
        Ok((events, total))
    }
}

fn read(map: &MapHandle) -> Result<Vec<u8>> {
    let bytes = map.lookup(&ONLY, MapFlags::ANY).act("read what the qdisc counts")?;
    bytes.or_refuse(OTHER_VERSION)
}

/// An error for a kernel that takes no qdisc in BPF.
pub(crate) fn require_support() -> Result<()> {
    let btf = Btf::from_vmlinux().map_err(|error| {
        Error::Refused(format!("this kernel does not tell its types, which BPF queue disciplines need (CONFIG_DEBUG_INFO_BTF): {error}"))
    })?;
    if btf.type_by_name::<Struct<'_>>(SUPPORT).is_none() {
        return Err(Error::Refused("this kernel has no BPF queue disciplines, which Linux 6.16 and newer have if they are built with CONFIG_NET_SCH_BPF; tidegate uplink and tidegate link --aqm do without".to_owned()));
    }
    Ok(())
}

/// The programs before they are loaded, from their skeleton.
pub(crate) fn opened<O>(discipline: &dyn Discipline, open: libbpf_rs::Result<O>) -> Result<O> {
    // libbpf writes pages to stderr when a program is refused; our error is one line.
    libbpf_rs::set_print(None);
    open.map_err(|error| load_error(discipline.name(), error))
}

/// Loads the programs.
pub(crate) fn load<'o, O: OpenSkel<'o>>(
    discipline: &dyn Discipline,
    mut open: O,
    making: &Making<'_>,
) -> Result<O::Output> {
    let load_error = |error| load_error(discipline.name(), error);
    if let Some(replay) = making.setup.replay {
        for mut map in
            open.open_object_mut().maps_mut().filter(|map| map.name() == TRACE || map.name() == RANDOM)
        {
            map.set_max_entries(replay.events).map_err(load_error)?;
        }
    }
    open.load().map_err(load_error)
}

/// Makes programs the root qdisc of the interface. The kernel keeps them as long as the qdisc is
/// there, and the links as long as they are pinned.
pub(crate) fn start(
    object: &mut Object,
    discipline: &'static dyn Discipline,
    parameters: &[u8],
    links: &[Pinned],
    making: &mut Making<'_>,
) -> Result<()> {
    let Making { device, setup, pins, .. } = making;
    let name = discipline.name();
    map(object, "configs").update(&ONLY, parameters, MapFlags::ANY).act("set the parameters")?;
    if let Some(replay) = setup.replay
        && let Some(random_numbers) = object.maps().find(|map| map.name() == RANDOM)
    {
        fill(&random_numbers, replay)?;
    }
    let keep = |name| MapHandle::try_from(&map(object, name)).act("keep a map");
    let mut maps = Maps { discipline, config: keep("configs")?, queue: keep("queues")?, trace: keep(TRACE)? };
    // The kernel knows the name only as long as this link is there: nobody can make a second qdisc
    // with our maps later.
    let mut operations = object.maps_mut().find(|map| map.name() == name).expect("every discipline has it");
    let link = operations.attach_struct_ops().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::Refused(format!("the kernel has another queue discipline with the name {name}, which tidegate did not make; unregister that first")),
        _ => load_error(name, error),
    })?;
    let made = pins
        .keep(device, &mut maps, links)
        .and_then(|()| tc::replace_root(&device.name, name))
        .act_with(|| format!("make {name} the queue discipline of {}", device.name));
    drop(link);
    made.inspect_err(|_| pins.forget(device))
}

fn map<'o>(object: &'o Object, name: &str) -> Map<'o> {
    object.maps().find(|map| map.name() == name).expect("every discipline has it")
}

fn fill(random_numbers: &Map<'_>, replay: Replay) -> Result<()> {
    let mut random = RandomNumbers::new(replay.seed);
    for index in 0..replay.events {
        let number = random.next_u32().to_ne_bytes();
        let set = random_numbers.update(&index.to_ne_bytes(), &number, MapFlags::ANY);
        set.act("set the random numbers")?;
    }
    Ok(())
}

fn load_error(name: &str, error: libbpf_rs::Error) -> Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return Error::Refused(format!(
            "load {name}: {error}; run as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
        ));
    }
    Error::Refused(format!("load {name}: {error}; tidegate doctor says what this kernel takes"))
}
