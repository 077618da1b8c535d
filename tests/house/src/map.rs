//! The map of ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

/// Where a crate stands: it uses crates of its layer and of those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Told the time, handed bytes.
    Pure,
    /// Asks the system.
    Tool,
    /// What somebody starts.
    Program,
}

impl Layer {
    /// As the map has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Tool => "tool",
            Self::Program => "program",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Pure, Self::Tool, Self::Program].into_iter().find(|layer| layer.name() == name)
    }
}

/// What the page says there is.
#[derive(Debug, Default)]
pub struct Map {
    /// Crates by name.
    pub crates: BTreeMap<String, Layer>,
    /// Files of `kernel/`.
    pub kernel: BTreeSet<String>,
}

impl Map {
    /// Reads the lines that are indented below `crates/` (layer, crate, what it hides) and below
    /// `kernel/` (all names of C files there).
    ///
    /// # Errors
    ///
    /// One line: a crate without a layer, or twice; no map.
    pub fn read(page: &str) -> Result<Self, String> {
        let mut map = Self::default();
        for line in below("kernel/", page) {
            let names = line.split(|of: char| !(of.is_alphanumeric() || "._".contains(of)));
            map.kernel.extend(names.filter(|name| is_c_file(name)).map(str::to_owned));
        }
        for line in below("crates/", page) {
            let mut words = line.split_whitespace();
            let (layer, name) = (words.next().and_then(Layer::named), words.next());
            let (Some(layer), Some(name)) = (layer, name) else {
                return Err(format!(
                    "ARCHITECTURE.md: {:?} is no line of the map; write: pure, tool or program, the crate, what it hides",
                    line.trim()
                ));
            };
            if map.crates.insert(name.to_owned(), layer).is_some() {
                return Err(format!("ARCHITECTURE.md: the map has {name} twice; remove one line"));
            }
        }
        if map.crates.is_empty() || map.kernel.is_empty() {
            return Err(
                "ARCHITECTURE.md: a line `kernel/` or `crates/` with lines below it is missing".to_owned()
            );
        }
        Ok(map)
    }

    /// Findings: crates that are in the map or in the folder alone.
    pub fn differs_from_crates(&self, folders: &[String]) -> Vec<String> {
        let in_map: BTreeSet<&String> = self.crates.keys().collect();
        differs("crates", &in_map, &folders.iter().collect())
    }

    /// Findings: files that are in the map or in the folder alone.
    pub fn differs_from_kernel(&self, files: &[String]) -> Vec<String> {
        differs("kernel", &self.kernel.iter().collect(), &files.iter().collect())
    }
}

fn differs(folder: &str, in_map: &BTreeSet<&String>, there: &BTreeSet<&String>) -> Vec<String> {
    let gone = in_map.difference(there).map(|name| {
        format!(
            "ARCHITECTURE.md: the map has {folder}/{name}, which is not there; remove or rename it in the map"
        )
    });
    let new = there.difference(in_map).map(|name| {
        format!("{folder}/{name}: the map of ARCHITECTURE.md does not have it; say there what it is")
    });
    gone.chain(new).collect()
}

/// The indented lines after the line that is `head`.
fn below<'a>(head: &'a str, page: &'a str) -> impl Iterator<Item = &'a str> {
    let after = page.lines().skip_while(move |line| *line != head).skip(1);
    after.take_while(|line| line.starts_with("  "))
}

fn is_c_file(name: &str) -> bool {
    name.len() > 2 && (name.ends_with(".h") || name.ends_with(".c"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n```text\nkernel/\n  a.h    what it is; b_c.bpf.h, d.bpf.c: and these\ncrates/\n  \
                        pure     units    numbers\n  tool     bpf      links\nexamples/\n  more\n```\n";

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn map_is_read_from_the_page() {
        let map = Map::read(PAGE).expect("well formed");
        assert_eq!(
            map.crates.into_iter().collect::<Vec<_>>(),
            [("bpf".to_owned(), Layer::Tool), ("units".to_owned(), Layer::Pure)]
        );
        assert_eq!(map.kernel.into_iter().collect::<Vec<_>>(), ["a.h", "b_c.bpf.h", "d.bpf.c"]);
    }

    #[test]
    fn what_is_in_the_map_or_in_the_folder_alone_is_found() {
        let map = Map::read(PAGE).expect("well formed");
        assert_eq!(map.differs_from_crates(&owned(&["units", "bpf"])), [""; 0]);
        let findings = map.differs_from_crates(&owned(&["units", "xsk"]));
        assert!(findings[0].starts_with("ARCHITECTURE.md: the map has crates/bpf, "), "{findings:?}");
        assert!(findings[1].starts_with("crates/xsk: "), "{findings:?}");
        assert_eq!(map.differs_from_kernel(&owned(&["a.h", "b_c.bpf.h"])).len(), 1);
    }

    #[test]
    fn line_without_a_layer_is_refused() {
        for (wrong, why) in [
            (PAGE.replace("pure ", "poor "), "units    numbers\" is no line of the map"),
            (PAGE.replace("tool     bpf", "tool     units"), "the map has units twice"),
            (PAGE.replace("crates/", "boxes/"), "is missing"),
        ] {
            let error = Map::read(&wrong).expect_err(why);
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
    }
}
