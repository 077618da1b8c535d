//! Rust files that nothing compiles.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Package;

/// Findings: files in `src/` and `tests/` of a package that no target begins with and no `mod`
/// leads to.
///
/// # Panics
///
/// When a file cannot be read.
pub fn unnamed(root: &Path, packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let mut named = BTreeSet::new();
        for target in &package.roots {
            follow(target, target.parent().expect("a file is in a folder"), &mut named);
        }
        let there = ["src", "tests"].into_iter().flat_map(|folder| rust_files(&package.folder.join(folder)));
        for file in there.filter(|file| !named.contains(file)) {
            findings.push(format!(
                "{}: nothing compiles it; name it by `mod` in {}",
                file.strip_prefix(root).unwrap_or(&file).display(),
                if file.starts_with(package.folder.join("tests")) {
                    "tests/main.rs"
                } else {
                    "the file above it"
                }
            ));
        }
    }
    findings
}

/// Adds a file and all that its `mod`s lead to, which are in `folder`.
fn follow(file: &Path, folder: &Path, named: &mut BTreeSet<PathBuf>) {
    if !named.insert(file.to_owned()) {
        return;
    }
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("read {}: {error}", file.display()));
    for module in modules(&text) {
        let below = folder.join(module);
        for path in [below.with_extension("rs"), below.join("mod.rs")] {
            if path.exists() {
                follow(&path, &below, named);
            }
        }
    }
}

/// Names of the modules that are in other files.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or(scope, |(_, rest)| rest).trim_start(),
            None => rest.trim_start(),
        });
        line.strip_prefix("mod ")?.strip_suffix(';')
    })
}

fn rust_files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    files_below(folder).into_iter().filter(|path| path.extension().is_some_and(|of| of == "rs"))
}

/// All files of a folder and of those below it; none if it is not there.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_file_that_no_module_names_is_found() {
        let root = std::env::temp_dir().join(format!("tidegate-house-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("make a folder");
            fs::write(path, text).expect("write");
        };
        write("crates/a/src/lib.rs", "//! It.\n\npub(in crate::a) mod one;\n#[cfg(test)]\nmod tests {\n}\n");
        write("crates/a/src/one.rs", "mod deep;\n");
        write("crates/a/src/one/deep.rs", "");
        write("crates/a/tests/main.rs", "mod common;\n    mod kernel;\n");
        write("crates/a/tests/common/mod.rs", "");
        write("crates/a/tests/kernel.rs", "");
        write("crates/a/tests/forgotten.rs", "");
        write("crates/a/tests/lost/mod.rs", "");
        let folder = root.join("crates/a");
        let roots = vec![folder.join("src/lib.rs"), folder.join("tests/main.rs")];
        let package = Package { name: "a".to_owned(), folder, uses: Vec::new(), roots, tests: Vec::new() };
        let mut findings = unnamed(&root, &[package]);
        findings.sort();
        fs::remove_dir_all(&root).expect("remove");
        assert_eq!(
            findings,
            [
                "crates/a/tests/forgotten.rs: nothing compiles it; name it by `mod` in tests/main.rs",
                "crates/a/tests/lost/mod.rs: nothing compiles it; name it by `mod` in tests/main.rs",
            ]
        );
    }
}
