//! The queue disciplines by their public interface.

mod bulk;
mod cake;
mod codel;
mod common;
mod flood;
mod flows;
mod fluid;
mod others;
mod properties;
mod ranked;
mod red;
mod redfavor;
