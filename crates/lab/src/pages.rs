//! Files for a server that has them from a disk: of each size that a crowd will ask for. They have
//! a length and no content, so that a disk has room for all.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use experiment::CrowdSpec;
use traffic::Workload;

use crate::crowd::Send;

/// Of the users that are expected, so many more are reckoned with: more do not come by chance.
const MARGIN: f64 = 1.1;
/// And so many, where few are expected.
const LEAST: f64 = 1000.0;

/// Writes the files below a folder, which anybody may read; whether there are any to write.
pub(crate) fn write(folder: &Path, crowd: &CrowdSpec, send: &Send) -> Result<bool> {
    let workload = crowd.workload.workload();
    let users = send.rate * (send.warmup + send.duration).as_secs_f64() * MARGIN + LEAST;
    write_for(folder, &workload, send.seed, users as u64)
        .with_context(|| format!("write the files that are asked for to {}", folder.display()))
}

fn write_for(folder: &Path, workload: &Workload, seed: u64, users: u64) -> Result<bool> {
    let mut has_any = false;
    for user in 0..users {
        for n in 0..workload.requests(seed, user) {
            let object = workload.object(seed, user, n);
            let (Some(path), Some(bytes)) = (object.path(), object.bytes()) else { continue };
            let file = folder.join(path.to_string().trim_start_matches('/'));
            if file.exists() {
                continue;
            }
            fs::create_dir_all(file.parent().expect("below the folder"))?;
            File::create(&file)?.set_len(bytes)?;
            has_any = true;
        }
    }
    // The server's processes are of a user that owns nothing here.
    if has_any {
        let folders = folder.ancestors().take(2);
        for folder in folders {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(has_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_asked_for_is_there_with_its_length() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("pages");
        let workload = experiment::parse_workload("world-cup").expect("a workload");
        assert!(write_for(&folder, &workload, 7, 50).expect("files"));
        for user in 0..50 {
            let bytes = workload.object(7, user, 0).bytes().expect("a size");
            let file = fs::metadata(folder.join(format!("bytes/{bytes}"))).expect("a file");
            assert_eq!(file.len(), bytes);
        }
        let page = Workload::default();
        assert!(!write_for(&scratch.path().join("none"), &page, 7, 50).expect("nothing to do"));
    }
}
