//! What a test program said, in the words of Rust's test harness with `--show-output`, or of
//! libtest-mimic.

use std::collections::{BTreeMap, BTreeSet};

/// The tests of one program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Names of those that passed.
    pub passed: BTreeSet<String>,
    /// Names of those that did not, and what they said.
    pub failed: BTreeMap<String, String>,
    /// Reasons for skips, each with the tests that gave it.
    pub skips: BTreeMap<String, BTreeSet<String>>,
}

/// Where a line belongs that belongs to no test, since another process or thread wrote it.
const NOBODY: &str = "(some test)";

impl Log {
    /// Reads what a program printed.
    pub fn parse(text: &str) -> Self {
        let mut log = Self::default();
        let mut test = NOBODY;
        for line in text.lines() {
            if let Some(name) = section(line) {
                test = name;
                continue;
            }
            if ["successes:", "failures:"].contains(&line) {
                test = NOBODY;
            } else if let Some(reason) = line.strip_prefix("skipped: ") {
                log.skip(test, reason);
            } else if let Some((name, result)) = result(line) {
                log.add(name, result);
            } else if let Some(said) = log.failed.get_mut(test) {
                said.push_str(line);
                said.push('\n');
            }
        }
        log.forget_echoes();
        log
    }

    fn skip(&mut self, test: &str, reason: &str) {
        self.skips.entry(reason.to_owned()).or_default().insert(test.to_owned());
    }

    fn add(&mut self, name: &str, result: &str) {
        if result == "ok" {
            self.passed.insert(name.to_owned());
        } else if result == "FAILED" {
            self.failed.entry(name.to_owned()).or_default();
        } else if let Some(reason) = result.strip_prefix("ignored (skipped: ") {
            self.skip(name, reason.strip_suffix(')').unwrap_or(reason));
        }
    }

    /// Where tests say their names with a reason, their other lines with it are not of one more.
    fn forget_echoes(&mut self) {
        for tests in self.skips.values_mut().filter(|tests| tests.len() > 1) {
            tests.remove(NOBODY);
        }
    }
}

/// The name of the test whose output follows.
fn section(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.trim_end_matches(" stdout"))
}

/// A test's name and what became of it.
fn result(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.trim_end(), result))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
running 3 tests
test root_a ... ok
test root_b ... FAILED
test root_c ... ok

successes:

---- root_a stdout ----
skipped: no wheel
skipped: no wheel

successes:
    root_a
    root_c

failures:

---- root_b stdout ----

thread 'root_b' panicked at b.rs:1:1:
no sail

failures:
    root_b

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.03s
";

    #[test]
    fn every_test_is_found_with_its_skips_and_what_it_said() {
        let log = Log::parse(TEXT);
        assert_eq!(log.passed, ["root_a".to_owned(), "root_c".to_owned()].into());
        assert_eq!(log.skips["no wheel"], ["root_a".to_owned()].into());
        assert_eq!(log.failed.len(), 1);
        let said = &log.failed["root_b"];
        assert!(said.contains("no sail") && !said.contains("test result"), "{said}");
    }
    #[test]
    fn other_harness_is_understood() {
        let text = "test root_a/ipv4  ... ok\nskipped: no sea (x)\ntest root_b/ipv6  ... ignored (skipped: no sea (x))\n\
                    test root_c       ... FAILED\nfailures:\n---- root_c ----\nno sail\n\nfailures:\n    root_c\n";
        let log = Log::parse(text);
        assert_eq!(log.skips, [("no sea (x)".to_owned(), ["root_b/ipv6".to_owned()].into())].into());
        assert_eq!((log.passed.len(), log.failed["root_c"].trim()), (1, "no sail"));
    }
}
