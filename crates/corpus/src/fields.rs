//! What the guard counts, by the names that scripts have for it: the fields of the structs.

use telemetry::{Counted, Counter};

/// Those counters that are wanted: name and count.
pub fn fields<S: Counted>(
    stats: &S,
    is_wanted: fn(&Counter<S>) -> bool,
) -> impl Iterator<Item = (String, u64)> {
    let wanted = S::COUNTERS.iter().filter(move |counter| is_wanted(counter));
    wanted.map(move |counter| (counter.field.to_owned(), (counter.read)(stats)))
}
