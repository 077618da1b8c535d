//! Large pages for a program that has a great deal of memory and reads it in no order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
const LARGE_PAGES: &str = "glibc.malloc.hugetlb";

/// Starts this program again with a C library that asks the kernel for large pages (`madvise(2)`, `MADV_HUGEPAGE`), as it reads only at its start whether it is to (glibc 2.35, manual section
/// "Memory Allocation Tunables"; an older one, or another, does not know the name). Does nothing where the user has said by that name what he wants, and where the program
/// cannot be started.
pub fn ask() {
    let Some(tunables) = tunables(&env::var_os(TUNABLES).unwrap_or_default()) else {
        return;
    };
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut args = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    // Comes back only where it failed, and then all is as it was.
    let _error = command.args(args).env(TUNABLES, tunables).exec();
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
