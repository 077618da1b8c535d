//! The RST byte for byte: each SYN is answered first by the guard, then, without guard and
//! listener, by the kernel, which answers for a closed port. Both answers are captured here, so
//! there is no golden file to grow old.

use crate::common::frame::{CLIENT_MAC, ECE_CWR, Segment};
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, Policy};

const LISTEN4: &str = "10.9.0.2:8080";
const LISTEN6: &str = "[fd09::2]:8080";
/// Labels are compared by tests of their own.
const NO_LABELS: (&str, &str) = ("net.ipv6.auto_flowlabels", "0");
const HOOKS: [Attach; 3] = [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric];

/// SYNs that differ in all that the answer may depend on.
fn variants(source: &str, destination: &str) -> Vec<Segment> {
    let plain = Segment::syn("plain", source, destination, PORT);
    vec![
        plain.clone(),
        plain.clone().with("ECT(1)", |syn| syn.traffic_class = 1),
        plain.clone().with("ECT(0)", |syn| syn.traffic_class = 2),
        plain.clone().with("CE", |syn| syn.traffic_class = 3),
        plain.clone().with("EF", |syn| syn.traffic_class = 0xb8),
        plain.clone().with("CS7 and CE", |syn| syn.traffic_class = 0xe3),
        plain.clone().with("flow label", |syn| syn.flow_label = 0x12345),
        plain.clone().with("ECN setup", |syn| syn.flags |= ECE_CWR),
        plain.clone().with("no options", |syn| syn.tcp_options.clear()),
        plain.clone().with("40 bytes of options", |syn| syn.tcp_options = vec![1; 40]),
        plain.clone().with("payload", |syn| syn.payload = vec![7; 5]),
        plain.clone().with("1000 bytes of payload", |syn| syn.payload = vec![7; 1000]),
        plain.clone().with("padding", |syn| syn.trailer = 11),
        plain.clone().with("seq 0", |syn| syn.seq = 0),
        plain.with("other ports", |syn| syn.source_port = 65535),
    ]
}

fn ipv4_variants() -> Vec<Segment> {
    let mut variants = variants(GHOST4, SERVER4);
    let plain = variants[0].clone();
    variants.extend([
        plain.clone().with("NOP options", |syn| syn.extra = vec![1; 4]),
        plain.clone().with("router alert", |syn| syn.extra = vec![148, 4, 0, 0]),
        plain.clone().with("40 bytes of IP options", |syn| syn.extra = vec![1; 40]),
        plain.with("options, payload, padding", |syn| {
            syn.extra = vec![1; 8];
            syn.payload = vec![9; 33];
            syn.trailer = 3;
        }),
    ]);
    variants
}

fn ipv6_variants() -> Vec<Segment> {
    let mut variants = variants(GHOST6, SERVER6);
    let plain = variants[0].clone();
    let padding = |next: u8| vec![next, 0, 1, 4, 0, 0, 0, 0];
    variants.extend([
        plain.clone().with("hop-by-hop", |syn| {
            syn.first_extension = 0;
            syn.extra = padding(6);
        }),
        plain.clone().with("destination options", |syn| {
            syn.first_extension = 60;
            syn.extra = padding(6);
        }),
        plain.clone().with("hop-by-hop, destination options, payload, padding", |syn| {
            syn.first_extension = 0;
            syn.extra = [padding(60), padding(6)].concat();
            syn.payload = vec![9; 33];
            syn.trailer = 3;
        }),
        plain.with("64 bytes of destination options", |syn| {
            syn.first_extension = 60;
            // An unknown option that is to be skipped; Linux refuses padding of more than seven
            // bytes.
            syn.extra = vec![6, 7, 0x3e, 60];
            syn.extra.resize(64, 0);
        }),
    ]);
    variants
}

fn answer(who: &str, tap: &Tap, syn: &Segment) -> Vec<u8> {
    tap.send(&syn.to_bytes());
    tap.receive(&format!("{} {:04x?}, from {who}", syn.name, syn.tags), |frame| {
        frame::is_reset_to(frame, syn)
    })
}

/// A SYN with the answers to it: the guard's, and the kernel's to what `untag` makes of the SYN.
struct Answers {
    name: String,
    ours: Vec<u8>,
    kernels: Vec<u8>,
}

/// Sends all SYNs twice in a world of their own, with these sysctls at the server. Nothing where
/// kernel tests cannot run.
fn answers(
    sysctls: &[(&str, &str)],
    listen: &str,
    attach: Attach,
    syns: &[Segment],
    untag: impl Fn(&Segment) -> Segment,
) -> Vec<Answers> {
    let Some(world) = World::create_for(attach) else {
        return Vec::new();
    };
    world.finish_checksums();
    for (name, value) in sysctls {
        world.server.set_sysctl(name, value).expect("sysctl");
    }
    let peer = world.peer_for(attach);
    let listener = world.listen(listen);
    let guarded = world.guard(listen, Policy::RST_SYN, attach, false);
    let streams = world.fill(&guarded);
    let tap = world.tap();
    let ours: Vec<Vec<u8>> = syns.iter().map(|syn| answer("the guard", &tap, syn)).collect();
    let resets = guarded.sample().stats.reset;
    assert_eq!(resets, syns.len() as u64, "the guard sent them, not the kernel");
    drop((guarded, streams, peer));
    close(listener);
    let pairs = ours.into_iter().zip(syns);
    pairs
        .map(|(ours, syn)| Answers {
            name: format!("{} {:04x?} at {attach:?}", syn.name, syn.tags),
            ours,
            kernels: answer("the kernel", &tap, &untag(syn)),
        })
        .collect()
}

fn assert_same(sysctls: &[(&str, &str)], listen: &str, attach: Attach, syns: &[Segment]) {
    for answers in answers(sysctls, listen, attach, syns, Segment::clone) {
        assert_eq!(hex(&answers.ours), hex(&answers.kernels), "{}", answers.name);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

#[test]
fn root_ipv4_reset_is_the_kernels_byte_for_byte() {
    for hook in HOOKS {
        assert_same(&[], LISTEN4, hook, &ipv4_variants());
    }
}

#[test]
fn root_ipv6_reset_is_the_kernels_byte_for_byte() {
    for hook in HOOKS {
        assert_same(&[NO_LABELS], LISTEN6, hook, &ipv6_variants());
    }
}

#[test]
fn root_reset_follows_ttl_and_hop_limit_of_the_host() {
    let ttl = ("net.ipv4.ip_default_ttl", "77");
    let hop_limit = ("net.ipv6.conf.s0.hop_limit", "78");
    for hook in HOOKS {
        assert_same(&[ttl], LISTEN4, hook, &ipv4_variants()[..1]);
        assert_same(&[hop_limit, NO_LABELS], LISTEN6, hook, &ipv6_variants()[..1]);
    }
}

#[test]
fn root_ipv6_reset_reflects_the_flow_label_where_the_kernel_does() {
    let syns = ipv6_variants();
    assert!(syns.iter().any(|syn| syn.flow_label != 0));
    let reflect = ("net.ipv6.flowlabel_reflect", "2");
    for hook in HOOKS {
        assert_same(&[reflect, NO_LABELS], LISTEN6, hook, &syns);
    }
}

/// The kernel's label is a hash with a secret; ours has another secret. All other bytes are the
/// same.
#[test]
fn root_ipv6_reset_has_a_flow_label_of_its_own_where_the_kernels_has() {
    for (automatic, ranges) in [("1", "0"), ("1", "1"), ("2", "0"), ("3", "1")] {
        let sysctls = [("net.ipv6.auto_flowlabels", automatic), ("net.ipv6.flowlabel_state_ranges", ranges)];
        let answers = answers(&sysctls, LISTEN6, Attach::Tcx, &ipv6_variants()[..6], Segment::clone);
        let Some(first) = answers.first() else { return };
        let (our_label, kernels_label) = (label(&first.ours), label(&first.kernels));
        assert_eq!(our_label == 0, kernels_label == 0, "auto_flowlabels {automatic}");
        if ranges == "1" {
            assert!(our_label & kernels_label & 0x80000 != 0, "the stateless range");
        }
        for answers in answers {
            assert_eq!(label(&answers.ours), our_label, "one label for a flow");
            assert_eq!(label(&answers.kernels), kernels_label, "one label for a flow");
            let [ours, kernels] = [answers.ours, answers.kernels].map(without_label);
            assert_eq!(hex(&ours), hex(&kernels), "{}", answers.name);
        }
    }
}

fn label(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().expect("four bytes")) & 0xfffff
}

fn without_label(mut frame: Vec<u8>) -> Vec<u8> {
    frame[15] &= 0xf0;
    frame[16..18].fill(0);
    frame
}

/// This kernel need not know VLANs: its untagged answer with the SYN's tags put in is what a tagged
/// one must be.
fn assert_same_with_tags(listen: &str, attach: Attach, syns: &[Segment], tags: &[(u16, u16)]) {
    let with_tags: Vec<Segment> = syns.iter().map(|syn| tagged(syn, tags)).collect();
    for answers in answers(&[NO_LABELS], listen, attach, &with_tags, |syn| tagged(syn, &[])) {
        let mut expected = answers.kernels;
        let bytes = tags.iter().flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        expected.splice(12..12, bytes);
        assert_eq!(hex(&answers.ours), hex(&expected), "{}", answers.name);
    }
}

fn tagged(syn: &Segment, tags: &[(u16, u16)]) -> Segment {
    Segment { tags: tags.to_vec(), ..syn.clone() }
}

#[test]
fn root_syn_with_one_tag_gets_the_kernels_reset_with_its_tag() {
    for tags in [[(0x8100, 0x2064)], [(0x88a8, 0x0007)]] {
        for hook in HOOKS {
            assert_same_with_tags(LISTEN4, hook, &ipv4_variants(), &tags);
            assert_same_with_tags(LISTEN6, hook, &ipv6_variants(), &tags);
        }
    }
}

#[test]
fn root_syn_with_two_tags_gets_the_kernels_reset_with_its_tags() {
    let tags = [(0x88a8, 0x0007), (0x8100, 0x2064)];
    for hook in [Attach::Xdp, Attach::XdpGeneric] {
        assert_same_with_tags(LISTEN4, hook, &ipv4_variants(), &tags);
        assert_same_with_tags(LISTEN6, hook, &ipv6_variants(), &tags);
    }
    // At tc the kernel cannot cut options out behind a second tag; those SYNs are passed.
    let has_no_extras = |syn: &Segment| syn.extra.is_empty();
    let ipv4: Vec<Segment> = ipv4_variants().into_iter().filter(has_no_extras).collect();
    let ipv6: Vec<Segment> = ipv6_variants().into_iter().filter(has_no_extras).collect();
    assert_same_with_tags(LISTEN4, Attach::Tcx, &ipv4, &tags);
    assert_same_with_tags(LISTEN6, Attach::Tcx, &ipv6, &tags);
}

#[test]
fn root_reset_goes_to_the_sender_and_its_checksums_are_right() {
    for (listen, syn, l4) in [
        (LISTEN4, Segment::syn("IPv4", GHOST4, SERVER4, PORT), 34),
        (LISTEN6, Segment::syn("IPv6", GHOST6, SERVER6, PORT), 54),
    ] {
        for hook in HOOKS {
            for answers in answers(&[], listen, hook, std::slice::from_ref(&syn), Segment::clone) {
                let ours = answers.ours;
                assert_eq!(ours[..6], CLIENT_MAC);
                assert_eq!(ours.len(), l4 + 20, "nothing trails");
                let sum = frame::tcp_checksum(syn.destination, syn.source, &ours[l4..]);
                assert_eq!(sum, 0, "{}", answers.name);
                if l4 == 34 {
                    assert_eq!(frame::checksum(&ours[14..34]), 0, "{}", answers.name);
                }
            }
        }
    }
}
