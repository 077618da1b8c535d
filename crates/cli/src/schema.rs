//! `tidegate schema`: what the JSON says.

use anyhow::{Context, Result};
use results::{LinkSummary, LoadEvent, Record};
use schemars::schema_for;

use crate::advise::AdviceReport;
use crate::close::CloseEvent;
use crate::guard::{GuardEvent, Status};
use crate::output::{Timed, say};
use crate::uplink::UplinkEvent;

/// Print the JSON Schema of what another command writes, with what each field means
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose
    #[arg(value_enum)]
    of: Of,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Of {
    /// A line of `load --json` and of `merge --json`
    Load,
    /// A line of `guard --json`
    Guard,
    /// What `guard --prometheus` answers at /status
    Status,
    /// What `advise --json` prints
    Advise,
    /// A line of `uplink --json`
    Uplink,
    /// A line of `close --json`
    Close,
    /// What `link --json` writes
    Link,
    /// A line of results.jsonl, which `lab run` writes
    Results,
}

/// Prints it.
pub fn run(args: Args) -> Result<()> {
    let schema = match args.of {
        Of::Load => schema_for!(Timed<LoadEvent>),
        Of::Guard => schema_for!(Timed<GuardEvent>),
        Of::Status => schema_for!(Timed<Status>),
        Of::Advise => schema_for!(AdviceReport),
        Of::Uplink => schema_for!(Timed<UplinkEvent>),
        Of::Close => schema_for!(Timed<CloseEvent>),
        Of::Link => schema_for!(Timed<LinkSummary>),
        Of::Results => schema_for!(Record),
    };
    say(serde_json::to_string_pretty(&schema).context("write the schema as JSON")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_say_what_each_field_means() {
        let text = |schema| serde_json::to_string(&schema).expect("JSON");
        let (load, results) = (text(schema_for!(Timed<LoadEvent>)), text(schema_for!(Record)));
        assert!(load.contains("goodput_per_s") && load.contains("Complete replies, per second."), "{load}");
        for schema in
            [schema_for!(Timed<GuardEvent>), schema_for!(Timed<CloseEvent>), schema_for!(Timed<LinkSummary>)]
        {
            assert!(text(schema).contains("\"time\":{\"description\":\"When it was written"));
        }
        let status = schema_for!(Timed<Status>);
        assert_eq!(status.get("description"), Some(&"What `GET /status` answers.".into()));
        assert!(results.contains("saturation") && results.contains("RFC 3339"), "{results}");
    }
}
