//! Answers whoever connects to a port, one client at a time.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::printer::complain;

/// How long a client may take.
pub const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks whether somebody asks.
const NAP: Duration = Duration::from_millis(20);
/// After which a guard whose place we took has surely left its address.
const LEFT_WITHIN: Duration = Duration::from_secs(10);

/// Answers from a thread of its own, until it is dropped.
///
/// One client at a time, and each has a fifth of a second, to which the answer must keep: a client
/// must not stop the process, nor fill it. The small HTTP libraries do not keep to that.
/// `tiny_http` 0.12 has no time limit, starts a thread for each silent client, and reads a line of
/// any length. It never listens again once the host had no file descriptor left. `oxhttp` 0.3
/// cannot be stopped, and reads as much as a client announces.
pub struct Answerer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answerer {
    /// Listens at the address of an option, as in `--prometheus`. `may_wait`: or once it is free,
    /// because the guard whose place we take may have it still.
    ///
    /// # Errors
    ///
    /// One line: the address is in use and that may not be waited for, or what else the system
    /// says.
    pub fn bind<A: Answer>(option: &str, address: SocketAddr, may_wait: bool, answer: A) -> Result<Self> {
        let listener = match listen(address) {
            Ok(listener) => Some(listener),
            Err(error) if may_wait && error.kind() == io::ErrorKind::AddrInUse => None,
            Err(error) => return Err(anyhow!(cannot_listen(option, address, &error))),
        };
        let option = option.to_owned();
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            if let Some(listener) = listener.or_else(|| listen_when_free(&option, address, &of_thread)) {
                answer_all(&listener, answer, &of_thread);
            }
        });
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// What is done with a client, within [`PATIENCE`].
pub trait Answer: Fn(TcpStream) -> io::Result<()> + Send + 'static {}

impl<F: Fn(TcpStream) -> io::Result<()> + Send + 'static> Answer for F {}

/// Ends an answer, and waits until the deadline for the client to hang up. What it says meanwhile
/// is read: else the kernel would reset the connection before the answer is there.
pub fn hang_up(mut client: TcpStream, deadline: Instant) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    let mut rest = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        if client.read(&mut rest)? == 0 {
            return Ok(());
        }
    }
}

/// Where to listen, as it is asked for.
pub fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
    address.ok_or("an address and a port above 0 are wanted, as in 127.0.0.1:9464 or [::1]:9464")
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// `None` if it is over before.
fn listen_when_free(option: &str, address: SocketAddr, is_over: &AtomicBool) -> Option<TcpListener> {
    let (start, mut is_said) = (Instant::now(), false);
    while !is_over.load(Ordering::Relaxed) {
        match listen(address) {
            Ok(listener) => return Some(listener),
            Err(error) if start.elapsed() > LEFT_WITHIN && !is_said => {
                is_said = true;
                let why = cannot_listen(option, address, &error);
                complain(format_args!("warning: {why}; it is tried again and again"));
            }
            Err(_) => sleep(NAP),
        }
    }
    None
}

fn cannot_listen(option: &str, address: SocketAddr, error: &io::Error) -> String {
    format!("{option} {address}: {error}; name another address and port")
}

fn answer_all(listener: &TcpListener, answer: impl Answer, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            // The client may be gone.
            Ok((client, _)) => drop(begin(&client).and_then(|()| answer(client))),
            Err(_) => sleep(NAP), // nobody, or no descriptor just now
        }
    }
}

fn begin(client: &TcpStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A port that is free just now.
    pub fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
    }

    #[test]
    fn successor_has_the_address_once_it_is_free() {
        let address = free();
        let bind = |may_wait| Answerer::bind("--prometheus", address, may_wait, |_| Ok(()));
        let first = bind(false).expect("bind");
        let error = bind(false).err().expect("it is taken");
        let said = format!(
            "--prometheus {address}: Address already in use (os error 98); name another address and port"
        );
        assert_eq!(error.to_string(), said);
        let second = bind(true).expect("it waits");
        drop(first);
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "it never listens");
            sleep(NAP);
        }
        drop(second);
        assert!(TcpStream::connect(address).is_err(), "nothing stays");
    }
}
