//! The rate at which a server saturates: the highest that stock Linux still answers.

use anyhow::{Result, ensure};
use results::Saturation;

use crate::cell::{self, Lab};
use crate::crowd::Send;
use crate::experiment::{Policy, Server};

/// A probe is answered when this share of what was offered in its window was also replied to in it.
const ANSWERED: f64 = 0.95;
/// Probes before the search gives up: no server is that fast, so something else answers.
const MAX_PROBES: usize = 40;

/// Offers rising rates until the server no longer answers all, then narrows the last interval down. The result is the
/// highest goodput of a probe that was answered.
pub fn find(lab: Lab<'_>, server: &Server, mut on_probe: impl FnMut(f64, f64)) -> Result<Saturation> {
    let search = lab.experiment.saturation;
    let stock = Policy { name: "stock".to_owned(), guard: None, sysctls: [].into() };
    let mut probes = Vec::new();
    let mut goodput = |rate: f64| -> Result<bool> {
        let send = Send { rate, warmup: search.duration / 2, duration: search.duration, seed: 1 };
        let crowd = cell::run(lab, server, &stock, &send)?.crowd;
        on_probe(crowd.offered_per_s, crowd.goodput_per_s);
        probes.push((crowd.offered_per_s, crowd.goodput_per_s));
        Ok(is_answered(crowd.offered_per_s, crowd.goodput_per_s))
    };
    let mut low = search.from;
    ensure!(
        goodput(low)?,
        "{} does not answer {low} requests/s; set saturation.from lower in the experiment file",
        server.name
    );
    let mut high = low * search.factor;
    for _ in 0..MAX_PROBES {
        if !goodput(high)? {
            break;
        }
        (low, high) = (high, high * search.factor);
    }
    for _ in 0..search.refinements {
        let middle = (low * high).sqrt();
        if goodput(middle)? { low = middle } else { high = middle }
    }
    Ok(Saturation { server: server.name.clone(), rate_per_s: best(&probes), probes })
}

fn is_answered(offered: f64, goodput: f64) -> bool {
    goodput >= ANSWERED * offered
}

fn best(probes: &[(f64, f64)]) -> f64 {
    let answered = probes.iter().filter(|&&(offered, goodput)| is_answered(offered, goodput));
    answered.map(|&(_, goodput)| goodput).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_is_the_highest_goodput_that_was_answered() {
        let probes = [(100.0, 100.0), (200.0, 198.0), (300.0, 250.0), (220.0, 215.0)];
        assert_eq!(best(&probes), 215.0);
    }
}
