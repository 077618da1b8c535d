//! Compiles kernel/redfavor.bpf.c and kernel/srpt.bpf.c into skeletons.

fn main() {
    bpf_build::skeleton("redfavor.bpf.c");
    bpf_build::skeleton("srpt.bpf.c");
}
