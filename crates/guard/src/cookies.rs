//! What SYN cookies need of the kernel and of its sysctls.

use anyhow::{Context, Result};
use libbpf_rs::btf::{Btf, types::Func};
use verdict::{Policy, Verdict};

use crate::program::KERNEL_BTF;
use crate::{ConfigError, Listener};

/// Lets a program make a connection of a cookie that the kernel does not know; Linux 6.9 and newer.
const ASSIGN: &str = "bpf_sk_assign_tcp_reqsk";
/// 0: off. 1: when the SYN queue is full. 2: for every SYN. Documentation/networking/ip-sysctl.rst.
const SYNCOOKIES: &str = "/proc/sys/net/ipv4/tcp_syncookies";

/// Refuses listeners whose cookies would come back to a kernel that does not take them.
///
/// # Errors
///
/// A [`ConfigError`] with the nearest thing that would work.
pub fn check(listeners: &[Listener]) -> Result<()> {
    for listener in listeners {
        let may_answer = |cookie| listener.policy.may_answer(cookie);
        let why_not = if may_answer(Verdict::Cookie) {
            own(syncookies()?, takes_own_cookies(), nearest(&listener.policy))
        } else if may_answer(Verdict::KernelCookie) {
            kernels(syncookies()?).map(str::to_owned)
        } else {
            None
        };
        if let Some(why_not) = why_not {
            let Listener { listen, policy, .. } = listener;
            return Err(ConfigError(format!("listener {listen} with {policy}: {why_not}")).into());
        }
    }
    Ok(())
}

/// What is nearest to a policy with cookies of ours, and has none.
fn nearest(policy: &Policy) -> &'static str {
    if policy.syn_when_full == Verdict::Cookie {
        "use no-syn-drop:kernel, or abort+rst-syn"
    } else {
        "leave cookies out of it"
    }
}

/// Why cookies of ours would fail, and what would not.
fn own(syncookies: u32, is_taken: bool, nearest: &str) -> Option<String> {
    if !is_taken {
        return Some(format!("this kernel takes no cookies but its own (Linux 6.9 and newer do); {nearest}"));
    }
    // cookie_v4_check() of net/ipv4/syncookies.c looks at it before it asks whose cookie it is.
    (syncookies == 0)
        .then(|| format!("cookies are switched off here; sysctl -w net.ipv4.tcp_syncookies=1, or {nearest}"))
}

/// The same for the kernel's.
fn kernels(syncookies: u32) -> Option<&'static str> {
    // tcp_synq_no_recent_overflow(): it takes a cookie back only if it has itself sent one within
    // two minutes.
    (syncookies != 2).then_some(
        "the kernel takes these cookies back only while it sends cookies itself; sysctl -w net.ipv4.tcp_syncookies=2, or use no-syn-drop",
    )
}

/// Whether this kernel makes a connection of a cookie that it does not know (Linux 6.9 and newer),
/// by its BTF.
pub fn takes_own_cookies() -> bool {
    let kernel = Btf::from_path(KERNEL_BTF);
    kernel.is_ok_and(|kernel| kernel.type_by_name::<Func<'_>>(ASSIGN).is_some())
}

/// Of the calling thread's network namespace.
fn syncookies() -> Result<u32> {
    let text =
        std::fs::read_to_string(SYNCOOKIES).with_context(|| format!("read {SYNCOOKIES} for the cookies"))?;
    text.trim().parse().with_context(|| format!("read {SYNCOOKIES}: {:?} is no number", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cookies_need_a_kernel_that_takes_them_and_the_sysctl_not_off() {
        let use_this = nearest(&Policy::NO_SYN_DROP);
        assert_eq!(own(1, true, use_this), None);
        assert_eq!(own(2, true, use_this), None);
        assert!(own(0, true, use_this).is_some_and(|why| why.contains("tcp_syncookies=1")));
        assert!(own(2, false, use_this).is_some_and(|why| why.contains("no-syn-drop:kernel")));
        let beside = nearest(&"abort+rst-syn+unserved+cookies".parse().expect("policy"));
        assert!(own(2, false, beside).is_some_and(|why| why.ends_with("leave cookies out of it")));
    }

    #[test]
    fn kernels_cookies_need_the_kernel_to_send_them_always() {
        assert_eq!(kernels(2), None);
        assert!(
            [0, 1].iter().all(|&value| kernels(value).is_some_and(|why| why.contains("tcp_syncookies=2")))
        );
    }
}
