//! Files that are there whole or not at all.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::{fs, process};

/// Writes a file under another name first: a full disk leaves no part of it under its own. What is
/// there and is no file, as a device or a link (`/dev/stdout`), is written to, and stays.
///
/// # Errors
///
/// What the system says; then nothing is left behind.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        return fs::write(path, bytes);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", process::id()));
    let part = path.with_file_name(name);
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        fs::remove_file(&part).ok();
    }
    written
}

/// Whether [`write_whole`] could make such a file now: in its folder one can be made. Of a device
/// nobody knows before.
///
/// # Errors
///
/// What the system says; then nothing is left behind.
pub fn try_place(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(Error::from(ErrorKind::IsADirectory)),
        Ok(there) if !there.is_file() || path.is_symlink() => Ok(()),
        _ => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            try_folder(folder.unwrap_or(Path::new(".")))
        }
    }
}

/// Whether files can be made in a folder that is there.
///
/// # Errors
///
/// What the system says; then nothing is left behind.
pub fn try_folder(folder: &Path) -> Result<()> {
    let probe = folder.join(format!(".{}.part", process::id()));
    fs::write(&probe, []).and_then(|()| fs::remove_file(&probe))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn file_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.html");
        write_whole(&path, b"one").expect("room");
        write_whole(&path, b"two").expect("room");
        assert_eq!(fs::read(&path).expect("a file"), b"two");
        assert_eq!(names(folder.path()), ["page.html"]);
        // A folder is in the way.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).expect("a folder");
        write_whole(&taken, b"three").expect_err("a folder is no file");
        assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
    }

    #[test]
    fn device_is_written_to_and_not_replaced() {
        let error = write_whole(Path::new("/dev/full"), b"page").expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(!Path::new("/dev/full").metadata().expect("it is there").is_file());
    }

    #[test]
    fn link_is_written_through_and_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let [page, link] = ["page.html", "link"].map(|name| folder.path().join(name));
        fs::write(&page, b"an old page").expect("room");
        std::os::unix::fs::symlink(&page, &link).expect("a link");
        try_place(&link).expect("it leads to a file");
        write_whole(&link, b"new").expect("room");
        assert!(link.is_symlink());
        assert_eq!(fs::read(&page).expect("a file"), b"new");
    }

    #[test]
    fn place_is_tried_and_left_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        try_place(&folder.path().join("page.html")).expect("room");
        try_place(Path::new("page-that-nobody-has-made.html")).expect("the folder of the tests");
        try_place(Path::new("/dev/full")).expect("a device is tried by writing only");
        assert!(names(folder.path()).is_empty());
        for nowhere in [folder.path().join("none/page.html"), folder.path().to_owned(), "/proc/page".into()] {
            assert!(try_place(&nowhere).is_err(), "{}", nowhere.display());
        }
    }
}
