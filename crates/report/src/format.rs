//! Numbers for people: three significant digits, thousands separators, a unit that fits.

/// What stands where there is nothing to show.
pub(crate) const NOTHING: &str = "–";

/// Three significant digits: `17,600`, `1.05`, `0.0123`.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let rounded = three_digits(value);
    let decimals = (2 - magnitude(rounded)).clamp(0, 9) as usize;
    separate(&format!("{rounded:.decimals$}"))
}

/// A count to its last digit: `1,234,567`.
pub(crate) fn count(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    separate(&format!("{value:.0}"))
}

/// A ratio with as few decimals as it needs, at most two: `4`, `1.5`, `0.75`.
pub(crate) fn multiple(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A share of one as a percentage: `100%`, `76.5%`, `1.04%`, `<0.01%`.
pub(crate) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NOTHING.to_owned();
    }
    let percent = three_digits(share * 100.0);
    let decimals = match percent.abs() {
        0.0 => 0,
        small if small < 0.01 => return "<0.01%".to_owned(),
        small if small < 10.0 => 2,
        medium if medium < 100.0 => 1,
        _ => 0,
    };
    separate(&format!("{percent:.decimals$}")) + "%"
}

/// Milliseconds in the unit that fits: `412 µs`, `22.1 ms`, `1.04 s`.
pub(crate) fn millis(ms: f64) -> String {
    let ms = three_digits(ms);
    match ms.abs() {
        0.0 => "0 ms".to_owned(),
        micro if micro < 1.0 => number(ms * 1e3) + " µs",
        milli if milli < 1e3 => number(ms) + " ms",
        _ => number(ms / 1e3) + " s",
    }
}

/// Milliseconds without trailing zeros, for the ticks of an axis: `100 µs`, `10 ms`, `1 s`.
pub(crate) fn millis_tick(ms: f64) -> String {
    match ms {
        micro if micro < 1.0 => multiple(three_digits(ms * 1e3)) + " µs",
        milli if milli < 1e3 => multiple(ms) + " ms",
        _ => multiple(ms / 1e3) + " s",
    }
}

/// A tick of a linear axis: `20,000`, `0.5`.
pub(crate) fn tick(value: f64) -> String {
    separate(&multiple(value))
}

/// The value rounded to three significant digits.
fn three_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10_f64.powi(magnitude(value) - 2);
    (value / unit).round() * unit
}

/// Power of ten of the first digit; 0 for 0.
fn magnitude(value: f64) -> i32 {
    if value == 0.0 {
        return 2;
    }
    /* log10 of a number that was rounded to 1000 may fall just below 3 */
    (value.abs().log10() + 1e-12).floor() as i32
}

/// Puts a comma between each three digits before the decimal point.
fn separate(number: &str) -> String {
    let digits = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (index, character) in number.char_indices() {
        let behind = digits.saturating_sub(index);
        let is_inner = index > 0 && !text.ends_with('-') && index < digits;
        if is_inner && behind % 3 == 0 {
            text.push(',');
        }
        text.push(character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (17_642.0, "17,600"),
            (999.6, "1,000"),
            (99.96, "100"),
            (1_234_567.0, "1,230,000"),
            (1.0, "1.00"),
            (1.0449, "1.04"),
            (22.04, "22.0"),
            (0.012_34, "0.0123"),
            (-1234.0, "-1,230"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn counts_are_exact() {
        for (value, text) in [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(count(value), text);
        }
    }

    #[test]
    fn time_takes_the_unit_that_fits() {
        let cases = [
            (0.0, "0 ms"),
            (0.0004, "0.400 µs"),
            (0.412, "412 µs"),
            (0.9999, "1.00 ms"),
            (22.1, "22.1 ms"),
            (999.9, "1.00 s"),
            (1040.0, "1.04 s"),
        ];
        for (ms, text) in cases {
            assert_eq!(millis(ms), text, "{ms}");
        }
    }

    #[test]
    fn percentages_never_round_something_to_nothing() {
        let cases = [
            (0.0, "0%"),
            (0.000_01, "<0.01%"),
            (0.0104, "1.04%"),
            (0.765, "76.5%"),
            (0.9999, "100%"),
            (1.013, "101%"),
        ];
        for (share, text) in cases {
            assert_eq!(percent(share), text, "{share}");
        }
    }

    #[test]
    fn ticks_have_no_trailing_zeros() {
        assert_eq!(tick(20_000.0), "20,000");
        assert_eq!(tick(0.5), "0.5");
        assert_eq!(millis_tick(0.1), "100 µs");
        assert_eq!(millis_tick(10_000.0), "10 s");
        assert_eq!(multiple(1.5), "1.5");
        assert_eq!(multiple(4.0), "4");
        assert_eq!(multiple(10.0), "10");
    }
}
