//! Compiles kernel/admit.bpf.c into a skeleton.

fn main() {
    bpf_build::skeleton("admit.bpf.c");
}
