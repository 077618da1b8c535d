//! `./dev kernels`: the kernel tests, and every program loaded, on the running kernel and on
//! Debian's, which are booted in qemu. Fails if a test does, if one was skipped that this kernel
//! should run, or if a program has grown.
//!
//! It does not run the lab's tests, which measure: an emulated processor takes too long for them.

mod build;
mod features;
mod judge;
mod log;
mod machine;
mod verified;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use judge::Verdict;
use machine::Machine;
use verified::Verified;

/// Where the tests are run unless it is said.
const SUITES: [&str; 4] = ["running", "bookworm", "trixie", "forky"];

/// Run the kernel tests on several kernels
#[derive(Debug, Parser)]
#[command(name = "./dev kernels")]
struct Args {
    /// Debian suites whose newest cloud kernel to boot, or `running` for the kernel that runs (all
    /// four, unless one is named); and crates whose tests alone are run, as uplink
    #[arg(value_name = "SUITE|CRATE")]
    what: Vec<String>,

    /// Write down how many instructions the verifier went through, instead of comparing
    #[arg(long)]
    record: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("./dev kernels: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether a name is that of a crate with tests of the kernel.
fn is_crate(root: &Path, name: &str) -> bool {
    !name.contains(['/', '.']) && root.join("crates").join(name).join("Cargo.toml").exists()
}

/// Whether all is well.
fn run(args: &Args) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let expected = features::read(&root.join("tests/kernels/features.tsv"))?;
    let table = root.join("kernel/verified.tsv");
    let mut verified = Verified::read(&table)?;
    let (crates, mut suites): (Vec<&str>, Vec<&str>) =
        args.what.iter().map(String::as_str).partition(|name| is_crate(&root, name));
    if suites.is_empty() {
        suites = SUITES.to_vec();
    }
    let built = build::build(&root, &crates)?;
    let mut verdicts = Vec::new();
    for suite in suites {
        let outcome = Machine::find(&root, suite)?.run(&root, &built)?;
        let mut verdict = judge::judge(&outcome, &expected);
        if args.record {
            verified.record(&outcome.kernel, &outcome.programs);
        } else {
            let (failures, notes) = verified.compare(&outcome.kernel, &outcome.programs);
            verdict.failures.extend(failures);
            verdict.notes.extend(notes);
        }
        println!("{verdict}");
        verdicts.push(verdict);
    }
    if args.record {
        verified.write(&table)?;
    }
    let count = |of: fn(&Verdict) -> usize| verdicts.iter().map(of).sum::<usize>();
    let failed = count(|verdict| verdict.failures.len());
    println!(
        "\nkernels: {} passed, {failed} failed, {} skipped",
        count(|verdict| verdict.passed),
        count(|verdict| verdict.skips.values().sum())
    );
    Ok(failed == 0)
}
