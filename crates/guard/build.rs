//! Compiles kernel/admit.bpf.c into a skeleton, and for the tests kernel/service.h for the host.

fn main() {
    bpf_build::skeleton("admit.bpf.c");
    for file in
        ["../../kernel/service.h", "../../kernel/histogram.h", "../../kernel/verdict.h", "src/pacer/shim.c"]
    {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .file("src/pacer/shim.c")
        .include("../../kernel")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("service");
}
