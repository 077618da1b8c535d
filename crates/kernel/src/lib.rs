//! The structs and decisions of `kernel/*.h` on the host: the same code that the BPF programs run.
//!
//! Here alone Rust meets C. bindgen makes the types, with the comments of the headers. C divides by
//! numbers that a header wants above 0: the caller sees to that.
//!
//! What it is not: it sees no packet, map or clock, and knows no policy by its name. See
//! crates/verdict, crates/pacer and crates/aqm.

mod bands;
mod close;
mod counters;
mod functions;
mod load;
mod plain;
mod service;

pub use bands::http_response_bytes;
pub use counters::{Counted, Counter, FAMILIES, Family, Shown, counter};
pub use functions::*;
pub use plain::{Plain, Unpadded, bytes_of, from_bytes, same};
pub use raw::{
    BUCKETS, COOKIE_KEY_SHIFT, COOKIE_KEYS, COOKIE_NO_WSCALE, COOKIE_PERIOD_SHIFT, COOKIE_PERIODS,
    COOKIE_PLACES, OPENING_BYTES, RED_ONE, REDFAVOR_ONE_BYTE, STAGE_SILENT, STAGE_WAITING,
};
pub use raw::{
    attempt as Attempt, close_action as CloseAction, close_segment as CloseSegment,
    close_socket as CloseSocket, cookie_flow as CookieFlow, cookie_key as CookieKey,
    cookie_keys as CookieKeys, cookie_options as CookieOptions, cutoffs as Cutoffs, fin as Fin, full as Full,
    hold as Hold, http_header as HttpHeader, last_ack as LastAck, listener_load as ListenerLoad,
    listener_policy as ListenerPolicy, listener_stats as ListenerStats, on_fin as OnFin,
    outgoing as Outgoing, pace as Pace, packet_kind as PacketKind, path_stats as PathStats, rate as Rate,
    red_action as RedAction, red_params as RedParams, red_state as RedState,
    redfavor_action as RedfavorAction, redfavor_guard as RedfavorGuard, redfavor_state as RedfavorState,
    response as Response, service as Service, size_source as SizeSource, trigger as Trigger,
    verdict as Verdict, wait as Wait,
};

#[allow(
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    reason = "made by bindgen"
)]
mod raw {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
