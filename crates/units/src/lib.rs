//! Time and rates with their units; what people type and what they read
