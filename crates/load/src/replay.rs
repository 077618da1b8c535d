//! Reads the log that a crowd is to repeat.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use flate2::bufread::MultiGzDecoder;
use traffic::{Entry, Replay, WORLD_CUP_RECORD};

/// Seconds.
const YEAR: f64 = 366.0 * 86_400.0;
/// What gzip files begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Of the lines of a log, as many may be none as real logs have; more, and it is another format.
const MOST_BAD_SHARE: f64 = 0.05;
/// Bytes of a line: eight times what servers take of a request's head. A longer one is none, and is
/// not kept in memory.
const MOST_OF_LINE: u64 = 64 << 10;
/// Bytes of a line that are read on for its end, before it is given up.
const MOST_SKIPPED: u64 = 64 << 20;

/// A log that was read.
#[derive(Debug)]
pub struct Log {
    /// Its requests.
    pub replay: Replay,
    /// Lines that are none.
    pub skipped: u64,
}

/// Reads a log of the Common Log Format or of the World Cup of 1998, plain or gzip, whose times go
/// by `speed` times as fast.
///
/// # Errors
///
/// A file that cannot be read to its end, has no request in it, or is of another format.
pub fn read_log(path: &Path, speed: f64) -> Result<Log> {
    let what = || format!("read the log {}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(what)?);
    let is_gzip = file.fill_buf().with_context(what)?.starts_with(&GZIP);
    let mut content: Box<dyn BufRead> =
        if is_gzip { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
    let start = content.fill_buf().with_context(what)?;
    let is_world_cup = start.first_chunk().is_some_and(|record| Entry::of_world_cup(record).is_some());
    let (entries, skipped) =
        if is_world_cup { world_cup(content) } else { common_log(content) }.with_context(what)?;
    check_span(&entries, speed).with_context(|| format!("repeat the log {}", path.display()))?;
    let replay = Replay::new(entries, speed)
        .with_context(|| format!("{}: there is no request in it", path.display()))?;
    Ok(Log { replay, skipped })
}

/// Nobody waits for the end of one that lasts for years.
fn check_span(entries: &[Entry], speed: f64) -> Result<()> {
    let seconds = || entries.iter().map(|entry| entry.second);
    let span = f64::from(seconds().max().unwrap_or(0) - seconds().min().unwrap_or(0));
    let years = span / speed / YEAR;
    // Written so that it holds for what is no number, too.
    ensure!(
        span == 0.0 || years <= 1.0,
        "at a speed of {speed:?} it lasts {} years, and a year is the most; {:.1e} is the slowest",
        if years < 1e6 { format!("{years:.1}") } else { format!("{years:.1e}") },
        span / YEAR * 1.05
    );
    Ok(())
}

fn world_cup(mut content: impl Read) -> Result<(Vec<Entry>, u64)> {
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes).context("is it cut?")?;
    let records = bytes.chunks_exact(WORLD_CUP_RECORD);
    let rest = records.remainder().len();
    ensure!(rest == 0, "its last record has {rest} of {WORLD_CUP_RECORD} bytes: it is cut");
    let read = (1..).zip(records).map(|(n, record)| {
        let record = record.first_chunk().expect("whole records");
        Entry::of_world_cup(record)
            .with_context(|| format!("record {n} is of no day of the World Cup of 1998"))
    });
    Ok((read.collect::<Result<_>>()?, 0))
}

fn common_log(mut content: impl BufRead) -> Result<(Vec<Entry>, u64)> {
    let (mut entries, mut line, mut number, mut skipped) = (Vec::new(), Vec::new(), 0_u64, 0_u64);
    let mut first_bad = None;
    loop {
        line.clear();
        number += 1;
        let cut = || format!("line {number}; is it cut?");
        let read = content.by_ref().take(MOST_OF_LINE).read_until(b'\n', &mut line).with_context(cut)?;
        if read == 0 {
            break;
        }
        let is_whole = read < MOST_OF_LINE as usize || line.ends_with(b"\n");
        let entry = if is_whole {
            // Old logs have bytes that are no UTF-8 in their paths.
            Entry::of_common_log(&String::from_utf8_lossy(&line))
        } else {
            let rest = content.by_ref().take(MOST_SKIPPED).skip_until(b'\n').with_context(cut)?;
            ensure!((rest as u64) < MOST_SKIPPED, "line {number} has no end; is it a log?");
            Err("it is longer than 64 KiB")
        };
        match entry {
            Ok(entry) => entries.push(entry),
            Err(why) => {
                skipped += 1;
                first_bad.get_or_insert((number, why));
            }
        }
    }
    if let Some((number, why)) = first_bad
        && skipped as f64 > MOST_BAD_SHARE * (entries.len() as f64 + skipped as f64)
    {
        bail!(
            "{skipped} of its lines are none of the Common Log Format, the first is line {number}: {why}; the World Cup's binary \
             format is known, too"
        );
    }
    Ok((entries, skipped))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use units::Nanos;

    use super::*;

    const LINE: &str = "h - - [01/Jul/1995:00:00:0S -0400] \"GET / HTTP/1.0\" 200 100\n";

    fn written(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(content).expect("write");
        file
    }

    fn zipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).expect("a Vec takes all");
        encoder.finish().expect("a Vec takes all")
    }

    fn lines(count: usize) -> String {
        (0..count).map(|n| LINE.replace('S', &(n % 10).to_string())).collect()
    }

    fn world_cup_log(seconds: &[u32]) -> Vec<u8> {
        let record = |second: &u32| {
            let mut record = [0; WORLD_CUP_RECORD];
            record[..4].copy_from_slice(&second.to_be_bytes());
            record
        };
        seconds.iter().flat_map(record).collect()
    }

    #[test]
    fn logs_are_read_plain_and_zipped() {
        for content in [
            lines(30).into_bytes(),
            world_cup_log(&(0..30).map(|n| 898_000_000 + n % 10).collect::<Vec<_>>()),
        ] {
            for content in [content.clone(), zipped(&content)] {
                let file = written(&content);
                let read = read_log(file.path(), 1.0).expect("a log");
                assert_eq!((read.replay.len(), read.skipped), (30, 0));
                assert_eq!(read.replay.start(1), Some(Nanos::from_secs_f64(1.0 / 3.0)));
            }
        }
    }

    #[test]
    fn some_lines_may_be_none_but_not_many() {
        let file = written((lines(50) + "garbage\n").as_bytes());
        assert_eq!(read_log(file.path(), 1.0).expect("a log").skipped, 1);
        let file = written((lines(1) + "garbage\n").as_bytes());
        let error = format!("{:#}", read_log(file.path(), 1.0).expect_err("half of it is none"));
        assert!(error.contains("the first is line 2: there is no time in brackets"), "{error}");
    }

    #[test]
    fn speed_that_makes_a_log_last_for_years_is_refused() {
        let file = written(lines(10).as_bytes());
        let error = |speed| format!("{:#}", read_log(file.path(), speed).expect_err("too slow"));
        assert!(
            error(1e-300).contains("it lasts 2.8e293 years, and a year is the most"),
            "{}",
            error(1e-300)
        );
        assert!(error(1e-7).contains("it lasts 2.8 years") && !error(1e-7).contains('\n'), "{}", error(1e-7));
        assert!(error(1e-7).ends_with("3.0e-7 is the slowest"), "{}", error(1e-7));
        assert_eq!(read_log(file.path(), 3e-7).expect("most of a year").replay.len(), 10);
        let moment = written(lines(1).as_bytes());
        assert_eq!(read_log(moment.path(), 1e-300).expect("it lasts no time").replay.span(), Nanos::ZERO);
    }

    /// Also one that never ends, and one that ends just where it may.
    #[test]
    fn line_that_is_too_long_is_none_and_the_next_is_read() {
        let long = |bytes: usize| format!("{}\n", "x".repeat(bytes - 1));
        for bytes in [65_536, 65_537, 1 << 20] {
            let file = written((lines(30) + &long(bytes) + &lines(30)).as_bytes());
            let read = read_log(file.path(), 1.0).expect("a log");
            assert_eq!((read.replay.len(), read.skipped), (60, 1), "{bytes}");
        }
        let file = written((lines(30) + &"x".repeat(1 << 20)).as_bytes());
        assert_eq!(read_log(file.path(), 1.0).expect("a log").skipped, 1);
        let endless = written("x".repeat(1 << 20).as_bytes());
        let error = format!("{:#}", read_log(endless.path(), 1.0).expect_err("no line"));
        assert!(error.contains("the first is line 1: it is longer than 64 KiB"), "{error}");
    }

    #[test]
    fn cut_log_is_named() {
        let zipped = zipped(lines(1000).as_bytes());
        let world_cup = world_cup_log(&[898_000_000; 3]);
        for (content, why) in [
            (&zipped[..zipped.len() / 2], "is it cut?"),
            (&world_cup[..50], "its last record has 10 of 20 bytes"),
            (&b""[..], "there is no request in it"),
        ] {
            let file = written(content);
            let error = format!("{:#}", read_log(file.path(), 1.0).expect_err(why));
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        let error = format!("{:#}", read_log(Path::new("/nowhere"), 1.0).expect_err("no file"));
        assert!(error.contains("read the log /nowhere"), "{error}");
    }
}
