//! An open-loop crowd with its own TCP over AF_XDP
