//! Compiles kernel/verdict.h, kernel/cookie.h and kernel/room.h for the host, through src/shim.c.

fn main() {
    println!("cargo::rerun-if-changed=../../kernel/verdict.h");
    println!("cargo::rerun-if-changed=../../kernel/cookie.h");
    println!("cargo::rerun-if-changed=../../kernel/room.h");
    println!("cargo::rerun-if-changed=src/shim.c");
    cc::Build::new()
        .file("src/shim.c")
        .include("../../kernel")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("verdict");
}
