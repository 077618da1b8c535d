//! Compiles kernel/watch.bpf.c and holders.bpf.c into skeletons.

fn main() {
    bpf_build::skeleton("watch.bpf.c");
    bpf_build::skeleton("holders.bpf.c");
}
