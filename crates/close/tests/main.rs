//! The programs on this kernel, between two namespaces.

mod kernel;
mod recipes;
