//! The scripts are part of the library: a new one is a reason to build it again.

fn main() {
    println!("cargo::rerun-if-changed=../../tests/conformance");
}
