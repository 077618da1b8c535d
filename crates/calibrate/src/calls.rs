//! What the system calls of a server take.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{setsockopt, sockopt};

/// The system calls of an event-driven server for connections of which a hundred are ready at a
/// time, as `tidegate serve` makes them: the shortest of several times. Over the loopback a
/// client's receipt of the answer is part of writing it, so that `answer` is taken for more than it
/// is, by what that costs more than to hand frames to an interface.
pub(crate) struct Calls {
    /// To accept them.
    pub accept: Duration,
    /// To read the request, write the answer, and ask to be told when more comes.
    pub answer: Duration,
    /// To read that the client has reset them, and close.
    pub end: Duration,
}

impl Calls {
    /// Takes some milliseconds.
    pub(crate) fn timed() -> io::Result<Self> {
        const TIMES: u32 = 20;
        const CONNECTIONS: usize = 100;
        const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        const ANSWER: [u8; 1000] = [b'x'; 1000];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let client = || -> io::Result<TcpStream> {
            let mut client = TcpStream::connect(listener.local_addr()?)?;
            setsockopt(&client, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?; // RST when it closes
            client.write_all(REQUEST)?;
            Ok(client)
        };
        let mut buffer = [0; 1000];
        let mut calls = Self { accept: Duration::MAX, answer: Duration::MAX, end: Duration::MAX };
        for _ in 0..TIMES {
            let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| client()).collect::<io::Result<_>>()?;
            let start = Instant::now();
            let mut ours: Vec<TcpStream> =
                clients.iter().map(|_| Ok(listener.accept()?.0)).collect::<io::Result<_>>()?;
            calls.accept = calls.accept.min(start.elapsed());
            let start = Instant::now();
            for own in &mut ours {
                let _length = own.read(&mut buffer)?;
                own.write_all(&ANSWER)?;
                epoll.add(&*own, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            calls.answer = calls.answer.min(start.elapsed());
            drop(clients);
            let start = Instant::now();
            for mut own in ours {
                own.set_nonblocking(true)?;
                let _reset = own.read(&mut buffer);
            }
            calls.end = calls.end.min(start.elapsed());
        }
        Ok(calls)
    }

    /// Together.
    pub(crate) fn all(&self) -> Duration {
        self.accept + self.answer + self.end
    }
}

/// To learn what is ready when something is: the shortest of several times, as whatever else runs
/// here makes them longer.
pub(crate) fn timed_look() -> io::Result<Duration> {
    const TIMES: u32 = 20;
    const LOOKS: u32 = 1000;
    let ready = EventFd::from_value(1)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&ready, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    let mut shortest = Duration::MAX;
    for _ in 0..TIMES {
        let start = Instant::now();
        for _ in 0..LOOKS {
            epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO)?;
        }
        shortest = shortest.min(start.elapsed() / LOOKS);
    }
    Ok(shortest)
}
