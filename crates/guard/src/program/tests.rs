use super::*;

#[path = "../../../verdict/tests/cases/mod.rs"]
mod cases;

// SAFETY: words, an explicit field where C pads, and one aligned double word: every byte is a
// field's.
unsafe impl Plain for types::verdict_case {}
// SAFETY: two double words and four words.
unsafe impl Plain for types::attempt {}
// SAFETY: words only.
unsafe impl Plain for types::fin {}

#[test]
fn root_stages_in_the_kernel_decide_as_the_tables_say() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let mut object = MaybeUninit::uninit();
    let mut open = skel::AdmitSkelBuilder::default().open(&mut object).expect("open");
    open.progs.admit_request.set_autoload(false);
    let loaded = open.load().expect("load");
    let run = |input: types::verdict_case| {
        let mut context = bytes_of(&input).to_vec();
        let input = libbpf_rs::ProgramInput { context_in: Some(&mut context), ..Default::default() };
        loaded.progs.run_case.test_run(input).expect("run").return_value
    };
    for case in cases::SYN_STAGE {
        assert_eq!(run(input_of(&case)) & 0xff, case.verdict as u32, "{}", case.name);
    }
    for case in cases::ACK_STAGE {
        assert_eq!(run(input_of(&case)) >> 8 & 0xff, case.verdict as u32, "{}", case.name);
    }
    for case in cases::FIN_STAGE {
        let input = types::verdict_case {
            policy: same(&ListenerPolicy::from(&case.policy)),
            fin: same(&case.fin),
            ..Default::default()
        };
        assert_eq!(run(input) >> 16, case.verdict as u32, "{}", case.name);
    }
}

fn input_of(case: &cases::Case) -> types::verdict_case {
    types::verdict_case {
        policy: same(&ListenerPolicy::from(&case.policy)),
        load: same(&case.load),
        attempt: same(&kernel::Attempt::from(&case.attempt)),
        ..Default::default()
    }
}

#[test]
fn address_is_its_bytes_in_wire_order_and_ipv4_is_mapped() {
    let key = key("10.1.2.3:80".parse().expect("address"));
    let bytes = bytes_of(&key);
    assert_eq!(&bytes[..16], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
    assert_eq!(&bytes[16..], &[0, 80, 0, 0]);
}
