//! Numbers in as few characters as tell them apart.

/// A count or a rate, six characters at most: `50800`, `1.2M`.
pub fn count(value: f64) -> String {
    match value {
        value if value > 0.0 && value < 0.5 => "<1".to_owned(),
        value if value < 999_999.5 => format!("{value:.0}"),
        value => short(value),
    }
}

/// The same in four characters at most: `999`, `1.2k`, `51k`.
pub fn short(value: f64) -> String {
    let units = [(1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
    let Some((unit, letter)) = units.into_iter().rev().find(|(unit, _)| value >= unit * 0.9995) else {
        return format!("{value:.0}");
    };
    let value = value / unit;
    if value < 9.95 { format!("{value:.1}{letter}") } else { format!("{value:.0}{letter}") }
}

/// A time, five characters at most: `762us`, `1.2ms`, `24ms`, `1.79s`.
pub fn seconds(value: f64) -> String {
    match value {
        value if value < 999.5e-6 => format!("{:.0}us", value * 1e6),
        value if value < 9.95e-3 => format!("{:.1}ms", value * 1e3),
        value if value < 999.5e-3 => format!("{:.0}ms", value * 1e3),
        value if value < 9.995 => format!("{value:.2}s"),
        value if value < 99.95 => format!("{value:.1}s"),
        value => format!("{value:.0}s"),
    }
}

/// A share from 0 to 1, four characters at most: `0%`, `<1%`, `100%`. Not all is never 100%.
pub fn percent(share: f64) -> String {
    match share {
        share if share <= 0.0 => "0%".to_owned(),
        share if share < 0.01 => "<1%".to_owned(),
        share if share >= 1.0 => "100%".to_owned(),
        share => format!("{:.0}%", (share * 100.0).min(99.0)),
    }
}

/// So many of so many, in `width` characters if it can be: `158/57`, else `12k/2k`.
pub fn of(length: u64, limit: Option<u64>, width: usize) -> String {
    let text = |write: fn(f64) -> String| {
        let limit = limit.map_or_else(|| "-".to_owned(), |limit| write(limit as f64));
        format!("{}/{limit}", write(length as f64))
    };
    let exact = text(|value| format!("{value}"));
    if exact.len() > width { text(short) } else { exact }
}

/// What is not known is a dash, and never 0.
pub fn or_dash<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), write)
}

/// The last `width` characters, with a mark where some were cut off: the port is what tells two
/// listeners apart.
pub fn end_of(text: &str, width: usize, mark: char) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = text.chars().skip(length - width.saturating_sub(1));
    std::iter::once(mark).take(width).chain(kept).collect()
}

/// The first `width` characters, with a mark where some were cut off.
pub fn start_of(text: &str, width: usize, mark: char) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(std::iter::once(mark).take(width)).collect()
}

/// Lines of at most `width` characters, broken between words where that can be.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        while !word.is_empty() {
            let line = lines.last_mut().expect("one at least");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.chars().count() <= width {
                if gap > 0 {
                    line.push(' ');
                }
                *line += &std::mem::take(&mut word);
            } else if used > 0 {
                lines.push(String::new());
            } else {
                let rest = word.chars().skip(width).collect();
                *line = word.chars().take(width).collect();
                word = rest;
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns_whatever_their_size() {
        for exponent in -9..14 {
            for digits in [1.0, 1.5, 9.4, 9.949, 9.95, 9.994, 9.996, 9.9949, 9.9951, 9.9996] {
                let value = digits * 10_f64.powi(exponent);
                let (count, short, seconds) = (count(value), short(value), seconds(value.min(9e4)));
                assert!(count.len() <= 6 && short.len() <= 4, "{value}: {count}, {short}");
                assert!(seconds.len() <= 6 && (value > 999.0 || seconds.len() <= 5), "{value}: {seconds}");
            }
        }
    }

    #[test]
    fn numbers_say_what_a_reader_would() {
        assert_eq!([0.0, 0.2, 1121.4, 50_800.0, 1.2e6].map(count), ["0", "<1", "1121", "50800", "1.2M"]);
        assert_eq!([999.0, 1000.0, 12_345.0].map(short), ["999", "1.0k", "12k"]);
        assert_eq!(
            [0.0, 762e-6, 1.24e-3, 0.024117, 0.9996, 1.79, 17.9, 179.0].map(seconds),
            ["0us", "762us", "1.2ms", "24ms", "1.00s", "1.79s", "17.9s", "179s"]
        );
        assert_eq!([0.0, 0.001, 0.5, 0.9999, 1.0].map(percent), ["0%", "<1%", "50%", "99%", "100%"]);
        assert_eq!(
            [of(158, Some(57), 7), of(12_345, Some(2_000), 7), of(3, None, 7)],
            ["158/57", "12k/2.0k", "3/-"]
        );
    }

    #[test]
    fn text_that_is_too_long_keeps_its_telling_end() {
        assert_eq!(end_of("tg-s 192.0.2.1:443", 13, '~'), "~92.0.2.1:443");
        assert_eq!((end_of("abc", 3, '~').as_str(), end_of("abc", 0, '~').as_str()), ("abc", ""));
        assert_eq!(start_of("abcdef", 4, '~'), "abc~");
        assert_eq!(wrapped("one two three fourteen", 7), ["one two", "three", "fourtee", "n"]);
        assert_eq!(wrapped("", 7), [""; 0]);
    }
}
