//! The tables of decisions, run on the host. crates/guard runs the same tables in the kernel.

mod cases;

use units::Nanos;
use verdict::{Attempt, Policy, Verdict};

#[test]
fn syn_stage_decides_as_the_table_says() {
    for case in cases::SYN_STAGE {
        let verdict = case.policy.admit_syn(&case.load, &case.attempt);
        assert_eq!(verdict, case.verdict, "{}", case.name);
    }
}

#[test]
fn ack_stage_decides_as_the_table_says() {
    for case in cases::ACK_STAGE {
        assert_eq!(
            case.policy.admit_ack(&case.load, case.attempt.is_reserved),
            case.verdict,
            "{}",
            case.name
        );
    }
}

#[test]
fn queue_may_overflow_once_all_its_places_but_one_are_claimed() {
    let load = |accept_qlen, syn_qlen| verdict::ListenerLoad {
        accept_qlen,
        syn_qlen,
        accept_limit: 128,
        syn_limit: 128,
        ..verdict::ListenerLoad::default()
    };
    let may = |policy: &Policy, accept_qlen, syn_qlen| policy.may_overflow(&load(accept_qlen, syn_qlen));
    assert!(!may(&Policy::ABORT, 100, 27) && may(&Policy::ABORT, 100, 28) && may(&Policy::ABORT, 128, 0));
    let reserved = Policy { reserved_slots: 20, ..Policy::ABORT };
    assert!(!may(&reserved, 100, 7) && may(&reserved, 100, 8));
    let has_stage = [Policy::ABORT, Policy::NO_SYN_DROP, Policy::RST_SYN, Policy::DEFAULT];
    assert_eq!(has_stage.map(|policy| policy.has_ack_stage()), [true, true, false, false]);
    assert!(Policy { reserved_slots: 1, ..Policy::DEFAULT }.has_ack_stage());
}

#[test]
fn fin_stage_decides_as_the_table_says() {
    for case in cases::FIN_STAGE {
        assert_eq!(case.policy.admit_fin(&case.fin), case.verdict, "{}", case.name);
    }
}

#[test]
fn syn_queue_length_changes_the_answer_of_reserv_no_syn_drop_and_who_asks_for_more_than_queues_only() {
    let is_other = |policy: &Policy| {
        policy.full == verdict::Full::AcceptQueue
            && policy.trigger == verdict::Trigger::Queue
            && ![Verdict::Cookie, Verdict::KernelCookie].iter().any(|cookie| policy.may_answer(*cookie))
    };
    let others = cases::SYN_STAGE.iter().filter(|case| is_other(&case.policy));
    for case in others {
        for syn_qlen in [0, 1, case.load.syn_limit, u32::MAX] {
            let load = verdict::ListenerLoad { syn_qlen, ..case.load };
            assert_eq!(
                case.policy.admit_syn(&load, &case.attempt),
                case.verdict,
                "{} with {syn_qlen} request sockets",
                case.name
            );
        }
    }
}

#[test]
fn token_bucket_admits_its_rate_and_its_burst() {
    let policy: Policy = "police:1000/50".parse().expect("policy");
    let load = verdict::ListenerLoad::default();
    let mut attempt = Attempt::default();
    let mut admitted = 0;
    // Ten times the rate, for two seconds.
    for step in 0..20_000 {
        attempt.now = Nanos::from_micros(100 * step);
        if policy.admit_syn(&load, &attempt) == Verdict::Admit {
            attempt.schedule = policy.next_schedule(&attempt).expect("it has a bucket");
            admitted += 1;
        }
    }
    assert_eq!(admitted, 2000 + 49, "the rate, and what was in the bucket at first");
}

#[test]
fn persistent_drop_refuses_its_share_and_never_changes_its_mind() {
    let policy: Policy = "persistent-drop:30".parse().expect("policy");
    let load = verdict::ListenerLoad::default();
    let verdict = |hash: u32, now: u64| {
        policy.admit_syn(&load, &Attempt { hash, now: Nanos(now), ..Attempt::default() })
    };
    let hashes = (0..10_000_u32).map(|i| i.wrapping_mul(0x9e37_79b1));
    let refused = hashes.clone().filter(|&hash| verdict(hash, 0) == Verdict::Drop).count();
    assert!((2950..=3050).contains(&refused), "{refused}");
    assert!(hashes.into_iter().all(|hash| verdict(hash, 0) == verdict(hash, u64::MAX)));
}

#[test]
fn token_bucket_of_a_new_rate_is_empty_at_worst() {
    let (slow, fast): (Policy, Policy) =
        ("police:1/1000".parse().expect("policy"), "police:1000/50".parse().expect("policy"));
    let load = verdict::ListenerLoad::default();
    let mut attempt = Attempt { now: Nanos::from_secs(100), ..Attempt::default() };
    for _ in 0..1000 {
        attempt.schedule = slow.next_schedule(&attempt).expect("it has a bucket");
    }
    assert_eq!(slow.admit_syn(&load, &attempt), Verdict::Drop);
    assert_eq!(fast.admit_syn(&load, &attempt), Verdict::Drop);
    attempt.schedule = fast.next_schedule(&attempt).expect("it has a bucket");
    attempt.now += Nanos::from_millis(2);
    assert_eq!(fast.admit_syn(&load, &attempt), Verdict::Admit, "two tokens later");
}
