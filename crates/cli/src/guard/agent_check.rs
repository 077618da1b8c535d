//! Answers HAProxy's agent-check: one line of what a balancer should send a server.
//!
//! HAProxy keeps what it heard last until it hears something else, and an agent that is gone is no
//! failure to it. So the guard takes back at its end what it said of a crowd. It says `ready` only
//! after its own `drain`: the word would also undo an operator's MAINT at the balancer.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::status::ListenerStatus;
use crate::answerer::{Answerer, PATIENCE, hang_up};

/// How long a balancer may take to say which listener it means, where there are several.
const NAMES_IT_WITHIN: Duration = Duration::from_millis(50);
/// Of what it says, bytes.
const MAX_NAME: usize = 64;
/// Older news is none.
const STALE: Duration = Duration::from_secs(5);
/// At the end, balancers that asked a moment ago get so much time to hear it: HAProxy asks each 2 s
/// unless it is told otherwise.
const RECENT: Duration = Duration::from_secs(10);
const FAREWELL: Duration = Duration::from_secs(3);
/// Balancers that are remembered for that.
const MAX_ASKERS: usize = 64;

/// Answers until it is dropped.
pub struct AgentCheck {
    told: Arc<Mutex<Told>>,
    _answerer: Answerer,
}

#[derive(Debug, Default)]
struct Told {
    listeners: Vec<ListenerStatus>,
    at: Option<Instant>,
    /// Balancers, and when each asked last.
    askers: BTreeMap<IpAddr, Instant>,
    /// The guard has ended, and these words are its last.
    is_over: bool,
    is_handed_over: bool,
}

impl AgentCheck {
    /// Listens at an address. `may_wait`: or once it is free.
    ///
    /// # Errors
    ///
    /// Those of [`Answerer::bind`].
    pub fn bind(address: SocketAddr, may_wait: bool) -> Result<Self> {
        let told = Arc::<Mutex<Told>>::default();
        let of_thread = Arc::clone(&told);
        let answer = move |client| answer(client, &of_thread);
        let answerer = Answerer::bind("--agent-check", address, may_wait, answer)?;
        Ok(Self { told, _answerer: answerer })
    }

    /// Tells balancers this from now on.
    pub fn tell(&self, listeners: &[ListenerStatus], now: Instant) {
        let mut told = lock(&self.told);
        (told.listeners, told.at) = (listeners.to_vec(), Some(now));
    }

    /// Another guard answers them: there is no last word.
    pub fn hand_over(&self) {
        lock(&self.told).is_handed_over = true;
    }
}

/// Gives balancers a moment to hear that the server has all of its share again.
impl Drop for AgentCheck {
    fn drop(&mut self) {
        let end = {
            let mut told = lock(&self.told);
            told.is_over = true;
            Instant::now()
        };
        loop {
            let now = Instant::now();
            let is_heard = {
                let told = lock(&self.told);
                told.is_handed_over || told.askers.values().all(|asked| *asked > end || *asked + RECENT < now)
            };
            if is_heard || now > end + FAREWELL {
                return;
            }
            sleep(PATIENCE / 4);
        }
    }
}

impl Told {
    /// A line for whoever asks of this listener, or of all.
    fn line(&self, listen: Option<SocketAddr>, now: Instant) -> String {
        let is_current = !self.is_over && self.at.is_some_and(|at| at + STALE > now);
        let named = listen.map(|listen| self.named(listen));
        let meant = || self.listeners.iter().filter(|of| named.is_none_or(|named| named == Some(of.listen)));
        if meant().any(|of| of.drain) {
            return "drain\n".to_owned();
        }
        let least = meant().map(|of| of.weight_percent).min().filter(|_| is_current).unwrap_or(100);
        let ready = if meant().any(|of| of.is_ready_again) { "ready " } else { "" };
        format!("up {ready}{least}%\n")
    }

    /// The listener of an address that a balancer names: its own, or else the wildcard that serves
    /// it.
    fn named(&self, listen: SocketAddr) -> Option<SocketAddr> {
        let (any, port) = (IpAddr::from(Ipv6Addr::UNSPECIFIED), listen.port());
        let of_its_family = if listen.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { any };
        let candidates = [listen.ip(), of_its_family, any].map(|ip| SocketAddr::new(ip, port));
        candidates.into_iter().find(|address| self.listeners.iter().any(|of| of.listen == *address))
    }

    /// The line for a balancer, and that it has asked.
    fn answer(&mut self, asker: IpAddr, listen: Option<SocketAddr>, now: Instant) -> String {
        self.askers.retain(|_, asked| *asked + RECENT > now);
        if self.askers.len() < MAX_ASKERS || self.askers.contains_key(&asker) {
            self.askers.insert(asker, now);
        }
        self.line(listen, now)
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(mut client: TcpStream, told: &Mutex<Told>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let has_several = lock(told).listeners.len() > 1;
    let listen = if has_several { read_name(&mut client) } else { None };
    let line = lock(told).answer(client.peer_addr()?.ip(), listen, Instant::now());
    client.write_all(line.as_bytes())?;
    hang_up(client, deadline)
}

/// An address and a port on a line, as `agent-send "192.0.2.1:443\n"` has them.
fn read_name(client: &mut TcpStream) -> Option<SocketAddr> {
    let deadline = Instant::now() + NAMES_IT_WITHIN;
    let (mut name, mut len) = ([0; MAX_NAME], 0);
    while len < name.len() && !name[..len].contains(&b'\n') {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        client.set_read_timeout(Some(left)).ok()?;
        match client.read(&mut name[len..]) {
            Ok(got) if got > 0 => len += got,
            _ => break,
        }
    }
    let listen: SocketAddr = std::str::from_utf8(&name[..len]).ok()?.trim().parse().ok()?;
    Some(SocketAddr::new(listen.ip().to_canonical(), listen.port()))
}

#[cfg(test)]
mod tests {
    use top::State;

    use super::*;
    use crate::answerer::tests::free;

    fn status(listen: &str, weight_percent: u32) -> ListenerStatus {
        ListenerStatus {
            listen: listen.parse().expect("address"),
            state: State::Idle,
            dry_run: false,
            utilisation: None,
            waiting: None,
            limit: None,
            answered_per_s: None,
            refused_per_s: 0.0,
            weight_percent,
            drain: false,
            is_ready_again: false,
        }
    }

    fn ask(address: SocketAddr, says: &str) -> String {
        let mut client = TcpStream::connect(address).expect("connect");
        client.write_all(says.as_bytes()).expect("say it");
        let mut reply = String::new();
        client.read_to_string(&mut reply).expect("a line");
        reply
    }

    #[test]
    fn line_is_the_least_weight_or_that_of_the_listener_that_is_named() {
        let address = free();
        let agent = AgentCheck::bind(address, false).expect("bind");
        assert_eq!(ask(address, ""), "up 100%\n", "nothing is known yet");
        agent.tell(&[status("192.0.2.1:80", 75), status("192.0.2.1:81", 40)], Instant::now());
        assert_eq!(ask(address, ""), "up 40%\n");
        assert_eq!(ask(address, "192.0.2.1:80\n"), "up 75%\n");
        assert_eq!(ask(address, "[::ffff:192.0.2.1]:81\n"), "up 40%\n");
        assert_eq!(ask(address, "192.0.2.9:80\n"), "up 100%\n", "it is not guarded");
        assert_eq!(ask(address, &format!("{}\n", "x".repeat(1000))), "up 40%\n");
    }

    #[test]
    fn address_that_a_wildcard_serves_is_told_its_line() {
        let now = Instant::now();
        let listeners = vec![status("0.0.0.0:80", 40), status("[::]:80", 60), status("192.0.2.1:80", 75)];
        let mut told = Told { listeners, at: Some(now), ..Told::default() };
        let line = |told: &Told, listen: &str| told.line(Some(listen.parse().expect("address")), now);
        assert_eq!(line(&told, "192.0.2.1:80"), "up 75%\n");
        assert_eq!(line(&told, "192.0.2.7:80"), "up 40%\n");
        assert_eq!(line(&told, "[fd00::1]:80"), "up 60%\n");
        assert_eq!(line(&told, "192.0.2.7:81"), "up 100%\n", "it is not guarded");
        told.listeners.remove(0);
        assert_eq!(line(&told, "192.0.2.7:80"), "up 60%\n", "of both families");
        told.listeners[0].drain = true;
        assert_eq!(line(&told, "192.0.2.7:80"), "drain\n");
    }

    #[test]
    fn drain_ends_with_ready_and_old_news_is_none() {
        let now = Instant::now();
        let mut told = Told { listeners: vec![status("192.0.2.1:80", 75)], at: Some(now), ..Told::default() };
        told.listeners[0].drain = true;
        assert_eq!(told.line(None, now), "drain\n");
        (told.listeners[0].drain, told.listeners[0].is_ready_again) = (false, true);
        assert_eq!(told.line(None, now), "up ready 75%\n");
        told.listeners[0].is_ready_again = false;
        assert_eq!(told.line(None, now), "up 75%\n");
        assert_eq!(told.line(None, now + STALE), "up 100%\n");
        told.is_over = true;
        assert_eq!(told.line(None, now), "up 100%\n");
        told.listeners[0].drain = true;
        assert_eq!(told.line(None, now), "drain\n", "an operator's wish outlives the guard");
    }

    #[test]
    fn guard_that_ends_waits_for_the_balancers_that_asked_and_for_no_other() {
        let address = free();
        let agent = AgentCheck::bind(address, false).expect("bind");
        agent.tell(&[status("192.0.2.1:80", 75)], Instant::now());
        assert_eq!(ask(address, ""), "up 75%\n");
        let start = Instant::now();
        let end = std::thread::spawn(move || drop(agent));
        sleep(PATIENCE);
        assert_eq!(ask(address, ""), "up 100%\n", "its last word");
        end.join().expect("it ends");
        assert!(start.elapsed() < FAREWELL, "{:?}", start.elapsed());

        let agent = AgentCheck::bind(free(), false).expect("bind");
        let start = Instant::now();
        drop(agent);
        assert!(start.elapsed() < FAREWELL, "nobody has asked");
    }
}
