//! Compiles the steering program.

fn main() {
    bpf_build::skeleton("crowd.bpf.c");
}
