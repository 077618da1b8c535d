//! The table of decisions at the SYN stage, run on the host. crates/guard runs the same table in the kernel.

mod cases;

use units::Nanos;

#[test]
fn syn_stage_decides_as_the_table_says() {
    for case in cases::SYN_STAGE {
        let verdict = case.policy.admit_syn(&case.load, Nanos(case.now_ns));
        assert_eq!(verdict, case.verdict, "{}", case.name);
    }
}

#[test]
fn syn_queue_length_never_changes_the_answer() {
    for case in cases::SYN_STAGE {
        for syn_qlen in [0, 1, case.load.syn_limit, u32::MAX] {
            let load = verdict::ListenerLoad { syn_qlen, ..case.load };
            assert_eq!(
                case.policy.admit_syn(&load, Nanos(case.now_ns)),
                case.verdict,
                "{} with {syn_qlen} request sockets",
                case.name
            );
        }
    }
}
