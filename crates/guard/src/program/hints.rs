//! Where programs find most listeners without a hash: the map `hints` of rules.bpf.h.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context, Result};
use kernel::{bytes_of, from_bytes};
use libbpf_rs::{MapCore, MapFlags};

use super::types::{listener_hint, listener_key};
use super::{Keys, Programs};

/// As in rules.bpf.h.
const HINTS: u32 = 128;
const KIND_BITS: u32 = 2;
/// `enum hint_kind` of rules.bpf.h.
const HINT_NONE: u32 = 0;
const HINT_EXACT: u32 = 1;
const HINT_WILDCARD: u32 = 2;

impl Programs {
    /// Has programs ask `listeners` for a key, and for those that share its place.
    pub(super) fn forget_hint(&self, key: &[u8]) -> Result<()> {
        self.clear_hint(place_of(&from_bytes(key)))?;
        Ok(())
    }

    /// Sets them by what `listeners` has.
    pub(super) fn set_hints(&self) -> Result<()> {
        let hints = hints(&self.known_keys()?);
        for place in 0..HINTS {
            let known = self.hint(place)?;
            match hints.get(&place) {
                Some(hint) if is_same(&known, hint) => {}
                Some(hint) => self.set_hint(place, hint)?,
                None => _ = self.clear_hint(place)?,
            }
        }
        Ok(())
    }

    /// In three writes: see rules.bpf.h.
    fn set_hint(&self, place: u32, hint: &listener_hint) -> Result<()> {
        let number = (self.clear_hint(place)? >> KIND_BITS).wrapping_add(1) << KIND_BITS;
        self.write_hint(place, &listener_hint { kind: number | HINT_NONE, ..*hint })?;
        self.write_hint(place, &listener_hint { kind: number | hint.kind, ..*hint })
    }

    /// Nothing is found there any more. Gives its number, without a kind.
    fn clear_hint(&self, place: u32) -> Result<u32> {
        let known = self.hint(place)?;
        let kind = known.kind >> KIND_BITS << KIND_BITS | HINT_NONE;
        if known.kind != kind {
            self.write_hint(place, &listener_hint { kind, ..known })?;
        }
        Ok(kind)
    }

    fn hint(&self, place: u32) -> Result<listener_hint> {
        let value = self
            .hints
            .lookup(&place.to_ne_bytes(), MapFlags::ANY)
            .context("read where a listener is found")?;
        Ok(from_bytes(&value.expect("an array map has every index")))
    }

    fn write_hint(&self, place: u32, hint: &listener_hint) -> Result<()> {
        self.hints
            .update(&place.to_ne_bytes(), bytes_of(hint), MapFlags::ANY)
            .context("write where a listener is found")
    }
}

/// But for the number.
fn is_same(one: &listener_hint, other: &listener_hint) -> bool {
    let without_number =
        |hint: &listener_hint| listener_hint { kind: hint.kind & ((1 << KIND_BITS) - 1), ..*hint };
    bytes_of(&without_number(one)) == bytes_of(&without_number(other))
}

/// Those keys that have their place for themselves, by it.
fn hints(keys: &Keys) -> BTreeMap<u32, listener_hint> {
    let mut places: BTreeMap<u32, Vec<listener_hint>> = BTreeMap::new();
    for (key, index) in keys {
        let key: listener_key = from_bytes(key);
        let kind = if is_wildcard(bytes_of(&key)) { HINT_WILDCARD } else { HINT_EXACT };
        let hint = listener_hint { kind, key, index: u32::from_ne_bytes(*index) };
        places.entry(place_of(&key)).or_default().push(hint);
    }
    let alone = |(place, hints): (u32, Vec<_>)| <[_; 1]>::try_from(hints).ok().map(|[hint]| (place, hint));
    places.into_iter().filter_map(alone).collect()
}

pub(super) fn is_wildcard(key: &[u8]) -> bool {
    address_of(&from_bytes(key)).is_unspecified()
}

/// `hint_place()` of rules.bpf.h.
fn place_of(key: &listener_key) -> u32 {
    let port = u32::from(u16::from_be(key.port));
    ((port ^ port >> 6) << 1 | u32::from(address_of(key).is_ipv6())) % HINTS
}

fn address_of(key: &listener_key) -> IpAddr {
    let bytes: [u8; 16] = bytes_of(&key.address).try_into().expect("an address has sixteen bytes");
    Ipv6Addr::from(bytes).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::key;

    /// Kinds and indices of what is found without the hash.
    fn hints_of(listens: &[&str]) -> Vec<(u32, u32)> {
        let keys = (0_u32..).zip(listens).map(|(index, listen)| {
            (bytes_of(&key(listen.parse().expect("an address"))).to_vec(), index.to_ne_bytes())
        });
        let hints = hints(&keys.collect()).into_values();
        let mut found: Vec<_> = hints.map(|hint| (hint.kind, hint.index)).collect();
        found.sort_by_key(|&(_, index)| index);
        found
    }

    #[test]
    fn hint_is_for_who_has_the_place_alone() {
        assert_eq!(hints_of(&["10.0.0.1:80", "0.0.0.0:443"]), [(HINT_EXACT, 0), (HINT_WILDCARD, 1)]);
        assert_eq!(hints_of(&["0.0.0.0:80", "[::]:80"]), [(HINT_WILDCARD, 0), (HINT_WILDCARD, 1)]);
        assert_eq!(hints_of(&["10.0.0.1:80", "10.0.0.2:80", "[fd00::1]:80"]), [(HINT_EXACT, 2)]);
        assert_eq!(hints_of(&["10.0.0.1:80", "0.0.0.0:80"]), [], "an address that has its own listener");
        assert_eq!(
            hints_of(&["10.0.0.1:80", "10.0.0.1:147", "10.0.0.1:81"]),
            [(HINT_EXACT, 2)],
            "two that share a place"
        );
        let common = ["10.0.0.1:80", "10.0.0.1:443", "10.0.0.1:8080", "10.0.0.1:8443"];
        assert_eq!(hints_of(&common).len(), common.len());
    }
}
