//! The terminal: what is drawn on it, and what is typed.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{getpgrp, tcgetpgrp};
use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};

use crate::keys::{Key, is_unfinished, keys};
use crate::model::Model;
use crate::screen::{Look, draw};

/// Longest time until a signal is noticed, or a terminal's new size.
const NAP_MS: u16 = 100;
/// Within which the rest of a key comes.
const KEY_MS: u16 = 30;
/// Between two drawings of what has not changed: ages go on.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// Whether a screen can be drawn here: standard input and output are a terminal that is ours now,
/// and has a size. A process in the background that reads it is stopped. The terminal of a serial
/// line has no size until somebody sets one.
pub fn is_ours() -> bool {
    let is_foreground = || tcgetpgrp(io::stdout()).is_ok_and(|group| group == getpgrp());
    let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let has_size = || size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0);
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb && is_foreground() && has_size()
}

/// Shows the model until somebody types `q`, `stop` is set, or `feed` says that it is over. `feed`
/// brings the model up to date, several times a second and after each drawing, and gives whether
/// there is something new. The terminal is as before then, also after a panic.
///
/// # Errors
///
/// Those of `feed`, and the terminal's: it is gone, or cannot be written.
pub fn run<E: From<io::Error>>(
    model: &mut Model,
    look: Look,
    stop: &AtomicBool,
    mut feed: impl FnMut(&mut Model) -> Result<Fed, E>,
) -> Result<(), E> {
    let mut terminal = Terminal::enter()?;
    let start = Instant::now();
    let (mut is_news, mut drawn, mut size) = (true, start, terminal.0.size()?);
    while !stop.load(Ordering::Relaxed) && !model.is_over() {
        if is_news || drawn.elapsed() >= DRAW_EVERY {
            terminal.0.draw(|frame| draw(frame, model, look))?;
            drawn = Instant::now();
        }
        model.tick(start.elapsed().as_secs_f64());
        let fed = feed(model)?;
        // A guard that is silent, and a listener that is gone.
        model.tick(start.elapsed().as_secs_f64());
        is_news = match fed {
            Fed::Over => break,
            Fed::News => true,
            Fed::Nothing => false,
        };
        for key in read_keys(if is_news { 0 } else { NAP_MS })? {
            model.key(key);
            is_news = true;
        }
        let now = terminal.0.size()?;
        is_news |= std::mem::replace(&mut size, now) != now;
    }
    Ok(())
}

/// What came to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// Nothing new.
    Nothing,
    /// Something to draw.
    News,
    /// Nothing will come any more.
    Over,
}

/// In raw mode, with a screen of its own, until it is dropped. Not by `ratatui::init()`, and
/// without the drop of ratatui's: if the terminal is gone, both write to standard error and panic
/// because they cannot, the one in a panic hook. That would be the end of a guard.
struct Terminal(ManuallyDrop<DefaultTerminal>);

impl Terminal {
    fn enter() -> io::Result<Self> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        enable_raw_mode()?;
        let entered = execute!(io::stdout(), EnterAlternateScreen);
        let terminal = entered.and_then(|()| DefaultTerminal::new(CrosstermBackend::new(io::stdout())));
        terminal.map(|terminal| Self(ManuallyDrop::new(terminal))).inspect_err(|_| restore())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// As far as it can be.
fn restore() {
    disable_raw_mode().ok();
    execute!(io::stdout(), LeaveAlternateScreen, Show).ok();
}

/// Keys that are typed within this time. crossterm 0.29 would read the terminal, too, but never
/// comes back once that is gone: it tries again for ever (`mio.rs`, `try_read`).
fn read_keys(timeout_ms: u16) -> io::Result<Vec<Key>> {
    let mut bytes = Vec::new();
    let mut timeout_ms = timeout_ms;
    while is_ready(timeout_ms)? {
        let mut some = [0; 64];
        // Not by the buffer of std's stdin, in which a key would wait unseen.
        let length = nix::unistd::read(io::stdin(), &mut some)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&some[..length]);
        if !is_unfinished(&bytes) {
            break;
        }
        timeout_ms = KEY_MS;
    }
    Ok(keys(&bytes))
}

fn is_ready(timeout_ms: u16) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(timeout_ms)) {
        Ok(ready) => Ok(ready > 0),
        // A signal: the flag is looked at.
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
