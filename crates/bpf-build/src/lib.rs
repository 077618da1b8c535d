//! Compiles a program of `kernel/` into a libbpf-rs skeleton. For build scripts only.
//!
//! ```no_run
//! bpf_build::skeleton("admit.bpf.c"); // in build.rs: writes $OUT_DIR/admit.skel.rs
//! ```

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Compilers that are tried, newest first; `CLANG` in the environment goes before them all. BPF needs atomics and
/// CO-RE of clang 15 or newer.
const CLANGS: [&str; 8] =
    ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang"];

/// Compiles `kernel/<source>` and writes `$OUT_DIR/<stem>.skel.rs`.
///
/// # Panics
///
/// When no clang is found or it rejects the program; the message is what the build shows.
pub fn skeleton(source: &str) {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let stem = source.strip_suffix(".bpf.c").expect("BPF programs are named <noun>.bpf.c");
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(format!("{stem}.skel.rs"));
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed={}", kernel.display());
    SkeletonBuilder::new()
        .source(kernel.join(source))
        .clang(clang())
        .clang_args(["-O2", "-Wall", "-Wextra", "-Werror", "-mcpu=v3"])
        .build_and_generate(&out)
        .unwrap_or_else(|error| panic!("compile kernel/{source}: {error:#}"));
}

fn clang() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let works = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found = CLANGS.iter().copied().find(works);
    found.expect("no clang found; install clang-19 (./dev does) or name one in CLANG").to_owned()
}
