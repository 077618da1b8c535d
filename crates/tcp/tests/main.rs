//! The TCP of a client, by its segments.

mod bulk;
mod connection;
mod control;
mod network;
mod running_kernel;
mod scripts;
