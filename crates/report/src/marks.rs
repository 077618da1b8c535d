//! Marks: why a cell should be read with care.

use results::Cell;

use crate::format;
use crate::run::Point;

/// Every reason to read the cell with care: the lab's own marks, and what its numbers say that no
/// mark said.
pub(crate) fn marks(cell: &Cell) -> Vec<String> {
    let mut marks = cell.marks.clone();
    for reason in &cell.crowd.generator.reasons {
        if !marks.iter().any(|mark| mark.contains(reason.as_str())) {
            marks.push(format!("generator limited: {reason}"));
        }
    }
    if cell.crowd.generator.limited && marks.is_empty() {
        marks.push("generator limited: it, not the server, was the limit".to_owned());
    }
    if cell.lost_replies > 0 && !marks.iter().any(|mark| mark.contains("lost")) {
        let lost = format::count(cell.lost_replies as f64);
        marks.push(format!("{lost} replies lost on the generator's side"));
    }
    marks.extend(unbalanced(cell));
    marks
}

/// Whether any repetition has a mark.
pub(crate) fn is_marked(point: &Point) -> bool {
    point.cells.iter().any(|cell| !marks(cell).is_empty())
}

/// Says so when the causes in which attempts ended do not sum to the attempts.
fn unbalanced(cell: &Cell) -> Option<String> {
    let crowd = &cell.crowd;
    let sum = crowd.ok
        + crowd.refused
        + crowd.reset
        + crowd.timed_out_connect
        + crowd.timed_out_response
        + crowd.aborted
        + crowd.malformed
        + crowd.no_port
        + crowd.not_sent
        + crowd.unfinished;
    (sum != crowd.offered).then(|| {
        let [sum, offered] = [sum, crowd.offered].map(|attempts| format::count(attempts as f64));
        format!("the causes in which attempts ended sum to {sum}, not to the {offered} attempts")
    })
}

/// Marks numbered from 1, each text once.
#[derive(Debug, Default)]
pub(crate) struct Footnotes {
    texts: Vec<String>,
}

impl Footnotes {
    /// Footnotes of the points, numbered in their order.
    pub fn of(points: &[Point]) -> Self {
        let mut footnotes = Self::default();
        for mark in points.iter().flat_map(|point| &point.cells).flat_map(|cell| marks(cell)) {
            if !footnotes.texts.contains(&mark) {
                footnotes.texts.push(mark);
            }
        }
        footnotes
    }

    /// Number and text of each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.texts.iter().map(String::as_str))
    }

    /// The numbers that belong to a point, ascending.
    pub fn numbers(&self, point: &Point) -> Vec<usize> {
        let own: Vec<String> = point.cells.iter().flat_map(|cell| marks(cell)).collect();
        self.iter()
            .filter(|(_, text)| own.iter().any(|mark| mark == text))
            .map(|(number, _)| number)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn clean_cell_has_no_marks() {
        assert_eq!(marks(&testing::cell("a", 1.0, "stock")), Vec::<String>::new());
    }

    #[test]
    fn limited_generator_is_marked_even_when_the_lab_forgot() {
        let mut cell = testing::cell("a", 1.0, "stock");
        cell.crowd.generator.limited = true;
        assert_eq!(marks(&cell).len(), 1);
        cell.crowd.generator.reasons = vec!["starts were 12 ms late".to_owned()];
        assert_eq!(marks(&cell), ["generator limited: starts were 12 ms late"]);
        cell.marks = vec!["crowd: starts were 12 ms late".to_owned()];
        assert_eq!(marks(&cell), cell.marks, "said once");
    }

    #[test]
    fn lost_replies_are_marked() {
        let mut cell = testing::cell("a", 1.0, "stock");
        cell.lost_replies = 1200;
        assert_eq!(marks(&cell), ["1,200 replies lost on the generator's side"]);
    }

    #[test]
    fn attempts_that_vanish_are_marked() {
        let mut cell = testing::cell("a", 1.0, "stock");
        cell.crowd.offered += 1;
        assert_eq!(marks(&cell).len(), 1);
    }

    #[test]
    fn same_mark_of_two_cells_is_one_footnote() {
        let mut cells = [testing::cell("a", 1.0, "stock"), testing::cell("a", 2.0, "stock")];
        cells[0].marks = vec!["x".to_owned()];
        cells[1].marks = vec!["y".to_owned(), "x".to_owned()];
        let points: Vec<Point> = cells.iter().map(|cell| Point { cells: vec![cell] }).collect();
        let footnotes = Footnotes::of(&points);
        assert_eq!(footnotes.iter().collect::<Vec<_>>(), [(1, "x"), (2, "y")]);
        assert_eq!(footnotes.numbers(&points[1]), [1, 2]);
    }
}
