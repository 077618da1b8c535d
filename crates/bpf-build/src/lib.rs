//! Compiles programs of `kernel/` in build scripts: one into a libbpf-rs skeleton, or all into bare
//! objects.
//!
//! What it is not: a loader. A program is loaded by the crate that has its skeleton.
//!
//! ```no_run
//! bpf_build::skeleton("admit.bpf.c"); // in build.rs: writes $OUT_DIR/admit.skel.rs
//! bpf_build::objects(); // writes $OUT_DIR/objects.rs: every program there is
//! ```

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const SUFFIX: &str = ".bpf.c";

/// Compilers that are tried, newest first; `CLANG` in the environment goes before them all. BPF
/// needs atomics and CO-RE of clang 15 or newer.
const CLANGS: [&str; 8] =
    ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang"];

/// Compiles `kernel/<source>` and writes `$OUT_DIR/<stem>.skel.rs`.
///
/// # Panics
///
/// When no clang is found or it rejects the program; the message is what the build shows.
pub fn skeleton(source: &str) {
    let out = out_dir().join(format!("{}.skel.rs", stem(source)));
    builder(source)
        .build_and_generate(&out)
        .unwrap_or_else(|error| panic!("compile kernel/{source}: {error:#}"));
}

/// Compiles every `kernel/*.bpf.c` and writes `$OUT_DIR/objects.rs`: an array of source name and
/// object, by name.
///
/// # Panics
///
/// As [`skeleton`].
pub fn objects() {
    let mut sources: Vec<String> = fs::read_dir(kernel_dir())
        .expect("list kernel/")
        .map(|entry| entry.expect("list kernel/").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(SUFFIX))
        .collect();
    sources.sort();
    let mut table = "[\n".to_owned();
    for source in &sources {
        let object = out_dir().join(format!("{}.bpf.o", stem(source)));
        let compiled = builder(source).obj(&object).build();
        compiled.unwrap_or_else(|error| panic!("compile kernel/{source}: {error:#}"));
        table += &format!("    ({source:?}, include_bytes!({object:?}).as_slice()),\n");
    }
    fs::write(out_dir().join("objects.rs"), table + "]\n").expect("write objects.rs");
}

fn builder(source: &str) -> SkeletonBuilder {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed={}", kernel_dir().display());
    let mut builder = SkeletonBuilder::new();
    builder
        .source(kernel_dir().join(source))
        .clang(clang())
        .clang_args(["-O2", "-Wall", "-Wextra", "-Werror", "-mcpu=v3"]);
    builder
}

fn kernel_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel")
}

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

fn stem(source: &str) -> &str {
    source.strip_suffix(SUFFIX).expect("BPF programs are named <noun>.bpf.c")
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
