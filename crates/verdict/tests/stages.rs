//! The tables of decisions, run on the host. crates/guard runs the same tables in the kernel.

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
fn ack_stage_decides_as_the_table_says() {
    for case in cases::ACK_STAGE {
        assert_eq!(case.policy.admit_ack(&case.load), case.verdict, "{}", case.name);
    }
}

#[test]
fn syn_queue_length_changes_the_answer_of_reserv_only() {
    let others = cases::SYN_STAGE.iter().filter(|case| case.policy.full == verdict::Full::AcceptQueue);
    for case in others {
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
