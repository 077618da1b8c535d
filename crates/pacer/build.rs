//! Compiles kernel/unserved.h, with all that it includes, and kernel/returned.h for the host, through src/shim.c.

fn main() {
    for header in
        ["unserved.h", "burst.h", "expected.h", "service.h", "returned.h", "histogram.h", "verdict.h"]
    {
        println!("cargo::rerun-if-changed=../../kernel/{header}");
    }
    println!("cargo::rerun-if-changed=src/shim.c");
    cc::Build::new()
        .file("src/shim.c")
        .include("../../kernel")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("service");
}
