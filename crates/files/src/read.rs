//! Text that is read whole, or a line at a time.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Of a file that somebody wrote by hand, bytes: two hundred times the longest experiment that
/// comes along, and ten times a guard's configuration of 64 listeners with 1,024 sources.
pub const MOST_BYTES: u64 = 1 << 20;
/// Of a line that a tool wrote, bytes: a cell of an hour, the longest there is, has 14,400 samples
/// of some hundred bytes, which take a tenth of it.
pub const MOST_OF_LINE: u64 = 64 << 20;

/// Why a file gives no text; whoever reads it says which file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing is there.
    #[error("there is no such file")]
    Missing,
    /// It is a folder.
    #[error("it is a folder; name the files in it")]
    Folder,
    /// It is a device or a pipe, and a regular file is wanted.
    #[error("it is no regular file; name one")]
    NotRegular,
    /// It has more than [`MOST_BYTES`], or no end.
    #[error("it is longer than 1 MiB; is it the right file?")]
    TooLong,
    /// It has a line of more than [`MOST_OF_LINE`], or one without an end.
    #[error("line {0} is longer than 64 MiB; is it the right file?")]
    LineTooLong(u64),
    /// It is no text.
    #[error("it is not UTF-8; is it the right file?")]
    NotText,
    /// Anything else that the system says.
    #[error(transparent)]
    System(std::io::Error),
}

impl ReadError {
    /// Whether whoever named the file is mistaken in it, rather than the file being out of reach.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::System(error) => is_mistake(error.kind()),
            _ => true,
        }
    }
}

/// Whether what the system says of a file is that it is not what it should be, rather than out of
/// reach.
pub fn is_mistake(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidData | InvalidInput | UnexpectedEof)
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::Missing,
            ErrorKind::IsADirectory => Self::Folder,
            ErrorKind::InvalidData => Self::NotText,
            _ => Self::System(error),
        }
    }
}

/// The text of a file, of [`MOST_BYTES`] at most; it may be a pipe.
///
/// # Errors
///
/// See [`ReadError`].
pub fn read_text(path: &Path) -> Result<String, ReadError> {
    bounded(File::open(path)?)
}

/// The same of a regular file, so that nothing makes us wait for whoever writes to it.
///
/// # Errors
///
/// See [`ReadError`].
pub fn read_regular_text(path: &Path) -> Result<String, ReadError> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ReadError::NotRegular);
    }
    bounded(file)
}

fn bounded(file: File) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ReadError::TooLong);
    }
    String::from_utf8(bytes).map_err(|_| ReadError::NotText)
}

/// The lines of a file, each of [`MOST_OF_LINE`] at most, without their ends. There may be any
/// number of them.
///
/// # Errors
///
/// See [`ReadError`]; of each line, too.
pub fn lines(path: &Path) -> Result<Lines, ReadError> {
    Ok(Lines { file: BufReader::new(File::open(path)?), number: 0 })
}

/// See [`lines`].
#[derive(Debug)]
pub struct Lines {
    file: BufReader<File>,
    /// Of the line before, from 1.
    number: u64,
}

impl Iterator for Lines {
    type Item = Result<String, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        let read = (&mut self.file).take(MOST_OF_LINE + 1).read_until(b'\n', &mut line);
        self.number += 1;
        match read {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(error.into())),
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 > MOST_OF_LINE {
            return Some(Err(ReadError::LineTooLong(self.number)));
        }
        Some(String::from_utf8(line).map_err(|_| ReadError::NotText))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn said(path: &str) -> String {
        read_text(Path::new(path)).expect_err(path).to_string()
    }

    #[test]
    fn file_without_an_end_is_refused() {
        for path in ["/dev/zero", "/dev/full"] {
            assert_eq!(said(path), "it is longer than 1 MiB; is it the right file?");
            let line = lines(Path::new(path)).expect("opens").next().expect("one").expect_err(path);
            assert_eq!(line.to_string(), "line 1 is longer than 64 MiB; is it the right file?");
            assert!(line.is_mistake());
        }
    }

    #[test]
    fn file_may_be_as_long_as_the_bound_and_no_longer() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), " ".repeat(MOST_BYTES as usize)).expect("room");
        assert_eq!(read_text(file.path()).expect("text").len() as u64, MOST_BYTES);
        // No more of it is read than that, however long it is.
        file.as_file().set_len(10 << 30).expect("a file with a hole");
        assert!(matches!(read_text(file.path()), Err(ReadError::TooLong)));
        assert!(matches!(read_regular_text(file.path()), Err(ReadError::TooLong)));
    }

    #[test]
    fn what_is_no_file_of_text_is_said_and_is_a_mistake() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), b"\xff").expect("room");
        assert!(matches!(read_text(file.path()), Err(ReadError::NotText)));
        assert_eq!(said("/nosuch"), "there is no such file");
        assert_eq!(said("/dev/null/nosuch"), "there is no such file");
        assert_eq!(said("/"), "it is a folder; name the files in it");
        let refused = read_regular_text(Path::new("/dev/null")).expect_err("a device");
        assert!(matches!(refused, ReadError::NotRegular) && refused.is_mistake());
        let out_of_reach = ReadError::from(std::io::Error::from(ErrorKind::PermissionDenied));
        assert!(!out_of_reach.is_mistake());
    }

    #[test]
    fn lines_come_without_their_ends_and_the_last_needs_none() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "one\n\ntwo").expect("room");
        let read: Result<Vec<String>, ReadError> = lines(file.path()).expect("opens").collect();
        assert_eq!(read.expect("text"), ["one", "", "two"]);
    }
}
