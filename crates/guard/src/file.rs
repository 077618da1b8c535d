//! The guard's configuration file.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};

use crate::{Attach, Config, Listener, Policy};

/// A configuration asks for what cannot be: a mistake of whoever wrote it, not of the machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    interfaces: Vec<String>,
    #[serde(default, deserialize_with = "attach")]
    attach: Attach,
    #[serde(default)]
    refusals_per_s: Option<u32>,
    #[serde(default)]
    sockopt: bool,
    #[serde(rename = "listener")]
    listeners: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(deserialize_with = "listen")]
    listen: SocketAddr,
    #[serde(default = "usual", deserialize_with = "policy")]
    policy: Policy,
    #[serde(default)]
    reserved: Reserved,
    #[serde(default)]
    exempt: Vec<Source>,
    server: Option<String>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    drain: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Reserved {
    slots: u32,
    sources: Vec<Source>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Source(IpNet);

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_network(&text).map(Self).map_err(|wanted| format!("{text:?} is not {wanted}"))
    }
}

fn networks(sources: Vec<Source>) -> Vec<IpNet> {
    sources.into_iter().map(|Source(net)| net).collect()
}

fn usual() -> Policy {
    Policy::UNSERVED
}

impl Entry {
    fn listener(self) -> Listener {
        let Self { listen, policy, reserved: Reserved { slots, sources }, exempt, server, dry_run, drain } =
            self;
        let policy = Policy { reserved_slots: slots, ..policy };
        let (reserved, exempt) = (networks(sources), networks(exempt));
        Listener { listen, policy, reserved, exempt, server, dry_run, drain }
    }
}

impl Config {
    /// Reads a configuration file. Its listeners need not be there yet.
    ///
    /// # Errors
    ///
    /// One line that names the file, the place, and what is wrong with it.
    pub fn read(path: &Path, lease: Option<Duration>) -> Result<Self> {
        let text = read_text(path)?;
        let file: File = toml::from_str(&text).map_err(|error| {
            ConfigError(format!("configuration {}: {}", path.display(), files::say_toml_error(&error)))
        })?;
        let File { interfaces, attach, refusals_per_s, sockopt, listeners } = file;
        let listeners = listeners.into_iter().map(Entry::listener).collect();
        let refusals_per_s = refusals_per_s.map_or(Self::default().refusals_per_s, NonZeroU32::new);
        Ok(Self {
            listeners,
            interfaces,
            attach,
            lease,
            must_listen: false,
            refusals_per_s,
            sockopt,
            follow_at_servers: false,
            take_over: None,
            state: None,
        })
    }
}

/// From nothing that would make us wait: a running guard reads it, too.
fn read_text(path: &Path) -> Result<String> {
    files::read_regular_text(path).map_err(|error| {
        let said = format!("configuration {}: {error}", path.display());
        if error.is_mistake() { ConfigError(said).into() } else { anyhow::Error::msg(said) }
    })
}

/// Where a server listens: an address and a port.
///
/// # Errors
///
/// What is wanted, with examples.
pub fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "an address and a port are wanted, as in 10.0.0.1:80, 0.0.0.0:80 or [::]:80")?;
    if address.port() == 0 {
        return Err("port 0 is no port that can be guarded");
    }
    Ok(address)
}

/// A network, or a single address.
///
/// # Errors
///
/// What is wanted, with examples.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| {
        "an address, or a network with up to 32 or 128 bits, as 192.0.2.7, 10.0.0.0/24 or fd00::/64"
            .to_owned()
    })
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_listen(&text).map_err(|wanted| de::Error::custom(format!("{text:?}: {wanted}")))
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn attach<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Attach, D::Error> {
    let text = String::deserialize(deserializer)?;
    Attach::by_name(&text).ok_or_else(|| {
        let known = Attach::NAMED.map(|(name, _)| name);
        let then = spelling::did_you_mean(&text, known, &format!("there are {}", known.join(", ")));
        de::Error::custom(format!("{text:?} is no place on an interface{then}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(text: &str) -> Result<Config> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("write");
        Config::read(file.path(), None)
    }

    #[test]
    fn file_names_listeners_and_their_policies() {
        let config = read(
            "interfaces = [\"eth0\"]\nattach = \"tcx\"\nrefusals_per_s = 7\n\
             [[listener]]\nlisten = \"10.0.0.1:80\"\npolicy = \"abort+rst-syn\"\n\
             [[listener]]\nlisten = \"[::]:443\"\npolicy = \"reserv\"\ndry_run = true\ndrain = true\n\
             exempt = [\"fd00::/64\"]\nserver = \"web\"\n\
             reserved = { slots = 4, sources = [\"10.9.0.0/16\", \"fd00::1\"] }\n",
        )
        .expect("a good file");
        assert_eq!((config.interfaces, config.attach), (vec!["eth0".to_owned()], Attach::Tcx));
        let listeners: Vec<String> = config
            .listeners
            .iter()
            .map(|Listener { listen, policy, dry_run, .. }| format!("{listen} {policy} {dry_run}"))
            .collect();
        assert_eq!(listeners, ["10.0.0.1:80 abort+rst-syn false", "[::]:443 reserv true"]);
        assert_eq!(config.listeners[1].policy.reserved_slots, 4);
        assert_eq!(config.listeners[1].reserved[1].to_string(), "fd00::1/128");
        assert_eq!(config.listeners[1].server.as_deref(), Some("web"));
        assert_eq!(config.listeners[1].exempt[0].to_string(), "fd00::/64");
        assert_eq!(config.refusals_per_s, NonZeroU32::new(7));
        assert_eq!(config.listeners.iter().map(|of| of.drain).collect::<Vec<_>>(), [false, true]);
        assert!(!config.must_listen);
    }

    #[test]
    fn example_is_a_configuration() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/guard.toml");
        let config = Config::read(Path::new(path), None).expect("a good example");
        crate::slots::assign(&[], &config.listeners).expect("listeners that can be guarded together");
    }

    #[test]
    fn only_a_file_of_text_that_ends_is_read() {
        for path in ["/dev/zero", "/dev/null", "/"] {
            let error = Config::read(Path::new(path), None).expect_err(path).to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        let error = Config::read(Path::new("/nosuch"), None).expect_err("not there");
        assert!(error.is::<ConfigError>() && error.to_string().contains("no such file"), "{error}");
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"\xff").expect("write");
        let error = Config::read(file.path(), None).expect_err("not text").to_string();
        assert!(error.contains("not UTF-8"), "{error}");
        file.as_file().set_len(files::MOST_BYTES + 1).expect("make it large");
        let error = Config::read(file.path(), None).expect_err("large").to_string();
        assert!(error.contains("longer than 1 MiB"), "{error}");
    }

    #[test]
    fn listen_address_needs_a_port() {
        assert!(parse_listen("[::]:80").is_ok());
        for wrong in ["", "80", "10.0.0.1", "localhost:80", "10.0.0.1:0", "10.0.0.1:65536"] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn network_may_be_a_single_address() {
        assert_eq!(parse_network("192.0.2.7").map(|net| net.to_string()).as_deref(), Ok("192.0.2.7/32"));
        assert_eq!(parse_network("fd00::/64").map(|net| net.to_string()).as_deref(), Ok("fd00::/64"));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "web"] {
            assert!(parse_network(bad).expect_err(bad).contains("as 192.0.2.7"), "{bad}");
        }
    }

    #[test]
    fn mistake_is_one_line_with_its_place() {
        let listener = "[[listener]]\nlisten = \"10.0.0.1:80\"\n";
        let cases = [
            (format!("{listener}policy = \"abrot\"\n"), "line 3", "\"abrot\" is no mechanism"),
            (format!("{listener}policy = \"abort\"\nbacklog = 5\n"), "line 4", "backlog"),
            (format!("attach = \"nic\"\n{listener}policy = \"abort\"\n"), "line 1", "there are auto, tcx"),
            ("[[listener]]\nlisten = \"web:80\"\n".to_owned(), "line 2", "\"web:80\": an address and a port"),
            (format!("{listener}policy = \"abort\"\nreserved = {{ slots = 1 }}\n"), "line 4", "sources"),
            (
                format!("{listener}policy = \"abort\"\nreserved = {{ slots = 1, sources = [\"office\"] }}\n"),
                "line 4",
                "\"office\" is not an address, or a network",
            ),
            (String::new(), "", "missing field `listener`"),
        ];
        for (text, place, what) in cases {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains(place) && error.contains(what), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
