//! `tidegate top`: how listeners do, live.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use top::{Fed, GuardError, Guards, Look, Model, Source};
use watch::{Hook, Lookout, Watch};

use crate::mistake::Mistake;
use crate::signals;

/// Between two looks.
const TURN: Duration = Duration::from_secs(1);

/// Show how listeners do, live: those of all guards, or else all of this host
///
/// A line for each listener: a state in a word, answers a second, refused clients, mean and p99,
/// waiting connections, the last minute, and why a client was refused last. Enter shows everything
/// of one, `?` explains the words, `q` ends it. It reads the guards' sockets as their user or as
/// root, and changes nothing. Without a guard it needs root, or CAP_BPF and CAP_PERFMON; an
/// ordinary user sees then what /proc shows.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the guards' sockets, as their --state
    #[arg(long, value_name = "DIR", default_value = "/run/tidegate")]
    state: PathBuf,
}

/// Shows them until `q`, or a signal.
pub fn run(args: &Args) -> Result<()> {
    if !top::is_ours() {
        return Err(Mistake(
            "top draws a screen, and standard input and output are no terminal of its own, or one without a size, which `stty rows 24 cols 80` \
             sets; for lines use `tidegate guard --json` \
             or `tidegate listeners --watch 10s`"
                .to_owned(),
        )
        .into());
    }
    let stop = signals::stop_flag()?;
    let netns = std::fs::metadata("/proc/self/ns/net").context("look at our network namespace")?.ino();
    let mut model = Model::new(experiment::version(), netns, Source::Loading("guards and listeners"));
    let mut feed = Feed::new(&args.state);
    top::run(&mut model, Look::of_environment(), &stop, |model| feed.turn(model))
}

/// Where the model's news come from: guards, or while there is none the kernel.
struct Feed {
    guards: Guards,
    kernel: Option<Kernel>,
    start: Instant,
    due: Instant,
    /// Messages that may be found again each second.
    said: BTreeSet<String>,
}

struct Kernel {
    watch: Option<Watch>,
    lookout: Lookout,
}

impl Feed {
    fn new(folder: &Path) -> Self {
        let now = Instant::now();
        Self { guards: Guards::new(folder), kernel: None, start: now, due: now, said: BTreeSet::new() }
    }

    /// Tells the model what is new.
    ///
    /// # Errors
    ///
    /// There are guards, and none can be read; or the kernel does not tell.
    fn turn(&mut self, model: &mut Model) -> Result<Fed> {
        let is_due = Instant::now() >= self.due;
        while self.due <= Instant::now() {
            self.due += TURN;
        }
        let mut errors = if is_due { self.guards.find() } else { Vec::new() };
        let (mut is_news, unheard) = self.guards.hear(model);
        errors.extend(unheard);
        self.say(model, errors)?;
        if !self.guards.is_empty() {
            self.kernel = None;
        } else if is_due {
            is_news = true;
            self.ask_kernel(model)?;
        }
        Ok(if is_news { Fed::News } else { Fed::Nothing })
    }

    /// If there is another guard to show, an error is a message.
    fn say(&self, model: &mut Model, errors: Vec<GuardError>) -> Result<()> {
        for error in errors {
            if self.guards.is_empty() && self.kernel.is_none() {
                return Err(error.into());
            }
            model.say(error.to_string());
        }
        Ok(())
    }

    fn ask_kernel(&mut self, model: &mut Model) -> Result<()> {
        let mut messages = Vec::new();
        let kernel = self.kernel.get_or_insert_with(|| {
            let watch = Watch::start(&Hook::ALL);
            messages.extend(watch.as_ref().err().map(ToString::to_string));
            messages.extend(watch.iter().flat_map(Watch::gaps));
            Kernel { watch: watch.ok(), lookout: Lookout::default() }
        });
        let inventory = kernel.lookout.look(kernel.watch.as_ref())?;
        model.listeners(&inventory, self.start.elapsed().as_secs_f64());
        messages.extend(inventory.gaps);
        for message in messages {
            if self.said.insert(message.clone()) {
                model.say(message);
            }
        }
        Ok(())
    }
}
