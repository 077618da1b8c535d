//! Compiles every program of `kernel/`.

fn main() {
    bpf_build::objects();
}
