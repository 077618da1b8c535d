//! The server by its sockets.

mod descriptors;
mod loopback;
