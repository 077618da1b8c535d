//! The list: a line for each listener, in the columns that the terminal has room for.

use crate::model::{Model, Row, Source};
use crate::sparkline::{Glyphs, widest};
use crate::state::State;
use crate::words::{count, end_of, of, or_dash, percent, seconds, start_of};

/// Of a listener's address at least, and at most.
const ADDRESS: (usize, usize) = (17, 47);
/// Of the minute, before there are more columns.
const LONG_MINUTE: usize = 20;
/// Of the reason of the last refusal in words.
const REASON: usize = 17;
/// Of a listener in a dry run, where it would refuse.
pub(crate) const WOULD_REFUSE: &str = "a dry run: it would refuse, and lets all pass";
/// Between two columns.
const GAP: usize = 1;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Listener,
    State,
    Answered,
    Share,
    Mean,
    P99,
    Waiting,
    Minute,
    Reason,
    Seen,
    Refused,
    AcceptQueue,
    SynQueue,
    Owner,
}

impl Column {
    /// Those of 80 columns.
    const USUAL: [Self; 9] = [
        Self::Listener,
        Self::State,
        Self::Answered,
        Self::Share,
        Self::Mean,
        Self::P99,
        Self::Waiting,
        Self::Minute,
        Self::Reason,
    ];
    /// Those that a narrow terminal does without, the first one first.
    const SPARE: [Self; 7] =
        [Self::Reason, Self::Minute, Self::P99, Self::Mean, Self::Waiting, Self::Share, Self::Answered];

    fn width(self) -> usize {
        match self {
            Self::Listener => ADDRESS.0,
            Self::State => 11,
            Self::Answered | Self::P99 | Self::Reason | Self::Seen | Self::Refused => 6,
            Self::Share => 4,
            Self::Mean => 5,
            Self::Waiting => 7,
            Self::Minute => 10,
            Self::AcceptQueue | Self::SynQueue => 9,
            Self::Owner => 16,
        }
    }

    fn is_number(self) -> bool {
        !matches!(self, Self::Listener | Self::State | Self::Minute | Self::Reason | Self::Owner)
    }

    /// Of a listener that nobody guards, other things are known.
    pub fn title(self, is_guarded: bool) -> &'static str {
        match (self, is_guarded) {
            (Self::Listener, _) => "listener",
            (Self::State, _) => "state",
            (Self::Answered, true) => "answ/s",
            (Self::Answered, false) => "acc/s",
            (Self::Share, true) => "ref%",
            (Self::Share, false) => "drop",
            (Self::Mean, true) => "mean",
            (Self::Mean, false) => "wait",
            (Self::P99, _) => "p99",
            (Self::Waiting, true) => "waiting",
            (Self::Waiting, false) => "accept",
            (Self::Minute, _) => "minute",
            (Self::Reason, _) => "last",
            (Self::Seen, _) => "SYNs/s",
            (Self::Refused, true) => "ref/s",
            (Self::Refused, false) => "drop/s",
            (Self::AcceptQueue, _) => "accept",
            (Self::SynQueue, _) => "SYN",
            (Self::Owner, _) => "command",
        }
    }

    fn value(self, row: &Row, width: usize, model: &Model, glyphs: Glyphs) -> String {
        let second = row.second.as_ref();
        let rate = |rate: Option<f64>| or_dash(rate, count);
        match self {
            Self::Listener => end_of(&name(row, model), width, glyphs.cut()),
            Self::State => state(row).0,
            Self::Answered => rate(second.and_then(|second| second.answered)),
            Self::Share => or_dash(second.and_then(|second| second.refused_share), percent),
            Self::Mean => or_dash(second.and_then(|second| second.times.as_ref()?.mean_s()), seconds),
            Self::P99 => second
                .and_then(|second| second.times.as_ref()?.quantile(0.99))
                .unwrap_or_else(|| "-".to_owned()),
            Self::Waiting => or_dash(row.now.waiting, |queue| of(queue.length, queue.limit, width)),
            Self::Minute => glyphs.sparkline(&row.minute, |point| point.answered, width),
            Self::Reason => or_dash(row.refused, |(reason, _)| {
                if width < REASON { reason.short() } else { reason.long() }.to_owned()
            }),
            Self::Seen => rate(second.and_then(|second| second.offered)),
            Self::Refused => rate(second.map(|second| second.refused)),
            Self::AcceptQueue => or_dash(row.now.accept, |queue| of(queue.length, queue.limit, width)),
            Self::SynQueue => or_dash(row.now.syn, |queue| of(queue.length, queue.limit, width)),
            Self::Owner => match &row.about.owners[..] {
                [] => "-".to_owned(),
                [one] => start_of(one, width, glyphs.cut()),
                [first, others @ ..] => {
                    let more = format!("+{}", others.len());
                    format!("{}{more}", start_of(first, width.saturating_sub(more.len()), glyphs.cut()))
                }
            },
        }
    }
}

/// The columns of a terminal of this width, and their widths, when the longest name of a listener
/// has `longest` characters.
pub(crate) fn columns(width: usize, longest: usize, is_guarded: bool) -> Vec<(Column, usize)> {
    let mut columns: Vec<(Column, usize)> = Column::USUAL.map(|column| (column, column.width())).into();
    let used = |columns: &[(Column, usize)]| {
        columns.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
    };
    for spare in Column::SPARE {
        if used(&columns) > width {
            columns.retain(|(column, _)| *column != spare);
        }
    }
    let mut left = width.saturating_sub(used(&columns));
    let more = longest.min(ADDRESS.1).saturating_sub(columns[0].1).min(left);
    columns[0].1 += more;
    left -= more;
    if columns.len() < Column::USUAL.len() {
        return columns;
    }
    // Each only after the one before it: a wider terminal has never less.
    let wishes = [(Column::Reason, REASON), (Column::Minute, LONG_MINUTE)];
    let mut is_met = true;
    for (wish, wide) in wishes {
        let (_, width) = columns.iter_mut().find(|(column, _)| *column == wish).expect("it is usual");
        is_met &= left >= wide - *width;
        if is_met {
            left -= wide - *width;
            *width = wide;
        }
    }
    let others = match is_guarded {
        true => [Column::Seen, Column::Refused, Column::AcceptQueue, Column::SynQueue],
        false => [Column::Seen, Column::Refused, Column::SynQueue, Column::Owner],
    };
    let before_minute = columns.len() - 2;
    for (place, other) in (before_minute..).zip(others) {
        let more = other.width() + GAP;
        is_met &= left >= more;
        if is_met {
            left -= more;
            columns.insert(place, (other, other.width()));
        }
    }
    let minute = columns.iter_mut().find(|(column, _)| *column == Column::Minute).expect("it is usual");
    minute.1 = widest(minute.1 + left).unwrap_or(minute.1);
    columns
}

/// The line above the list.
pub(crate) fn header(columns: &[(Column, usize)], is_guarded: bool) -> String {
    line(columns, |column, _| column.title(is_guarded).to_owned())
}

/// A listener's line.
pub(crate) fn row(columns: &[(Column, usize)], row: &Row, model: &Model, glyphs: Glyphs) -> String {
    line(columns, |column, width| column.value(row, width, model, glyphs))
}

/// A listener's address, with its namespace where that is not ours.
pub(crate) fn name(row: &Row, model: &Model) -> String {
    let netns = match &row.about.netns_name[..] {
        _ if row.id.netns == model.netns => return row.id.listen.clone(),
        "" => row.id.netns.to_string(),
        name => name.to_owned(),
    };
    format!("{netns} {}", row.id.listen)
}

/// Its state in a word, and in a sentence.
pub(crate) fn state(row: &Row) -> (String, &'static str) {
    let state = row.state();
    let is_counted = row.now.is_guarded || row.now.answered.is_some();
    match state {
        State::Refusing if row.about.is_dry_run => (format!("({})", state.word()), WOULD_REFUSE),
        State::Idle if !is_counted => ("-".to_owned(), "this kernel does not count who comes"),
        _ => (state.word().to_owned(), state.meaning()),
    }
}

/// Whether the list is of what guards tell.
pub(crate) fn is_guarded(model: &Model) -> bool {
    model.source != Source::Kernel
}

fn line(columns: &[(Column, usize)], value: impl Fn(Column, usize) -> String) -> String {
    let cell = |&(column, width): &(Column, usize)| match column.is_number() {
        true => format!("{:>width$}", value(column, width)),
        false => format!("{:width$}", value(column, width)),
    };
    columns.iter().map(cell).collect::<Vec<_>>().join(&" ".repeat(GAP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(columns: &[(Column, usize)]) -> usize {
        columns.iter().map(|(_, width)| width + GAP).sum::<usize>() - GAP
    }

    #[test]
    fn eighty_columns_have_everything_and_no_width_is_exceeded() {
        let names = |width, longest| -> Vec<Column> {
            columns(width, longest, true).into_iter().map(|(column, _)| column).collect()
        };
        assert_eq!(names(80, 13), Column::USUAL);
        assert_eq!(names(80, 60), Column::USUAL);
        assert_eq!(names(40, 13), [Column::Listener, Column::State, Column::Answered]);
        assert!(names(120, 13).contains(&Column::Refused));
        for width in 29..300 {
            for longest in [0, 13, 21, 47, 90] {
                for is_guarded in [true, false] {
                    let columns = columns(width, longest, is_guarded);
                    assert!(total(&columns) <= width, "{width}, {longest}: {columns:?}");
                }
            }
        }
    }

    #[test]
    fn wider_terminal_has_a_longer_minute_and_never_a_column_less() {
        let minute = |width| {
            let columns = columns(width, 13, true);
            columns.into_iter().find(|(column, _)| *column == Column::Minute).expect("a minute").1
        };
        assert_eq!((minute(80), minute(200)), (10, 60));
        for width in 80..250 {
            assert!(columns(width + 1, 13, true).len() >= columns(width, 13, true).len(), "{width}");
        }
    }
}
