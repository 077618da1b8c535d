//! How the two ends of a testbed are joined.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use serde::Deserialize;

use crate::time::duration;

/// How the two ends are joined.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layout {
    /// Where the server's end does its receive processing.
    pub receive: Receive,
    /// How long the crowd's frames are gathered before the server's end gets them, as a NIC
    /// moderates its interrupts (`ethtool -C rx-usecs`); 0 hands each over at once.
    #[serde(deserialize_with = "duration")]
    pub coalesce: Duration,
    /// CPU of the server and of its receive processing.
    pub server_cpu: usize,
    /// CPU of the crowd.
    pub crowd_cpu: usize,
    /// How long a crowd waits at most for CPUs that are idle and near each other. Then it comes,
    /// and is marked.
    #[serde(deserialize_with = "duration")]
    pub patience: Duration,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            receive: Receive::Softirq,
            coalesce: Duration::from_micros(50),
            server_cpu: 0,
            crowd_cpu: 1,
            patience: Duration::from_secs(30),
        }
    }
}

/// Where the server's end does its receive processing, always on the server's CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// In softirq, ahead of every process, as behind a NIC.
    Softirq,
    /// In NAPI, ahead of every process, as in a NIC's driver: where native XDP is.
    Napi,
    /// The same, and frames come in pages, without a socket buffer, as a NIC's driver has them:
    /// what native XDP costs there.
    Driver,
    /// In a kernel thread of ordinary priority, beside the process.
    ThreadedNapi,
}

impl Layout {
    /// Where every server listens; the port is that of Debian's nginx configuration.
    pub const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 76, 0, 1), 80);
    /// The crowd's end, and the router of its clients.
    pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);

    /// Whether a testbed can be so, on any machine.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.server_cpu == self.crowd_cpu {
            return Err(format!(
                "testbed: server and crowd share CPU {}; give each its own",
                self.server_cpu
            ));
        }
        if self.coalesce > crowd::MAX_COALESCE {
            return Err(format!(
                "testbed.coalesce = {:?} makes every attempt late; 50us is usual, {:?} the most",
                self.coalesce,
                crowd::MAX_COALESCE
            ));
        }
        Ok(())
    }
}
