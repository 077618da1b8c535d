//! Ethernet, IP and TCP: bytes to meaning and back
