//! The lab's own HTTP server: one thread, epoll, one prepared reply.
//!
//! It stands in for the user-space server of `[Shu05]` section 3.1.1. When the listener is ready it
//! accepts until nothing is left (*Accept-INF*), and only then serves what it accepted. So the
//! accept queue is short whenever the server runs. A crowd that the server cannot serve waits in
//! the kernel or, if admitted, inside the server.
//!
//! It is **not** a web server: it has no files, no TLS and no timeouts. Every path gets the same
//! reply, except those of a workload, which name the reply's length (`/bytes/12345`,
//! `/file_set/dir00000/class2_5`). Request bodies are read and thrown away. After the request
//! CLIENT_CLOSE of `[FTY97]` it says nothing, and waits for the client's end. An idle connection
//! lives until its client closes it. It costs one descriptor and under a hundred bytes; a request
//! that is still arriving costs at most 16 KiB more.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! let config = serve::Config { listen: "127.0.0.1:0".parse()?, ..Default::default() };
//! let mut server = serve::Server::bind(&config)?;
//! let address = server.local_addr();
//! let stop = AtomicBool::new(false);
//! let totals = std::thread::scope(|scope| {
//!     let running = scope.spawn(|| server.run(&stop));
//!     let _client = std::net::TcpStream::connect(address);
//!     stop.store(true, Ordering::Relaxed);
//!     running.join().expect("the server does not panic")
//! })?;
//! assert_eq!(totals.requests, 0, "the client asked for nothing");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod cpu;
mod reply;
mod request;
mod server;
mod sys;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub use cpu::taken;
pub use reply::reply_bytes;
pub use server::{BindError, RunError, Server, Totals};
pub use sys::raise_descriptor_limit;

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The listen(2) argument. Linux caps it at `net.core.somaxconn` and queues one connection more
    /// than that.
    pub backlog: u32,
    /// How much of the accept queue is taken at a time.
    pub accept: Accept,
    /// CPU time that each request burns before it is answered.
    pub cpu_time: Duration,
    /// So long after the start the requests begin to burn that in its place: a server that becomes
    /// slower, or faster.
    pub later: Option<(Duration, Duration)>,
    /// Length of the reply's body, bytes.
    pub reply_bytes: usize,
    /// That reply is framed by chunks, where the connection goes on, and not by its length.
    pub in_chunks: bool,
}

/// How much of the accept queue is taken each time that the listener is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// All of it, before anything is served: *Accept-INF* of `[Shu05]` section 3.1.1, its
    /// user-space server.
    Inf,
    /// One connection, which is served before the next is taken: *Accept-1*, its in-kernel server.
    One,
}

impl Default for Config {
    /// Port 8080 of the loopback, backlog 128, Accept-INF, no CPU time, a reply that fits one
    /// segment on Ethernet.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            backlog: 128,
            accept: Accept::Inf,
            cpu_time: Duration::ZERO,
            later: None,
            reply_bytes: 512,
            in_chunks: false,
        }
    }
}
