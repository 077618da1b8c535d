//! The guard before real kernels, in network namespaces of their own.

mod ack_stage;
mod clients;
mod common;
mod cookies;
mod fin_stage;
mod listeners;
mod requests;
mod reserved;
mod reset_bytes;
mod route;
mod sockopt;
mod syn_stage;
mod take_over;
mod truth;
mod unserved;
mod untouched;
