//! Connections that are opened before the crowd comes, and held beside it: what an experiment file
//! says of them.

use serde::Deserialize;

/// Most connections of a policy: with the crowd's beside them a server stays within its
/// descriptors.
const MOST: u32 = 11_000;

/// How many connections are held, by what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hold {
    /// Nothing.
    pub idle: u32,
    /// Send the beginning of a request, and then a byte of a header every second.
    pub half_requests: u32,
    /// Send 400 requests, and never read, from a receive buffer of 4 KiB.
    pub slow_readers: u32,
}

impl Hold {
    /// Descriptors that lab and servers have where connections are held.
    pub const DESCRIPTORS: u64 = 20_000;

    /// Whether there is something to hold, and not too much.
    ///
    /// # Errors
    ///
    /// One line: what is wrong with it, and what would do.
    pub(crate) fn check(self) -> Result<(), String> {
        match self.count() {
            0 => Err("crowd.hold holds nothing: give idle, half_requests or slow_readers".to_owned()),
            count if count > u64::from(MOST) => Err(format!(
                "crowd.hold asks for {count} connections; at most {MOST} leave a server of {} descriptors enough for the crowd",
                Self::DESCRIPTORS
            )),
            _ => Ok(()),
        }
    }

    /// Of all kinds.
    pub(crate) fn count(self) -> u64 {
        [self.idle, self.half_requests, self.slow_readers].into_iter().map(u64::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_too_much_are_no_hold() {
        let of = |idle, slow_readers| Hold { idle, slow_readers, ..Hold::default() }.check();
        assert_eq!((of(1, 0), of(10_000, 1_000)), (Ok(()), Ok(())));
        assert!(of(0, 0).expect_err("nothing").contains("holds nothing"));
        assert!(
            of(u32::MAX, u32::MAX).expect_err("too many").contains("8589934590 connections; at most 11000")
        );
    }
}
