//! Keys, from the bytes that a terminal in raw mode sends for them.

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The line above, and so on.
    Up,
    /// The line below.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// The first line.
    Home,
    /// The last line.
    End,
    /// Everything of the chosen listener.
    Enter,
    /// What was there before.
    Back,
    /// The next order.
    Sort,
    /// What the columns and words mean.
    Help,
    /// All messages.
    Messages,
    /// The end.
    Quit,
}

/// Whether more bytes may belong to the last key: an escape alone is a key, too.
pub(crate) fn is_unfinished(bytes: &[u8]) -> bool {
    matches!(bytes, [.., 0x1b] | [.., 0x1b, b'[' | b'O'])
}

/// All keys that are in the bytes; others are left out.
pub(crate) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((key, rest)) = first(bytes) {
        keys.extend(key);
        bytes = rest;
    }
    keys
}

fn first(bytes: &[u8]) -> Option<(Option<Key>, &[u8])> {
    let (key, rest) = match bytes {
        [] => return None,
        // A control sequence: numbers, and a last byte that says which (ECMA-48 section 5.4).
        [0x1b, b'[' | b'O', sequence @ ..] => {
            let length = sequence.iter().take_while(|byte| !(0x40..=0x7e).contains(*byte)).count();
            let key = match sequence.get(..=length) {
                Some(b"A") => Some(Key::Up),
                Some(b"B") => Some(Key::Down),
                Some(b"C") => Some(Key::Enter),
                Some(b"D") => Some(Key::Back),
                Some(b"5~") => Some(Key::PageUp),
                Some(b"6~") => Some(Key::PageDown),
                Some(b"H" | b"1~") => Some(Key::Home),
                Some(b"F" | b"4~") => Some(Key::End),
                _ => None,
            };
            (key, sequence.get(length + 1..).unwrap_or_default())
        }
        [0x1b, rest @ ..] => (Some(Key::Back), rest),
        [byte, rest @ ..] => {
            let key = match byte {
                b'k' => Some(Key::Up),
                b'j' => Some(Key::Down),
                b' ' => Some(Key::PageDown),
                b'g' => Some(Key::Home),
                b'G' => Some(Key::End),
                b'\r' | b'\n' => Some(Key::Enter),
                0x7f => Some(Key::Back),
                b's' => Some(Key::Sort),
                b'?' | b'h' => Some(Key::Help),
                b'm' => Some(Key::Messages),
                // Ctrl-C is a byte in raw mode, and no signal.
                b'q' | 0x03 => Some(Key::Quit),
                _ => None,
            };
            (key, rest)
        }
    };
    Some((key, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_terminal_are_keys_and_what_is_unknown_is_none() {
        assert_eq!(
            keys(b"\x1b[A\x1b[B\x1bOA\x1b[6~\r\x1b[Dq"),
            [Key::Up, Key::Down, Key::Up, Key::PageDown, Key::Enter, Key::Back, Key::Quit]
        );
        assert_eq!(keys(b"\x1b"), [Key::Back]);
        assert_eq!(keys(b"\x03"), [Key::Quit]);
        assert_eq!(keys(b"x\x1b[1;5Q\x1b[<0;1;1Ms"), [Key::Sort]);
        assert_eq!(keys("\u{1b}[\u{e9}".as_bytes()), []);
        assert_eq!(keys(&[0x1b, b'[', 0xff, 0xfe]), []);
    }

    #[test]
    fn sequence_that_has_begun_is_waited_for() {
        assert!(is_unfinished(b"\x1b") && is_unfinished(b"q\x1b["));
        assert!(!is_unfinished(b"\x1b[A") && !is_unfinished(b"q") && !is_unfinished(b""));
    }
}
