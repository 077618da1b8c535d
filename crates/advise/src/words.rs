//! The advice as a sentence.

use std::fmt::{self, Display};

use crate::judge::{Advice, Answer, FEWEST, LEAST_BUSY, Seen};

impl Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answer {
            Answer::Yes => self.yes(f),
            Answer::No => self.no(f),
            Answer::NotYet => self.not_yet(f),
        }
    }
}

impl Advice {
    fn yes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "yes: without the guard {} of the clients have no answer within a second; with it {} would be \
             refused at once, and an answer takes {} in the mean",
            Share(1.0 - self.without.soon),
            Share(self.refused_share()),
            Millis(self.with.wait_ms)
        )
    }

    fn no(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = Share(self.refused_share());
        if self.is_for_short_crowds() {
            let late = Share(1.0 - self.without.soon);
            return write!(
                f,
                "no: the guard would refuse {refused} of the clients, and without it {late} have no answer \
                 within a second: the crowds are short"
            );
        }
        if self.refuses() {
            let wait = Millis(self.with.wait_ms);
            return write!(
                f,
                "no: the guard would refuse {refused} of the clients, and an answer would still take {wait} in \
                 the mean"
            );
        }
        let Seen { clients, syns_dropped, .. } = self.seen;
        let dropped =
            if syns_dropped > 0 { format!("dropped {syns_dropped} SYNs") } else { "keeps up".to_owned() };
        write!(
            f,
            "no: the guard would refuse {} of {clients} clients, and stock Linux {dropped}; an answer takes {}, {}",
            Count(self.with.refused),
            Millis(self.without.wait_ms),
            self.place()
        )
    }

    fn not_yet(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { clients, answered, syns_dropped, .. } = self.seen;
        let seconds = self.seconds.round();
        if clients < FEWEST {
            return write!(f, "not yet: {clients} clients came in {seconds} s, too few to tell");
        }
        if answered < FEWEST {
            return write!(
                f,
                "not yet: of {clients} clients {} were answered, too few to tell",
                Count(answered)
            );
        }
        if self.server.busiest < LEAST_BUSY {
            let busiest = Share(self.server.busiest);
            return write!(
                f,
                "not yet: in its busiest second the server was busy for {busiest} of the time, too little to tell"
            );
        }
        let wait = Millis(self.without.wait_ms);
        write!(
            f,
            "not yet: stock Linux dropped {syns_dropped} SYNs, and an answer takes {wait}, {}: the server is at \
             its limit, too close to tell",
            self.place()
        )
    }

    /// Where that time goes.
    fn place(&self) -> &'static str {
        let waiting = &self.waiting;
        if waiting.accept_queue > waiting.inside {
            "most of it in the accept queue"
        } else if self.without.wait_ms > 2.0 * self.server.answer_ms {
            "most of it in a queue inside the server"
        } else {
            "all of it inside the server"
        }
    }
}

/// A share in percent, to two digits.
struct Share(f64);

impl Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.0;
        if percent > 0.0 && percent < 10.0 { write!(f, "{percent:.1}%") } else { write!(f, "{percent:.0}%") }
    }
}

struct Millis(f64);

impl Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms < 10.0 => write!(f, "{ms:.1} ms"),
            ms if ms < 1000.0 => write!(f, "{ms:.0} ms"),
            ms => write!(f, "{:.1} s", ms / 1000.0),
        }
    }
}

/// In words where there is none.
struct Count(u64);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("none") } else { write!(f, "{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Capacity, Outlook, Waiting};

    fn advice(answer: Answer, refused: u64, soon: [f64; 2]) -> Advice {
        Advice {
            answer,
            seconds: 60.2,
            seen: Seen { clients: 1000, syns: 2500, syns_dropped: 1500, answered: 600, ended: 0 },
            waiting: Waiting {
                syn_queue: 0.0,
                accept_queue: 100.0,
                accept_queue_most: 129,
                accept_queue_limit: 128,
                inside: 1.0,
            },
            server: Capacity { answers_per_s: Some(10.0), answer_ms: 9.0, busiest: 0.03 },
            without: Outlook { refused: 0, soon: soon[0], wait_ms: 12.0 },
            with: Outlook { refused, soon: soon[1], wait_ms: 3.0 },
        }
    }

    #[test]
    fn sentence_says_yes_no_or_not_yet_and_why() {
        for (answer, refused, soon, said) in [
            (Answer::Yes, 300, [0.2, 0.7], "yes: without the guard 80% of the clients have no answer within"),
            (Answer::No, 0, [1.0, 1.0], "no: the guard would refuse none of 1000 clients, and stock Linux"),
            (
                Answer::No,
                20,
                [0.99, 0.98],
                "no: the guard would refuse 2.0% of the clients, and without it 1.0%",
            ),
            (Answer::No, 600, [0.001, 0.002], "an answer would still take 3.0 ms in the mean"),
            (Answer::NotYet, 0, [1.0, 1.0], "not yet: in its busiest second the server was busy for 3.0% of"),
        ] {
            let sentence = advice(answer, refused, soon).to_string();
            assert!(sentence.contains(said), "{sentence}");
            assert_eq!(sentence.lines().count(), 1);
        }
        let mut few = advice(Answer::NotYet, 0, [1.0, 1.0]);
        few.server.busiest = 1.0;
        assert_eq!(
            few.to_string(),
            "not yet: stock Linux dropped 1500 SYNs, and an answer takes 12 ms, most of it in the accept queue: \
             the server is at its limit, too close to tell"
        );
        few.seen.answered = 0;
        assert_eq!(few.to_string(), "not yet: of 1000 clients none were answered, too few to tell");
        few.seen.clients = 12;
        assert_eq!(few.to_string(), "not yet: 12 clients came in 60 s, too few to tell");
    }
}
