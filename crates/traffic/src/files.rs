//! The files of SPECweb99, and who asks for which.

use std::fmt;

use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand_distr::Zipf;

/// Classes of files, each ten times as large as the one before.
const CLASSES: [f64; 4] = [0.35, 0.5, 0.14, 0.01];
/// Files of a class, the nth of n times 102.4 bytes in the smallest one. Their shares are a reading
/// of the benchmark's integer table.
const FILES: [f64; 9] = [3.93, 5.89, 8.84, 17.67, 35.35, 11.78, 7.07, 5.05, 4.42];

/// One of the files of a directory. Displays as its path below the document root, as the benchmark
/// has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct File {
    /// Of the directory, from 0.
    pub directory: u32,
    /// 0 to 3.
    pub class: u8,
    /// 1 to 9.
    pub number: u8,
}

impl File {
    /// Its size, bytes.
    pub fn bytes(&self) -> u64 {
        let tenths = 1024 * u64::from(self.number) * 10_u64.pow(u32::from(self.class));
        tenths / 10
    }

    /// Of a path as it displays.
    pub fn of_path(path: &str) -> Option<Self> {
        let (directory, file) = path.strip_prefix("/file_set/dir")?.split_once("/class")?;
        let (class, number) = file.split_once('_')?;
        let file = Self {
            directory: directory.parse().ok()?,
            class: class.parse().ok()?,
            number: number.parse().ok()?,
        };
        (file.to_string() == path && file.class < 4 && (1..=9).contains(&file.number)).then_some(file)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/file_set/dir{:05}/class{}_{}", self.directory, self.class, self.number)
    }
}

/// Requests for static files as SPECweb99 has them: directories by Zipf's law, classes and files by
/// fixed shares.
///
/// Source: `[Shu05]` section 3.2.2; the mean file has 14,727 bytes.
#[derive(Debug, Clone)]
pub struct SpecWeb {
    directories: Zipf<f64>,
    classes: WeightedIndex<f64>,
    files: WeightedIndex<f64>,
}

impl SpecWeb {
    /// With so many directories of 36 files; none for no directory.
    pub fn new(directories: u32) -> Option<Self> {
        Some(Self {
            directories: Zipf::new(f64::from(directories), 1.0).ok().filter(|_| directories > 0)?,
            classes: WeightedIndex::new(CLASSES).ok()?,
            files: WeightedIndex::new(FILES).ok()?,
        })
    }

    /// One request.
    pub fn sample(&self, random: &mut impl Rng) -> File {
        File {
            directory: self.directories.sample(random) as u32 - 1,
            class: self.classes.sample(random) as u8,
            number: self.files.sample(random) as u8 + 1,
        }
    }

    /// Mean size of a request's file, bytes.
    pub fn mean(&self) -> f64 {
        let of_class = |class: u8, share: f64| -> f64 {
            let all: f64 = FILES.iter().sum();
            let bytes = |number: u8| File { directory: 0, class, number }.bytes() as f64;
            share / all * (1..).zip(FILES).map(|(number, share)| share * bytes(number)).sum::<f64>()
        };
        (0..).zip(CLASSES).map(|(class, share)| of_class(class, share)).sum()
    }

    /// Every file of a directory.
    pub fn files_of(directory: u32) -> impl Iterator<Item = File> {
        (0..4).flat_map(move |class| (1..=9).map(move |number| File { directory, class, number }))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::testing::{Statistics, assert_near};

    fn requests(directories: u32, count: usize) -> Vec<File> {
        let spec = SpecWeb::new(directories).expect("directories");
        let mut random = Pcg64Mcg::seed_from_u64(1);
        (0..count).map(|_| spec.sample(&mut random)).collect()
    }

    #[test]
    fn sizes_have_the_statistics_of_the_benchmark() {
        let sizes = Statistics::of(requests(10, 1_000_000).iter().map(|file| file.bytes() as f64).collect());
        assert_near("mean", sizes.mean, 14_727.0, 0.02);
        assert_near("mean of the shares", SpecWeb::new(10).expect("directories").mean(), 14_727.0, 0.005);
        assert_near("variation", sizes.variation, 3.75, 0.03);
        // The last of a hundred is the class above.
        assert_eq!([0.5, 0.9, 0.989].map(|quantile| sizes.at(quantile)), [4_096.0, 40_960.0, 92_160.0]);
    }

    #[test]
    fn directories_follow_zipfs_law() {
        let requests = requests(100, 500_000);
        let of = |directory: u32| requests.iter().filter(|file| file.directory == directory).count() as f64;
        for (directory, times) in [(1, 2.0), (3, 4.0), (9, 10.0), (99, 100.0)] {
            assert_near("against the first", of(0) / of(directory), times, 0.1);
        }
        assert!(requests.iter().all(|file| file.directory < 100));
    }

    #[test]
    fn path_names_one_file() {
        for file in SpecWeb::files_of(42) {
            assert_eq!(File::of_path(&file.to_string()), Some(file));
        }
        assert_eq!(SpecWeb::files_of(0).count(), 36);
        for bad in
            ["/", "/file_set/dir1/class0_1", "/file_set/dir00001/class4_1", "/file_set/dir00001/class0_0"]
        {
            assert_eq!(File::of_path(bad), None, "{bad}");
        }
    }
}
