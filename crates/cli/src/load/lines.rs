//! What `tidegate load` prints, for people or as JSON.

use std::fmt::Write as _;

use load::{Progress, Totals};
use results::{BySize, CrowdSummary, GeneratorHealth, LatencySummary, LoadEvent, LoadProgress};
use units::Nanos;

use crate::output::Timed;

/// What happened since the last line; none before the first.
pub fn progress_since(before: Option<(Nanos, Totals)>, now: &Progress<'_>) -> Option<LoadProgress> {
    let (since, before) = before?;
    let span = now.elapsed.since(since).as_secs_f64();
    let per_s = |count: fn(&Totals) -> u64| (count(&now.totals) - count(&before)) as f64 / span;
    Some(LoadProgress {
        elapsed_s: now.elapsed.as_secs_f64(),
        offered_per_s: per_s(|totals| totals.offered),
        replies_per_s: per_s(|totals| totals.replies),
        non_2xx_per_s: per_s(|totals| totals.statuses.non_2xx().unwrap_or(0)),
        refused_per_s: per_s(|totals| totals.refused),
        reset_per_s: per_s(|totals| totals.reset),
        timed_out_per_s: per_s(|totals| totals.timed_out),
        failed_per_s: per_s(|totals| totals.failed),
        syns_per_s: per_s(|totals| totals.syns),
        mean_response_ms: now.interval.mean() / 1e3,
        p99_response_ms: now.interval.value_at_quantile(0.99) as f64 / 1e3,
        live: now.live as u64,
    })
}

/// One line a second for a person.
pub fn progress_text(now: &LoadProgress) -> String {
    let LoadProgress { elapsed_s, offered_per_s, replies_per_s, syns_per_s, .. } = now;
    let mut line =
        format!("{elapsed_s:>4.0} s  offered {offered_per_s:>7.0}/s  replies {replies_per_s:>7.0}/s");
    let failures = [
        ("not 2xx", now.non_2xx_per_s),
        ("refused", now.refused_per_s),
        ("reset", now.reset_per_s),
        ("timed out", now.timed_out_per_s),
        ("failed otherwise", now.failed_per_s),
    ];
    for (what, rate) in failures.into_iter().filter(|(_, rate)| *rate > 0.0) {
        write!(line, "  {what} {rate:.0}/s").expect("a String takes all");
    }
    let LoadProgress { mean_response_ms, p99_response_ms, live, .. } = now;
    write!(line, "  SYNs {syns_per_s:.0}/s").expect("a String takes all");
    if *replies_per_s > 0.0 {
        write!(line, "  mean {mean_response_ms:.2}  p99 {p99_response_ms:.2} ms")
            .expect("a String takes all");
    }
    write!(line, "  open {live}").expect("a String takes all");
    line
}

/// A line of `--json`.
pub fn json_line(event: &LoadEvent) -> String {
    Timed::json(event)
}

/// The summary for a person.
pub fn summary_text(summary: &CrowdSummary) -> String {
    let mut text = String::new();
    let share = |count: u64| 100.0 * count as f64 / summary.offered.max(1) as f64;
    let mut line =
        |text_of_line: std::fmt::Arguments<'_>| writeln!(text, "{text_of_line}").expect("a String takes all");
    line(format_args!(
        "\noffered {:.0}/s for {:.1} s, answered {:.0}/s, {:.2} SYNs per attempt within that time",
        summary.offered_per_s, summary.window_s, summary.goodput_per_s, summary.syns_per_attempt
    ));
    let causes = [
        ("ok", summary.ok),
        ("refused", summary.refused),
        ("reset", summary.reset),
        ("timed out connecting", summary.timed_out_connect),
        ("timed out waiting", summary.timed_out_response),
        ("aborted by the user", summary.aborted),
        ("malformed reply", summary.malformed),
        ("no port left", summary.no_port),
        ("not sent", summary.not_sent),
        ("unfinished", summary.unfinished),
    ];
    for (name, count) in causes.into_iter().filter(|&(_, count)| count > 0) {
        line(format_args!("  {name:<21} {count:>10}  {:>5.1}%", share(count)));
    }
    let classes = summary.statuses.by_class().into_iter().filter(|&(_, count)| count > 0);
    let classes: Vec<String> = classes.map(|(class, count)| format!("{class} {count}")).collect();
    if !classes.is_empty() {
        line(format_args!("status         {}", classes.join("  ")));
    }
    // Those that come after the window are among `ok`, and their times are not here.
    let replies = match summary.response_ms.count {
        0 => "no replies".to_owned(),
        count => format!("{} of {count} replies", latency_text(&summary.response_ms)),
    };
    line(format_args!("response time  {replies} within those {:.1} s", summary.window_s));
    if let Some(means) = by_size(&summary.sizes) {
        line(format_args!("by size        mean {means} ms"));
        line(format_args!("first byte     {}", latency_text(&summary.first_byte_ms)));
    }
    if summary.aborted > 0 {
        let LatencySummary { mean, p50, p99, .. } = summary.user_ms;
        line(format_args!(
            "users          mean {mean:.2}  p50 {p50:.2}  p99 {p99:.2} ms with {} reloads; {} gave up",
            summary.reloads, summary.gave_up
        ));
    }
    if summary.refusal_ms.count > 0 {
        line(format_args!("refused after  {}", latency_text(&summary.refusal_ms)));
    }
    let generator = &summary.generator;
    line(format_args!(
        "generator      {} frames sent, {} received ({}), at most {} connections at once, {} bytes each",
        generator.frames_sent,
        generator.frames_received,
        generator.receive_mode,
        generator.peak_connections,
        generator.bytes_per_connection,
    ));
    if generator.workers > 1 {
        let GeneratorHealth { workers, frames_handed_over, .. } = generator;
        line(format_args!(
            "               {workers} workers; {frames_handed_over} frames came to another's queue, and were handed over"
        ));
    }
    if let Some(why) = &generator.receive_fallback {
        line(format_args!("               by a packet socket, which is slower: {why}"));
    }
    for reason in &generator.reasons {
        line(format_args!("GENERATOR-LIMITED: {reason}"));
    }
    text
}

/// Means by the size of the reply, ms, and of the largest; none where all are of one size.
fn by_size(sizes: &BySize) -> Option<String> {
    let largest = sizes.mean_of_largest_ms(0.01).filter(|_| sizes.differ())?;
    let mut text = String::new();
    for class in &sizes.classes {
        let Some(mean) = class.mean_ms() else { continue };
        let last = sizes.classes.iter().find(|next| next.from_bytes > class.from_bytes);
        match last {
            Some(next) => write!(text, "to {} kB {mean:.2}  ", (next.from_bytes - 1) / 1000),
            None => write!(text, "above {} kB {mean:.2}  ", (class.from_bytes - 1) / 1000),
        }
        .expect("a String takes all");
    }
    write!(text, "largest 1% {largest:.2}").expect("a String takes all");
    Some(text)
}

fn latency_text(latency: &LatencySummary) -> String {
    let LatencySummary { mean, p50, p90, p99, p999, max, .. } = latency;
    format!("mean {mean:.2}  p50 {p50:.2}  p90 {p90:.2}  p99 {p99:.2}  p99.9 {p999:.2}  max {max:.2} ms")
}

#[cfg(test)]
mod tests {
    use results::Statuses;

    use super::*;

    #[test]
    fn means_by_size_are_said_where_sizes_differ() {
        let mut sizes = BySize::default();
        sizes.replied(600, 1_000, 2_000);
        sizes.replied(900, 3_000, 4_000);
        assert_eq!(by_size(&sizes), None);
        sizes.replied(9_000, 50_000, 60_000);
        sizes.replied(2_000_000, 7_000_000, 8_000_000);
        let expected = "to 1 kB 3.00  to 50 kB 60.00  above 50 kB 8000.00  largest 1% 8000.00";
        assert_eq!(by_size(&sizes).as_deref(), Some(expected));
    }

    #[test]
    fn replies_that_are_no_success_are_in_both_kinds_of_lines() {
        let statuses = Statuses { successful: 7, client_error: 3, ..Statuses::default() };
        let summary = CrowdSummary { offered: 10, ok: 10, statuses, ..CrowdSummary::default() };
        assert!(
            summary_text(&summary).contains("\nstatus         2xx 7  4xx 3\n"),
            "{}",
            summary_text(&summary)
        );
        let second = LoadProgress { replies_per_s: 10.0, non_2xx_per_s: 3.0, ..LoadProgress::default() };
        assert!(progress_text(&second).contains("  not 2xx 3/s"), "{}", progress_text(&second));
        let healthy = LoadProgress { non_2xx_per_s: 0.0, ..second };
        assert!(!progress_text(&healthy).contains("2xx"));
    }
}
