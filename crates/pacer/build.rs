//! Compiles kernel/service.h for the host, through src/shim.c.

fn main() {
    for file in ["../../kernel/service.h", "../../kernel/histogram.h", "../../kernel/verdict.h", "src/shim.c"]
    {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .file("src/shim.c")
        .include("../../kernel")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("service");
}
