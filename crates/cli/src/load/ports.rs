//! Who closes first, and ports that come back: the options of `tidegate load`.

use std::time::Duration;

use load::{Loop, Ports};

/// How connections end, and what of them stays.
#[derive(Debug, clap::Args)]
pub struct Ends {
    /// Users who ask again as soon as they are answered, in place of --rate: a closed loop. With
    /// --ports, user n has address n of --clients, and again from the first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(conflicts_with_all = ["rate", "bursts", "shape", "replay", "sessions", "abort_after"])]
    users: Option<u32>,

    /// How long each waits between an answer and the next request
    #[arg(long, value_name = "D", requires = "users", default_value = "0s", value_parser = spelling::time)]
    think: Duration,

    /// Who closes first
    #[arg(long, value_enum, default_value_t = First::Client)]
    first: First,

    /// Ports of each address, which come back; without, every connection has a four-tuple of its
    /// own as long as there are any, and clients have no TIME_WAIT
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Ports::MOST)))]
    ports: Option<u16>,

    /// How long a port is in TIME_WAIT at the client, in whole seconds; 0s is not at all
    #[arg(long, value_name = "D", requires = "ports", default_value = "60s", value_parser = parse_time_wait)]
    time_wait: Duration,

    /// A port in TIME_WAIT is used again after so long, if both ends have timestamps; 1s is
    /// net.ipv4.tcp_tw_reuse
    #[arg(long, value_name = "D", requires = "ports", value_parser = spelling::time)]
    tw_reuse_after: Option<Duration>,

    /// Each address is a NAT's: it has no TIME_WAIT, and the hosts behind it have clocks of their
    /// own
    #[arg(long, requires = "ports")]
    nat: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum First {
    /// The client, when the reply is complete
    Client,
    /// The same, with the request CLIENT_CLOSE of `[FTY97]` before it, which `tidegate serve` knows
    ClientClose,
    /// The server, because each request says `Connection: close`
    Server,
}

impl Ends {
    /// The ports that come back.
    pub fn ports(&self) -> Option<Ports> {
        Some(Ports {
            count: self.ports?,
            time_wait_s: self.time_wait.as_secs() as u8,
            reuse_after: self.tw_reuse_after.map(Into::into),
            is_nat: self.nat,
        })
    }

    /// The users who do.
    pub fn users(&self) -> Option<Loop> {
        Some(Loop { users: self.users?, think: self.think.into() })
    }

    /// Whether the client says that it does.
    pub fn says_client_close(&self) -> bool {
        self.first == First::ClientClose
    }

    /// Whether the server closes first.
    pub fn server_first(&self) -> bool {
        self.first == First::Server
    }
}

fn parse_time_wait(text: &str) -> Result<Duration, String> {
    let time = spelling::time(text).ok();
    let time = time.filter(|time| time.subsec_nanos() == 0 && time.as_secs() <= u8::MAX.into());
    time.ok_or_else(|| "a time in whole seconds, up to 255s; 60s is Linux's".to_owned())
}
