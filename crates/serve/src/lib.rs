//! The lab's own server: event-driven, one thread
