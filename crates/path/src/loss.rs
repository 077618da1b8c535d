//! Which packets the wire loses.

use aqm::RandomNumbers;

use crate::chance;

/// How the wire loses packets, whatever they are.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Loss {
    /// It does not.
    #[default]
    None,
    /// Each with the same probability, 0 to 1, whatever became of those before.
    Uniform(f64),
    /// In bursts.
    GilbertElliott(GilbertElliott),
}

/// Loss in bursts: a wire that is good or bad, and changes by chance after each packet.
/// Probabilities are 0 to 1.
///
/// It begins as good. With the defaults a burst of losses is 1 / `to_good` packets long on the
/// average, and `to_bad` / (`to_bad` + `to_good`) of all packets are lost.
///
/// Source: E. N. Gilbert, *Capacity of a Burst-Noise Channel*, BSTJ 39, 1960; E. O. Elliott,
/// *Estimates of Error Rates for Codes on Burst-Noise Channels*, BSTJ 42, 1963. netem's `gemodel p
/// r 1-h 1-k` has the same four, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// That a good wire becomes bad (`p`).
    pub to_bad: f64,
    /// That a bad wire becomes good (`r`).
    pub to_good: f64,
    /// Loss while it is bad (`1-h`): 1 by default.
    pub loss_when_bad: f64,
    /// Loss while it is good (`1-k`): 0 by default.
    pub loss_when_good: f64,
}

impl GilbertElliott {
    /// Share of packets that are lost in the long run. Without any change the wire stays good.
    pub fn mean_loss(&self) -> f64 {
        let Self { to_bad, to_good, loss_when_bad, loss_when_good } = *self;
        let bad = if to_bad == 0.0 { 0.0 } else { to_bad / (to_bad + to_good) };
        bad * loss_when_bad + (1.0 - bad) * loss_when_good
    }
}

/// The losses of one wire.
#[derive(Debug)]
pub(crate) struct LossProcess {
    loss: Loss,
    is_bad: bool,
    random: RandomNumbers,
}

impl LossProcess {
    pub(crate) fn new(loss: Loss, seed: u64) -> Self {
        Self { loss, is_bad: false, random: RandomNumbers::new(seed) }
    }

    /// Whether the next packet is lost.
    pub(crate) fn loses_next(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Uniform(probability) => chance(&mut self.random, probability),
            Loss::GilbertElliott(model) => {
                let (loss, change) = if self.is_bad {
                    (model.loss_when_bad, model.to_good)
                } else {
                    (model.loss_when_good, model.to_bad)
                };
                let is_lost = chance(&mut self.random, loss);
                self.is_bad ^= chance(&mut self.random, change);
                is_lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(loss: Loss, packets: usize) -> Vec<bool> {
        let mut process = LossProcess::new(loss, 7);
        (0..packets).map(|_| process.loses_next()).collect()
    }

    fn share(losses: &[bool]) -> f64 {
        losses.iter().filter(|lost| **lost).count() as f64 / losses.len() as f64
    }

    /// Five standard deviations of so many independent trials.
    fn bound(probability: f64, packets: usize) -> f64 {
        5.0 * (probability * (1.0 - probability) / packets as f64).sqrt()
    }

    #[test]
    fn uniform_loss_has_its_share_and_no_memory() {
        for probability in [0.001, 0.01, 0.3] {
            let losses = losses(Loss::Uniform(probability), 400_000);
            let difference = share(&losses) - probability;
            assert!(difference.abs() < bound(probability, losses.len()), "{probability}: {difference}");
            let after_a_loss: Vec<bool> =
                losses.windows(2).filter(|pair| pair[0]).map(|pair| pair[1]).collect();
            let difference = share(&after_a_loss) - probability;
            assert!(difference.abs() < bound(probability, after_a_loss.len()), "{probability}: {difference}");
        }
    }

    #[test]
    fn loss_of_all_and_of_none_are_exact() {
        assert!(losses(Loss::Uniform(1.0), 10_000).iter().all(|lost| *lost));
        assert!(!losses(Loss::Uniform(0.0), 10_000).contains(&true));
        assert!(!losses(Loss::None, 10).contains(&true));
    }

    #[test]
    fn bursts_of_gilbert_elliott_are_as_long_as_the_wire_stays_bad() {
        let model = GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_when_bad: 1.0, loss_when_good: 0.0 };
        let losses = losses(Loss::GilbertElliott(model), 2_000_000);
        let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let lost = losses.iter().filter(|lost| **lost).count();
        let mean_burst = lost as f64 / bursts as f64;
        assert!((mean_burst * model.to_good - 1.0).abs() < 0.05, "{mean_burst} packets");
        assert!((share(&losses) / model.mean_loss() - 1.0).abs() < 0.05, "{}", share(&losses));
        assert!((model.mean_loss() - 0.01 / 0.21).abs() < 1e-12);
    }

    #[test]
    fn both_states_of_gilbert_elliott_may_lose_some() {
        let model = GilbertElliott { to_bad: 0.05, to_good: 0.05, loss_when_bad: 0.5, loss_when_good: 0.1 };
        let losses = losses(Loss::GilbertElliott(model), 2_000_000);
        assert!((model.mean_loss() - 0.3).abs() < 1e-12);
        assert!((share(&losses) / 0.3 - 1.0).abs() < 0.05, "{}", share(&losses));
    }
}
