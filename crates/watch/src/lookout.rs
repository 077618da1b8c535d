//! Takes inventory again and again, for little.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::{Cgroups, Host, Inventory, Listener, Owners, Queues, Result, Survey, Watch};

/// How long namespaces, owners and control groups are gone by.
const KEPT: Duration = Duration::from_secs(30);
/// How long a new listener may be unknown, or without an owner.
const SETTLED: Duration = Duration::from_secs(5);
/// The whole list is made as seldom that it takes one part in so many of a CPU.
const SHARE: u32 = 200;

/// Takes inventory again and again, as once a second.
///
/// Where to look and who holds a listener changes seldom and is costly to find out. So is the whole
/// list: to end it, its iterator goes through the kernel's table of connections, once for each
/// namespace. Between two of these sock_diag(7) tells the accept queues. The length of a SYN queue
/// is as old as the list then, up to five seconds, and not known after that.
#[derive(Debug, Default)]
pub struct Lookout {
    seen: Option<Seen>,
    listed: Option<Listed>,
}

/// What changes seldom.
#[derive(Debug)]
struct Seen {
    at: Instant,
    host: Host,
    owners: Owners,
    /// Sockets whose owners were looked for.
    asked: BTreeSet<u64>,
    cgroups: Cgroups,
}

/// The whole list.
#[derive(Debug)]
struct Listed {
    at: Instant,
    took: Duration,
    by_cookie: BTreeMap<u64, Listener>,
    gaps: Vec<String>,
}

impl Lookout {
    /// Looks at all namespaces now; without `watch`, as far as `/proc` tells. A namespace that came
    /// since is missing for half a minute at most, a new listener or its owner for five seconds.
    pub fn look(&mut self, watch: Option<&Watch>) -> Result<Inventory> {
        let seen = self.seen.take().filter(|seen| seen.at.elapsed() < KEPT);
        if let Some(seen) = seen {
            let survey = self.survey(&seen.host, watch);
            let inodes = survey.listeners.iter().map(|listener| listener.socket_inode);
            if seen.at.elapsed() < SETTLED || inodes.into_iter().all(|inode| seen.asked.contains(&inode)) {
                return self.seen.insert(seen).with(survey, watch);
            }
        }
        let host = Host::look()?;
        let survey = self.survey(&host, watch);
        let asked: BTreeSet<u64> = survey.listeners.iter().map(|listener| listener.socket_inode).collect();
        let owners = Owners::find(asked.iter().copied())?;
        let seen = Seen { at: Instant::now(), host, owners, asked, cgroups: Cgroups::read()? };
        self.seen.insert(seen).with(survey, watch)
    }

    fn survey(&mut self, host: &Host, watch: Option<&Watch>) -> Survey {
        let quick = self.listed.as_ref().filter(|_| watch.is_some()).and_then(|listed| listed.quick(host));
        quick.unwrap_or_else(|| {
            let at = Instant::now();
            let survey = host.survey(watch);
            let known = survey.listeners.iter().filter_map(|of| Some((of.cookie?, of.clone())));
            let (by_cookie, gaps) = (known.collect(), survey.gaps.clone());
            self.listed = Some(Listed { at, took: at.elapsed(), by_cookie, gaps });
            survey
        })
    }
}

impl Seen {
    fn with(&self, survey: Survey, watch: Option<&Watch>) -> Result<Inventory> {
        Inventory::by(survey, &self.host, &self.owners, &self.cgroups, watch)
    }
}

impl Listed {
    /// The list of now from that of then. `None` if the whole may be made again, or has to be:
    /// there are others, or sock_diag is not in this kernel.
    fn quick(&self, host: &Host) -> Option<Survey> {
        let age = self.at.elapsed();
        if age >= self.took * SHARE {
            return None;
        }
        let mut survey = Survey { listeners: Vec::new(), gaps: self.gaps.clone() };
        for queue in host.listen_queues()? {
            let Some(known) = self.by_cookie.get(&queue.cookie) else {
                if age < SETTLED {
                    continue;
                }
                return None;
            };
            let syn_qlen = known.queues.filter(|_| age < SETTLED).and_then(|queues| queues.syn_qlen);
            let accept_limit = Some(queue.accept_limit);
            let queues = Queues { accept_qlen: queue.accept_qlen, accept_limit, syn_qlen };
            survey.listeners.push(Listener {
                queues: Some(queues),
                drops: Some(queue.drops),
                ..known.clone()
            });
        }
        Some(survey)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A lookout whose whole list took this long, without a program.
    fn listed(took: Duration) -> (Lookout, Host) {
        let host = Host::look().expect("look");
        let mut lookout = Lookout::default();
        lookout.survey(&host, None);
        let listed = lookout.listed.as_mut().expect("listed");
        listed.took = took;
        (lookout, host)
    }

    #[test]
    fn list_that_took_long_is_not_made_again_soon() {
        for (took, is_quick) in [(Duration::ZERO, false), (Duration::from_secs(1), true)] {
            let (lookout, host) = listed(took);
            let listed = lookout.listed.expect("listed");
            assert_eq!(listed.quick(&host).is_some(), is_quick, "{took:?}");
        }
    }

    #[test]
    fn known_listener_has_its_queue_of_now_and_an_unknown_one_makes_the_list_anew() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = socket.local_addr().expect("address");
        // A number by which it is known.
        nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(78).expect("small"))
            .expect("listen");
        let (mut lookout, host) = listed(Duration::from_secs(10));
        let mut listed = lookout.listed.take().expect("listed");
        assert!(listed.quick(&host).expect("quick").listeners.is_empty(), "/proc tells no cookie");
        let queue = host.listen_queues().expect("ask").into_iter().find(|queue| queue.accept_limit == 78);
        let listeners = host.survey(None).listeners;
        let known = listeners.into_iter().find(|listener| listener.address == address).expect("it listens");
        let syn_qlen = Some(3);
        let queues = Some(Queues { accept_qlen: 0, accept_limit: None, syn_qlen });
        listed.by_cookie.insert(queue.expect("it listens").cookie, Listener { queues, ..known });
        let _client = TcpStream::connect(address).expect("connect");
        let queues = |listed: &Listed| listed.quick(&host).map(|survey| survey.listeners[0].queues);
        let now = Queues { accept_qlen: 1, accept_limit: Some(78), syn_qlen };
        assert_eq!(queues(&listed), Some(Some(now)));
        let Some(before) = Instant::now().checked_sub(2 * SETTLED) else { return };
        listed.at = before;
        let others = host.listen_queues().expect("ask").len() - 1;
        assert_eq!(queues(&listed).is_none(), others > 0);
    }
}
