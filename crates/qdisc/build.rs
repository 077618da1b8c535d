//! Compiles kernel/redfavor.bpf.c into a skeleton.

fn main() {
    bpf_build::skeleton("redfavor.bpf.c");
}
