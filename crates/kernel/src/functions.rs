//! The functions of the headers, with references where C has pointers. Each has its comment there.
#![expect(missing_docs, reason = "each has its comment in kernel/")]

use crate::raw::{self, HTTP_STATUS_BYTES};
use crate::{
    Attempt, CloseAction, CloseSegment, CloseSocket, CookieFlow, CookieKeys, CookieOptions, Cutoffs, Fin,
    Hold, HttpHeader, LastAck, ListenerLoad, ListenerPolicy, OPENING_BYTES, Outgoing, Pace, PacketKind, Rate,
    RedAction, RedParams, RedState, RedfavorAction, RedfavorGuard, RedfavorState, Response, Service,
    SizeSource, Verdict, Wait,
};

/// Each as the header declares it; the compiler compares that with what bindgen found.
macro_rules! safe {
    ($($seen:vis $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($seen fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: it reads and writes what the references stand for, and keeps none of them.
            unsafe { raw::$name($($argument),*) }
        })*
    };
}

// verdict.h
safe! {
    pub(crate) accept_queue_is_full(load: &ListenerLoad) -> bool;
    pub(crate) syn_queue_is_full(load: &ListenerLoad) -> bool;
    pub has_ack_stage(policy: &ListenerPolicy) -> bool;
    pub may_answer(policy: &ListenerPolicy, verdict: Verdict) -> bool;
    pub accept_places_left(policy: &ListenerPolicy, load: &ListenerLoad) -> u64;
    pub accept_queue_may_overflow(policy: &ListenerPolicy, load: &ListenerLoad) -> bool;
    pub next_schedule(rate: &Rate, now_ns: u64, schedule_ns: u64) -> u64;
    pub admit_syn(policy: &ListenerPolicy, load: &ListenerLoad, attempt: &Attempt) -> Verdict;
    pub admit_ack(policy: &ListenerPolicy, load: &ListenerLoad, is_reserved: u32) -> Verdict;
    pub admit_fin(policy: &ListenerPolicy, fin: &Fin) -> Verdict;
}

// bands.h: see `Response`
safe! {
    pub(crate) band_of(cutoffs: &Cutoffs, bytes: u64) -> u32;
    pub(crate) begins_response(response: &Response, segment: &Outgoing) -> bool;
    pub(crate) begin_response(response: &mut Response, segment: &Outgoing);
    pub(crate) may_begin_header(response: &Response, segment: &Outgoing) -> bool;
    pub(crate) tell_size(response: &mut Response, source: SizeSource, seq: u32, bytes: u64);
    pub(crate) bytes_left(response: &mut Response, segment: &Outgoing, by_buffer: bool) -> u64;
    pub(crate) next_band(cutoffs: &Cutoffs, response: &mut Response, segment: &Outgoing, left: u64) -> u32;
    pub(crate) note_sent(response: &mut Response, segment: &Outgoing);
}

// close.h
safe! {
    pub on_fin_arriving(socket: &CloseSocket, segment: &CloseSegment, hold: &mut Hold) -> CloseAction;
    pub on_held_fin_leaving(
        socket: &CloseSocket,
        segment: &CloseSegment,
        hold: &mut Hold,
        last: &mut LastAck
    ) -> CloseAction;
    pub on_last_fin_leaving(socket: &CloseSocket, segment: &CloseSegment, last: &mut LastAck) -> CloseAction;
    pub on_ack_arriving(segment: &CloseSegment, last: &LastAck) -> CloseAction;
    pub on_last_ack_leaving(segment: &CloseSegment, last: &mut LastAck) -> CloseAction;
}

// http.h: see `http_response_bytes`
safe! {
    pub(crate) http_read(header: &mut HttpHeader, byte: u8, offset: u32) -> bool;
    pub(crate) http_response_bytes(header: &HttpHeader, read: u32) -> u64;
}

pub(crate) fn http_has_length(status: &[u8; HTTP_STATUS_BYTES as usize]) -> bool {
    // SAFETY: it reads no more bytes than the array has.
    unsafe { raw::http_has_length(status.as_ptr()) }
}

// cookie.h
safe! {
    pub make_cookie(keys: &CookieKeys, flow: &CookieFlow, options: &CookieOptions, period: u32) -> u32;
    pub open_cookie(keys: &CookieKeys, flow: &CookieFlow, cookie: u32, period: u32, options: &mut CookieOptions) -> bool;
    pub cookie_place(cookie: u32) -> u32;
    pub stamp_cookie(cookie: u32, now_ns: u64) -> u64;
    pub cookie_age_us(stamp: u64, cookie: u32, now_ns: u64) -> u32;
    pub cookie_mss(index: u8, is_ipv6: bool) -> u16;
    pub cookie_mss_index(mss: u16, is_ipv6: bool) -> u8;
}

// room.h
safe! {
    pub next_room(word: u64, is_same: bool, has_cookies: bool, places: u64, now: u64) -> u64;
    pub has_room(word: u64, is_tc: bool, now: u64) -> bool;
}

// service.h, standing.h and unserved.h: see `Service`
safe! {
    pub(crate) turn_epochs(service: &mut Service, pace: &Pace, now: u64);
    pub(crate) count_recent(service: &Service, pace: &Pace) -> u32;
    pub bucket_of(value: u64) -> u32;
    pub(crate) weigh(service: &Service, pace: &Pace, random: u32) -> u32;
    pub(crate) begin(service: &mut Service, pace: &Pace, wait: &mut Wait, weight: u32, handshake_us: u32, now: u64);
    pub(crate) go_on(service: &mut Service, pace: &Pace, wait: &mut Wait, now: u64);
    pub(crate) end(service: &mut Service, pace: &Pace, wait: &Wait, is_answered: bool, bucket: u32, now: u64);
    pub(crate) decide_syn(policy: &ListenerPolicy, load: &mut ListenerLoad, attempt: &Attempt, service: &mut Service, pace: &Pace, now: u64, is_by_server: &mut bool) -> Verdict;
    pub(crate) is_refusing(service: &Service, pace: &Pace, now: u64) -> bool;
}

// red.h
safe! {
    pub red_update(params: &RedParams, state: &mut RedState, qlen: u32, now_ns: u64);
    pub red_is_at_stake(params: &RedParams, state: &RedState, qlen: u32) -> bool;
    pub red_decide(params: &RedParams, state: &mut RedState, qlen: u32, bytes: u32, random: u32) -> RedAction;
    pub red_left_empty(state: &mut RedState, now_ns: u64);
    pub red_base_probability(params: &RedParams, average: u64) -> u64;
    pub red_probability(params: &RedParams, base: u64, count: u32, size: u32) -> u64;
    pub redfavor_begin(guard: &RedfavorGuard, state: &mut RedfavorState);
    pub redfavor_has_place(guard: &RedfavorGuard, qlen: u32, size: u32) -> bool;
    pub redfavor_make_room(guard: &RedfavorGuard, state: &mut RedfavorState, needs_room: bool, last_standard_bytes: u32) -> RedfavorAction;
    pub redfavor_sends_protected(guard: &RedfavorGuard, state: &mut RedfavorState, protected_bytes: u32, standard_bytes: u32) -> bool;
}

// protected.h
pub fn packet_kind(protocol: u8, header: &[u8; OPENING_BYTES as usize]) -> PacketKind {
    // SAFETY: it reads no more bytes than the array has.
    unsafe { raw::packet_kind(protocol, header.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CookieKey;

    #[test]
    #[expect(deprecated, reason = "SipHash-2-4; its successor may be anything")]
    fn hash_of_a_cookie_is_siphash_2_4() {
        use std::hash::{Hasher, SipHasher};
        let key = CookieKey { word: [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908] };
        let flow = CookieFlow {
            source: [0x2001_0db8_u32.to_be(), 0, 0, 1_u32.to_be()],
            destination: [0, 0, 0xffff_u32.to_be(), 0x0a08_0002_u32.to_be()],
            source_port: 40_000_u16.to_be(),
            destination_port: 80_u16.to_be(),
            client_isn: 0x1234_5678,
        };
        let mut bytes = Vec::new();
        bytes.extend(flow.source.iter().chain(&flow.destination).flat_map(|word| word.to_ne_bytes()));
        bytes.extend(40_000_u16.to_be_bytes());
        bytes.extend(80_u16.to_be_bytes());
        bytes.extend(flow.client_isn.to_le_bytes());
        bytes.push(0xa5);
        bytes.extend(0x0102_0304_u32.to_le_bytes());
        bytes.extend(2_u16.to_le_bytes());
        assert_eq!(bytes.len(), 47);
        let mut reference = SipHasher::new_with_keys(key.word[0], key.word[1]);
        reference.write(&bytes);
        let mut state = raw::siphash::default();
        // SAFETY: it reads and writes what the references stand for, and keeps none of them; twice.
        let ours = unsafe {
            raw::hash_cookie_flow(&key, &flow, &mut state);
            raw::end_cookie_hash(&state, 0xa5, 0x0102_0304, 2)
        };
        assert_eq!(ours, reference.finish());
    }
}
