//! How far apart two runs of a dumbbell are: the times that objects took.

use results::BottleneckSummary;

use super::Compared;
use crate::format;
use crate::link::{COLUMNS, links};
use crate::run::Point;
use crate::terminal::{headed, wrap};

impl Compared<'_> {
    /// The Kolmogorov-Smirnov distance of the times of objects: the most that the share of objects
    /// which had come by some time differs, at the times that results keep. Seeds are taken
    /// together. `None` where one of the two has no objects, or no times of them.
    pub fn distance(&self) -> Option<f64> {
        let [one, other] = self.points.each_ref().map(Times::of);
        let (one, other) = (one?, other?);
        let moments = one.moments().chain(other.moments());
        let distances: Vec<f64> = moments.map(|ms| (one.share_by(ms) - other.share_by(ms)).abs()).collect();
        // Of no shares, or of such as are no numbers, there is none.
        let are_numbers = !distances.is_empty() && distances.iter().all(|distance| distance.is_finite());
        are_numbers.then(|| distances.into_iter().fold(0.0, f64::max))
    }

    pub(super) fn too_distant(&self, most: f64) -> Option<String> {
        let of = self.name();
        match self.distance() {
            Some(distance) if distance <= most => None,
            Some(distance) => {
                Some(format!("{of}: times of objects are {distance:.3} apart, more than {most}"))
            }
            None => Some(format!("{of}: one run has no times of objects")),
        }
    }
}

/// The times of all objects of a point.
struct Times<'a> {
    links: Vec<&'a BottleneckSummary>,
    objects: f64,
}

impl<'a> Times<'a> {
    fn of(point: &Point<'a>) -> Option<Self> {
        let links: Vec<_> = links(point).collect();
        let objects: u64 = links.iter().map(|link| link.objects_done).sum();
        (objects > 0).then_some(Self { links, objects: objects as f64 })
    }

    fn moments(&self) -> impl Iterator<Item = f64> {
        self.links.iter().flat_map(|link| link.done_by_ms.iter().map(|(ms, _)| *ms))
    }

    fn share_by(&self, ms: f64) -> f64 {
        let objects = self.links.iter().map(|link| link.objects_done as f64 * link.share_by(ms));
        objects.sum::<f64>() / self.objects
    }
}

/// What of the results is compared, by heading.
const SHOWN: [&str; 7] = ["use", "queue", "drops", "of packets", "SYN drops", "objects", "< 10 packets"];

/// Points of dumbbells for the terminal, a line for each run.
pub(super) fn table(compared: &[&Compared<'_>]) -> String {
    let columns: Vec<_> = COLUMNS.iter().filter(|column| SHOWN.contains(&column.heading)).collect();
    let headings = ["scenario", "queue", ""].into_iter().chain(columns.iter().map(|column| column.heading));
    let mut grid = headed(headings.chain(["distance"]), 3..columns.len() + 4);
    for point in compared {
        for (which, (name, of)) in ["A", "B"].into_iter().zip(&point.points).enumerate() {
            let begin = match which {
                0 => [format!("{} {}×", point.server, format::multiple(point.load)), point.policy.to_owned()],
                _ => [String::new(), String::new()],
            };
            let mut row = Vec::from(begin);
            row.push(name.to_owned());
            row.extend(columns.iter().map(|column| column.show(of)));
            let distance = point.distance().filter(|_| which == 0);
            row.push(distance.map(|distance| format!("{distance:.3}")).unwrap_or_default());
            grid.add_row(row);
        }
    }
    grid.trim_fmt()
        + "\n"
        + &wrap(
            "distance: the most by which the shares of objects that had come by some time differ (Kolmogorov-Smirnov); seeds are taken together",
            "",
        )
}
