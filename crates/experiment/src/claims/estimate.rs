//! A mean and how far it can be trusted.

use results::Estimate;

/// Student's t for a two-sided interval of 95%, by degrees of freedom from 1. With more than ten
/// repetitions the last one makes the interval wider than it need be.
///
/// Source: the distribution's 0.975 quantile, as in any table of it.
const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// Mean and 95% confidence interval of independent measurements; `None` when there are none.
pub(crate) fn of(values: &[f64]) -> Option<Estimate> {
    let count = values.len();
    if count == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = match count - 1 {
        0 => 0.0,
        freedom => T[freedom.min(T.len()) - 1] * (squares / freedom as f64 / count as f64).sqrt(),
    };
    Some(Estimate { mean, low: mean - half, high: mean + half, count })
}

/// The same of ratios, by their logarithms: twice and half as much are equally far from as much,
/// and no interval reaches below 0. With a ratio of 0 there is no logarithm, and it is as for other
/// numbers.
pub(crate) fn of_ratios(values: &[f64]) -> Option<Estimate> {
    if values.iter().any(|&value| value <= 0.0) {
        return of(values);
    }
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let Estimate { mean, low, high, count } = of(&logarithms)?;
    Some(Estimate { mean: mean.exp(), low: low.exp(), high: high.exp(), count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_and_twice_as_much_are_as_much() {
        let estimate = of_ratios(&[0.5, 2.0]).expect("two");
        assert!((estimate.mean - 1.0).abs() < 1e-9, "{estimate:?}");
        assert!(estimate.low > 0.0 && (estimate.low * estimate.high - 1.0).abs() < 1e-9, "{estimate:?}");
        assert_eq!(of_ratios(&[0.0, 2.0]), of(&[0.0, 2.0]));
        assert_eq!(of_ratios(&[]), None);
    }

    #[test]
    fn interval_is_that_of_students_t() {
        let estimate = of(&[1.0, 2.0, 3.0]).expect("three");
        assert_eq!((estimate.mean, estimate.count), (2.0, 3));
        // s = 1, so 4.303 / sqrt(3)
        assert!((estimate.high - 2.0 - 2.4843).abs() < 1e-3, "{estimate:?}");
        assert!((estimate.high + estimate.low - 4.0).abs() < 1e-9);
    }

    #[test]
    fn single_measurement_is_its_own_interval_and_none_has_none() {
        let estimate = of(&[3.5]).expect("one");
        assert_eq!((estimate.low, estimate.mean, estimate.high), (3.5, 3.5, 3.5));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn more_of_the_same_spread_narrows_the_interval() {
        let width = |values: &[f64]| of(values).map(|estimate| estimate.high - estimate.low).expect("some");
        assert!(width(&[1.0, 3.0]) > width(&[1.0, 3.0, 1.0, 3.0]));
        assert!(width(&[1.0, 3.0].repeat(10)) > width(&[1.0, 3.0].repeat(20)));
    }
}
