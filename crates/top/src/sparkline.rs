//! A minute in a few characters.

use std::collections::VecDeque;

use crate::model::{MINUTE, Point};

/// Widths of a sparkline, characters; all divide 60.
const WIDTHS: [usize; 6] = [60, 30, 20, 15, 12, 10];

/// Characters that the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    /// Block elements.
    Unicode,
    /// For a terminal that has no UTF-8.
    Ascii,
}

impl Glyphs {
    /// For zero, and then from little to the most.
    fn levels(self) -> [char; 8] {
        match self {
            Self::Unicode => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            Self::Ascii => ['_', '.', ':', '-', '=', '+', '*', '#'],
        }
    }

    /// Where text was cut off.
    pub(crate) fn cut(self) -> char {
        match self {
            Self::Unicode => '…',
            Self::Ascii => '~',
        }
    }

    /// `value` of `most`, at most `width` characters; some for what is above zero.
    pub(crate) fn bar(self, value: f64, most: f64, width: usize) -> String {
        let share = if most > 0.0 { value / most } else { 0.0 };
        let length = (share * width as f64).round().max(if value > 0.0 { 1.0 } else { 0.0 });
        let full = self.levels()[7];
        std::iter::repeat_n(full, (length as usize).min(width)).collect()
    }

    /// The last minute, the newest second at the right: each character is the most of a part of it.
    /// `width` is of [`widest`]. Of a time before the first second there is nothing.
    pub(crate) fn sparkline(self, minute: &VecDeque<Point>, of: fn(&Point) -> f64, width: usize) -> String {
        let part = MINUTE / width;
        let most = most(minute, of);
        let levels = self.levels();
        let level = |value: f64| match value > 0.0 {
            true => levels[((value / most * 7.0).ceil() as usize).clamp(1, 7)],
            false => levels[0],
        };
        let cell = |cell: usize| {
            // Seconds before now.
            let newest = (width - 1 - cell) * part;
            let seconds = minute.iter().rev().skip(newest).take(part);
            seconds.map(of).reduce(f64::max).map_or(' ', level)
        };
        (0..width).map(cell).collect()
    }
}

/// The widest sparkline for which there is room; none if even the narrowest is too wide.
pub(crate) fn widest(room: usize) -> Option<usize> {
    WIDTHS.into_iter().find(|width| *width <= room)
}

/// The largest of the minute.
pub(crate) fn most(minute: &VecDeque<Point>, of: fn(&Point) -> f64) -> f64 {
    minute.iter().map(of).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_is_right_zero_is_not_nothing_and_a_peak_is_not_lost() {
        let point = |answered| Point { answered, ..Point::default() };
        let minute: VecDeque<Point> = [0.0, 0.0, 7.0, 0.0, 0.5, 3.5].map(point).into();
        let line = |glyphs: Glyphs, width| glyphs.sparkline(&minute, |point| point.answered, width);
        assert_eq!(line(Glyphs::Unicode, 60).trim_start(), "▁▁█▁▂▅");
        assert_eq!(line(Glyphs::Ascii, 30).trim_start(), "_#=");
        assert_eq!(line(Glyphs::Ascii, 10), "         #");
        let quiet: VecDeque<Point> = vec![point(0.0); MINUTE].into();
        assert_eq!(Glyphs::Ascii.sparkline(&quiet, |point| point.answered, 12), "_".repeat(12));
    }

    #[test]
    fn bar_of_a_few_is_seen() {
        assert_eq!(Glyphs::Ascii.bar(1.0, 1000.0, 10), "#");
        assert_eq!(Glyphs::Ascii.bar(1000.0, 1000.0, 10), "##########");
        assert_eq!(
            (Glyphs::Ascii.bar(0.0, 5.0, 10), Glyphs::Ascii.bar(0.0, 0.0, 10)),
            (String::new(), String::new())
        );
    }
}
