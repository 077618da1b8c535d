//! Turns a results file into a page: `cargo run -p report --example page results.jsonl page.html`.
//!
//! Prints the terminal's table and the finding, too.

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(results), Some(page)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: page RESULTS.jsonl PAGE.html");
    };
    let text = std::fs::read_to_string(&results).with_context(|| format!("read {results}"))?;
    let run = report::Run::from_json_lines(&text)?;
    println!("{}\n{}", report::table(&run), report::finding(&run));
    std::fs::write(&page, report::page(&run)).with_context(|| format!("write {page}"))
}
