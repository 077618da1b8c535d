//! Every packet script as tests of its own, before the running kernel and before the simulated one:
//! `cargo nextest run --workspace -E 'test(kernel::root_syn/)'` runs the kernel's part of the SYN
//! stage.

mod kernel;
mod mistakes;
mod simulated;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match (kernel::trials(), simulated::trials()) {
        (Ok(kernel), Ok(simulated)) => {
            let trials = kernel.into_iter().chain(simulated).chain(mistakes::trials());
            libtest_mimic::run(&arguments, trials.collect()).exit_code()
        }
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
