//! The programs on this kernel, between two namespaces.

mod kernel;
mod old_segments;
mod proxy;
mod recipes;
mod sockets;
mod world;
