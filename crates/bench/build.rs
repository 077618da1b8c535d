//! Compiles the responder that the bench asks.

fn main() {
    bpf_build::skeleton("echo.bpf.c");
}
