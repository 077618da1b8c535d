//! The two interfaces: what they must be, and whether they still are.

use anyhow::{Context, Result, ensure};

/// An interface as it was found.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    pub name: String,
    pub link: netlink::Interface,
}

impl Interface {
    /// Finds one that can be an end of a link: Ethernet, and up.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let link = look(name)?.with_context(|| {
            let then = netlink::Interface::instead_of(name);
            format!("interface {name}: there is none of that name here{then}")
        })?;
        ensure!(
            !link.is_loopback,
            "interface {name}: a loopback has no other end; name an Ethernet interface"
        );
        ensure!(
            link.is_ethernet,
            "interface {name}: it is not Ethernet; a link carries Ethernet frames only"
        );
        ensure!(link.is_up, "interface {name}: it is down; set it up: ip link set {name} up");
        Ok(Self { name: name.to_owned(), link })
    }

    /// Whether both are the ends of one veth pair.
    pub(crate) fn is_peer_of(&self, other: &Self) -> bool {
        self.link.is_peer_of(&other.link)
    }

    /// Whether it is still there, and up.
    ///
    /// # Errors
    ///
    /// Where it is not, or another has its name.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { name, link } = self;
        let now = look(name)?.filter(|now| now.index == link.index).with_context(|| {
            format!("interface {name} went away while the link ran; start the link again once it is back")
        })?;
        ensure!(
            now.is_up,
            "interface {name} was set down while the link ran; set it up and start the link again"
        );
        Ok(())
    }
}

fn look(name: &str) -> Result<Option<netlink::Interface>> {
    netlink::Interface::find(name).with_context(|| format!("look at interface {name}"))
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
