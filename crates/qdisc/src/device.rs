//! An interface of this network namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::net::if_::{if_nameindex, if_nametoindex};

use crate::error::Act;
use crate::{Error, Result};

/// What an interface is known by in the whole kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    /// Inode number of its network namespace.
    pub(crate) netns_inode: u32,
}

impl Device {
    pub(crate) fn find(name: &str) -> Result<Self> {
        let ifindex = if_nametoindex(name).map_err(|_| {
            let then = netlink::Interface::instead_of(name);
            Error::Refused(format!("no interface {name:?} in this network namespace{then}"))
        })?;
        Ok(Self { name: name.to_owned(), ifindex, netns_inode: netns_inode()? })
    }

    pub(crate) fn all() -> Result<Vec<Self>> {
        let netns_inode = netns_inode()?;
        let interfaces = if_nameindex().act("list the interfaces")?;
        let device = |interface: &nix::net::if_::Interface| Self {
            name: interface.name().to_string_lossy().into_owned(),
            ifindex: interface.index(),
            netns_inode,
        };
        Ok(interfaces.iter().map(device).collect())
    }
}

fn netns_inode() -> Result<u32> {
    const OWN: &str = "/proc/thread-self/ns/net";
    let inode = fs::metadata(OWN).act_with(|| format!("read {OWN}"))?.ino();
    u32::try_from(inode).act("a namespace has a number of 32 bits")
}
