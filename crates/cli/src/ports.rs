//! `tidegate ports`: which local ports are taken, and when they run out.

use ::ports::{Pair, Served, Settings, Survey, advise};
use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::output::say;

/// Say how many ports are left towards whom, how fast they go, and what would help
///
/// A connection that this host closes first keeps its port for 60 s, towards that destination
/// (TIME_WAIT). A proxy or a load generator can run out of them: connect(2) says EADDRNOTAVAIL
/// then. Nothing is changed, and no privilege is needed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Of another network namespace: a name of `ip netns`, host, a process id or a path
    #[arg(long, value_name = "NETNS", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    /// Rows of each table, at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Print JSON lines: "ports", then a "client" for each destination, a "server" for each
    /// listener, and "advice"
    #[arg(long)]
    json: bool,
}

/// Looks once.
pub fn run(args: &Args) -> Result<()> {
    let look = || -> Result<_> {
        let settings = Settings::read()?;
        let survey = Survey::take(&settings)?;
        Ok((settings, survey))
    };
    let (settings, survey) = match &args.netns {
        None => look()?,
        Some(name) => netns::enter(&netns::open(name)?, look)??,
    };
    if args.json { lines(&survey, &settings) } else { tables(&survey, &settings, args.top) }
}

fn lines(survey: &Survey, settings: &Settings) -> Result<()> {
    say(json!({
        "event": "ports",
        "first": settings.range.start(),
        "last": settings.range.end(),
        "ports": settings.size(),
        "tcp_tw_reuse": settings.reuse.number(),
        "tcp_timestamps": settings.has_timestamps,
        "time_wait": survey.time_wait,
        "tcp_max_tw_buckets": settings.most_time_waits,
    }))?;
    survey.pairs.iter().try_for_each(|pair| say(with_event("client", pair)?))?;
    survey.served.iter().try_for_each(|served| say(with_event("server", served)?))?;
    advise(survey, settings).iter().try_for_each(|advice| {
        let mut line = with_event("advice", advice)?;
        line["text"] = advice.to_string().into();
        say(line)
    })
}

fn with_event(event: &str, what: impl serde::Serialize) -> Result<serde_json::Value> {
    let mut line = serde_json::to_value(what)?;
    line["event"] = event.into();
    Ok(line)
}

fn tables(survey: &Survey, settings: &Settings, top: usize) -> Result<()> {
    let (first, last) = (settings.range.start(), settings.range.end());
    say(format_args!(
        "{} ports for each destination ({first} to {last}), tcp_tw_reuse {}, {} connections in TIME_WAIT of at most {}",
        settings.size(),
        settings.reuse.number(),
        survey.time_wait,
        settings.most_time_waits
    ))?;
    if !survey.pairs.is_empty() {
        let header = ["from", "to", "open", "TIME_WAIT", "left", "closes/s", "none left in"];
        table(&header, 2, survey.pairs.iter().take(top).map(client))?;
        rest(survey.pairs.len(), top, "destinations")?;
    }
    if !survey.served.is_empty() {
        table(&["listener", "open", "TIME_WAIT", "closes/s"], 1, survey.served.iter().take(top).map(server))?;
        rest(survey.served.len(), top, "listeners")?;
    }
    let advice = advise(survey, settings);
    if advice.is_empty() {
        return say("no ports are short");
    }
    advice.iter().try_for_each(|advice| say(format_args!("- {advice}")))
}

fn client(pair: &Pair) -> Vec<String> {
    vec![
        pair.from.to_string(),
        pair.to.to_string(),
        pair.open.to_string(),
        pair.time_wait.to_string(),
        pair.left.to_string(),
        format!("{:.0}", pair.closes_per_s),
        pair.runs_out_s.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0} s")),
    ]
}

fn server(served: &Served) -> Vec<String> {
    vec![
        served.listen.to_string(),
        served.open.to_string(),
        served.time_wait.to_string(),
        format!("{:.0}", served.closes_per_s),
    ]
}

/// The first `words` columns are no numbers.
fn table(header: &[&str], words: usize, rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for index in words..header.len() {
        let column = table.column_mut(index).expect("it was just named");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.add_rows(rows);
    table.lines().try_for_each(|line| say(line.trim_end()))
}

fn rest(count: usize, top: usize, what: &str) -> Result<()> {
    if count > top { say(format_args!("and {} more {what} (--top)", count - top)) } else { Ok(()) }
}
