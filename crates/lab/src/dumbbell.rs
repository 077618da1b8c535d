//! A dumbbell of real hosts.

mod bed;
mod hosts;
mod kernels;

pub(crate) use kernels::run;
