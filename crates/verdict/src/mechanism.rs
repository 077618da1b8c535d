//! The mechanisms that a policy is made of: what the parser takes, and what is said about it.

use crate::name::{Named, PolicyError};
use crate::{OnFin, Trigger, Verdict, WaitsFrom};

/// A word of a policy. [`Mechanism::ALL`] has each, and the parser reads by it.
#[derive(Debug)]
pub struct Mechanism {
    /// As it is written. What is in capitals stands for a value, as in `unserved:N`.
    pub form: &'static str,
    /// What it answers.
    pub question: Question,
    /// How, in plain sentences. Values stand there by their names in the form.
    pub does: &'static str,
    /// The oldest Linux that has what it needs, as major and minor number.
    pub linux: (u8, u8),
    /// Adds it to a policy; the text is the value, or empty.
    pub(crate) add: fn(&mut Named, &str) -> Result<(), PolicyError>,
}

/// What the guard is to be told: `[Shu05]` figure 4.1, and when a listener is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// When the other answers hold.
    Full,
    /// What becomes of a SYN.
    Syn,
    /// What becomes of the segment that ends a handshake.
    HandshakeEnd,
    /// What becomes of a client's FIN.
    Fin,
    /// None: the word stands alone.
    Alone,
}

impl Question {
    /// In the order in which they are explained.
    pub const ALL: [Self; 5] = [Self::Full, Self::Syn, Self::HandshakeEnd, Self::Fin, Self::Alone];

    /// For a heading.
    pub fn text(self) -> &'static str {
        match self {
            Self::Full => "When is the listener full?",
            Self::Syn => "What happens to a SYN then?",
            Self::HandshakeEnd => "What happens to the end of a handshake then?",
            Self::Fin => "What happens to a client's FIN?",
            Self::Alone => "Or is nobody to be refused?",
        }
    }
}

/// Has tcx.
const TCX: (u8, u8) = (6, 6);
/// Has `bpf_sk_assign_tcp_reqsk`.
const COOKIES: (u8, u8) = (6, 9);

impl Mechanism {
    /// What every word needs.
    pub const OLDEST: (u8, u8) = (6, 1);

    /// All of them, a question after the other.
    pub const ALL: &[Self] = &[
        Self {
            form: "unserved",
            question: Question::Full,
            does: "In a crowd, once too many connections wait for the server. The guard finds how many.",
            linux: Self::OLDEST,
            add: |named, _| named.trigger("unserved", Trigger::Unserved(None)),
        },
        Self {
            form: "unserved:N",
            question: Question::Full,
            does: "At any time, while N connections wait for the server.",
            linux: Self::OLDEST,
            add: Named::unserved,
        },
        Self {
            form: "sojourn:TIME",
            question: Question::Full,
            does: "While connections wait for the server longer than TIME.",
            linux: Self::OLDEST,
            add: Named::sojourn,
        },
        Self {
            form: "queue",
            question: Question::Full,
            does: "While the accept queue is full. Without one of these words this is the rule.",
            linux: Self::OLDEST,
            add: |named, _| named.trigger("queue", Trigger::Queue),
        },
        Self {
            form: "burst:TIME",
            question: Question::Full,
            does: "With unserved: a queue that stands for TIME is a crowd. Without this word it is 100ms.",
            linux: Self::OLDEST,
            add: Named::burst,
        },
        Self {
            form: "request",
            question: Question::Full,
            does: "With unserved or sojourn: a connection waits from its request on.",
            linux: Self::OLDEST,
            add: |named, _| named.waits_from("request", WaitsFrom::Request),
        },
        Self {
            form: "first-byte",
            question: Question::Full,
            does: "With unserved or sojourn: a connection waits from its handshake on.",
            linux: Self::OLDEST,
            add: |named, _| named.waits_from("first-byte", WaitsFrom::Handshake),
        },
        Self {
            form: "rst-syn",
            question: Question::Syn,
            does: "The guard answers it with RST. The client sees \"connection refused\" at once.",
            linux: Self::OLDEST,
            add: |named, _| {
                named.is_rst_syn = true;
                Ok(())
            },
        },
        Self {
            form: "reserv",
            question: Question::Syn,
            does: "It is answered only if a place is free for its handshake. Else it is dropped, or gets what \
                   rst-syn says.",
            linux: Self::OLDEST,
            add: |named, _| named.reserve("100"),
        },
        Self {
            form: "reserv:N",
            question: Question::Syn,
            does: "The same, with N handshakes for 100 places.",
            linux: Self::OLDEST,
            add: Named::reserve,
        },
        Self {
            form: "early-syn-drop",
            question: Question::Syn,
            does: "The guard drops it before the kernel does. The client tries again after a second.",
            linux: Self::OLDEST,
            add: |named, _| {
                named.is_early = true;
                Ok(())
            },
        },
        Self {
            form: "no-syn-drop",
            question: Question::Syn,
            does: "It is answered, with a cookie if a queue is full. The end of its handshake is as with abort.",
            linux: COOKIES,
            add: |named, _| named.answer_with(Verdict::Cookie),
        },
        Self {
            form: "no-syn-drop:kernel",
            question: Question::Syn,
            does: "The same, with cookies that lose the client's options.",
            linux: Self::OLDEST,
            add: |named, _| named.answer_with(Verdict::KernelCookie),
        },
        Self {
            form: "cookies",
            question: Question::Syn,
            does: "It gets a cookie if only the SYN queue has no place for it. The end of its handshake is as \
                   with abort.",
            linux: COOKIES,
            add: |named, _| {
                named.has_cookies = true;
                Ok(())
            },
        },
        Self {
            form: "police:RATE",
            question: Question::Syn,
            does: "RATE of them are admitted a second, whatever the queues. To compare with.",
            linux: Self::OLDEST,
            add: Named::police,
        },
        Self {
            form: "police:RATE/BURST",
            question: Question::Syn,
            does: "RATE of them are admitted a second, and BURST at once. To compare with.",
            linux: Self::OLDEST,
            add: Named::police,
        },
        Self {
            form: "persistent-drop:N",
            question: Question::Syn,
            does: "N% of the attempts are refused, each at every try. To compare with.",
            linux: Self::OLDEST,
            add: Named::persistent_drop,
        },
        Self {
            form: "abort",
            question: Question::HandshakeEnd,
            does: "It is answered with RST, where the kernel would be silent.",
            linux: Self::OLDEST,
            add: |named, _| {
                named.is_abort = true;
                Ok(())
            },
        },
        Self {
            form: "rst-fin",
            question: Question::Fin,
            does: "It destroys the connection, if all bytes were read and acknowledged.",
            linux: TCX,
            add: |named, _| named.on_fin(OnFin::ResetIdle),
        },
        Self {
            form: "rst-fin:always",
            question: Question::Fin,
            does: "It destroys the connection, also if bytes are left.",
            linux: TCX,
            add: |named, _| named.on_fin(OnFin::Reset),
        },
        Self {
            form: "observe",
            question: Question::Alone,
            does: "Nothing is attached. The guard says why the kernel drops SYNs and handshakes.",
            linux: Self::OLDEST,
            add: |named, _| {
                named.is_observe = true;
                Ok(())
            },
        },
        Self {
            form: "default",
            question: Question::Alone,
            does: "The kernel decides as ever, and the guard counts.",
            linux: Self::OLDEST,
            add: |named, _| {
                named.is_default = true;
                Ok(())
            },
        },
    ];

    /// Names without values, each once.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let is_first =
            |(at, own): &(usize, &Self)| Self::ALL[..*at].iter().all(|one| one.name() != own.name());
        Self::ALL.iter().enumerate().filter(is_first).map(|(_, mechanism)| mechanism.name())
    }

    /// That of a word as it was written, as `unserved:64`.
    ///
    /// # Errors
    ///
    /// When there is none, or it is written otherwise. Whether the value will do shows only when a
    /// policy is made of it.
    pub fn of(word: &str) -> Result<&'static Self, PolicyError> {
        let (name, _) = split(word);
        if let Some(found) = Self::ALL.iter().find(|mechanism| mechanism.fits(word)) {
            return Ok(found);
        }
        let forms: Vec<&str> =
            Self::ALL.iter().filter(|own| own.name() == name).map(|own| own.form).collect();
        match forms.is_empty() {
            true => Err(PolicyError::Unknown(word.to_owned())),
            false => Err(PolicyError::Form { word: word.to_owned(), forms: forms.join(" or ") }),
        }
    }

    /// Without a value.
    pub fn name(&self) -> &'static str {
        split(self.form).0
    }

    /// What it does, with the values of a word that [`Mechanism::of`] gave it for.
    pub fn says(&self, word: &str) -> String {
        let values = fields(split(word).1).map(|value| value.trim_end_matches('%'));
        let names = fields(split(self.form).1).filter(|name| is_placeholder(name));
        names.zip(values).fold(self.does.to_owned(), |does, (name, value)| does.replacen(name, value, 1))
    }

    /// Whether a word is written so.
    fn fits(&self, word: &str) -> bool {
        let ((name, values), (own, names)) = (split(word), split(self.form));
        let does_field_fit = |(value, name): (&str, &str)| value == name || is_placeholder(name);
        name == own
            && values.is_some() == names.is_some()
            && fields(values).count() == fields(names).count()
            && fields(values).zip(fields(names)).all(does_field_fit)
    }
}

/// Name and values of `name:values`.
fn split(word: &str) -> (&str, Option<&str>) {
    word.split_once(':').map_or((word, None), |(name, values)| (name, Some(values)))
}

fn fields(values: Option<&str>) -> impl Iterator<Item = &str> {
    values.into_iter().flat_map(|values| values.split('/'))
}

fn is_placeholder(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    /// The word of a form with values that it can have.
    fn word(form: &str) -> String {
        let (name, values) = split(form);
        let value = |field| match field {
            "N" if name == "reserv" => "150",
            "N" => "40",
            "TIME" => "5ms",
            "RATE" => "20000",
            "BURST" => "500",
            literal => literal,
        };
        let values: Vec<&str> = fields(values).map(value).collect();
        if values.is_empty() { name.to_owned() } else { format!("{name}:{}", values.join("/")) }
    }

    #[test]
    fn every_mechanism_makes_a_policy_with_those_that_it_needs_and_changes_it() {
        for mechanism in Mechanism::ALL {
            let word = word(mechanism.form);
            assert_eq!(Mechanism::of(&word).expect("it is known").form, mechanism.form);
            let parsed = ["", "rst-syn+", "rst-syn+unserved+"].map(|before| {
                let bare = before.trim_end_matches('+').parse::<Policy>().unwrap_or(Policy::DEFAULT);
                (format!("{before}{word}").parse::<Policy>().ok(), bare)
            });
            let (policy, bare) = parsed.into_iter().find(|(policy, _)| policy.is_some()).expect(&word);
            let is_stock = ["default", "queue"].contains(&word.as_str());
            assert_eq!(policy.expect("found") == bare, is_stock, "{word}");
        }
    }

    #[test]
    fn what_it_does_is_said_with_its_values() {
        let says = |word: &str| Mechanism::of(word).expect(word).says(word);
        assert_eq!(says("unserved:64"), "At any time, while 64 connections wait for the server.");
        assert!(says("sojourn:5ms").ends_with(" longer than 5ms."));
        assert!(says("persistent-drop:40%").starts_with("40% of the attempts"));
        assert!(
            says("police:20000/500").starts_with("20000 of them are admitted a second, and 500 at once.")
        );
        assert!(says("rst-fin:always").ends_with("also if bytes are left."));
        for mechanism in Mechanism::ALL {
            let values = fields(split(mechanism.form).1).filter(|name| is_placeholder(name));
            for name in values {
                assert!(mechanism.does.contains(name), "{} does not say what {name} is", mechanism.form);
            }
        }
    }

    #[test]
    fn word_that_is_written_otherwise_is_told_how() {
        let error = |word: &str| Mechanism::of(word).expect_err(word).to_string();
        assert_eq!(error("abort:3"), "\"abort:3\": it is written as abort");
        assert_eq!(error("police"), "\"police\": it is written as police:RATE or police:RATE/BURST");
        assert_eq!(error("burst"), "\"burst\": it is written as burst:TIME");
        assert_eq!(
            error("no-syn-drop:mine"),
            "\"no-syn-drop:mine\": it is written as no-syn-drop or no-syn-drop:kernel"
        );
        assert_eq!(
            error("abrot"),
            "\"abrot\" is no mechanism; did you mean abort? tidegate policies lists them"
        );
        assert!(error("unsreved:64").contains("did you mean unserved?"));
        assert_eq!(error("nope"), "\"nope\" is no mechanism; tidegate policies lists them");
    }
}
