//! Compiles what hands frames on in pages.

fn main() {
    bpf_build::skeleton("relay.bpf.c");
}
