//! Whole worlds in virtual time.

mod capture;
mod differential;
mod distance;
mod dumbbell;
mod overload;
mod pool;
mod queue;
mod time_wait;
mod uplink;
