//! Whole screens, against what a person looked at and found good.

use std::fs;
use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::{Value, json};
use top::{Glyphs, Key, Look, Model, Source, draw};

const LOOK: Look = Look { glyphs: Glyphs::Unicode, has_colours: false };

/// A guard's line after `at_s` seconds of a second that was always the same.
fn line(listen: &str, at_s: u64, of: &Value) -> String {
    let per_s = |name: &str| at_s * of[name].as_u64().unwrap_or(0);
    let answered = per_s("answered");
    // A crowd that came ten seconds before the end.
    let per_s = |name: &str| at_s.saturating_sub(30) * of[name].as_u64().unwrap_or(0);
    let bucket = |index: i32| {
        let count = if index < 9 {
            0
        } else if index < 11 {
            answered * 95 / 100
        } else {
            answered
        };
        json!({ "le_s": 1.6e-5 * 2_f64.powi(index), "count": count })
    };
    let queue = |name: &str| if of["absent"].is_null() { of[name].clone() } else { Value::Null };
    json!({
        "event": "sample", "elapsed_s": at_s, "listen": listen, "policy": "abort+rst-syn+unserved",
        "reserved_slots": 0, "dry_run": !of["dry_run"].is_null(),
        "accept_qlen": queue("accept"), "accept_limit": 128, "syn_qlen": queue("syn"), "syn_limit": 128,
        "service": {
            "silent": 1, "waiting": of["waiting"], "counted": of["waiting"], "limit": 57,
            "learning": !of["learning"].is_null(), "follows_one_in": 1, "established": answered,
            "answered": answered, "answered_in_turn": answered, "answered_silent": 0, "ended": 0,
            "idle_time_s": 1.5, "response_time_s": answered as f64 * 0.0098, "response_floor_s": 0.004,
            "handshake_median_s": 0.000256, "completed_share": 0.999,
            "response_buckets": (0..23).map(bucket).collect::<Vec<_>>(),
        },
        "syns": { "seen": answered + per_s("refused"), "admitted": answered, "reset": per_s("refused"),
                  "dropped": 0, "server_full": per_s("limit"), "accept_full": per_s("full") },
        "acks": { "reset": 0 }, "fins": { "seen": 0 }, "passed": { "frames": 9 * answered, "unleased": 0 },
    })
    .to_string()
}

/// Two guards, and listeners in each state that a guard tells.
fn model() -> Model {
    let mut model = Model::new("1.2.3", 1, Source::Loading("the guards"));
    let hello = |pid: u32, netns: u64, name: Value| {
        json!({ "event": "hello", "version": "1.2.3", "pid": pid, "netns": netns, "netns_name": name })
            .to_string()
    };
    let mut hear = |pid, line: &str| model.line(pid, line).expect("a line");
    hear(812, &hello(812, 1, Value::Null));
    hear(907, &hello(907, 2, "tg-shop".into()));
    hear(
        812,
        &json!({ "event": "attached", "listen": "192.0.2.1:443", "policy": "abort+rst-syn+unserved",
                       "hooks": [{ "interface": "eth0", "hook": "tcx",
                                   "before": [{ "hook": "tcx", "id": 17, "name": "cil_from_netdev" }] },
                                 { "interface": "lo", "hook": "tcx" }] })
        .to_string(),
    );
    let listeners = [
        (
            812,
            "192.0.2.1:443",
            json!({ "answered": 5781, "refused": 6085, "limit": 6085, "waiting": 57, "accept": 12, "syn": 4 }),
        ),
        (812, "192.0.2.1:80", json!({ "answered": 1121, "waiting": 158, "accept": 129, "syn": 4 })),
        (812, "192.0.2.1:22", json!({ "waiting": 0, "accept": 0, "syn": 0 })),
        (812, "[2001:db8::1]:8443", json!({ "absent": true, "waiting": 0 })),
        (
            812,
            "192.0.2.1:5432",
            json!({ "answered": 12, "learning": true, "waiting": 1, "accept": 0, "syn": 0 }),
        ),
        (
            907,
            "10.8.0.2:8080",
            json!({ "answered": 240, "refused": 3, "full": 3, "dry_run": true, "waiting": 9, "accept": 3, "syn": 1 }),
        ),
        (907, "10.8.0.2:9090", json!({ "answered": 31, "waiting": 2, "accept": 0, "syn": 0 })),
    ];
    for at_s in 1..=40 {
        model.tick(at_s as f64);
        for (pid, listen, of) in &listeners {
            model.line(*pid, &line(listen, at_s, of)).expect("a line");
        }
    }
    model.tick(40.5);
    model
}

fn drawn(model: &mut Model, width: u16, height: u16, look: Look) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, model, look)).expect("draw");
    terminal
}

fn text(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(buffer.area.width));
    let row = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", text.trim_end())
    };
    rows.map(row).collect()
}

#[track_caller]
fn assert_golden(name: &str, model: &mut Model, width: u16, height: u16, look: Look) {
    let screen = text(&drawn(model, width, height, look));
    assert_eq!(screen.lines().count(), usize::from(height));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(screen == golden, "{} differs; now it is\n{screen}", path.display());
}

#[test]
fn list_has_a_line_for_each_listener_in_every_size() {
    assert_golden("list-80x24.txt", &mut model(), 80, 24, LOOK);
    assert_golden("list-120x40.txt", &mut model(), 120, 40, LOOK);
    assert_golden("list-40x10.txt", &mut model(), 40, 10, LOOK);
}

#[test]
fn listener_has_a_page_of_its_own() {
    let mut model = model();
    model.key(Key::Down);
    model.key(Key::Enter);
    assert_golden("listener-80x24.txt", &mut model, 80, 24, LOOK);
    assert_golden("listener-120x40.txt", &mut model, 120, 40, LOOK);
}

#[test]
fn page_of_a_listener_in_a_dry_run_does_not_say_that_clients_are_refused() {
    let mut model = model();
    model.key(Key::Home);
    let mut opened = (0..10).map(|_| {
        model.key(Key::Down);
        model.key(Key::Enter);
        let screen = text(&drawn(&mut model, 80, 24, LOOK));
        model.key(Key::Back);
        screen
    });
    let screen = opened.find(|screen| screen.contains("(refusing)")).expect("there is one");
    assert!(
        screen.contains("(refusing): a dry run: it would refuse") && !screen.contains("guard refuses"),
        "{screen}"
    );
}

#[test]
fn help_explains_each_word_and_fits_eighty_columns() {
    let mut model = model();
    model.key(Key::Help);
    assert_golden("help-80x60.txt", &mut model, 80, 60, LOOK);
}

#[test]
fn every_view_is_drawn_in_a_terminal_of_any_size() {
    for (width, height) in [(1, 1), (2, 2), (7, 3), (20, 5), (40, 10), (79, 23), (81, 25), (300, 90)] {
        let mut model = model();
        model.say("a message that is much longer than forty columns, so that it has to be cut off");
        for keys in [
            &[][..],
            &[Key::Enter],
            &[Key::Back, Key::Help],
            &[Key::Messages],
            &[Key::End],
            &[Key::Back, Key::End],
        ] {
            for key in keys {
                model.key(*key);
            }
            // A buffer panics at what is outside; a line that is too long is cut off.
            drawn(&mut model, width, height, LOOK);
        }
    }
}

#[test]
fn loading_is_said_before_anything_is_known() {
    let mut model = Model::new("1.2.3", 1, Source::Loading("the programs go into the kernel"));
    let screen = text(&drawn(&mut model, 80, 24, LOOK));
    assert!(screen.contains("loading: the programs go into the kernel"), "{screen}");
}

#[test]
fn state_is_a_word_with_colours_and_without() {
    let colours = |has_colours| {
        let terminal = drawn(&mut model(), 80, 24, Look { has_colours, ..LOOK });
        let cells = terminal.backend().buffer().content();
        (text(&terminal), cells.iter().filter(|cell| cell.fg != Color::Reset).count())
    };
    let (with, without) = (colours(true), colours(false));
    assert_eq!(with.0, without.0);
    assert!(with.1 > 0);
    assert_eq!(without.1, 0);
}

#[test]
fn terminal_without_utf8_gets_ascii() {
    let mut model = model();
    for keys in [&[][..], &[Key::Home, Key::Enter], &[Key::Help]] {
        keys.iter().for_each(|key| model.key(*key));
        let look = Look { glyphs: Glyphs::Ascii, has_colours: false };
        let screen = text(&drawn(&mut model, 80, 40, look));
        assert!(screen.is_ascii(), "{screen}");
    }
}

#[test]
fn messages_are_cut_in_the_list_and_whole_in_their_own_view() {
    let mut model = model();
    let message = format!("warning: {}and the end of it", "a long message ".repeat(8));
    model.say(message.as_str());
    let screen = text(&drawn(&mut model, 80, 24, LOOK));
    assert!(screen.contains("warning: a long message") && !screen.contains("the end of it"), "{screen}");
    model.key(Key::Messages);
    let screen = text(&drawn(&mut model, 80, 24, LOOK));
    assert!(screen.contains("and the end of it"), "{screen}");
}

#[test]
fn thousand_listeners_scroll_with_the_chosen_one() {
    let mut model = Model::new("1.2.3", 1, Source::Loading("the guards"));
    let hello = json!({ "event": "hello", "version": "1.2.3", "pid": 5, "netns": 1 });
    model.line(5, &hello.to_string()).expect("a line");
    for port in 1000..2000 {
        model
            .line(5, &line(&format!("192.0.2.1:{port}"), 1, &json!({ "waiting": 0, "accept": 0, "syn": 0 })))
            .expect("a line");
    }
    drawn(&mut model, 80, 24, LOOK);
    model.key(Key::PageDown);
    let screen = text(&drawn(&mut model, 80, 24, LOOK));
    assert!(screen.contains("192.0.2.1:1021 ") && !screen.contains("192.0.2.1:1000 "), "{screen}");
    model.key(Key::End);
    let screen = text(&drawn(&mut model, 80, 24, LOOK));
    assert!(screen.contains("192.0.2.1:1999 "), "{screen}");
}
