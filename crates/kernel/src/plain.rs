//! C structs of map keys, values and records, as bytes.

use crate::{
    Attempt, Cutoffs, Fin, ListenerLoad, ListenerPolicy, ListenerStats, Pace, PathStats, RedParams,
    RedfavorGuard, Service,
};

/// A C struct of integers only, without padding, so that every bit pattern is one.
///
/// # Safety
///
/// Implement it for such types only.
pub unsafe trait Plain: Copy {}

/// A C struct without padding, of integers and enums.
///
/// # Safety
///
/// Implement it for such types only.
pub unsafe trait Unpadded: Copy {}
// SAFETY: `Plain` has none.
unsafe impl<T: Plain> Unpadded for T {}

/// The value as it lies in memory.
pub fn bytes_of<T: Unpadded>(value: &T) -> &[u8] {
    // SAFETY: without padding all bytes are initialised, and the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value that lay there; it need not be aligned.
///
/// # Panics
///
/// When there are more or fewer bytes than the type has.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>(), "as many bytes as the type has");
    // SAFETY: the length was checked, the read needs no alignment, and any bit pattern is a
    // `Plain`.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// The same struct of C by its other type: bindgen makes one for the host, libbpf one for a map.
pub fn same<T: Plain, U: Unpadded>(value: &U) -> T {
    const { assert!(size_of::<T>() == size_of::<U>(), "two structs") };
    from_bytes(bytes_of(value))
}

// SAFETY: words, and enums of a word.
unsafe impl Unpadded for ListenerPolicy {}
// SAFETY: double words and an even number of words.
unsafe impl Plain for Cutoffs {}
// SAFETY: words only.
unsafe impl Plain for ListenerLoad {}
// SAFETY: two double words and four words.
unsafe impl Plain for Attempt {}
// SAFETY: words only.
unsafe impl Plain for Fin {}
// SAFETY: double words and an even number of words, asserted in service.h.
unsafe impl Plain for Pace {}
// SAFETY: double words and an even number of words, asserted in service.h.
unsafe impl Plain for Service {}
// SAFETY: double words only, asserted in stats.h.
unsafe impl Plain for ListenerStats {}
// SAFETY: double words only, asserted in stats.h.
unsafe impl Plain for PathStats {}
// SAFETY: an even number of words, and double words.
unsafe impl Plain for RedParams {}
// SAFETY: two words and a double word.
unsafe impl Plain for RedfavorGuard {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(C)]
    struct Pair {
        word: u32,
        halves: [u16; 2],
    }
    // SAFETY: a word and two halves.
    unsafe impl Plain for Pair {}

    #[test]
    fn what_was_written_is_read_from_any_place() {
        let pair = Pair { word: 7, halves: [1, 2] };
        let shifted = [&[0xff], bytes_of(&pair)].concat();
        assert_eq!(from_bytes::<Pair>(&shifted[1..]), pair);
        assert_eq!(same::<Pair, Pair>(&pair), pair);
    }
}
