//! A client's TCP without I/O: told the time, handed segments
