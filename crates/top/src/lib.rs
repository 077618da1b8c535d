//! The live view of listeners: what `tidegate top`, and `tidegate guard` on a terminal, show.
//!
//! - A [`Socket`] gives a guard's lines to whoever may read them, and never waits.
//! - [`Guards`] reads them.
//! - A [`Model`] is told lines, or what the kernel says of listeners, and when it is. It keeps a
//!   minute, and knows each listener's [`State`].
//! - [`draw`] draws it, and [`run`] does so on the terminal until `q`.
//!
//! Model and drawing have no clock, so tests hold whole screens against what is expected. What it
//! is not: a source of numbers. It loads no program and asks no kernel; its caller does.

mod detail;
mod guards;
mod keys;
mod line;
mod list;
mod model;
mod reading;
mod reason;
mod screen;
mod socket;
mod sparkline;
mod state;
mod terminal;
mod words;

pub use guards::{GuardError, Guards};
pub use keys::Key;
pub use line::Hello;
pub use model::{Model, NotALine, Source};
pub use screen::{Look, draw};
pub use socket::Socket;
pub use sparkline::Glyphs;
pub use state::{Signs, State};
pub use terminal::{Fed, is_ours, run};
