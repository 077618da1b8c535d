//! REDFavor as a queue discipline of the running kernel.

mod common;
mod kernel;
mod replay;
