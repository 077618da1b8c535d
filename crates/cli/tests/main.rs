//! The program `tidegate`, as its users start it.

mod advise;
mod attach;
mod balancer;
mod common;
mod days;
mod doctor;
mod dumbbell;
mod far_away;
mod faults;
mod groups;
mod guard;
mod interfaces;
mod lab;
mod link;
mod listeners;
mod load;
mod mistakes;
mod ports;
mod promtool;
mod qdisc;
mod service;
mod shell;
mod sim;
mod sim_ends;
mod start;
mod uplink;
