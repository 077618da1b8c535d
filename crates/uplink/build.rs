//! Compiles kernel/uplink.bpf.c into a skeleton.

fn main() {
    bpf_build::skeleton("uplink.bpf.c");
}
