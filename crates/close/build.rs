//! Compiles kernel/close.bpf.c into a skeleton.

fn main() {
    bpf_build::skeleton("close.bpf.c");
}
