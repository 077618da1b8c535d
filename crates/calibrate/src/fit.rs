//! A median, a line and a plane through measurements.

/// The one in the middle, or between the two that are.
///
/// # Panics
///
/// Without a value there is none in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1).expect("something was measured");
    f64::midpoint(values[last / 2], values[last.div_ceil(2)])
}

/// What something takes, and what more it takes each time that something else is done on the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    pub at_zero: f64,
    pub slope: f64,
}

impl Line {
    /// By least squares through points `(how often, time)`. Nothing costs less than nothing: then
    /// it is the mean.
    pub(crate) fn nearest(points: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let count = points.clone().count().max(1) as f64;
        let (x, y) =
            points.clone().fold((0.0, 0.0), |(sum, of_y), (x, y)| (sum + x / count, of_y + y / count));
        let (of_x, of_both) = points.fold((0.0, 0.0), |(of_x, of_both), point| {
            let (dx, dy) = (point.0 - x, point.1 - y);
            (of_x + dx * dx, of_both + dx * dy)
        });
        let slope = if of_x > 0.0 { (of_both / of_x).max(0.0) } else { 0.0 };
        Self { at_zero: y - slope * x, slope }
    }
}

/// What something takes, and what more it takes each time that one of two other things is done on
/// the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plane {
    pub at_zero: f64,
    pub slopes: [f64; 2],
}

impl Plane {
    /// By least squares through points `([how often, how often], time)`. Nothing costs less than
    /// nothing: what would is left out.
    pub(crate) fn nearest(points: impl Iterator<Item = ([f64; 2], f64)> + Clone) -> Self {
        let count = points.clone().count().max(1) as f64;
        let mean =
            |of: fn(&([f64; 2], f64)) -> f64| points.clone().map(|point| of(&point)).sum::<f64>() / count;
        let (first, second, time) =
            (mean(|(often, _)| often[0]), mean(|(often, _)| often[1]), mean(|(_, time)| *time));
        let [mut aa, mut ab, mut bb, mut at, mut bt] = [0.0; 5];
        for ([a, b], t) in points.clone() {
            let (a, b, t) = (a - first, b - second, t - time);
            (aa, ab, bb, at, bt) = (aa + a * a, ab + a * b, bb + b * b, at + a * t, bt + b * t);
        }
        let determinant = aa * bb - ab * ab;
        let slopes = [(at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant];
        if determinant > 0.0 && slopes.iter().all(|slope| *slope >= 0.0) {
            return Self { at_zero: time - slopes[0] * first - slopes[1] * second, slopes };
        }
        let by_one = |which: usize| Line::nearest(points.clone().map(|(often, time)| (often[which], time)));
        if slopes[1] < 0.0 || determinant <= 0.0 {
            let Line { at_zero, slope } = by_one(0);
            Self { at_zero, slopes: [slope, 0.0] }
        } else {
            let Line { at_zero, slope } = by_one(1);
            Self { at_zero, slopes: [0.0, slope] }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_lies_between_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![7.0]), 7.0);
    }

    #[test]
    fn line_is_the_nearest_to_all_points_and_never_falls() {
        let line = |points: &[(f64, f64)]| Line::nearest(points.iter().copied());
        assert_eq!(line(&[(1.0, 12.0), (3.0, 16.0)]), Line { at_zero: 10.0, slope: 2.0 });
        // Two measurements at each end: what is between them is noise.
        assert_eq!(
            line(&[(1.0, 11.0), (1.0, 13.0), (3.0, 15.0), (3.0, 17.0)]),
            Line { at_zero: 10.0, slope: 2.0 }
        );
        assert_eq!(line(&[(1.0, 16.0), (3.0, 12.0)]), Line { at_zero: 14.0, slope: 0.0 }, "noise");
        assert_eq!(line(&[(2.0, 16.0), (2.0, 12.0)]), Line { at_zero: 14.0, slope: 0.0 }, "no two are apart");
    }

    #[test]
    fn plane_is_the_nearest_to_all_points_and_no_slope_of_it_falls() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let plane = |slopes: [f64; 2], noise: [f64; 4]| {
            let often = [[0.2, 0.2], [0.1, 0.1], [2.0, 0.3], [1.8, 0.1]];
            let points = often.into_iter().zip(noise);
            Plane::nearest(
                points.map(|(of, noise)| (of, 40.0 + slopes[0] * of[0] + slopes[1] * of[1] + noise)),
            )
        };
        let found = plane([12.0, 9.0], [0.0; 4]);
        assert!(
            near(found.at_zero, 40.0) && near(found.slopes[0], 12.0) && near(found.slopes[1], 9.0),
            "{found:?}"
        );
        let found = plane([12.0, 0.0], [0.0, 0.5, -0.5, 0.0]);
        assert_eq!(found.slopes[1], 0.0, "to sleep costs no less than nothing: {found:?}");
        assert!((11.0..13.0).contains(&found.slopes[0]), "{found:?}");
        let found = plane([0.0, 9.0], [0.0, 0.0, -1.0, -1.0]);
        assert_eq!(found.slopes[0], 0.0, "{found:?}");
        let found = Plane::nearest([([1.0, 1.0], 12.0), ([3.0, 3.0], 16.0)].into_iter());
        assert_eq!(found, Plane { at_zero: 10.0, slopes: [2.0, 0.0] }, "nothing tells one from the other");
    }
}
