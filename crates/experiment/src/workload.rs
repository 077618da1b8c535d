//! What clients ask for, as people write it: on a command line and in experiment files.

use std::path::Path;

use serde::Deserialize;
use traffic::{Table, Workload};

/// A workload as `tidegate load --workload` takes it. Deserializes from a name or a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct WorkloadText(pub String);

impl Default for WorkloadText {
    fn default() -> Self {
        Self("one-packet".to_owned())
    }
}

impl WorkloadText {
    /// What it means.
    pub fn workload(&self) -> Workload {
        parse_workload(&self.0).expect("checked when the experiment was read")
    }
}

impl TryFrom<toml::Value> for WorkloadText {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let text = match value {
            toml::Value::String(name) => name,
            table => table.to_string(),
        };
        parse_workload(&text)?;
        Ok(Self(text))
    }
}

/// Reads the name of a workload, its table in one line as `{ kind = "specweb99", directories = 5
/// }`, or a TOML file with the table `[workload]`.
///
/// # Errors
///
/// One line: what is none, and what would be.
pub fn parse_workload(text: &str) -> Result<Workload, String> {
    #[derive(Deserialize)]
    struct File {
        workload: Table,
    }
    let said = |error: toml::de::Error| error.message().replace('\n', " ");
    let table = if let Some((_, table)) = Workload::NAMES.into_iter().find(|(name, _)| *name == text) {
        toml::from_str::<Table>(table).map_err(said)?
    } else if text.starts_with('{') {
        toml::from_str::<File>(&format!("workload = {text}")).map_err(said)?.workload
    } else if Path::new(text).extension().is_some_and(|extension| extension == "toml") {
        let content = files::read_text(Path::new(text)).map_err(|error| format!("read {text}: {error}"))?;
        toml::from_str::<File>(&content)
            .map_err(|error| format!("{text}: {}", files::say_toml_error(&error)))?
            .workload
    } else {
        let names = Workload::NAMES.map(|(name, _)| name);
        let known = format!(
            "there are {}, a table as {{ kind = \"specweb99\", directories = 5 }}, or a TOML file with one",
            names.join(", ")
        );
        return Err(format!("{text:?} is no workload{}", spelling::did_you_mean(text, names, &known)));
    };
    Workload::new(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_names_and_tables() {
        for (name, _) in Workload::NAMES {
            parse_workload(name).expect(name);
        }
        parse_workload("{ kind = \"specweb99\", directories = 5 }").expect("a table");
        for (bad, why) in [
            ("specweb", "is no workload; did you mean specweb99? there are one-packet, specweb99"),
            ("{ kind = \"web\" }", "unknown variant"),
            ("{ kind = \"nasa\", sizes = 5 }", "unknown field"),
            ("{", ""),
            ("none-of-these.toml", "read none-of-these.toml"),
        ] {
            let error = parse_workload(bad).expect_err(bad);
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn workload_of_a_file_is_its_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "[workload]\nkind = \"world-cup\"\n").expect("write");
        parse_workload(path.to_str().expect("text")).expect("a workload");
        std::fs::write(&path, "[workload]\nkind = 5\n").expect("write");
        assert!(parse_workload(path.to_str().expect("text")).expect_err("bad").contains("mine.toml"));
    }
}
