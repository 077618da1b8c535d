//! A dumbbell of real hosts.

mod bed;
mod hosts;
mod kernels;

pub use kernels::run;
