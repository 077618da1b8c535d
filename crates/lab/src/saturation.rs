//! The rate at which a server saturates: the highest that stock Linux still answers.

use anyhow::{Result, ensure};
use results::Saturation;

use crate::cell::{self, Lab};
use crate::crowd::Send;
use crate::experiment::{Policy, Server};

/// A probe is answered when this share of what was offered in its window was also replied to in it.
const ANSWERED: f64 = 0.95;
/// Rises before the search gives up.
const MAX_RISES: usize = 40;

/// Offers rising rates until the server no longer answers all, then narrows the last interval down. The result is the
/// highest goodput of a probe that was answered.
///
/// A rate counts as unanswered when it was so twice: one stall of the machine must not end the search.
///
/// # Errors
///
/// When not even the first rate is answered, or no rate is too high.
pub fn find(lab: Lab<'_>, server: &Server, mut on_probe: impl FnMut(f64, f64)) -> Result<Saturation> {
    let search = lab.experiment.saturation;
    let mut found =
        Saturation { server: server.name.clone(), rate_per_s: 0.0, probes: Vec::new(), marks: Vec::new() };
    let mut is_kept = |rate: f64| -> Result<bool> {
        for _ in 0..2 {
            let Probe { offered, goodput, marks } = probe(lab, server, rate)?;
            on_probe(offered, goodput);
            found.probes.push((offered, goodput));
            if is_answered(offered, goodput) {
                return Ok(true);
            }
            found.marks.extend(marks.into_iter().map(|mark| format!("a probe at {offered:.0}/s: {mark}")));
        }
        Ok(false)
    };
    ensure!(
        is_kept(search.from)?,
        "{} does not answer {} requests/s; set saturation.from lower in the experiment file",
        server.name,
        search.from
    );
    let (mut low, mut high) = (search.from, search.from * search.factor);
    let mut rises = 0;
    while is_kept(high)? {
        (low, high) = (high, high * search.factor);
        rises += 1;
        ensure!(
            rises < MAX_RISES,
            "{} still answers {low:.0} requests/s; set saturation.from or factor higher",
            server.name
        );
    }
    for _ in 0..search.refinements {
        let middle = (low * high).sqrt();
        if is_kept(middle)? { low = middle } else { high = middle }
    }
    found.rate_per_s = best(&found.probes);
    Ok(found)
}

struct Probe {
    offered: f64,
    goodput: f64,
    marks: Vec<String>,
}

/// One short crowd against the stock server.
fn probe(lab: Lab<'_>, server: &Server, rate: f64) -> Result<Probe> {
    let search = lab.experiment.saturation;
    let stock = Policy { name: "stock".to_owned(), guard: None, sysctls: [].into() };
    let send = Send { rate, warmup: search.duration / 2, duration: search.duration, seed: 1 };
    let measured = cell::run(lab, server, &stock, &send)?;
    let marks = cell::marks(&measured.crowd, &measured.difference, measured.lost_replies);
    Ok(Probe { offered: measured.crowd.offered_per_s, goodput: measured.crowd.goodput_per_s, marks })
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
