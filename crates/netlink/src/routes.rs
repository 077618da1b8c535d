//! The main routing table (rtnetlink(7)).

use std::net::IpAddr;
use std::ops::ControlFlow;

use neli::consts::rtnl::{Rta, Rtm, Rtn};
use neli::consts::socket::NlFamily;

use crate::ask::{Error, INET, INET6, address_of, dump, find, number_of};

/// `struct rtmsg` of `include/uapi/linux/rtnetlink.h`, and `struct fib_rule_hdr`, which is laid out
/// as that: where its fields are, bytes.
const HEADER_BYTES: usize = 12;
const PREFIX_BITS: usize = 1;
const SOURCE_BITS: usize = 2;
const TOS: usize = 3;
const TABLE: usize = 4;
const KIND: usize = 7;
const FLAGS: usize = 8;
/// A route that the kernel has looked up, and no entry of the table.
const CLONED: u32 = 0x200;
/// `struct rtnexthop`: its length, its interface's index, then attributes.
const HOP_INTERFACE: usize = 4;
const HOP_BYTES: usize = 8;
const MAIN: u8 = 254;
/// Its rules send a lookup to the tables local, main and, for IPv4, default (253), in this order.
const USUAL_TABLES: [u8; 3] = [255, MAIN, 253];

/// An entry of the main routing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Network.
    pub destination: IpAddr,
    /// Length of its prefix, bits.
    pub prefix_bits: u8,
    /// Of several entries for one network, the one with the lowest is used.
    pub metric: u32,
    /// False: what is sent there is refused (`blackhole`, `unreachable`, `prohibit`).
    pub leads_on: bool,
    /// The router, of several the first; `None` where the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the interface; `None` where it is not said.
    pub interface: Option<u32>,
}

/// All entries of the main table of both families, `most` at most. `None` if that table does not
/// tell all: there are more, rules (`ip rule`) send lookups to other tables, or an entry is for a
/// source (`from`) or service (`tos`) only.
///
/// # Errors
///
/// When the kernel cannot be asked.
pub fn main_table(most: usize) -> Result<Option<Vec<Entry>>, Error> {
    let mut entries = Vec::new();
    for family in [INET, INET6] {
        if !has_usual_rules(family)? {
            return Ok(None);
        }
        let mut is_told = true;
        list(Rtm::Getroute, family, |answer| {
            entries.extend(read(answer));
            is_told &= entries.len() <= most && !is_for_some(answer);
            if is_told { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !is_told {
            return Ok(None);
        }
    }
    Ok(Some(entries))
}

fn has_usual_rules(family: u8) -> Result<bool, Error> {
    let mut tables = Vec::new();
    let listed = list(Rtm::Getrule, family, |answer| {
        tables.extend(answer.get(TABLE));
        ControlFlow::Continue(())
    });
    match listed {
        Ok(()) => Ok(USUAL_TABLES.starts_with(&tables)),
        // A kernel that knows no rules.
        Err(Error::Refused(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

fn list(kind: Rtm, family: u8, take: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), Error> {
    let question = [&[family][..], &[0; HEADER_BYTES - 1]].concat();
    dump(NlFamily::Route, kind.into(), question, take)
}

/// Whether it is an entry of the table that not all packets to its destination take.
fn is_for_some(answer: &[u8]) -> bool {
    let is_set = |at: usize| answer.get(at).is_some_and(|&byte| byte != 0);
    answer.get(TABLE) == Some(&MAIN) && (is_set(SOURCE_BITS) || is_set(TOS))
}

/// `None` for an entry of another table, and for what goes to nobody or everybody.
fn read(answer: &[u8]) -> Option<Entry> {
    let kind = *answer.get(KIND)?;
    let flags = number_of(answer.get(FLAGS..HEADER_BYTES)?)?;
    let leads_on = kind == u8::from(Rtn::Unicast);
    let refuses = [Rtn::Blackhole, Rtn::Unreachable, Rtn::Prohibit].map(u8::from).contains(&kind);
    if *answer.get(TABLE)? != MAIN || flags & CLONED != 0 || !(leads_on || refuses) {
        return None;
    }
    let attributes = &answer[HEADER_BYTES..];
    let of = |kind: Rta| find(attributes, kind.into());
    let anywhere = if answer[0] == INET { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
    let (interface, hop) = match of(Rta::Multipath) {
        Some(hops) => {
            let length = usize::from(u16::from_ne_bytes(*hops.first_chunk()?));
            (hops.get(HOP_INTERFACE..HOP_BYTES), hops.get(HOP_BYTES..length)?)
        }
        None => (of(Rta::Oif), attributes),
    };
    Some(Entry {
        destination: of(Rta::Dst).and_then(address_of).unwrap_or(anywhere),
        prefix_bits: answer[PREFIX_BITS],
        metric: of(Rta::Priority).and_then(number_of).unwrap_or(0),
        leads_on,
        gateway: find(hop, Rta::Gateway.into()).and_then(address_of),
        interface: interface.and_then(number_of),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: Rta, payload: &[u8]) -> Vec<u8> {
        [&(4 + payload.len() as u16).to_ne_bytes()[..], &u16::from(kind).to_ne_bytes(), payload].concat()
    }

    fn hop(interface: u32, router: [u8; 4]) -> Vec<u8> {
        let gateway = attribute(Rta::Gateway, &router);
        let length = (HOP_BYTES + gateway.len()) as u16;
        [&length.to_ne_bytes()[..], &[0, 0], &interface.to_ne_bytes(), &gateway].concat()
    }

    /// To a network by two routers.
    fn message() -> Vec<u8> {
        let header = [INET, 24, 0, 0, MAIN, 0, 0, Rtn::Unicast.into(), 0, 0, 0, 0];
        let hops = [hop(3, [10, 0, 0, 1]), hop(4, [10, 0, 0, 2])].concat();
        [&header[..], &attribute(Rta::Dst, &[10, 9, 8, 0]), &attribute(Rta::Multipath, &hops)].concat()
    }

    #[test]
    fn entry_with_several_routers_has_the_first() {
        let entry = Entry {
            destination: IpAddr::from([10, 9, 8, 0]),
            prefix_bits: 24,
            metric: 0,
            leads_on: true,
            gateway: Some(IpAddr::from([10, 0, 0, 1])),
            interface: Some(3),
        };
        assert_eq!(read(&message()), Some(entry));
    }

    #[test]
    fn message_that_is_cut_is_none_or_says_less() {
        let whole = message();
        for length in 0..whole.len() {
            let of = read(&whole[..length]);
            assert!(of.is_none_or(|entry| length >= HEADER_BYTES && entry.gateway.is_none()), "{length}");
        }
    }
}
