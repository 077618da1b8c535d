//! The listeners of the host with all that is known of them, at one moment or over a time.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::lookout::Lookout;
use crate::{Cgroups, Counters, Host, Listener, Owners, Process, Queues, Result, Survey, Watch};

/// One listener.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Which, and its queues.
    pub listener: Listener,
    /// Name of its network namespace, if it has one.
    pub netns: Option<String>,
    /// Who holds it; empty when it is the kernel's, or when we may not see who.
    pub owners: Vec<Process>,
    /// Version 2 path of where the socket was made, or else of its first owner.
    pub cgroup: Option<String>,
    /// What was counted at it; `None` when nothing counts.
    pub counters: Option<Counters>,
}

/// Listeners, most loaded first.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Those with the same address and namespace (`SO_REUSEPORT`) stand together.
    pub groups: Vec<Vec<Entry>>,
    /// What could not be seen, one line each.
    pub gaps: Vec<String>,
}

impl Inventory {
    /// Looks at all namespaces now; without `watch`, as far as `/proc` tells.
    pub fn take(watch: Option<&Watch>) -> Result<Self> {
        Lookout::default().look(watch)
    }

    /// Of what was found, with what is known of the host.
    pub(crate) fn by(
        survey: Survey,
        host: &Host,
        owners: &Owners,
        cgroups: &Cgroups,
        watch: Option<&Watch>,
    ) -> Result<Self> {
        let counting = watch.filter(|watch| !watch.hooks().is_empty());
        let mut counted = BTreeMap::new();
        for watched in counting.map_or_else(|| Ok(Vec::new()), Watch::counters)? {
            counted.insert(watched.listener.cookie, watched.counters);
        }
        let entry = |listener: Listener| {
            let owners = owners.of(listener.socket_inode).to_vec();
            let made_in = listener.cgroup_id.and_then(|id| cgroups.path(id)).map(str::to_owned);
            Entry {
                netns: host.name(listener.netns_inode).map(str::to_owned),
                cgroup: made_in.or_else(|| owners.first()?.cgroup.clone()),
                counters: counting
                    .map(|watch| counted.get(&listener.cookie).cloned().unwrap_or_else(|| watch.nothing())),
                owners,
                listener,
            }
        };
        Ok(Self::of(survey.listeners.into_iter().map(entry).collect(), survey.gaps))
    }

    /// The same listeners with what was counted, and dropped, since `before`. One that was not
    /// there has all since it listens.
    pub fn since(self, before: &Self) -> Self {
        let earlier: BTreeMap<Option<u64>, &Entry> =
            before.groups.iter().flatten().map(|entry| (entry.listener.cookie, entry)).collect();
        let difference = |mut entry: Entry| {
            if let Some(known) = earlier.get(&entry.listener.cookie) {
                let counters = entry.counters.as_ref().zip(known.counters.as_ref());
                entry.counters = counters.map(|(now, before)| now.since(before));
                let drops = entry.listener.drops.zip(known.listener.drops);
                entry.listener.drops = drops.map(|(now, before)| now.wrapping_sub(before));
            }
            entry
        };
        Self::of(self.groups.into_iter().flatten().map(difference).collect(), self.gaps)
    }

    fn of(mut entries: Vec<Entry>, gaps: Vec<String>) -> Self {
        entries.sort_by(by_load);
        let mut groups: Vec<Vec<Entry>> = Vec::new();
        let mut places = BTreeMap::new();
        for entry in entries {
            let key = (entry.listener.netns_inode, entry.listener.address);
            let place = *places.entry(key).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.push(entry),
                None => groups.push(vec![entry]),
            }
        }
        Self { groups, gaps }
    }
}

impl Entry {
    /// All members of a group as one: queues, counts and drops added up, everybody who holds one.
    pub fn sum(group: &[Self]) -> Self {
        let mut sum = group[0].clone();
        for other in &group[1..] {
            let counters = sum.counters.as_ref().zip(other.counters.as_ref());
            sum.counters = counters.map(|(one, other)| one.plus(other));
            let (one, two) = (&sum.listener, &other.listener);
            let queues = one.queues.zip(two.queues).map(|(one, two)| Queues {
                accept_qlen: one.accept_qlen + two.accept_qlen,
                accept_limit: one.accept_limit.zip(two.accept_limit).map(|(one, two)| one + two),
                syn_qlen: one.syn_qlen.zip(two.syn_qlen).map(|(one, two)| one + two),
            });
            let drops = one.drops.zip(two.drops).map(|(one, two)| one.wrapping_add(two));
            (sum.listener.queues, sum.listener.drops) = (queues, drops);
            sum.owners.extend(other.owners.iter().cloned());
        }
        sum.owners.sort();
        sum.owners.dedup();
        sum
    }
}

/// Fullest accept queue first, then fullest SYN queue, then most drops, then by address.
fn by_load(one: &Entry, other: &Entry) -> Ordering {
    let share = |entry: &Entry| entry.listener.queues.and_then(|queues| queues.accept_share()).unwrap_or(0.0);
    let length = |entry: &Entry| entry.listener.queues.map(|queues| (queues.accept_qlen, queues.syn_qlen));
    share(other)
        .total_cmp(&share(one))
        .then_with(|| length(other).cmp(&length(one)))
        .then_with(|| other.listener.drops.cmp(&one.listener.drops))
        .then_with(|| one.listener.address.cmp(&other.listener.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: &str, cookie: u64, accept_qlen: u32, drops: u32) -> Entry {
        let queues = Queues { accept_qlen, accept_limit: Some(9), syn_qlen: Some(1) };
        let listener = Listener {
            address: address.parse().expect("address"),
            is_v6only: false,
            netns_inode: 1,
            socket_inode: cookie,
            cookie: Some(cookie),
            cgroup_id: None,
            queues: Some(queues),
            drops: Some(drops),
        };
        let owner = Process { pid: 1, command: "server".to_owned(), cgroup: None };
        Entry { listener, netns: None, owners: vec![owner], cgroup: None, counters: None }
    }

    #[test]
    fn most_loaded_comes_first_and_brings_its_group() {
        let entries = vec![
            entry("10.0.0.1:1", 1, 0, 0),
            entry("10.0.0.1:2", 2, 0, 0),
            entry("10.0.0.1:3", 3, 5, 0),
            entry("10.0.0.1:2", 4, 9, 0),
        ];
        let cookies: Vec<Vec<Option<u64>>> = Inventory::of(entries, Vec::new())
            .groups
            .iter()
            .map(|group| group.iter().map(|entry| entry.listener.cookie).collect())
            .collect();
        assert_eq!(cookies, [vec![Some(4), Some(2)], vec![Some(3)], vec![Some(1)]]);
    }

    #[test]
    fn group_adds_up_and_names_each_owner_once() {
        let sum = Entry::sum(&[entry("10.0.0.1:2", 1, 3, 5), entry("10.0.0.1:2", 2, 4, 6)]);
        assert_eq!(
            sum.listener.queues,
            Some(Queues { accept_qlen: 7, accept_limit: Some(18), syn_qlen: Some(2) })
        );
        assert_eq!((sum.listener.drops, sum.owners.len()), (Some(11), 1));
    }

    #[test]
    fn drops_over_a_time_are_right_when_the_kernels_counter_wraps() {
        let before = Inventory::of(vec![entry("10.0.0.1:2", 1, 0, u32::MAX)], Vec::new());
        let after = Inventory::of(vec![entry("10.0.0.1:2", 1, 0, 2)], Vec::new()).since(&before);
        assert_eq!(after.groups[0][0].listener.drops, Some(3));
    }
}
