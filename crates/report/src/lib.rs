//! Makes tables, plots and pages from the results of a run.
//!
//! Give it the records of a results file as a [`Run`]. It gives back an HTML [`page`], a [`table`]
//! for the terminal, and the [`finding`], the one sentence that both carry. Of several runs it
//! makes a [`book`]. Where a point of the grid was repeated, every number is the median of its
//! repetitions, with their range beside it.
//!
//! What it is not: it measures nothing, reads no file and opens no socket, and the page needs no
//! network. It judges nothing either. A cell with marks is shown with them, never left out, and the
//! lab has said whether a claim holds.

mod attempts;
mod book;
mod burst_map;
mod claims;
mod compare;
mod counters;
mod cpu;
mod finding;
mod flows;
mod format;
mod growth;
mod link;
mod marks;
mod metric;
mod page;
mod plot;
mod policy;
mod results_table;
mod run;
mod server;
mod spread;
mod summary;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
mod traces;

pub use book::book;
pub use claims::claims_table;
pub use compare::{Compared, Unshared, compare, comparison_page, comparison_table, unshared};
pub use finding::finding;
pub use page::page;
pub use run::{ReadError, Run};
pub use summary::summary;
pub use table::table;
