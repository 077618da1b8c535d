//! A segment as a script writes it, near to what tcpdump prints: `P. 1:81(80) ack 1 win 5840 <mss
//! 1460>`.

use std::fmt;

use wire::{Flags, Options, Segment};

/// A segment with numbers relative to the initial ones of its connection. What is not said is not
/// looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// All of them.
    pub flags: Flags,
    /// Relative to the sender's SYN; as on the wire if the sender has sent none.
    pub seq: u32,
    /// Bytes of data.
    pub len: u32,
    /// Relative to the receiver's SYN; only with ACK.
    pub ack: Option<u32>,
    /// Not scaled, bytes.
    pub window: Option<u16>,
    /// All of them.
    pub options: Option<Options>,
}

impl Pattern {
    /// A segment without data, ACK, window and options.
    pub fn new(flags: Flags, seq: u32) -> Self {
        Self { flags, seq, len: 0, ack: None, window: None, options: None }
    }

    /// What a received segment says, relative to the initial sequence numbers of its sender and its
    /// receiver.
    pub fn describe(segment: &Segment<'_>, sender_isn: u32, receiver_isn: u32) -> Self {
        let ack = segment.ack.0.wrapping_sub(receiver_isn);
        Self {
            flags: segment.flags,
            seq: segment.seq.0.wrapping_sub(sender_isn),
            len: segment.payload.len() as u32,
            ack: segment.flags.has(Flags::ACK).then_some(ack),
            window: Some(segment.window),
            options: Some(segment.options),
        }
    }

    /// What of `got` is not as expected, in words; nothing if it matches.
    pub fn differences(&self, got: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut differ = |what: &str, wanted: &dyn fmt::Display, got: &dyn fmt::Display| {
            differences.push(format!("{what} {got} and not {wanted}"));
        };
        if self.flags != got.flags {
            differ("flags", &self.flags, &got.flags);
        }
        if self.seq != got.seq {
            differ("sequence number", &self.seq, &got.seq);
        }
        if self.len != got.len {
            differ("bytes of data", &self.len, &got.len);
        }
        if let (Some(wanted), Some(ack)) = (self.ack, got.ack)
            && wanted != ack
        {
            differ("ack", &wanted, &ack);
        }
        if let (Some(wanted), Some(window)) = (self.window, got.window)
            && wanted != window
        {
            differ("win", &wanted, &window);
        }
        if let (Some(wanted), Some(options)) = (self.options, got.options)
            && wanted != options
        {
            differ("options", &Written(&wanted), &Written(&options));
        }
        differences
    }

    /// Reads what [`fmt::Display`] writes.
    ///
    /// # Errors
    ///
    /// In words, for behind `FILE:LINE: `.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (text, options) = match text.split_once('<') {
            Some((text, rest)) => {
                let inside = rest.trim_end().strip_suffix('>');
                let inside = inside.ok_or_else(|| format!("options <{rest} do not end; add >"))?;
                (text, Some(options(inside)?))
            }
            None => (text, None),
        };
        let mut words = text.split_whitespace();
        let shape = "write a segment as FLAGS SEQ:END(BYTES), as in P. 1:81(80) ack 1";
        let mut pattern = Self::new(flags(words.next().ok_or(shape)?)?, 0);
        (pattern.seq, pattern.len) = range(words.next().ok_or(shape)?)?;
        pattern.options = options;
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} has no number; add one"))?;
            match word {
                "ack" => pattern.ack = Some(number("ack", value)?),
                "win" => pattern.window = Some(number("win", value)?),
                _ => return Err(format!("{word:?} is no part of a segment; {shape}")),
            }
        }
        match (pattern.flags.has(Flags::ACK), pattern.ack) {
            (true, None) => Err("a segment with ACK (.) acknowledges nothing; add ack NUMBER".to_owned()),
            (false, Some(_)) => Err("ack needs the flag ACK; write a dot behind the flags".to_owned()),
            _ => Ok(pattern),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, seq, len, ack, window, options } = self;
        write!(f, "{flags} {seq}:{}({len})", seq.wrapping_add(*len))?;
        if let Some(ack) = ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(window) = window {
            write!(f, " win {window}")?;
        }
        match options {
            Some(options) => write!(f, " {}", Written(options)),
            None => Ok(()),
        }
    }
}

/// Options as a script writes them.
struct Written<'a>(&'a Options);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { mss, window_scale, sack_permitted, .. } = self.0;
        let words = [
            mss.map(|mss| format!("mss {mss}")),
            sack_permitted.then(|| "sackOK".to_owned()),
            window_scale.map(|shift| format!("wscale {shift}")),
        ];
        write!(f, "<{}>", words.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

fn flags(word: &str) -> Result<Flags, String> {
    word.chars().try_fold(Flags::default(), |flags, letter| {
        let flag = Flags::by_letter(letter);
        let flag = flag.ok_or_else(|| format!("flag {letter:?} of {word:?} is not known; known are FSRP.EW"));
        Ok(flags | flag?)
    })
}

/// `SEQ:END(BYTES)`, three numbers of which two would do: who writes and who reads a script need
/// not add up.
fn range(word: &str) -> Result<(u32, u32), String> {
    let shape = || format!("{word:?} is no SEQ:END(BYTES); write it as 1:81(80)");
    let (seq, rest) = word.split_once(':').ok_or_else(shape)?;
    let (end, len) = rest.strip_suffix(')').and_then(|rest| rest.split_once('(')).ok_or_else(shape)?;
    let (seq, end, len): (u32, u32, u32) =
        (number("the begin", seq)?, number("the end", end)?, number("the bytes", len)?);
    if seq.checked_add(len) != Some(end) {
        return Err(format!("{word} does not add up: from {seq} to {end} are not {len} bytes; correct one"));
    }
    Ok((seq, len))
}

fn options(inside: &str) -> Result<Options, String> {
    let mut options = Options::default();
    for option in inside.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        match option.split_once(' ').unwrap_or((option, "")) {
            ("mss", value) => options.mss = Some(number("mss", value)?),
            ("wscale", value) => options.window_scale = Some(number("wscale", value)?),
            ("sackOK", "") => options.sack_permitted = true,
            _ => {
                return Err(format!(
                    "option {option:?} is not known; known are mss BYTES, sackOK, wscale BITS"
                ));
            }
        }
    }
    Ok(options)
}

pub(crate) fn number<T: std::str::FromStr>(what: &str, word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{what} {word:?} is no number that fits; write one, as in 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_segments_read_back() {
        for text in [
            "S 0:0(0) win 64240 <mss 1460,sackOK,wscale 7>",
            "S. 0:0(0) ack 1",
            "P. 1:81(80) ack 1 win 5840",
            "F. 81:81(0) ack 1013",
            "R 1:1(0) win 0 <>",
            ". 4294967295:4294967295(0) ack 4294967295",
        ] {
            let pattern = Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(pattern.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_segment_says_what_would_be() {
        for (text, wanted) in [
            ("", "write a segment as FLAGS"),
            ("S", "write a segment as FLAGS"),
            ("X 0:0(0)", "flag 'X' of \"X\" is not known"),
            ("S 0", "\"0\" is no SEQ:END(BYTES)"),
            ("P. 1:81(79) ack 1", "1:81(79) does not add up: from 1 to 81 are not 79 bytes"),
            ("P. 1:1(-1) ack 1", "the bytes \"-1\" is no number"),
            (". 1:1(0)", "acknowledges nothing"),
            ("S 0:0(0) ack 1", "needs the flag ACK"),
            ("S 0:0(0) win", "win has no number"),
            ("S 0:0(0) win 65536", "win \"65536\" is no number that fits"),
            ("S 0:0(0) urg 1", "\"urg\" is no part"),
            ("S 0:0(0) <mss 1460", "do not end; add >"),
            ("S 0:0(0) <tfo>", "option \"tfo\" is not known"),
        ] {
            let error = Pattern::parse(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn only_what_is_said_is_compared() {
        let got = Pattern::parse("S. 0:0(0) ack 1 win 64240 <mss 1460>").expect("a segment");
        let differences = |wanted: &str| Pattern::parse(wanted).expect(wanted).differences(&got);
        assert!(differences("S. 0:0(0) ack 1").is_empty());
        assert!(differences("S. 0:0(0) ack 1 win 64240 <mss 1460>").is_empty());
        for wanted in [
            "S 0:0(0)",
            "S. 1:1(0) ack 1",
            "S. 0:4(4) ack 1",
            "S. 0:0(0) ack 2",
            "S. 0:0(0) ack 1 win 1",
            "S. 0:0(0) ack 1 <mss 1440>",
        ] {
            assert_eq!(differences(wanted).len(), 1, "{wanted}");
        }
    }
}
