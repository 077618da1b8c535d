//! C structs of map keys, values and records, as bytes.

/// A C struct of integers only, without padding, so that every bit pattern is one.
///
/// # Safety
///
/// Implement it for such types only.
pub unsafe trait Plain: Copy {}

/// The value as it lies in memory.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so all bytes are initialised, and the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value that lay there; it need not be aligned.
///
/// # Panics
///
/// When there are more or fewer bytes than the type has.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>(), "as many bytes as the type has");
    // SAFETY: the length was checked, the read needs no alignment, and any bit pattern is a `Plain`.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

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
    }
}
