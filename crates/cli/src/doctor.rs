//! `tidegate doctor`: what this kernel can do.

use anyhow::{Context, Result};

use crate::output::say;

/// Say what this kernel can do for Tidegate, by trying it: nothing is changed, and no version is
/// looked at
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Examines and prints.
pub fn run(args: Args) -> Result<()> {
    let diagnosis = doctor::examine();
    if args.json {
        return say(serde_json::to_string(&diagnosis).context("write the diagnosis as JSON")?);
    }
    say(doctor::text(&diagnosis).trim_end())
}
