//! What neither cargo nor the compiler says of this workspace, as tests:
//!
//! - a crate uses only crates of its layer and below, and the map of ARCHITECTURE.md has every
//!   crate and every file of `kernel/`;
//! - nothing of the simulator needs a kernel;
//! - the tests of a crate are one program;
//! - every Rust file belongs to a crate: a test file that no `mod` names would never run;
//! - comments and pages are not too wide, links lead somewhere, and README's numbers stand in a
//!   RESULTS.md.
//!
//! Each finding is one line: where, what, and what to do.

mod files;
mod map;
mod packages;
mod pages;

pub use files::unnamed;
pub use map::{Layer, Map};
pub use packages::{Package, many_tests, packages, reaching, upward};
pub use pages::{broken_links, too_wide, unsourced_numbers};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// What runs in virtual time.
    const SIMULATED: [&str; 1] = ["virtual-lab"];
    /// What that may not need, nor anything that it uses.
    const OF_THE_KERNEL: [&str; 10] =
        ["xsk", "bpf", "guard", "netns", "netlink", "port", "link", "watch", "libbpf-rs", "libbpf-sys"];

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
    }

    fn map() -> Map {
        let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("read ARCHITECTURE.md");
        Map::read(&page).unwrap_or_else(|error| panic!("{error}"))
    }

    fn names_in(folder: &str) -> Vec<String> {
        let entries = fs::read_dir(root().join(folder)).expect("read a folder of the workspace");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    fn assert_none(findings: &[String]) {
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    #[test]
    fn crates_use_their_layer_and_those_below() {
        assert_none(&upward(&packages(&root()), &map()));
    }

    #[test]
    fn simulator_needs_no_kernel() {
        assert_none(&reaching(&packages(&root()), &SIMULATED, &OF_THE_KERNEL));
    }

    #[test]
    fn map_has_the_folders_of_crates_and_the_files_of_kernel() {
        let is_code = |name: &String| name.ends_with(".h") || name.ends_with(".c");
        let kernel: Vec<String> = names_in("kernel").into_iter().filter(is_code).collect();
        let map = map();
        assert_none(
            &[map.differs_from_crates(&names_in("crates")), map.differs_from_kernel(&kernel)].concat(),
        );
    }

    #[test]
    fn tests_of_a_crate_are_one_program() {
        assert_none(&many_tests(&packages(&root())));
    }

    #[test]
    fn every_rust_file_belongs_to_a_crate() {
        assert_none(&unnamed(&root(), &packages(&root())));
    }

    #[test]
    fn comments_and_pages_are_not_too_wide() {
        assert_none(&too_wide(&root()));
    }

    #[test]
    fn links_between_pages_lead_somewhere() {
        assert_none(&broken_links(&root()));
    }

    #[test]
    fn numbers_of_the_readme_stand_in_a_results_page() {
        assert_none(&unsourced_numbers(&root()));
    }
}
