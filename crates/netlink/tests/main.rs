//! Kernel tests.

mod kernel;
