//! The results as one HTML page that needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use results::{Cell, Environment, Header};

use crate::burst_map::{BurstMap, maps_section};
use crate::claims::claims_section;
use crate::finding::finding;
use crate::metric::columns;
use crate::policy::Policies;
use crate::run::Run;
use crate::server::{folded, numbers, section};
use crate::traces::traces_section;

/// What the browser may load: nothing but the style sheet in the page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Terms of the page that are not columns of its table.
const TERMS: [(&str, &str); 10] = [
    (
        "load",
        "Offered load as a multiple of the server's saturation rate, at the machine's speed just before.",
    ),
    ("policy", "What decides about a connection attempt: the stock kernel, a sysctl, or a guard."),
    (
        "saturation",
        "Goodput, replies/s, of the highest rate of which stock Linux answered at least 95% for as long as a cell is measured, to clients who give up before they would send their SYN again.",
    ),
    (
        "attempt",
        "One client's request from its intended start to its end. Every attempt of the window ends in exactly one cause: ok, refused, reset, timed out, aborted, malformed, no port, not sent or unfinished.",
    ),
    (
        "window",
        "The part of a cell that is measured. Shares are of the attempts whose intended start lies in it; rates and response times are of the events in it.",
    ),
    (
        "claim",
        "What a paper says, as a number and its bounds. It holds when our number, with the whole of its 95% confidence interval over repetitions, is within the bounds, and fails when none of the interval is; else it is undecided. A single run has no interval.",
    ),
    (
        "ideal",
        "In plots, whose rates are at the machine's speed when the saturation rate was found: a server that answers everything up to its saturation rate, and as much beyond it.",
    ),
    (
        "range",
        "Smallest to largest over repetitions. Numbers beside it are medians; shares of a CPU are means, so that they still sum to one.",
    ),
    (
        "mark",
        "A reason to read a result with care, such as a generator that was itself the limit. Marked results are shown, with hollow markers in plots.",
    ),
    ("–", "Nothing was measured: for example a response time where nothing was answered."),
];

/// One self-contained HTML page: light and dark, for screens and paper, without a script and
/// without the network.
pub fn page(run: &Run) -> String {
    let policies = Policies(run.policies());
    let servers = run.servers();
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&run.header.experiment))
            body {
                (theme_choice())
                main class=[kind(run)] {
                    (opening(run))
                    (claims_section(&run.claims))
                    (traces_section(&run.traces))
                    @if servers.is_empty() && run.traces.is_empty() { p { "This run is empty: no server was measured." } }
                    (measured(run, &policies, 1))
                    (circumstances(&run.header))
                    (glossary(run.cells.iter()))
                }
            }
        }
    };
    html.into_string()
}

/// Each server, or a map of all of them and what is behind it; they are numbered from `first` on.
pub(crate) fn measured(run: &Run, policies: &Policies, first: usize) -> Markup {
    let servers = (first..).zip(run.servers());
    html! {
        @match BurstMap::of(run) {
            Some(map) => {
                (maps_section(&map))
                @for (number, server) in servers { (folded(server, numbers(run, server, policies, number))) }
            }
            None => @for (number, server) in servers { (section(run, server, policies, number)) },
        }
    }
}

pub(crate) fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " – Tidegate" }
            style { (PreEscaped(include_str!("style.css"))) }
        }
    }
}

/// Three radio buttons that the style sheet reads; no script.
pub(crate) fn theme_choice() -> Markup {
    html! {
        fieldset.theme {
            legend { "Theme" }
            @for (value, is_default) in [("auto", true), ("light", false), ("dark", false)] {
                label { input type="radio" name="theme" id={ "theme-" (value) } checked[is_default]; span { (value) } }
            }
        }
    }
}

fn opening(run: &Run) -> Markup {
    html! {
        header {
            p.eyebrow { "Tidegate · " (run.header.experiment) " · " (run.header.started) }
            h1 { (run.header.title) }
            (banner(run))
            p.finding { (finding(run)) }
        }
    }
}

/// Class of what holds a run's figures; the style sheet writes it at each of them.
pub(crate) fn kind(run: &Run) -> Option<&'static str> {
    run.header.environment.is_simulated().then_some("simulated")
}

/// Says that a run was in virtual time.
pub(crate) fn banner(run: &Run) -> Markup {
    html! {
        @if run.header.environment.is_simulated() {
            p.banner { "SIMULATED: a model in virtual time, with " (run.header.environment.cpu) ". No kernel ran." }
        }
    }
}

pub(crate) fn circumstances(header: &Header) -> Markup {
    html! {
        section {
            h2 { "Circumstances" }
            h3 { "Deviations" }
            @if header.deviations.is_empty() {
                p { "None from a plain Linux server on a NIC was recorded." }
            } @else {
                ul { @for deviation in &header.deviations { li { (deviation) } } }
            }
            h3 { "Machine" }
            (environment(&header.environment))
            (folded("The experiment file", html! { pre { (header.source) } }))
        }
    }
}

fn environment(environment: &Environment) -> Markup {
    html! {
        dl.facts {
            dt { "Kernel" } dd { (environment.kernel) }
            dt { "CPU" } dd { (environment.cpu) ", " (environment.cpus) " online" }
            dt { "Memory" } dd { (environment.memory_mib) " MiB" }
            @for (program, version) in &environment.versions { dt { (program) } dd { (version) } }
        }
        @if !environment.sysctls.is_empty() {
            h3 { "Sysctls of the server's namespace" }
            dl.facts.code { @for (name, value) in &environment.sysctls { dt { (name) } dd { (value) } } }
        }
    }
}

pub(crate) fn glossary<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Markup {
    let of_servers = cells.filter(|cell| cell.link.is_none());
    html! {
        section {
            h2 { "What the words mean" }
            dl.glossary {
                @for metric in columns(of_servers) { dt { (metric.heading) } dd { (metric.definition) } }
                @for (term, meaning) in TERMS { dt { (term) } dd { (meaning) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use results::PathSummary;

    use super::*;
    use crate::marks::marks;
    use crate::testing;

    fn escaped(text: &str) -> String {
        html! { (text) }.into_string()
    }

    #[test]
    fn every_cell_shows_all_its_values() {
        for run in [testing::demo(), testing::repeated()] {
            let page = page(&run);
            for server in run.servers() {
                let rate = run.saturation(server).and_then(results::Saturation::rate);
                for point in run.points(server) {
                    for metric in columns(run.cells.iter()) {
                        let value = format!("<td>{}<", escaped(&metric.show(&point, rate)));
                        assert!(page.contains(&value), "{} {value}", metric.heading);
                        if let Some(range) = metric.show_range(&point, rate) {
                            assert!(page.contains(&escaped(&range)), "{} {range}", metric.heading);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn page_has_one_row_of_results_per_point() {
        let run = testing::demo();
        let rows = page(&run).matches("<td class=\"text\">").count();
        assert_eq!(rows, run.cells.len());
    }

    #[test]
    fn page_loads_nothing() {
        for run in [testing::demo(), testing::repeated(), testing::hostile(), testing::empty()] {
            let page = page(&run);
            for loader in
                ["src=", "@import", "url(", "<script", "<link", "<iframe", "<img", "<object", "xlink"]
            {
                assert!(!page.contains(loader), "{loader}");
            }
            for (at, _) in page.match_indices("href=\"") {
                assert!(page[at..].starts_with("href=\"#"), "{}", &page[at..at + 40]);
            }
            assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
        }
    }

    #[test]
    fn links_to_marks_lead_somewhere() {
        let page = page(&testing::demo());
        let mut links = 0;
        for (at, start) in page.match_indices("href=\"#") {
            let target = page[at + start.len()..].split('"').next().expect("closed");
            assert_eq!(page.matches(&format!("id=\"{target}\"")).count(), 1, "{target}");
            links += 1;
        }
        assert!(links > 0, "the demo has marks");
    }

    #[test]
    fn every_mark_and_deviation_is_spelled_out() {
        let run = testing::demo();
        let page = page(&run);
        for text in run.cells.iter().flat_map(marks).chain(run.header.deviations.clone()) {
            assert!(page.contains(&escaped(&text)), "{text}");
        }
    }

    #[test]
    fn clients_that_are_far_away_have_their_way_and_its_counters_shown() {
        let mut run = testing::demo();
        assert!(!page(&run).contains("Its clients are behind"));
        for cell in run.cells.iter_mut().filter(|cell| cell.server == "nginx") {
            let counters = [("to_server.lost".to_owned(), 12_345)].into();
            let words = "delay 25ms loss 0.01".to_owned();
            let path =
                PathSummary { to_server: words.clone(), to_clients: words, counters, late_p99_ms: 0.0 };
            cell.path = Some(Box::new(path));
        }
        let page = page(&run);
        assert_eq!(page.matches("Its clients are behind a path each way: delay 25ms loss 0.01.").count(), 1);
        assert!(page.contains(">to_server.lost<") && page.contains("12,345"));
        let table = crate::table(&run).replace(char::is_whitespace, " ");
        assert_eq!(table.matches("clients are behind a path each way: delay 25ms loss 0.01").count(), 1);
    }

    #[test]
    fn every_counter_that_moved_is_shown_and_no_other_of_the_kernel() {
        let run = testing::demo();
        let page = page(&run);
        for name in run.cells[0].kernel.keys() {
            let has_moved = run.cells.iter().any(|cell| cell.kernel[name] > 0);
            assert_eq!(page.contains(&format!(">{name}<")), has_moved, "{name}");
        }
        for name in run.cells.iter().filter_map(|cell| cell.guard.as_ref()).flat_map(|guard| guard.keys()) {
            assert!(page.contains(&format!(">{name}<")), "{name}");
        }
    }

    #[test]
    fn every_claim_is_shown_with_its_numbers_and_its_answer() {
        let run = testing::demo();
        let page = page(&run);
        for claim in &run.claims {
            for text in [&claim.text, &claim.source, &claim.measured].into_iter().chain(&claim.marks) {
                assert!(page.contains(&escaped(text)), "{text}");
            }
        }
        for word in ["holds", "fails", "undecided", "not measured", "≥ 1.27×", "1.30×", "1.21×–1.39×"]
        {
            assert!(page.contains(&format!(">{word}<")), "{word}");
        }
    }

    #[test]
    fn circumstances_are_complete() {
        let run = testing::demo();
        let page = page(&run);
        let environment = &run.header.environment;
        let pairs = environment.versions.iter().chain(&environment.sysctls);
        let words = pairs.flat_map(|(name, value)| [name, value]);
        for word in
            words.chain([&environment.kernel, &environment.cpu, &run.header.source, &run.header.started])
        {
            assert!(page.contains(&escaped(word)), "{word}");
        }
    }

    #[test]
    fn page_carries_the_same_finding_as_the_terminal() {
        let run = testing::demo();
        assert!(page(&run).contains(&escaped(&finding(&run))));
    }

    #[test]
    fn hostile_names_are_escaped() {
        let page = page(&testing::hostile());
        assert!(!page.contains(testing::HOSTILE), "not verbatim");
        assert!(!page.contains("<b onload"), "in no attribute and no text");
        assert!(page.contains("&lt;b onload"));
    }

    #[test]
    fn empty_run_gives_a_page_that_says_so() {
        let page = page(&testing::empty());
        assert!(page.contains("This run is empty"));
        assert!(page.contains("so it shows nothing yet"));
    }

    #[test]
    fn server_without_cells_says_so() {
        let mut run = testing::demo();
        run.cells.clear();
        assert!(page(&run).contains("No cells were measured for this server."));
    }

    #[test]
    fn every_column_is_defined() {
        let mut run = testing::demo();
        run.cells.push(testing::flooded("built-in", 0.5, "flood"));
        let page = page(&run);
        for metric in columns(run.cells.iter()) {
            assert!(page.contains(&format!("<dt>{}</dt>", metric.heading)), "{}", metric.heading);
        }
    }

    #[test]
    fn logarithmic_axes_are_called_so() {
        assert_eq!(page(&testing::demo()).matches("(log axis)").count(), 2 * 2, "two plots, two servers");
    }
}
