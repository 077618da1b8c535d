//! Compiles kernel/red.h and kernel/protected.h for the host, through src/shim.c.

fn main() {
    println!("cargo::rerun-if-changed=../../kernel/red.h");
    println!("cargo::rerun-if-changed=../../kernel/protected.h");
    println!("cargo::rerun-if-changed=src/shim.c");
    cc::Build::new()
        .file("src/shim.c")
        .include("../../kernel")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("aqm");
}
