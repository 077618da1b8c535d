//! When attempts are meant to start: seeded schedules without a clock
