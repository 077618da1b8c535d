//! Packet scripts that were played: what went over the wire, as the papers' figures have it.

use maud::{Markup, html};
use results::{Trace, TraceOutcome};

/// The runs as a section of the page; nothing when there are none.
pub(crate) fn traces_section(traces: &[Trace]) -> Markup {
    html! {
        @for group in by_script(traces) {
            section {
                h2 { "Trace: " (group[0].script) }
                p {
                    "Seconds since the start; " code { ">" } " from the client, " code { "<" } " to it; numbers count from \
                     the sender's SYN. Every run:"
                }
                ul { @for trace in group { li { (heading(trace)) } } }
                pre { (group[0].transcript.join("\n")) }
            }
        }
    }
}

/// The first run of each script as text for the terminal, and how all ended.
pub(crate) fn traces_text(traces: &[Trace]) -> String {
    let mut text = String::new();
    for group in by_script(traces) {
        text += &format!("{}:\n", group[0].script);
        group[0].transcript.iter().for_each(|line| text += &format!("  {line}\n"));
        group.iter().for_each(|trace| text += &format!("  {}\n", heading(trace)));
    }
    text
}

/// The sentence for runs of scripts.
pub(crate) fn finding(traces: &[Trace]) -> String {
    let count = |is: fn(&TraceOutcome) -> bool| traces.iter().filter(|trace| is(&trace.outcome)).count();
    let held = count(|outcome| *outcome == TraceOutcome::Held);
    let skipped = count(|outcome| matches!(outcome, TraceOutcome::Skipped(_)));
    let played = traces.len() - skipped;
    let runs = if played == 1 { "run" } else { "runs" };
    let kernel = if traces.iter().all(Trace::is_simulated) { "the simulated kernel" } else { "this kernel" };
    let text = format!("Every line of the packet scripts held in {held} of {played} {runs} on {kernel}");
    if skipped == 0 { text + "." } else { format!("{text}; {skipped} could not be played here.") }
}

/// Runs of the same script follow each other.
fn by_script(traces: &[Trace]) -> impl Iterator<Item = &[Trace]> {
    traces.chunk_by(|a, b| a.script == b.script)
}

/// How a run ended.
fn heading(trace: &Trace) -> String {
    let end = match &trace.outcome {
        TraceOutcome::Held => "every line holds",
        TraceOutcome::Failed(why) | TraceOutcome::Skipped(why) => why,
    };
    if trace.is_simulated() {
        return format!("{}, {}: {end}", trace.family, trace.hook);
    }
    format!("{}, hook {}: {end}", trace.family, trace.hook)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(family: &str, outcome: TraceOutcome) -> Trace {
        Trace {
            script: "traces/fig-1".to_owned(),
            family: family.to_owned(),
            hook: "auto".to_owned(),
            transcript: vec!["   0.000 a: > S 0:0(0) <mss 1460>".to_owned()],
            outcome,
        }
    }

    #[test]
    fn runs_of_a_script_are_shown_together_and_failures_with_their_line() {
        let failed = TraceOutcome::Failed("line 7: expected R, got S.".to_owned());
        let mut traces = vec![trace("ipv4", TraceOutcome::Held), trace("ipv6", failed)];
        let text = traces_text(&traces);
        assert_eq!(text.matches("<mss 1460>").count(), 1, "{text}");
        assert!(
            text.ends_with(
                "ipv4, hook auto: every line holds\n  ipv6, hook auto: line 7: expected R, got S.\n"
            )
        );
        let page = traces_section(&traces).into_string();
        assert!(page.contains("S 0:0(0) &lt;mss 1460&gt;") && page.contains("line 7"), "{page}");
        assert_eq!(finding(&traces), "Every line of the packet scripts held in 1 of 2 runs on this kernel.");
        traces.push(trace("ipv6", TraceOutcome::Skipped("skipped: no tcx".to_owned())));
        let said = finding(&traces);
        assert!(said.ends_with("in 1 of 2 runs on this kernel; 1 could not be played here."), "{said}");
    }
}
