//! `tidegate compare`: two runs of one dumbbell beside each other.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use report::Run;

use crate::output::say;

/// Hold two runs of a dumbbell against each other, as of tidegate lab run and of tidegate sim: what was dropped, and how far apart the times of objects are
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Two results.jsonl
    #[arg(required = true, num_args = 2, value_names = ["A", "B"])]
    files: Vec<PathBuf>,

    /// Fail when times of objects are further apart than this anywhere (Kolmogorov-Smirnov distance)
    #[arg(long, value_name = "D", value_parser = parse_distance)]
    at_most: Option<f64>,
}

fn parse_distance(text: &str) -> Result<f64, String> {
    let distance = text.parse().ok().filter(|distance| (0.0..=1.0).contains(distance));
    distance.ok_or_else(|| "a distance from 0 to 1, as 0.1".to_owned())
}

/// Prints both, and fails where they are too far apart.
pub fn run(args: Args) -> Result<()> {
    let [one, other] = args.files.as_slice() else { unreachable!("clap wants two") };
    let (one, other) = (read(one)?, read(other)?);
    let compared = report::compare(&one, &other);
    ensure!(
        !compared.is_empty(),
        "compare {} and {}: no scenario, load and queue of a dumbbell is in both",
        args.files[0].display(),
        args.files[1].display()
    );
    let unshared = report::unshared(&one, &other);
    let mut text = report::comparison_table([&one, &other], &compared);
    unshared.scenarios.iter().chain(&unshared.points).chain(&unshared.claims).for_each(|line| {
        text.push_str(line);
        text.push('\n');
    });
    // Whoever stops reading does not make it true.
    let said = say(text.trim_end());
    if let Some(most) = args.at_most {
        ensure!(unshared.points.is_empty(), "not all was compared: {}", unshared.points.join("; "));
        compared.iter().try_for_each(|point| check(point, most))?;
    }
    said
}

fn check(point: &report::Compared<'_>, most: f64) -> Result<()> {
    let of = format!("{} at {}x, {}", point.scenario, point.load, point.policy);
    let distance = point.distance().with_context(|| format!("{of}: one run has no times of objects"))?;
    ensure!(distance <= most, "{of}: times of objects are {distance:.3} apart, more than {most}");
    Ok(())
}

fn read(path: &Path) -> Result<Run> {
    let lines = files::lines(path).with_context(|| format!("read {}", path.display()))?;
    Run::from_lines(lines.map(|line| line.map_err(anyhow::Error::from)))
        .with_context(|| format!("read {}; it should be the results.jsonl of a run", path.display()))
}
