//! A kernel's release, as far as it can be compared.

/// Version and patch level: `6.12` of `6.12.107+deb13-cloud-amd64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series(pub u32, pub u32);

impl Series {
    /// `None` if the text does not begin with two numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|character: char| !character.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_ordered_by_number() {
        let series = |text| Series::parse(text).expect("a release");
        assert_eq!(series("6.12.107+deb13-cloud-amd64"), Series(6, 12));
        assert!(series("6.6") < series("6.12") && series("6.18.44-x") < series("7.2"));
        assert_eq!(Series::parse("since"), None);
    }
}
