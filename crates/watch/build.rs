//! Compiles kernel/watch.bpf.c into a skeleton.

fn main() {
    bpf_build::skeleton("watch.bpf.c");
}
