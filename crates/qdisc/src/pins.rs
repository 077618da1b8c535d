//! Where the maps of our qdiscs are found again: `/sys/fs/bpf/tidegate/qdisc-NAMESPACE-INTERFACE/`,
//! by their numbers; `qdisc` is [`Discipline::pins`].
//!
//! A qdisc may go without us, with its interface or by tc. Its maps then say so, and are swept away
//! the next time one is made.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::MapHandle;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::device::Device;
use crate::discipline::{self, Discipline};
use crate::error::Act;
use crate::program::Maps;
use crate::{Error, Result};

const BPF_FS: &str = "/sys/fs/bpf";
const OURS: &str = "/sys/fs/bpf/tidegate";
const CONFIG: &str = "config";
const QUEUE: &str = "queue";
const TRACE: &str = "trace";

/// A link, and the name that it is pinned by.
pub(crate) type Pinned = (&'static str, OwnedFd);

/// The right to change what is pinned; others wait until this is dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    _lock: Flock<File>,
}

impl Pins {
    pub(crate) fn lock() -> Result<Self> {
        let kind = statfs(BPF_FS).act_with(|| format!("look at {BPF_FS}"))?.filesystem_type();
        if kind != BPF_FS_MAGIC {
            return Err(Error::Refused(format!(
                "{BPF_FS} is no BPF file system, so nothing can be kept there: mount -t bpf bpf {BPF_FS}; `ip netns exec` hides it, use --netns"
            )));
        }
        fs::create_dir_all(OURS).act_with(|| format!("make {OURS}; run as root"))?;
        let folder = File::open(OURS).act_with(|| format!("open {OURS}"))?;
        let lock = Flock::lock(folder, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Error::Refused(format!("lock {OURS}: {}", errno.desc().to_lowercase())))?;
        Ok(Self { _lock: lock })
    }

    /// Removes what belongs to qdiscs that are gone.
    pub(crate) fn sweep(&self) {
        for entry in fs::read_dir(OURS).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(discipline) = discipline_of(&entry.file_name().to_string_lossy()) else { continue };
            // One that another version made may be in use.
            let is_attached = open(discipline, &path).and_then(|maps| maps.is_attached());
            if is_attached.is_ok_and(|is_attached| !is_attached) {
                remove(&path);
            }
        }
    }

    /// Pins the maps of a qdisc that is about to be made, and links by their names.
    pub(crate) fn keep(&mut self, device: &Device, maps: &mut Maps, links: &[Pinned]) -> Result<()> {
        let path = path(maps.discipline, device);
        let keep = |map: &mut MapHandle, name: &str| map.pin(path.join(name));
        let kept = fs::create_dir(&path).map_err(libbpf_rs::Error::from).and_then(|()| {
            keep(&mut maps.config, CONFIG)?;
            keep(&mut maps.queue, QUEUE)?;
            keep(&mut maps.trace, TRACE)
        });
        kept.act_with(|| format!("pin the maps in {}", path.display()))?;
        for (name, link) in links {
            let path = path.join(name);
            bpf::pin(link.as_fd(), &path).act_with(|| format!("pin the link {}", path.display()))?;
        }
        Ok(())
    }

    /// Whatever is kept for an interface.
    pub(crate) fn forget(&mut self, device: &Device) {
        for discipline in discipline::ALL {
            remove(&path(discipline, device));
        }
    }

    /// Those of an interface that has a qdisc of ours.
    pub(crate) fn open(device: &Device) -> Result<Option<Maps>> {
        for discipline in discipline::ALL {
            let path = path(discipline, device);
            if path.join(QUEUE).try_exists().act_with(|| format!("look into {OURS}; run as root"))? {
                let maps = open(discipline, &path)?;
                if maps.is_attached()? {
                    return Ok(Some(maps));
                }
            }
        }
        Ok(None)
    }
}

fn path(discipline: &dyn Discipline, device: &Device) -> PathBuf {
    let Device { netns_inode, ifindex, .. } = device;
    Path::new(OURS).join(format!("{}-{netns_inode}-{ifindex}", discipline.pins()))
}

/// Whose folder this is, by its name.
fn discipline_of(folder: &str) -> Option<&'static dyn Discipline> {
    let (rest, _ifindex) = folder.rsplit_once('-')?;
    let (pins, _netns_inode) = rest.rsplit_once('-')?;
    discipline::ALL.into_iter().find(|discipline| discipline.pins() == pins)
}

fn open(discipline: &'static dyn Discipline, path: &Path) -> Result<Maps> {
    let map = |name: &str| {
        let path = path.join(name);
        MapHandle::from_pinned_path(&path)
            .act_with(|| format!("open the map {}; run as root", path.display()))
    };
    Ok(Maps { discipline, config: map(CONFIG)?, queue: map(QUEUE)?, trace: map(TRACE)? })
}

/// What cannot be removed now is seen again by the next sweep.
fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        fs::remove_file(entry.path()).ok();
    }
    fs::remove_dir(path).ok();
}
