//! A diagnosis for people.

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};

use crate::{Answer, Diagnosis, Verification, orders, verdict};

/// Widest line, columns of the terminal.
const WIDTH: u16 = 110;

/// A line below the headings, no grid.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The diagnosis as tables, at most 110 columns wide.
pub fn text(diagnosis: &Diagnosis) -> String {
    let privileges = diagnosis.privileges.iter().map(|one| {
        let held = if one.is_held { "yes" } else { "no" };
        [one.name.to_owned(), held.to_owned(), one.enables.to_owned()]
    });
    let probes = diagnosis.probes.iter().map(|probe| {
        let (answer, because) = match &probe.answer {
            Answer::Yes => ("yes", ""),
            Answer::No(why) => ("no", why.as_str()),
            Answer::Unknown(why) => ("not tried", why.as_str()),
        };
        [probe.name.clone(), answer.to_owned(), with_reason(probe.enables, because)]
    });
    let sysctls = diagnosis.sysctls.iter().map(|one| {
        let value = one.value.clone().unwrap_or_else(|| "not readable".to_owned());
        [one.name.to_owned(), value, one.effect.to_owned()]
    });
    let programs = diagnosis.programs.iter().map(|program| {
        let (answer, count) = match &program.verification {
            Verification::VerifiedInstructions(count) => ("loads", format!("{count} instructions verified")),
            Verification::Refused(why) => ("refused", why.clone()),
            Verification::Unknown(why) => ("not tried", why.clone()),
        };
        [format!("{} {}", program.source, program.name), answer.to_owned(), count]
    });
    [
        format!("Linux {}\n\n{}\n{}\n", diagnosis.kernel, verdict(diagnosis), orders(diagnosis)),
        table(["privilege", "held", "what needs it"], privileges),
        table(["probe", "answer", "what it enables"], probes),
        table(["sysctl", "value", "what it changes"], sysctls),
        table(["program", "answer", "how much the verifier looked at"], programs),
    ]
    .join("\n")
}

fn with_reason(enables: &str, because: &str) -> String {
    if because.is_empty() { enables.to_owned() } else { format!("{enables} ({because})") }
}

fn table(headings: [&str; 3], rows: impl Iterator<Item = [String; 3]>) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(headings);
    table.add_rows(rows);
    table.trim_fmt() + "\n"
}
