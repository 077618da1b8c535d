//! The uplink on this kernel, between two namespaces.

mod sizes;
mod tree;
mod world;
