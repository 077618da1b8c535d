//! REDFavor, SRPT and LAS as queue disciplines of the running kernel.

mod common;
mod kernel;
mod ranked;
mod replay;
