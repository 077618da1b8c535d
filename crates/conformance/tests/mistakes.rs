//! Scripts that say what the kernel does not do: each fails, for the reason that it should.

use conformance::{Case, Outcome};
use libtest_mimic::Trial;

/// The tests of this file.
pub fn trials() -> [Trial; 2] {
    [
        Trial::test("mistakes::root_script_with_one_mistake_fails_for_it_and_without_passes", || {
            root_script_with_one_mistake_fails_for_it_and_without_passes();
            Ok(())
        }),
        Trial::test("mistakes::root_sysctl_that_the_kernel_has_not_is_an_error_with_the_file", || {
            root_sysctl_that_the_kernel_has_not_is_an_error_with_the_file();
            Ok(())
        }),
    ]
}

/// What a script fails with on this kernel; `None`, with the reason printed, where it cannot run.
fn play(steps: &str) -> Option<Result<(), String>> {
    let text = format!("policy rst-syn\nbacklog 0\nfamily ipv4\n{steps}");
    let script = script::parse("mistake.pkt", &text).expect("it can be read");
    let case = Case::all(&script).remove(0);
    match case.play() {
        Ok(Outcome::Passed(_)) => Some(Ok(())),
        Ok(Outcome::Skipped(reason)) => {
            eprintln!("{reason}");
            None
        }
        Err(error) => Some(Err(format!("{error:#}"))),
    }
}

fn root_script_with_one_mistake_fails_for_it_and_without_passes() {
    let right = "fill\na: > S 0:0(0)\na: < R. 0:0(0) ack 1 win 0\na: silence\nstate a gone\nqueues accept 1 syn 0\n\
                 server accept fill\nb: connect\nserver accept b\nb: > P. 1:4(3) ack 1\nb: < . 1:1(0) ack 4\n\
                 server read b 3\nstate b ESTABLISHED\ncount seen 3 admitted 2 reset 1 Tcp.OutRsts 0\n";
    let Some(outcome) = play(right) else { return };
    outcome.expect("every line is right");
    for (line, mistake, wanted) in [
        ("a: < R. 0:0(0) ack 1 win 0", "a: < S. 0:0(0) ack 1", "flags R. and not S."),
        ("a: < R. 0:0(0) ack 1 win 0", "a: < R. 1:1(0) ack 1", "sequence number 0 and not 1"),
        ("a: < R. 0:0(0) ack 1 win 0", "a: < R. 0:0(0) ack 2", "ack 1 and not 2"),
        ("a: < R. 0:0(0) ack 1 win 0", "a: < R. 0:0(0) ack 1 win 1", "win 0 and not 1"),
        ("a: < R. 0:0(0) ack 1 win 0\n", "", "expected silence for 0 s, got R."),
        ("a: silence\n", "a: < R. 0:0(0) ack 1\n", "nothing came within"),
        ("b: < . 1:1(0) ack 4\n", "", "expected the end of the script, got ."),
        ("state a gone", "state a SYN_RECV", "expected state SYN_RECV for a, got gone"),
        ("queues accept 1 syn 0", "queues accept 1 syn 1", "got accept 1 syn 0"),
        ("server accept b", "server accept a", "expected a connection of a, got that of b"),
        ("server read b 3", "server read b EOF", "expected Eof from b, got Bytes"),
        ("reset 1 Tcp", "reset 2 Tcp", "expected count reset 2, got 1"),
        ("Tcp.OutRsts 0", "Tcp.OutRsts 1", "expected count Tcp.OutRsts 1, got 0"),
        ("Tcp.OutRsts 0", "Tcp.NoSuch 0", "there is no counter Tcp.NoSuch"),
    ] {
        let wrong = right.replace(line, mistake);
        assert_ne!(wrong, right, "{line}");
        let error = play(&wrong).expect("it ran above").expect_err(mistake);
        assert!(error.starts_with("mistake.pkt:") && error.contains(wanted), "{mistake}: {error}");
    }
}

fn root_sysctl_that_the_kernel_has_not_is_an_error_with_the_file() {
    let Some(outcome) = play("sysctl net.ipv4.tcp_no_such=1\nfill\ncount admitted 1\n") else { return };
    let error = outcome.expect_err("no such sysctl");
    assert!(error.starts_with("mistake.pkt: set the kernel up: set sysctl net.ipv4.tcp_no_such"), "{error}");
}
