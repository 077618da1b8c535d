//! Control groups by number.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::reading;

/// Paths of the version 2 hierarchy, by the number that the kernel gives each group: the inode
/// number of its folder.
#[derive(Debug, Default)]
pub struct Cgroups(BTreeMap<u64, String>);

impl Cgroups {
    /// Reads the hierarchy where all of it is mounted, or else a part; without a mount there are
    /// none.
    pub fn read() -> Result<Self> {
        let mut cgroups = Self::default();
        let mounts = bpf::cgroup::mounts().map_err(reading("read our mounts"))?;
        let part = || mounts.into_iter().next().map(|mount| mount.mount_point);
        if let Some(root) = bpf::cgroup::root("list them").ok().or_else(part) {
            cgroups.add(&root, &root);
        }
        Ok(cgroups)
    }

    /// Path of a group below the mount, as `/system.slice/nginx.service`; `None` when it is gone or
    /// outside.
    pub fn path(&self, id: u64) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    fn add(&mut self, folder: &Path, root: &Path) {
        // A group may go at any moment.
        let Ok(metadata) = fs::metadata(folder) else { return };
        let below = folder.strip_prefix(root).expect("it is below its root");
        self.0.insert(metadata.ino(), PathBuf::from("/").join(below).display().to_string());
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(&entry.path(), root);
            }
        }
    }
}
