//! Draws the model. No colour is needed: each state is a word.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::detail;
use crate::list::{self, Column, WOULD_REFUSE};
use crate::model::{Model, Row, Source, View};
use crate::reason::Reason;
use crate::sparkline::Glyphs;
use crate::state::State;
use crate::words::{start_of, wrapped};

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Characters that the terminal can show.
    pub glyphs: Glyphs,
    /// Whether it may use colours.
    pub has_colours: bool,
}

impl Look {
    /// As the environment says: `NO_COLOR`, and a locale without UTF-8.
    pub fn of_environment() -> Self {
        let is_set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(is_set).unwrap_or_default();
        let is_utf8 = ["utf-8", "utf8"].iter().any(|name| locale.to_lowercase().contains(name));
        let glyphs = if is_utf8 { Glyphs::Unicode } else { Glyphs::Ascii };
        Self { glyphs, has_colours: is_set("NO_COLOR").is_none() }
    }
}

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, model: &mut Model, look: Look) {
    let area = frame.area();
    let [width, height] = [area.width, area.height].map(usize::from);
    let title = start_of(&title(model), width, look.glyphs.cut());
    put(frame, 0, Line::from(title.bold()));
    let messages = match model.view {
        View::List => model.messages.len().min(if height < 16 { 1 } else { 2 }),
        _ => 0,
    };
    let room = height.saturating_sub(2 + messages);
    match model.view {
        View::List => list_view(frame, model, look, room),
        View::Listener => {
            let lines = model
                .chosen_row()
                .map(|row| detail::lines(row, model, width, look.glyphs))
                .unwrap_or_else(|| vec!["this listener is gone".to_owned()]);
            scrolled(frame, model, &lines, room);
        }
        View::Help => scrolled(frame, model, &help(width), room),
        View::Messages => {
            let all = model.messages.iter().flat_map(|message| wrapped(message, width));
            let mut lines: Vec<String> = all.collect();
            if lines.is_empty() {
                lines.push("no messages".to_owned());
            }
            scrolled(frame, model, &lines, room);
        }
    }
    for (index, message) in model.messages.iter().rev().take(messages).rev().enumerate() {
        let line = start_of(message, width, look.glyphs.cut());
        put(frame, height.saturating_sub(1 + messages) + index, Line::from(line));
    }
    if height > 1 {
        let keys = start_of(keys(model, width), width, look.glyphs.cut());
        put(frame, height - 1, Line::from(keys.dim()));
    }
}

fn list_view(frame: &mut Frame<'_>, model: &mut Model, look: Look, room: usize) {
    let width = usize::from(frame.area().width);
    if let Some(text) = nothing(model) {
        let line = start_of(&text, width, look.glyphs.cut());
        return put(frame, 1, Line::from(line));
    }
    let is_guarded = list::is_guarded(model);
    let longest = model.rows.iter().map(|row| list::name(row, model).chars().count()).max().unwrap_or(0);
    let columns = list::columns(width, longest, is_guarded);
    put(frame, 1, Line::from(list::header(&columns, is_guarded).underlined()));
    model.page = room.saturating_sub(1).max(1);
    let order = model.order();
    let chosen = model.chosen_row().map(|row| row.id.clone());
    let place = order.iter().position(|&index| Some(&model.rows[index].id) == chosen.as_ref()).unwrap_or(0);
    let last_first = order.len().saturating_sub(model.page);
    // No further than the chosen one is seen.
    model.scroll = model.scroll.clamp((place + 1).saturating_sub(model.page), place).min(last_first);
    for (line, &index) in order.iter().skip(model.scroll).take(model.page).enumerate() {
        let row = &model.rows[index];
        let text = list::row(&columns, row, model, look.glyphs);
        let is_chosen = Some(&row.id) == chosen.as_ref();
        put(frame, 2 + line, coloured(&text, &columns, row, is_chosen, look));
    }
}

/// What stands in place of the list.
fn nothing(model: &Model) -> Option<String> {
    match model.source {
        Source::Loading(what) => Some(format!("loading: {what}")),
        Source::Guards if model.rows.is_empty() => Some("no listener is guarded any more".to_owned()),
        Source::Kernel if model.rows.is_empty() => Some("nothing listens on this host".to_owned()),
        _ => None,
    }
}

fn coloured(
    text: &str,
    columns: &[(Column, usize)],
    row: &Row,
    is_chosen: bool,
    look: Look,
) -> Line<'static> {
    let colour = match row.state() {
        State::Refusing | State::Burst => Some(Color::Yellow),
        State::Dropping | State::Blind | State::NoListener | State::LeaseLost => Some(Color::Red),
        _ => None,
    };
    let style = colour.filter(|_| look.has_colours).map_or_else(Style::new, |colour| Style::new().fg(colour));
    // The state is the second column.
    let begin = columns[0].1 + 1;
    let end = begin + columns[1].1;
    let part = |from: usize, to: usize| text.chars().skip(from).take(to - from).collect::<String>();
    let spans = [
        Span::raw(part(0, begin)),
        Span::styled(part(begin, end), style),
        Span::raw(part(end, text.len().max(end))),
    ];
    let line = Line::from(spans.to_vec());
    if is_chosen { line.reversed() } else { line }
}

fn scrolled(frame: &mut Frame<'_>, model: &mut Model, lines: &[String], room: usize) {
    model.page = room.max(1);
    model.scroll = model.scroll.min(lines.len().saturating_sub(model.page));
    for (line, text) in lines.iter().skip(model.scroll).take(model.page).enumerate() {
        put(frame, 1 + line, Line::from(text.clone()));
    }
}

fn put(frame: &mut Frame<'_>, line: usize, text: Line<'_>) {
    let area = frame.area();
    if line < usize::from(area.height) {
        let y = area.y + u16::try_from(line).expect("a height fits");
        frame.render_widget(Paragraph::new(text), Rect { y, height: 1, ..area });
    }
}

fn title(model: &Model) -> String {
    let who = match (model.source, &model.guards) {
        (Source::Loading(_), _) => return format!("tidegate {}", model.version),
        (Source::Kernel, _) => "no guard runs here; the kernel says:".to_owned(),
        (Source::Guards, guards) if guards.len() == 1 => {
            let (pid, guard) = guards.first_key_value().expect("there is one");
            match guard.hello.netns_name.as_deref() {
                Some(name) => format!("guard {pid} in {name}:"),
                None => format!("guard {pid}:"),
            }
        }
        (Source::Guards, guards) => format!("{} guards:", guards.len()),
    };
    let listeners = match model.rows.len() {
        1 => "1 listener".to_owned(),
        count => format!("{count} listeners"),
    };
    let order = if model.view == View::List && model.rows.len() > 1 {
        format!(", {}", model.sort.word())
    } else {
        String::new()
    };
    format!("tidegate {}  {who} {listeners}{order}", model.version)
}

/// The longest that fits.
fn keys(model: &Model, width: usize) -> &'static str {
    let all: &[&str] = match model.view {
        View::List if model.messages.is_empty() => {
            &["up/down choose  Enter open  s sort  ? help  q quit", "Enter open  ? help  q quit", "q quit"]
        }
        View::List => &[
            "up/down choose  Enter open  s sort  m messages  ? help  q quit",
            "m messages  ? help  q quit",
            "q quit",
        ],
        _ => &["Esc back  up/down scroll  q quit", "Esc back  q quit", "q quit"],
    };
    all.iter().find(|keys| keys.len() <= width).unwrap_or(&all[all.len() - 1])
}

/// What all of it means.
fn help(width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut section = |title: &str, items: &[(&str, &str)]| {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(wrapped(title, width));
        for (word, meaning) in items {
            let room = width.saturating_sub(13);
            let meaning = wrapped(meaning, room);
            for (index, line) in meaning.iter().enumerate() {
                let word = if index == 0 { word } else { "" };
                lines.push(start_of(&format!("{word:12} {line}"), width, '~'));
            }
        }
    };
    section(
        "Rates and times are of the last second. Guarded listeners:",
        &[
            ("answ/s", "answers that began"),
            ("ref%", "refused clients, of the SYNs that came"),
            ("mean, p99", "time from the request to the answer; p99 within a factor of two"),
            ("waiting", "connections that wait for the server, of how many may"),
            ("minute", "answers over the last minute, the newest at the right"),
            ("last", "why a client was refused last"),
        ],
    );
    section(
        "Where there is no guard, the kernel says:",
        &[
            ("acc/s", "connections that accept(2) took"),
            ("drop", "dropped clients, of the SYNs that came"),
            ("wait, p99", "time from the handshake to accept(2)"),
            ("accept", "connections in the accept queue, of how many it holds"),
        ],
    );
    section("States:", &State::ALL.map(|state| (state.word(), state.meaning())));
    section("", &[("(refusing)", WOULD_REFUSE)]);
    section("Reasons:", &Reason::ALL.map(|reason| (reason.short(), reason.meaning())));
    section(
        "Keys:",
        &[
            ("up, down", "choose a listener, or scroll; also k and j, PgUp and PgDn, Home and End"),
            ("Enter", "everything that is known of it"),
            ("Esc", "back to the list"),
            ("s", "another order: load, answers, refusals, waiting, address"),
            ("m", "all messages"),
            ("q, Ctrl-C", "the end"),
        ],
    );
    lines
}
