//! Median and range of repeated measurements.

/// Median and range of a few measurements of the same thing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// Middle value; the mean of the two middle ones when their number is even.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// How many, at least 1.
    pub count: usize,
}

impl Spread {
    /// Spread of the values; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: median(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            count: sorted.len(),
        })
    }

    /// `min–max` when they read differently; a unit that both share is said once.
    pub fn range(&self, format: impl Fn(f64) -> String) -> Option<String> {
        let [min, max] = [self.min, self.max].map(format);
        let bare_min = match (unit(&min), unit(&max)) {
            (of_min, of_max) if of_min == of_max => min.trim_end_matches(of_min),
            _ => &min,
        };
        (min != max).then(|| format!("{bare_min}–{max}"))
    }
}

/// What follows the digits: ` ms`, `%`, or nothing.
fn unit(text: &str) -> &str {
    let digits = text.rfind(|character: char| character.is_ascii_digit());
    digits.map_or("", |last| &text[last + 1..])
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_lies_within_the_range() {
        for values in [vec![3.0], vec![1.0, 2.0], vec![5.0, 1.0, 2.0], vec![4.0, 4.0, 1.0, 9.0]] {
            let spread = Spread::of(values.clone()).expect("not empty");
            assert!(spread.min <= spread.median && spread.median <= spread.max, "{values:?}");
            assert_eq!(spread.count, values.len());
        }
        assert_eq!(Spread::of([5.0, 1.0, 2.0]).expect("not empty").median, 2.0);
        assert_eq!(Spread::of([1.0, 2.0]).expect("not empty").median, 1.5);
    }

    #[test]
    fn nothing_has_no_spread() {
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn single_value_shows_no_range() {
        let show = |value: f64| value.to_string();
        assert_eq!(Spread::of([2.0]).expect("one").range(show), None);
        assert_eq!(Spread::of([2.0, 4.0]).expect("two").range(show).as_deref(), Some("2–4"));
    }
}
