//! Large pages for a program that has a great deal of memory and reads it in no order.

use std::convert::Infallible;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};

const TUNABLES: &str = "GLIBC_TUNABLES";
const LARGE_PAGES: &str = "glibc.malloc.hugetlb";
/// Whoever has it was started again already: a C library that does not trust its user takes the
/// tunables away (`ld.so(8)`, secure-execution mode).
const STARTED_AGAIN: &str = "TIDEGATE_STARTED_AGAIN";

/// Starts this program again with a C library that asks the kernel for large pages (`madvise(2)`,
/// `MADV_HUGEPAGE`), as it reads only at its start whether it is to (glibc 2.35, manual section
/// "Memory Allocation Tunables"; an older one, or another, does not know the name). Does nothing
/// where the user has said by that name what he wants, and where the program cannot be started.
pub fn ask() {
    let Some(tunables) = tunables(&env::var_os(TUNABLES).unwrap_or_default()) else {
        return;
    };
    if env::var_os(STARTED_AGAIN).is_none() {
        start_again(&tunables).ok();
    }
}

/// Comes back only where it failed, and then all is as it was.
fn start_again(tunables: &OsStr) -> Result<Infallible> {
    let program = c_string(env::current_exe().context("find this program")?.as_os_str())?;
    let args = env::args_os().map(|arg| c_string(&arg)).collect::<Result<Vec<_>>>()?;
    let others = env::vars_os().filter(|(name, _)| name != TUNABLES);
    let own = [(TUNABLES.into(), tunables.to_owned()), (STARTED_AGAIN.into(), "1".into())];
    let variables = others.chain(own).map(|(name, value)| {
        let mut variable: OsString = name;
        variable.push("=");
        variable.push(value);
        c_string(&variable)
    });
    Ok(nix::unistd::execve(&program, &args, &variables.collect::<Result<Vec<_>>>()?)?)
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes()).context("no text of the system has a zero byte")
}

/// What the C library is to be told, where it was told this; `None` where there is nothing to add.
fn tunables(given: &OsStr) -> Option<OsString> {
    if given.to_string_lossy().contains(LARGE_PAGES) {
        return None;
    }
    let mut tunables = given.to_owned();
    if !given.is_empty() {
        tunables.push(":");
    }
    tunables.push(LARGE_PAGES);
    tunables.push("=1");
    Some(tunables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_are_asked_for_beside_what_is_asked_for_already_and_once() {
        let of = |given: &str| tunables(OsStr::new(given));
        assert_eq!(of("").as_deref(), Some(OsStr::new("glibc.malloc.hugetlb=1")));
        let beside = of("glibc.malloc.check=1").expect("something to add");
        assert_eq!(beside, "glibc.malloc.check=1:glibc.malloc.hugetlb=1");
        assert_eq!(tunables(&beside), None);
        assert_eq!(of("glibc.malloc.hugetlb=0"), None);
    }
}
