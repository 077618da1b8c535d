//! Doctor's answers held against this kernel: what it says is there works, and nothing stays
//! behind.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use bpf::{Hook, SoleLink};
use doctor::{Answer, Diagnosis, Verification};
use netns::{Namespace, VethPair};

fn answer(diagnosis: &Diagnosis, name: &str) -> Answer {
    let found = diagnosis.probes.iter().find(|probe| probe.name == name);
    found.unwrap_or_else(|| panic!("no probe {name}")).answer.clone()
}

/// What doctor says, and the namespaces that it leaves. One at a time, because each makes some.
fn examine() -> (Diagnosis, BTreeSet<String>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    (doctor::examine(), own_namespaces())
}

/// Another test may make namespaces meanwhile, so only this process's count.
fn own_namespaces() -> BTreeSet<String> {
    let own = format!("-{}-", std::process::id());
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(&own))
        .collect()
}

#[test]
fn root_doctor_says_of_every_hook_what_a_guard_would_find_and_leaves_nothing() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let (diagnosis, left) = examine();
    assert_eq!(left, BTreeSet::new());
    let here = Namespace::create("here").expect("create");
    let there = Namespace::create("there").expect("create");
    let pair = VethPair::create(&here, "h0", &there, "t0").expect("create veth");
    let hooks = [
        ("tcx", Hook::TcxIngress),
        ("native XDP on veth", Hook::XdpNative),
        ("generic XDP", Hook::XdpGeneric),
    ];
    for (name, hook) in hooks {
        const TO_THE_KERNEL: [i32; 2] = [-1, 2];
        let program =
            bpf::constant_program(hook, TO_THE_KERNEL[usize::from(hook != Hook::TcxIngress)]).expect("load");
        let attach = || SoleLink::attach(program.as_fd(), pair.a.ifindex, hook);
        let link = here.enter(attach).expect("enter");
        match answer(&diagnosis, name) {
            Answer::Yes => drop(link.expect(name)),
            Answer::No(why) => drop(link.expect_err(&why)),
            Answer::Unknown(why) => panic!("{name}: root may try it: {why}"),
        }
    }
}

#[test]
fn root_every_program_loads_where_the_kernel_has_its_hook_and_is_counted() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let diagnosis = examine().0;
    for name in ["BTF", "listener lookup at tc", "listener lookup in XDP"] {
        assert_eq!(answer(&diagnosis, name), Answer::Yes, "{name}");
    }
    let names: Vec<&str> = diagnosis.programs.iter().map(|program| program.name.as_str()).collect();
    for name in ["admit_tc", "admit_xdp", "steer", "echo"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    for program in &diagnosis.programs {
        match &program.verification {
            Verification::VerifiedInstructions(count) => assert!(*count > 1, "{program:?}"),
            // The guard does without that one where the kernel takes none of its kind.
            Verification::Refused(_) if program.name == "admit_request" => {
                assert_ne!(answer(&diagnosis, "BPF LSM"), Answer::Yes, "{program:?}");
            }
            // Nor is a queue discipline any of its matter.
            Verification::Refused(_) if ["redfavor.bpf.c", "srpt.bpf.c"].contains(&program.source) => {
                assert_ne!(answer(&diagnosis, "BPF qdisc"), Answer::Yes, "{program:?}");
            }
            // And the watch without any of its hooks, and the uplink without what sendfile says.
            Verification::Refused(_)
                if program.source == "watch.bpf.c" || program.name == "note_sendfile" =>
            {
                assert_ne!(answer(&diagnosis, "fentry"), Answer::Yes, "{program:?}");
            }
            other => panic!("{}: {other:?}", program.name),
        }
    }
}

#[test]
fn sysctls_are_those_of_this_namespace() {
    let diagnosis = examine().0;
    let own = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("every Linux has it");
    let read =
        diagnosis.sysctls.iter().find(|sysctl| sysctl.name == "net.core.somaxconn").expect("it is asked for");
    assert_eq!(read.value.as_deref(), Some(own.trim()));
}
