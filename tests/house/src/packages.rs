//! The packages of the workspace, and which arrows between them must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Map;

/// One package.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The folder of its Cargo.toml.
    pub folder: PathBuf,
    /// What it is linked with: neither for its tests alone, nor to be built.
    pub uses: Vec<String>,
    /// Where each library, program, test and build script begins.
    pub roots: Vec<PathBuf>,
    /// Those of its tests.
    pub tests: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

/// All packages of the workspace in this folder.
///
/// # Panics
///
/// When cargo does not tell.
pub fn packages(root: &Path) -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output().expect("run cargo metadata");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).expect("read what cargo metadata printed");
    metadata.packages.into_iter().map(Package::from).collect()
}

impl From<Listed> for Package {
    fn from(listed: Listed) -> Self {
        let Listed { name, mut manifest_path, dependencies, targets } = listed;
        manifest_path.pop();
        let normal = dependencies.into_iter().filter(|of| of.kind.is_none());
        let uses = normal.map(|of| of.name).collect();
        let is_test = |of: &&Target| of.kind.iter().any(|kind| kind == "test");
        let tests = targets.iter().filter(is_test).map(|of| of.src_path.clone()).collect();
        let roots = targets.into_iter().map(|of| of.src_path).collect();
        Self { name, folder: manifest_path, uses, roots, tests }
    }
}

/// Findings: crates that use one of a layer above theirs, or that the map does not know by their
/// name.
pub fn upward(packages: &[Package], map: &Map) -> Vec<String> {
    let mut findings = Vec::new();
    for Package { name, folder, uses, .. } in packages {
        let Some(own) = map.crates.get(name) else {
            if folder.parent().is_some_and(|above| above.ends_with("crates")) {
                let folder = folder.file_name().expect("below crates/").to_string_lossy();
                findings.push(format!(
                    "crates/{folder}/Cargo.toml: the map of ARCHITECTURE.md has no {name}; name the package as its folder"
                ));
            }
            continue;
        };
        for used in uses {
            let Some(above) = map.crates.get(used).filter(|layer| *layer > own) else { continue };
            findings.push(format!(
                "crates/{name}/Cargo.toml: {name} ({}) uses {used} ({}); move what it needs down to {}, or correct a layer in ARCHITECTURE.md",
                own.name(),
                above.name(),
                own.name()
            ));
        }
    }
    findings
}

/// Findings: packages whose tests are several programs, each of which takes seconds to link.
pub fn many_tests(packages: &[Package]) -> Vec<String> {
    let many = packages.iter().filter(|package| package.tests.len() > 1);
    let finding = |package: &Package| {
        let name = &package.name;
        format!(
            "{name}: its tests are {} programs; make one of them, tests/main.rs, with a `mod` for each file",
            package.tests.len()
        )
    };
    many.map(finding).collect()
}

/// Findings: one of `from` uses one of `forbidden`, itself or by what it uses, and by which way.
pub fn reaching(packages: &[Package], from: &[&str], forbidden: &[&str]) -> Vec<String> {
    let uses: BTreeMap<&str, &[String]> =
        packages.iter().map(|package| (package.name.as_str(), package.uses.as_slice())).collect();
    let is_known =
        |name: &str| uses.contains_key(name) || uses.values().any(|uses| uses.iter().any(|of| of == name));
    for name in forbidden {
        assert!(is_known(name), "nothing is called {name}; correct the list of the test");
    }
    let mut findings = Vec::new();
    for start in from {
        assert!(uses.contains_key(start), "there is no package {start}; correct the list of the test");
        let mut seen = BTreeSet::new();
        let mut ways = vec![vec![*start]];
        while let Some(way) = ways.pop() {
            for next in uses.get(way[way.len() - 1]).into_iter().copied().flatten() {
                if !seen.insert(next.as_str()) {
                    continue;
                }
                let way = [&way[..], &[next]].concat();
                if forbidden.contains(&next.as_str()) {
                    findings.push(format!(
                        "crates/{}/Cargo.toml: {start} must do without {next}, and has it by {}; take the last arrow out, or move what needs it",
                        way[way.len() - 2],
                        way.join(" -> ")
                    ));
                }
                ways.push(way);
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[&str]) -> Package {
        let uses = uses.iter().map(|&name| name.to_owned()).collect();
        Package { name: name.to_owned(), folder: PathBuf::new(), uses, roots: Vec::new(), tests: Vec::new() }
    }

    fn map() -> Map {
        let page = "kernel/\n  a.h  it\ncrates/\n  pure  core  it\n  pure  base  it\n  tool  hand  it\n  tool  eye  it\n  program  main  it\n";
        Map::read(page).expect("well formed")
    }

    #[test]
    fn arrow_that_points_up_is_found() {
        let house = [
            package("base", &["serde"]),
            package("core", &["base"]),
            package("eye", &["core"]),
            package("hand", &["core", "eye"]),
            package("main", &["hand", "core"]),
        ];
        assert_eq!(upward(&house, &map()), [""; 0]);
        let pure = upward(&[package("core", &["base", "hand"])], &map());
        assert_eq!(pure.len(), 1);
        assert!(pure[0].starts_with("crates/core/Cargo.toml: core (pure) uses hand (tool); "), "{pure:?}");
        let unknown = Package { folder: "/home/me/crates/eye".into(), ..package("eyes", &[]) };
        let unknown = upward(&[unknown], &map());
        assert!(
            unknown[0].starts_with("crates/eye/Cargo.toml: the map of ARCHITECTURE.md has no eyes"),
            "{unknown:?}"
        );
        let tool = upward(&[package("hand", &["main"])], &map());
        assert!(tool[0].contains("hand (tool) uses main (program)"), "{tool:?}");
    }

    #[test]
    fn second_test_program_is_found() {
        let one = Package { tests: vec!["tests/main.rs".into()], ..package("core", &[]) };
        let two = Package { tests: vec!["tests/a.rs".into(), "tests/b.rs".into()], ..package("hand", &[]) };
        let findings = many_tests(&[one, two]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("hand: its tests are 2 programs; "), "{findings:?}");
    }

    #[test]
    fn way_to_what_is_forbidden_is_found() {
        let house =
            [package("core", &["base"]), package("base", &["hand", "serde"]), package("hand", &["sys"])];
        assert_eq!(reaching(&house, &["hand"], &["base"]), [""; 0]);
        let findings = reaching(&house, &["core"], &["sys"]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("crates/hand/Cargo.toml: core must do without sys"), "{findings:?}");
        assert!(findings[0].contains("by core -> base -> hand -> sys;"), "{findings:?}");
    }
}
