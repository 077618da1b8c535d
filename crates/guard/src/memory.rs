//! What a guard has learnt of servers, in files below /run, for the guard that comes after it: by a
//! restart, `kill -9` or take-over.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pacer::Learnt;
use serde::{Deserialize, Serialize};

use crate::program::own_netns_cookie;

/// Of the files' form. One of another version is not read.
const VERSION: u32 = 1;
/// What is older says nothing of the server of today.
const FRESH: Duration = Duration::from_secs(600);

/// A folder of such files, as a guard in one network namespace has it.
#[derive(Debug, Clone)]
pub struct Memory {
    folder: PathBuf,
    /// Cookie of the network namespace: other servers have the same addresses in others.
    netns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    version: u32,
    netns: u64,
    listen: SocketAddr,
    learnt: Learnt,
}

impl Memory {
    /// Of the calling thread's network namespace. Makes the folder, and removes files of guards
    /// that nobody will read again.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read, or the namespace's cookie cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        let with = || format!("state folder {}", folder.display());
        fs::create_dir_all(folder).with_context(with)?;
        for entry in fs::read_dir(folder).with_context(with)? {
            let path = entry.with_context(with)?.path();
            if is_page(&path) && !is_fresh(&path) {
                fs::remove_file(&path).ok();
            }
        }
        Ok(Self { folder: folder.to_owned(), netns: own_netns_cookie()? })
    }

    fn path(&self, listen: SocketAddr) -> PathBuf {
        self.folder.join(file_name(self.netns, listen))
    }

    /// What is known of the server at this address; `None` if nothing is, or what is known is old.
    ///
    /// # Errors
    ///
    /// One line that names the file: it is truncated, of another version, or of another server.
    pub fn read(&self, listen: SocketAddr) -> Result<Option<Learnt>> {
        let path = self.path(listen);
        self.read_page(&path, listen).with_context(|| {
            format!(
                "state file {}: {listen} is guarded as a server of which nothing is known",
                path.display()
            )
        })
    }

    fn read_page(&self, path: &Path, listen: SocketAddr) -> Result<Option<Learnt>> {
        let text = match fs::read_to_string(path) {
            Ok(text) if is_fresh(path) => text,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(&text).context("it is truncated, or no state file")?;
        ensure!(version == VERSION, "it has version {version}, and this guard reads version {VERSION}");
        let page: Page = serde_json::from_str(&text).context("it is no state file")?;
        if (page.netns, page.listen) != (self.netns, listen) {
            bail!("it is of another server, {} in network namespace {}", page.listen, page.netns);
        }
        Ok(Some(page.learnt))
    }

    /// Keeps it for the next guard. A guard that ends meanwhile leaves the file of before.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, listen: SocketAddr, learnt: Learnt) -> Result<()> {
        let path = self.path(listen);
        let page = Page { version: VERSION, netns: self.netns, listen, learnt };
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, serde_json::to_string(&page)?)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("state file {}", path.display()))
    }
}

/// Whether a guard wrote it: other files in the folder are not ours.
fn is_page(path: &Path) -> bool {
    let page = fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Page>(&text).ok());
    page.is_some_and(|page| path.ends_with(file_name(page.netns, page.listen)))
}

fn file_name(netns: u64, listen: SocketAddr) -> String {
    format!("{netns}-{listen}.json")
}

/// Whether it was written not long ago.
fn is_fresh(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().unwrap_or(FRESH) < FRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: &str = "192.0.2.1:80";

    fn learnt() -> Learnt {
        Learnt {
            usual_ns: 1_500_000.try_into().expect("not 0"),
            per_s: 1_234.5,
            response_ns: 2_000_000,
            overtaken_at: 8.try_into().expect("not 0"),
            is_silent: false,
        }
    }

    fn listen() -> SocketAddr {
        LISTEN.parse().expect("address")
    }

    #[test]
    fn next_guard_reads_what_this_one_wrote() {
        let folder = tempfile::tempdir().expect("folder");
        let memory = Memory::open(folder.path()).expect("open");
        assert_eq!(memory.read(listen()).expect("none"), None);
        memory.write(listen(), learnt()).expect("write");
        let next = Memory::open(folder.path()).expect("open again");
        assert_eq!(next.read(listen()).expect("read"), Some(learnt()));
        assert_eq!(next.read("[2001:db8::1]:80".parse().expect("address")).expect("none"), None);
    }

    #[test]
    fn file_that_cannot_be_is_named_in_one_line() {
        let folder = tempfile::tempdir().expect("folder");
        let memory = Memory::open(folder.path()).expect("open");
        memory.write(listen(), learnt()).expect("write");
        let path = memory.path(listen());
        let good = fs::read_to_string(&path).expect("read");
        let other = good.replace(LISTEN, "192.0.2.9:80");
        let usual = good.replace("1500000", "0");
        for (text, why) in [
            (&good[..good.len() / 2], "truncated"),
            ("", "truncated"),
            (&good.replace("\"version\":1", "\"version\":2"), "version 2"),
            (&other, "another server, 192.0.2.9:80"),
            (&usual, "no state file"),
            (&good.replace("per_s", "rate"), "no state file"),
        ] {
            fs::write(&path, text).expect("write");
            let error = format!("{:#}", memory.read(listen()).expect_err(why));
            assert!(error.contains(why) && error.contains(&path.display().to_string()), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn old_files_are_not_read_and_go() {
        let folder = tempfile::tempdir().expect("folder");
        let memory = Memory::open(folder.path()).expect("open");
        memory.write(listen(), learnt()).expect("write");
        let path = memory.path(listen());
        let old = std::time::SystemTime::now() - 2 * FRESH;
        fs::File::open(&path).and_then(|file| file.set_modified(old)).expect("make it old");
        assert_eq!(memory.read(listen()).expect("old"), None);
        let others = folder.path().join("other.json");
        fs::copy(&path, &others).expect("copy");
        fs::File::open(&others).and_then(|file| file.set_modified(old)).expect("make it old");
        Memory::open(folder.path()).expect("open again");
        assert!(!path.exists() && others.exists());
    }
}
