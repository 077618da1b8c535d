//! Shapes and sessions as people write them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use units::Nanos;

use crate::{Piece, Sessions, Shape};

/// Reads `w1` to `w10` of `[SH06]`, or pieces as `25s:0.2,25s:1.2`, a ramp as `60s:0.2-1.5`.
///
/// # Errors
///
/// One line: what is none, and what would be.
pub fn parse_shape(text: &str) -> Result<Shape, String> {
    if let Some(number) = text.strip_prefix(['w', 'W']).and_then(|number| number.parse().ok()) {
        return Shape::of_paper(number).ok_or_else(|| format!("{text} is none of w1 to w10"));
    }
    let pieces = text.split(',').map(piece).collect::<Result<_, _>>()?;
    Shape::new(pieces).ok_or_else(|| format!("{text:?}: there is no time in it, or no attempt"))
}

/// As [`parse_shape`] reads it.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Piece { span, from, to }) in self.pieces().iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let span = humantime::format_duration(Duration::from(*span));
            write!(f, "{comma}{span}:{from}")?;
            if from != to {
                write!(f, "-{to}")?;
            }
        }
        Ok(())
    }
}

fn piece(text: &str) -> Result<Piece, String> {
    let read = || {
        let (span, loads) = text.split_once(':')?;
        let (from, to) = loads.split_once('-').unwrap_or((loads, loads));
        let load = |text: &str| text.parse().ok().filter(|load: &f64| *load >= 0.0 && load.is_finite());
        let span = spelling::time(span).ok().filter(|span| !span.is_zero())?;
        Some(Piece { span: Nanos::from(span), from: load(from)?, to: load(to)? })
    };
    read().ok_or_else(|| {
        format!("{text:?} is no piece of a shape: w1 to w10, 25s:0.2,25s:1.2 or a ramp as 60s:0.2-1.5")
    })
}

/// Of the times of a session, on the mean.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Reads the name of sessions, or their table in one line as `{ pages = 10, objects = 3, think =
/// "5s", between_objects = "100ms" }`.
///
/// # Errors
///
/// One line: what is none, and what would be.
pub fn parse_sessions(text: &str) -> Result<Sessions, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        pages: f64,
        objects: f64,
        think: String,
        between_objects: String,
    }
    #[derive(Deserialize)]
    struct Line {
        sessions: Table,
    }
    const LIKE: &str =
        "redfavor, or a table as { pages = 10, objects = 3, think = \"5s\", between_objects = \"100ms\" }";
    if text == "redfavor" {
        return Ok(Sessions::redfavor());
    }
    if !text.starts_with('{') {
        return Err(format!("{text:?} is no session: {LIKE}"));
    }
    let Line { sessions: Table { pages, objects, think, between_objects } } =
        toml::from_str(&format!("sessions = {text}"))
            .map_err(|error| format!("{}; {LIKE}", error.message().replace('\n', " ")))?;
    let span = |key: &str, text: &str| {
        let span = spelling::time(text).ok().filter(|span| *span <= LONGEST);
        span.map(Nanos::from).ok_or_else(|| format!("{key} = {text:?} is no time up to a day, as in 5s"))
    };
    let (think, between_objects) = (span("think", &think)?, span("between_objects", &between_objects)?);
    Sessions::new(pages, objects, think, between_objects)
        .ok_or_else(|| format!("pages = {pages}, objects = {objects}: above 0, and up to a million"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_a_name_or_a_table_of_means() {
        let table = "{ pages = 240, objects = 3, think = \"5s\", between_objects = \"100ms\" }";
        assert_eq!(parse_sessions(table), parse_sessions("redfavor"));
        for (bad, wanted) in [
            ("surge", "\"surge\" is no session: redfavor, or a table"),
            ("{ pages = 1 }", "missing field `objects`"),
            ("{ pages = 0, objects = 3, think = \"5s\", between_objects = \"1s\" }", "pages = 0"),
            (
                "{ pages = 1, objects = 3, think = \"5\", between_objects = \"1s\" }",
                "think = \"5\" is no time",
            ),
        ] {
            let error = parse_sessions(bad).expect_err(bad);
            assert!(error.contains(wanted), "{bad}: {error}");
        }
    }

    #[test]
    fn shapes_are_names_and_pieces() {
        assert_eq!(parse_shape("w1"), parse_shape("25s:0.2,25s:1.2"));
        let ramp = parse_shape("60s:0.2-1.5").expect("a ramp");
        assert_eq!((ramp.peak(), ramp.cycle()), (1.5, Nanos::from_secs(60)));
        for text in ["w1", "w10", "60s:0.2-1.5,1ms:3", "90s:1.5-0.25"] {
            let shape = parse_shape(text).expect(text);
            assert_eq!(parse_shape(&shape.to_string()), Ok(shape), "{text}");
        }
        for bad in
            ["w0", "w11", "", "25s", "25s:", "25s:x", "0s:1", "25:1", "25s:-1", "25s:1,", "1s:nan", "5s:0"]
        {
            let error = parse_shape(bad).expect_err(bad);
            assert!(!error.contains('\n') && !error.is_empty(), "{error}");
        }
    }
}
