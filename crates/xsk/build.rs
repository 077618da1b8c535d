//! Compiles the steering program and the benchmark's peer.

fn main() {
    bpf_build::skeleton("crowd.bpf.c");
    bpf_build::skeleton("echo.bpf.c");
    bpf_build::skeleton("relay.bpf.c");
}
