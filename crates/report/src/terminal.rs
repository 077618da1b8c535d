//! Text and tables as wide as the terminal.

use std::ops::Range;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Widest line, columns of the terminal.
pub(crate) const WIDTH: u16 = 112;

/// Three lines, no grid.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// An empty table of the terminal's width; columns of numbers are aligned to the right.
pub(crate) fn headed<T: Into<Cell>>(headings: impl IntoIterator<Item = T>, numbers: Range<usize>) -> Table {
    let mut grid = Table::new();
    grid.load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(headings);
    for index in numbers {
        let column = grid.column_mut(index).expect("every heading has a column");
        column.set_cell_alignment(CellAlignment::Right);
    }
    grid
}

/// Breaks text between words into lines of at most [`WIDTH`] characters; a longer word is broken
/// inside.
pub(crate) fn wrap(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        for piece in pieces(word, usize::from(WIDTH) - indent.len()) {
            let line = lines.last_mut().expect("starts with one");
            if line.chars().count() + piece.trim_end().chars().count() > usize::from(WIDTH) {
                lines.push(format!("{indent}{piece}"));
            } else {
                line.push_str(&piece);
            }
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn pieces(word: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(width).map(|chunk| chunk.iter().collect()).collect()
}
