//! What a report states of a run before any number.

use std::sync::LazyLock;

use results::{Environment, Header};

/// Of this program: the crates' version and, where the build was told `TIDEGATE_COMMIT` as `./dev
/// build` does, the commit.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        match option_env!("TIDEGATE_COMMIT") {
            Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
            _ => version.to_owned(),
        }
    });
    &VERSION
}

/// What a file says of its experiment.
pub(crate) struct About<'a> {
    pub name: &'a str,
    pub title: &'a str,
    pub source: &'a str,
    pub is_quick: bool,
}

/// The header of a run that starts now.
pub(crate) fn header(about: &About<'_>, environment: Environment, deviations: Vec<String>) -> Header {
    Header {
        experiment: about.name.to_owned(),
        title: about.title.to_owned(),
        source: about.source.to_owned(),
        started: jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        environment,
        deviations,
        planned: None,
        is_quick: about.is_quick,
    }
}
