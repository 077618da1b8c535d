//! `tidegate lab`: experiments on real kernels, in network namespaces.
//!
//! An experiment is a TOML file ([`Plan`]). Most are a grid ([`Experiment`]): servers, policies, offered loads as multiples of the server's
//! saturation rate. [`run`] finds that rate first, then measures each point of the grid in fresh namespaces, and
//! writes JSON lines as it goes and a page at the end. The lab starts the same programs that a user would: `tidegate serve`,
//! `tidegate guard`, `tidegate load`. Some are packet scripts instead, with the claims that they show.
//!
//! Some are flows over a bottleneck, which `tidegate link` is ([`dumbbell`]).
//!
//! The same files run in virtual time, too ([`simulate`], [`dumbbell`]).
//!
//! What it is not: no remote machines, no statistics beyond what the crowd
//! and the kernel counted.

mod apache;
pub mod bench;
mod bursts;
pub mod calibrate;
mod calls;
mod capture;
mod cell;
mod child;
mod crowd;
mod distance;
pub mod dumbbell;
mod environment;
mod experiment;
mod extent;
mod fit;
mod gauge;
mod grid;
mod guard;
mod hold;
mod jobs;
mod middle;
mod nearness;
mod nft;
mod nginx;
mod outcome;
mod plan;
mod play;
pub mod play_simulated;
mod policy;
mod probe;
mod rates;
mod saturation;
mod server;
pub mod simulate;
mod testbed;
mod traces;

pub use capture::Captures;
pub use environment::version;
pub use experiment::{Experiment, ExperimentError, Layout, Receive};
pub use grid::Event;
pub use jobs::Watch;
pub use outcome::{Options, Outcome};
pub use plan::{Plan, run};
pub use rates::RatesError;
pub use testbed::{CROWD_INTERFACE, SERVER_INTERFACE, Testbed};
