//! The decisions of kernel/verdict.h, called on the host
