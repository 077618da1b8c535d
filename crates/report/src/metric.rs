//! The columns of the results: what each is, how it is computed, how it is shown.

use results::{Cell, LatencySummary};

use crate::format;
use crate::run::Point;
use crate::spread::Spread;

/// One measured quantity of a cell.
pub(crate) struct Metric {
    /// Head of its column.
    pub heading: &'static str,
    /// What it means, in a sentence or two, with its unit.
    pub definition: &'static str,
    /// How it is shown.
    pub format: fn(f64) -> String,
    /// The value, given the server's saturation rate per second; `None` where there was nothing to
    /// measure.
    value: fn(&Cell, Option<f64>) -> Option<f64>,
}

impl Metric {
    /// The value over the repetitions that have one.
    pub fn spread(&self, point: &Point, saturation: Option<f64>) -> Option<Spread> {
        Spread::of(point.cells.iter().filter_map(|cell| (self.value)(cell, saturation)))
    }

    /// The mean over the repetitions that have a value.
    pub fn mean(&self, point: &Point) -> Option<f64> {
        let values: Vec<f64> = point.cells.iter().filter_map(|cell| (self.value)(cell, None)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The median as text.
    pub fn show(&self, point: &Point, saturation: Option<f64>) -> String {
        match self.spread(point, saturation) {
            Some(spread) => (self.format)(spread.median),
            None => format::NOTHING.to_owned(),
        }
    }

    /// The range over repetitions as text, when there are several.
    pub fn show_range(&self, point: &Point, saturation: Option<f64>) -> Option<String> {
        self.spread(point, saturation)?.range(self.format)
    }
}

pub(crate) static OFFERED: Metric = Metric {
    heading: "offered/s",
    definition: "Attempts that should have started in the measured window, per second. The schedule does not wait for the server.",
    format: format::number,
    value: |cell, _| Some(cell.crowd.offered_per_s),
};

pub(crate) static GOODPUT: Metric = Metric {
    heading: "goodput/s",
    definition: "Complete replies in the window, per second.",
    format: format::number,
    value: |cell, _| Some(cell.crowd.goodput_per_s),
};

/// Of plots, whose lines are at the speed of the search.
pub(crate) static STEADY_OFFERED: Metric = Metric {
    heading: "offered/s",
    definition: "Offered, at the machine's speed when the saturation rate was found.",
    format: format::number,
    value: |cell, _| Some(cell.at_search_speed(cell.crowd.offered_per_s)),
};

/// The same of goodput.
pub(crate) static STEADY_GOODPUT: Metric = Metric {
    heading: "goodput/s",
    definition: "Goodput, at the machine's speed when the saturation rate was found.",
    format: format::number,
    value: |cell, _| Some(cell.goodput_at_search_speed()),
};

pub(crate) static OF_PEAK: Metric = Metric {
    heading: "of peak",
    definition: "Goodput divided by the saturation rate, the most that stock Linux held for as long as a cell is measured, at the machine's speed just before.",
    format: format::percent,
    value: |cell, saturation| {
        let goodput = cell.goodput_at_search_speed();
        saturation.filter(|rate| *rate > 0.0).map(|rate| goodput / rate)
    },
};

pub(crate) static MEAN: Metric = Metric {
    heading: "mean",
    definition: "Arithmetic mean of the response time: from the intended start of an attempt to the end of its reply, over the complete replies of the window.",
    format: format::millis,
    value: |cell, _| sampled(cell.crowd.response_ms).map(|times| times.mean),
};

pub(crate) static P50: Metric = Metric {
    heading: "p50",
    definition: "Median response time.",
    format: format::millis,
    value: |cell, _| sampled(cell.crowd.response_ms).map(|times| times.p50),
};

pub(crate) static P99: Metric = Metric {
    heading: "p99",
    definition: "Response time that 99% of the complete replies did not exceed.",
    format: format::millis,
    value: |cell, _| sampled(cell.crowd.response_ms).map(|times| times.p99),
};

pub(crate) static REFUSED_RATE: Metric = Metric {
    heading: "refused/s",
    definition: "Attempts of the window that ended with a RST in answer to a SYN, per second.",
    format: format::number,
    value: |cell, _| Some(cell.crowd.refused as f64 / cell.crowd.window_s).filter(|rate| rate.is_finite()),
};

pub(crate) static REFUSED: Metric = Metric {
    heading: "refused",
    definition: "The same, as a share of all attempts of the window.",
    format: format::percent,
    value: |cell, _| share(cell, cell.crowd.refused),
};

pub(crate) static FAILED: Metric = Metric {
    heading: "failed",
    definition: "Attempts of the window that had neither a reply nor a reset by their timeout or by the end of the run, as a share of all.",
    format: format::percent,
    value: |cell, _| {
        let crowd = &cell.crowd;
        share(cell, crowd.timed_out_connect + crowd.timed_out_response + crowd.aborted + crowd.unfinished)
    },
};

pub(crate) static RESET: Metric = Metric {
    heading: "reset",
    definition: "Share of attempts that ended with a RST later than the handshake's first answer.",
    format: format::percent,
    value: |cell, _| share(cell, cell.crowd.reset),
};

pub(crate) static TIMED_OUT: Metric = Metric {
    heading: "timed out",
    definition: "Share of attempts that the application gave up, before the handshake was complete or after it.",
    format: format::percent,
    value: |cell, _| share(cell, cell.crowd.timed_out_connect + cell.crowd.timed_out_response),
};

pub(crate) static SYNS: Metric = Metric {
    heading: "SYNs/attempt",
    definition: "SYNs sent in the window, retransmissions included, divided by attempts started in it. 1 when no SYN is repeated.",
    format: format::number,
    value: |cell, _| Some(cell.crowd.syns_per_attempt),
};

pub(crate) static REFUSAL: Metric = Metric {
    heading: "RST p50",
    definition: "How long a refused client waited for its RST, from the intended start; median.",
    format: format::millis,
    value: |cell, _| sampled(cell.crowd.refusal_ms).map(|times| times.p50),
};

pub(crate) static LOST_BEFORE: Metric = Metric {
    heading: "lost before server",
    definition: "Frames from the crowd lost before the server's stack: device backlog, rings. A count over the window.",
    format: format::count,
    value: |cell, _| Some(cell.lost_before_server as f64),
};

pub(crate) static MACHINE_SPEED: Metric = Metric {
    heading: "machine",
    definition: "Speed of the server's CPU in the window, by small datagrams that it sent itself, over that when the saturation rate was found. A neighbour on the same core may take up to half of it.",
    format: format::percent,
    value: |cell, _| cell.machine_speed,
};

pub(crate) static SPEED_BEFORE: Metric = Metric {
    heading: "machine before",
    definition: "The same just before the cells of a load, under a stock server at the saturation rate: offered is the load times the saturation rate times this.",
    format: format::percent,
    value: |cell, _| cell.speed_before,
};

pub(crate) static CORES: Metric = Metric {
    heading: "cores/ns",
    definition: "Time in which a cache line went from the server's CPU to the crowd's and back, before or after the window, whichever was longer, nanoseconds. On a virtual machine the two may be on one chip or on two, and what goes between them takes longer then.",
    format: format::number,
    value: |cell, _| cell.core_round_trip_ns,
};

pub(crate) static LOST_REPLIES: Metric = Metric {
    heading: "lost replies",
    definition: "Replies lost between the server's transmit and the generator: the generator's fault. A count over the window.",
    format: format::count,
    value: |cell, _| Some(cell.lost_replies as f64),
};

pub(crate) static FLOOD: Metric = Metric {
    heading: "flood/s",
    definition: "Spoofed SYNs that came to the server's interface in the window, per second. They are no attempts.",
    format: format::number,
    value: |cell, _| cell.flood.map(|flood| flood.syns_per_s),
};

pub(crate) static FLOOD_ANSWERS: Metric = Metric {
    heading: "answered/s",
    definition: "Frames that the server's end sent in answer to them, per second.",
    format: format::number,
    value: |cell, _| cell.flood.map(|flood| flood.answers_per_s),
};

pub(crate) static HELD: Metric = Metric {
    heading: "held",
    definition: "Connections that were opened before the crowd and were still open at its end, of all kinds. They are no attempts.",
    format: format::count,
    value: |cell, _| (!cell.held.is_empty()).then(|| cell.held.values().map(|held| held.held as f64).sum()),
};

pub(crate) static SET_ASIDE: Metric = Metric {
    heading: "set aside",
    definition: "How often it was measured before, and set aside, as the machine disturbed it: it had other work, or its CPUs were far from each other.",
    format: format::count,
    value: |cell, _| Some(f64::from(cell.times_set_aside)),
};

pub(crate) static FIRST_BYTE: Metric = Metric {
    heading: "first byte",
    definition: "Mean time from a request to the first byte of its reply.",
    format: format::millis,
    value: |cell, _| {
        sampled(cell.crowd.first_byte_ms).filter(|_| cell.crowd.sizes.differ()).map(|times| times.mean)
    },
};

pub(crate) static TO_1_KB: Metric = Metric {
    heading: "to 1 kB",
    definition: "Mean response time from the user's first try, of replies of up to 1,000 bytes.",
    format: format::millis,
    value: |cell, _| mean_of_class(cell, 0),
};

pub(crate) static TO_2_KB: Metric = Metric {
    heading: "to 2 kB",
    definition: "The same above that, of up to 2,000 bytes.",
    format: format::millis,
    value: |cell, _| mean_of_class(cell, 1),
};

pub(crate) static TO_5_KB: Metric = Metric {
    heading: "to 5 kB",
    definition: "The same above that, of up to 5,000 bytes.",
    format: format::millis,
    value: |cell, _| mean_of_class(cell, 2),
};

pub(crate) static TO_50_KB: Metric = Metric {
    heading: "to 50 kB",
    definition: "The same above that, of up to 50,000 bytes.",
    format: format::millis,
    value: |cell, _| mean_of_class(cell, 3),
};

pub(crate) static ABOVE_50_KB: Metric = Metric {
    heading: "above",
    definition: "The same of larger replies.",
    format: format::millis,
    value: |cell, _| mean_of_class(cell, 4),
};

pub(crate) static LARGEST: Metric = Metric {
    heading: "largest 1%",
    definition: "The same of the largest 1% of the replies.",
    format: format::millis,
    value: |cell, _| cell.crowd.sizes.mean_of_largest_ms(0.01).filter(|_| cell.crowd.sizes.differ()),
};

pub(crate) static SENT_AGAIN: Metric = Metric {
    heading: "sent again",
    definition: "Segments that the server's kernel sent again in the window (Tcp.RetransSegs).",
    format: format::count,
    value: |cell, _| cell.kernel.get("Tcp.RetransSegs").map(|segments| *segments as f64),
};

/// Columns for replies of different sizes: means by size, and what makes them.
pub(crate) static OF_SIZES: [&Metric; 8] =
    [&FIRST_BYTE, &TO_1_KB, &TO_2_KB, &TO_5_KB, &TO_50_KB, &ABOVE_50_KB, &LARGEST, &SENT_AGAIN];

/// The columns of the page's table, in order: those of sizes, of a flood, of held connections and
/// of what was set aside only where there were some.
pub(crate) fn columns<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Vec<&'static Metric> {
    let any = |has: fn(&Cell) -> bool| cells.clone().any(has);
    let flood: &[&Metric] = if any(|cell| cell.flood.is_some()) { &[&FLOOD, &FLOOD_ANSWERS] } else { &[] };
    let held: &[&Metric] = if any(|cell| !cell.held.is_empty()) { &[&HELD] } else { &[] };
    let set_aside: &[&Metric] = if any(|cell| cell.times_set_aside > 0) { &[&SET_ASIDE] } else { &[] };
    let sizes: &[&Metric] = if any(|cell| cell.crowd.sizes.differ()) { &OF_SIZES } else { &[] };
    COLUMNS.iter().chain(sizes).chain(flood).chain(held).chain(set_aside).copied().collect()
}

static COLUMNS: [&Metric; 18] = [
    &OFFERED,
    &GOODPUT,
    &OF_PEAK,
    &MEAN,
    &P50,
    &P99,
    &REFUSED_RATE,
    &REFUSED,
    &RESET,
    &TIMED_OUT,
    &FAILED,
    &SYNS,
    &REFUSAL,
    &LOST_BEFORE,
    &LOST_REPLIES,
    &MACHINE_SPEED,
    &SPEED_BEFORE,
    &CORES,
];

/// The summary, unless it is of no samples: then its zeros are not times.
fn sampled(times: LatencySummary) -> Option<LatencySummary> {
    (times.count > 0).then_some(times)
}

/// Of replies of one class of sizes, where they differ.
fn mean_of_class(cell: &Cell, class: usize) -> Option<f64> {
    let sizes = &cell.crowd.sizes;
    sizes.classes.get(class).filter(|_| sizes.differ())?.mean_ms()
}

/// Share of the cohort; `None` when nothing was offered.
fn share(cell: &Cell, part: u64) -> Option<f64> {
    (cell.crowd.offered > 0).then(|| part as f64 / cell.crowd.offered as f64)
}

#[cfg(test)]
mod tests {
    use results::Held;

    use super::*;
    use crate::testing;

    fn show(metric: &Metric, cell: &Cell, saturation: Option<f64>) -> String {
        metric.show(&Point { cells: vec![cell] }, saturation)
    }

    #[test]
    fn no_reply_has_no_response_time() {
        let mut cell = testing::cell("a", 1.0, "stock");
        cell.crowd.response_ms = LatencySummary::default();
        for metric in [&MEAN, &P50, &P99] {
            assert_eq!(show(metric, &cell, None), format::NOTHING, "{}", metric.heading);
        }
    }

    #[test]
    fn unknown_saturation_gives_no_share_of_peak() {
        let cell = testing::cell("a", 1.0, "stock");
        assert_eq!(show(&OF_PEAK, &cell, None), format::NOTHING);
        assert_eq!(show(&OF_PEAK, &cell, Some(0.0)), format::NOTHING);
        assert_eq!(show(&OF_PEAK, &cell, Some(cell.crowd.goodput_per_s)), "100%");
    }

    #[test]
    fn share_of_peak_is_at_the_speed_of_the_search() {
        let mut cell = testing::cell("a", 1.0, "stock");
        let goodput = cell.crowd.goodput_per_s;
        // A machine at four fifths, whose server still answers what it did at full speed.
        cell.speed_before = Some(0.8);
        assert_eq!(show(&OF_PEAK, &cell, Some(goodput)), "125%");
        assert_eq!(show(&GOODPUT, &cell, None), format::number(goodput), "the table has it as it was");
        assert_eq!(show(&STEADY_GOODPUT, &cell, None), format::number(goodput * 1.25));
    }

    #[test]
    fn nothing_offered_has_no_shares() {
        let cell = testing::cell_without_crowd("a", 1.0, "stock");
        for metric in [&REFUSED_RATE, &REFUSED, &RESET, &TIMED_OUT, &FAILED] {
            assert_eq!(show(metric, &cell, None), format::NOTHING, "{}", metric.heading);
        }
    }

    #[test]
    fn headings_are_distinct() {
        let cell = testing::flooded("a", 0.5, "stock");
        let mut headings: Vec<_> = columns([&cell].into_iter()).iter().map(|metric| metric.heading).collect();
        headings.sort_unstable();
        headings.dedup();
        assert_eq!(headings.len(), COLUMNS.len() + 2);
    }

    #[test]
    fn sizes_have_columns_where_they_differ() {
        let mut cell = testing::cell("a", 0.5, "stock");
        cell.crowd.sizes.replied(500, 1_000, 2_000);
        assert_eq!(columns([&cell].into_iter()).len(), COLUMNS.len());
        cell.crowd.sizes.replied(90_000, 1_000, 7_000);
        assert_eq!(columns([&cell].into_iter()).len(), COLUMNS.len() + OF_SIZES.len());
        assert_eq!(show(&TO_1_KB, &cell, None), format::millis(2.0));
        assert_eq!(show(&TO_2_KB, &cell, None), format::NOTHING);
        assert_eq!(
            [&ABOVE_50_KB, &LARGEST].map(|metric| show(metric, &cell, None)),
            [format::millis(7.0), format::millis(7.0)]
        );
    }

    #[test]
    fn held_connections_have_a_column_where_there_were_some() {
        let mut cell = testing::cell("a", 0.5, "idle");
        assert_eq!(show(&HELD, &cell, None), format::NOTHING);
        for (kind, held) in [("idle", 5_000), ("slow_readers", 912)] {
            cell.held.insert(kind.to_owned(), Held { asked: 5_000, held, ..Held::default() });
        }
        assert_eq!(columns([&cell].into_iter()).len(), COLUMNS.len() + 1);
        assert_eq!(show(&HELD, &cell, None), "5,912");
    }

    #[test]
    fn flood_has_columns_where_there_was_one() {
        let (dry, flooded) = (testing::cell("a", 0.5, "stock"), testing::flooded("a", 0.5, "flood"));
        assert_eq!(columns([&dry].into_iter()).len(), COLUMNS.len());
        assert_eq!(show(&FLOOD, &flooded, None), "414,000");
        assert_eq!(show(&FLOOD_ANSWERS, &dry, None), format::NOTHING);
    }
}
