//! AF_XDP rings behind a safe API
