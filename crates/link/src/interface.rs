//! The two interfaces: what they must be, and whether they still are.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// An interface as it was found.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    pub name: String,
    pub index: u32,
    /// Bytes, without the Ethernet header.
    pub mtu: u32,
}

impl Interface {
    /// Finds one that can be an end of a link: Ethernet, and up.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let index = if_nametoindex(name)
            .ok()
            .with_context(|| format!("interface {name}: there is none of that name here; see `ip link`"))?;
        match flags(name)? {
            Some((flags, _)) if flags.contains(InterfaceFlags::IFF_LOOPBACK) => {
                bail!("interface {name}: a loopback has no other end; name an Ethernet interface")
            }
            Some((_, false)) => {
                bail!("interface {name}: it is not Ethernet; a link carries Ethernet frames only")
            }
            Some((flags, true)) => {
                ensure!(
                    flags.contains(InterfaceFlags::IFF_UP),
                    "interface {name}: it is down; set it up: ip link set {name} up"
                );
            }
            None => bail!("interface {name}: it went away; see `ip link`"),
        }
        let mtu = xsk::mtu(name).with_context(|| format!("interface {name}: read its MTU"))?;
        Ok(Self { name: name.to_owned(), index, mtu })
    }

    /// Whether both are the ends of one veth pair. Where iproute2 is missing nobody knows.
    pub(crate) fn is_peer_of(&self, other: &Self) -> bool {
        let leads = |from: &str, to: &str| {
            // An end in another namespace has a number there, and no name here.
            let said = Command::new("ip").args(["-json", "link", "show", "dev", from]).output();
            let text = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            text.is_ok_and(|text| text.contains(&format!("\"link\":\"{to}\"")))
        };
        leads(&self.name, &other.name) && leads(&other.name, &self.name)
    }

    /// Whether it is still there, and up.
    ///
    /// # Errors
    ///
    /// Where it is not, or another has its name.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { name, index, .. } = self;
        let is_there = if_nametoindex(name.as_str()).is_ok_and(|now| now == *index);
        ensure!(
            is_there,
            "interface {name} went away while the link ran; start the link again once it is back"
        );
        let is_up = flags(name)?.is_some_and(|(flags, _)| flags.contains(InterfaceFlags::IFF_UP));
        ensure!(
            is_up,
            "interface {name} was set down while the link ran; set it up and start the link again"
        );
        Ok(())
    }
}

/// Flags of an interface, and whether it is Ethernet.
fn flags(name: &str) -> Result<Option<(InterfaceFlags, bool)>> {
    let mut entries =
        getifaddrs().context("list the interfaces")?.filter(|entry| entry.interface_name == name);
    // Each has an entry with its link-layer address, whatever other addresses it has.
    let of_link = entries.find_map(|entry| {
        let hardware = entry.address?.as_link_addr()?.hatype();
        Some((entry.flags, hardware == libc::ARPHRD_ETHER))
    });
    Ok(of_link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_that_cannot_be_an_end_is_refused_in_one_line() {
        for (name, why) in [("lo", "has no other end"), ("tg-none", "there is none of that name here")] {
            let error = format!("{:#}", Interface::find(name).expect_err(name));
            assert!(error.contains(name) && error.contains(why) && !error.contains('\n'), "{error}");
        }
    }
}
