//! What is wanted of an uplink.

use std::net::IpAddr;
use std::time::Duration;

use kernel::{Cutoffs, SizeSource as Source};

use crate::error::{Error, Result};

/// Bands that every uplink has.
const BANDS: usize = Cutoffs::MOST + 1;
/// Until enough responses were seen: the paper's 1, 2, 5 and 50 KB (`[SH06]` 3.2), and three for
/// what is larger.
pub(crate) const FIRST_CUTOFFS: [u64; Cutoffs::MOST] =
    [1_000, 2_000, 5_000, 20_000, 50_000, 200_000, 1_000_000];
/// That the program's map holds.
const MAX_ENDPOINTS: usize = 256;
/// The largest share that the lowest band can be sure of.
const MAX_FLOOR: f64 = 0.5;

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Its name.
    pub interface: String,
    /// The whole tree's rate, bit/s. `None`, only below somebody else's class: as fast as that
    /// class may send.
    pub rate_bps: Option<u64>,
    /// Class of somebody else's queue discipline below which the tree goes, as tc writes it
    /// (`1:10`); `None`: it is the root.
    pub parent: Option<String>,
    /// Which response goes first.
    pub order: Order,
    /// How sizes may be known. `None`: by the best source that there is.
    pub insisted: Option<Source>,
    /// Bytes left at which a response changes its band, ascending, [`Cutoffs::MOST`] at most.
    /// `None`: they follow the sizes seen.
    pub cutoffs: Option<Vec<u64>>,
    /// Share of the rate that the lowest band is sure of, and all bands below the top one together,
    /// 0 to 0.5. Nothing where no rate is given.
    pub floor: f64,
    /// Only what these local addresses send is placed; none: every TCP connection of this host.
    pub endpoints: Vec<Endpoint>,
    /// For how long packets are placed after [`crate::Uplink::renew`]; then all go to the top band.
    pub lease: Duration,
    /// Count, and leave every packet alone.
    pub is_dry_run: bool,
}

/// A local address of TCP connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// `0.0.0.0` and `[::]` stand for every address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
}

/// Which response goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The one with the fewest bytes left (`[SH06]`).
    Srpt,
    /// The one that has got the fewest bytes: no size need be known (`[SH06]` 7).
    Las,
    /// None: one FIFO of the rate, to compare with.
    Fair,
}

impl Order {
    /// All, by name.
    pub const NAMED: [(&'static str, Self); 3] =
        [("srpt", Self::Srpt), ("las", Self::Las), ("fair", Self::Fair)];
}

/// Share of the rate that the lowest band is sure of unless it is said. Each percent makes the mean
/// response 5 to 7% longer (docs/uplink.md).
pub const FLOOR: f64 = 0.01;
/// A process that is stopped or hangs puts nothing in order after this.
pub const LEASE: Duration = Duration::from_secs(2);

impl Setup {
    /// The best source of all, on a root queue discipline of that rate.
    pub fn new(interface: impl Into<String>, rate_bps: u64) -> Self {
        Self {
            interface: interface.into(),
            rate_bps: Some(rate_bps),
            parent: None,
            order: Order::Srpt,
            insisted: None,
            cutoffs: None,
            floor: FLOOR,
            endpoints: Vec::new(),
            lease: LEASE,
            is_dry_run: false,
        }
    }

    /// How many bands there are.
    pub fn bands(&self) -> usize {
        match (&self.order, &self.cutoffs) {
            (Order::Fair, _) => 1,
            (_, Some(cutoffs)) => cutoffs.len() + 1,
            (_, None) => BANDS,
        }
    }

    /// Sources that may be used. When none knows a size, what was sent already stands for it, in
    /// any case.
    pub(crate) fn sources(&self) -> Vec<Source> {
        match (self.order, self.insisted) {
            (Order::Las, _) => vec![Source::Attained],
            (_, Some(insisted)) => vec![insisted],
            (_, None) => Source::BEST_FIRST.to_vec(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let mistaken = |why: String| Err(Error::Mistaken(why));
        if let Some(cutoffs) = self.cutoffs.as_ref().filter(|cutoffs| Cutoffs::new(cutoffs).is_none()) {
            let most = Cutoffs::MOST;
            return mistaken(format!(
                "cutoffs {cutoffs:?}: at most {most} numbers of bytes, each above the one before"
            ));
        }
        if self.cutoffs.as_ref().is_some_and(|cutoffs| cutoffs.first() == Some(&0)) {
            return mistaken(
                "cutoffs begin with 0 bytes, which no response has left; say 1 or more".to_owned(),
            );
        }
        if self.order == Order::Fair && (self.cutoffs.is_some() || self.insisted.is_some()) {
            return mistaken(
                "order fair has one band, and no size matters: leave out cutoffs and source".to_owned(),
            );
        }
        if !(0.0..=MAX_FLOOR).contains(&self.floor) {
            return mistaken(format!(
                "floor {}: the lowest band is sure of so much of the rate; say a share from 0% to {}%",
                self.floor,
                MAX_FLOOR * 100.0
            ));
        }
        if let Some(parent) = self.parent.as_ref().filter(|parent| !is_class(parent)) {
            return mistaken(format!(
                "parent {parent:?} is no class of a queue discipline; write it as tc does, as 1:10"
            ));
        }
        if self.endpoints.iter().any(|endpoint| endpoint.port == 0) {
            return mistaken("nothing leaves from port 0; name the server's port".to_owned());
        }
        if self.endpoints.len() > MAX_ENDPOINTS {
            return mistaken(format!(
                "{} addresses are more than {MAX_ENDPOINTS}; name ports of 0.0.0.0 or [::]",
                self.endpoints.len()
            ));
        }
        if self.rate_bps.is_none() && self.parent.is_none() && !self.is_dry_run {
            return mistaken(format!(
                "{}: a rate is needed unless the tree goes below a class",
                self.interface
            ));
        }
        if self.order == Order::Las && self.insisted.is_some_and(|source| source != Source::Attained) {
            return mistaken("order las goes by what was sent, and needs no source of sizes".to_owned());
        }
        Ok(())
    }
}

/// `1:10`, both in hexadecimal and neither 0: not a root, nor what the kernel reserves.
fn is_class(text: &str) -> bool {
    let number =
        |text: &str| u16::from_str_radix(text, 16).ok().filter(|number| (1..u16::MAX).contains(number));
    text.split_once(':').is_some_and(|(major, minor)| number(major).is_some() && number(minor).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_that_makes_no_sense_is_refused_in_one_line() {
        let good = Setup::new("eth0", 10_000_000);
        assert!(good.check().is_ok());
        for (setup, what) in [
            (Setup { cutoffs: Some(vec![2, 1]), ..good.clone() }, "each above the one before"),
            (Setup { cutoffs: Some((1..9).collect()), ..good.clone() }, "at most 7"),
            (Setup { cutoffs: Some(vec![0, 1]), ..good.clone() }, "begin with 0"),
            (Setup { floor: 0.6, ..good.clone() }, "0% to 50%"),
            (Setup { floor: f64::NAN, ..good.clone() }, "0% to 50%"),
            (Setup { rate_bps: None, ..good.clone() }, "a rate is needed"),
            (Setup { parent: Some("root".to_owned()), ..good.clone() }, "no class"),
            (Setup { parent: Some("ffff:ffff".to_owned()), ..good.clone() }, "no class"),
            (Setup { parent: Some("1:0".to_owned()), ..good.clone() }, "no class"),
            (Setup { parent: Some("1:20 handle 7467: pfifo #".to_owned()), ..good.clone() }, "no class"),
            (Setup { order: Order::Fair, cutoffs: Some(vec![1]), ..good.clone() }, "leave out cutoffs"),
            (Setup { order: Order::Las, insisted: Some(Source::Told), ..good.clone() }, "needs no source"),
        ] {
            let error = setup.check().expect_err(what).to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }
}
