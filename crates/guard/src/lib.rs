//! Finds a listener, loads the programs, sets the policy, reads the counters
