//! Distributions of the times of objects.

use std::collections::BTreeMap;

use sim::dumbbell::Completion;

/// Steps of the distribution, milliseconds: short ones up to 4 s, and longer ones up to 20 s.
const FINE_MS: u32 = 10;
const FINE_STEPS: u32 = 400;
const COARSE_MS: u32 = 50;
const COARSE_STEPS: u32 = 320;

/// Shares that had come by each step.
pub(super) fn distribution(completions: &[Completion]) -> Vec<(f64, f64)> {
    let mut counts = vec![0u64; (FINE_STEPS + COARSE_STEPS) as usize];
    for done in completions {
        let ms = done.took.as_millis_f64();
        let fine = ms / f64::from(FINE_MS);
        let coarse = f64::from(FINE_STEPS) + (ms - f64::from(FINE_MS * FINE_STEPS)) / f64::from(COARSE_MS);
        let step = if fine < f64::from(FINE_STEPS) { fine } else { coarse };
        if let Some(count) = counts.get_mut(step as usize) {
            *count += 1;
        }
    }
    let all = completions.len().max(1) as f64;
    let mut sum = 0;
    let mut at_ms = 0;
    let share = |(step, count): (u32, u64)| {
        sum += count;
        at_ms += if step < FINE_STEPS { FINE_MS } else { COARSE_MS };
        (f64::from(at_ms), sum as f64 / all)
    };
    (0..).zip(counts).map(share).collect()
}

/// Mean times by size, in classes of about a quarter more each; 10 and 100 are the first of theirs.
pub(super) fn means(completions: &[Completion]) -> Vec<(u32, u64, f64)> {
    let mut classes: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for done in completions {
        let class = class(done.packets.max(1));
        let (count, sum) = classes.entry(class).or_default();
        *count += 1;
        *sum += done.took.as_millis_f64();
    }
    classes.into_iter().map(|(packets, (count, sum))| (packets, count, sum / count as f64)).collect()
}

/// The first size of a class: 1 to 9 each, then ten to the decade.
fn class(packets: u32) -> u32 {
    let tenth = (10.0 * f64::from(packets).log10() + 1e-9).floor();
    if packets < 10 { packets } else { 10f64.powf(tenth / 10.0).round() as u32 }
}

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;

    #[test]
    fn sizes_are_in_classes_that_begin_at_ten_and_a_hundred() {
        assert_eq!(
            [1, 9, 10, 12, 13, 99, 100, 125, 126, 1000].map(class),
            [1, 9, 10, 10, 13, 79, 100, 100, 126, 1000]
        );
    }

    #[test]
    fn distribution_rises_to_the_share_that_had_come() {
        let done = |millis| Completion { packets: 1, took: Nanos::from_millis(millis) };
        let shares = distribution(&[done(5), done(9), done(10), done(4010), done(100_000)]);
        assert_eq!(shares[..2], [(10.0, 0.4), (20.0, 0.6)]);
        assert_eq!(shares[399..401], [(4000.0, 0.6), (4050.0, 0.8)]);
        assert_eq!(shares.last(), Some(&(20_000.0, 0.8)));
    }
}
