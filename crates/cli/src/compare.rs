//! `tidegate compare`: two runs beside each other.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::mistake::Mistake;
use crate::output::say;
use crate::run_file::read_run;

/// Hold two runs of one experiment against each other, as of tidegate lab run and of tidegate sim:
/// goodput and response times before a server, or drops of a dumbbell and how far apart the times
/// of its objects are
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Two results.jsonl
    #[arg(required = true, num_args = 2, value_names = ["A", "B"])]
    files: Vec<PathBuf>,

    /// Fail when anything is further apart than this: goodput or mean response of B from A's, as a
    /// share of it, or times of objects anywhere (Kolmogorov-Smirnov distance)
    #[arg(long, value_name = "D", value_parser = parse_distance)]
    at_most: Option<f64>,

    /// Write both as one HTML page, too, with both lines in every plot
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

fn parse_distance(text: &str) -> Result<f64, String> {
    let distance = text.parse().ok().filter(|distance| (0.0..=1.0).contains(distance));
    distance.ok_or_else(|| "a distance from 0 to 1, as 0.1".to_owned())
}

/// Prints both, and fails where they are too far apart.
pub fn run(args: Args) -> Result<()> {
    let [a, b] = args.files.as_slice() else { unreachable!("clap wants two") };
    let (one, other) = (read_run(a)?, read_run(b)?);
    let compared = report::compare(&one, &other);
    let (a, b) = (a.display(), b.display());
    ensure!(
        !compared.is_empty(),
        "compare {a} and {b}: no server, load and policy is in both, and no scenario, load and queue of a dumbbell"
    );
    if let Some(path) = &args.page {
        if compared.iter().all(report::Compared::is_link) {
            let why = format!("--page is of servers, and {a} is of a dumbbell, whose own page has plots");
            return Err(Mistake(why).into());
        }
        let place = path.canonicalize().ok();
        if args.files.iter().any(|file| place.is_some() && file.canonicalize().ok() == place) {
            let why = format!(
                "--page {}: the page would take the place of results; name a file for it, as both.html",
                path.display()
            );
            return Err(Mistake(why).into());
        }
        let page = report::comparison_page([&one, &other], &compared, args.at_most);
        files::write_whole(path, page.as_bytes())
            .with_context(|| format!("write the page {}", path.display()))?;
    }
    let unshared = report::unshared(&one, &other);
    let mut text = report::comparison_table([&one, &other], &compared, args.at_most);
    unshared.servers.iter().chain(&unshared.points).chain(&unshared.claims).chain(&unshared.file).for_each(
        |line| {
            text.push_str(line);
            text.push('\n');
        },
    );
    if let Some(path) = &args.page {
        text += &format!("page     {}", path.display());
    }
    // Whoever stops reading does not make it true.
    let said = say(text.trim_end());
    if let Some(most) = args.at_most {
        ensure!(unshared.points.is_empty(), "not all was compared: {}", unshared.points.join("; "));
        let far: Vec<String> = compared.iter().filter_map(|point| point.too_far(most)).collect();
        ensure!(
            far.is_empty(),
            "too far apart at {} of {} points: {}",
            far.len(),
            compared.len(),
            far.join("; ")
        );
    }
    said
}
