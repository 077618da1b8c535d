//! reserv where the kernel makes a request socket: SYNs that no program at an interface decides on.

use crate::common::frame::{Segment, syn_ack_to};
use crate::common::*;
use guard::Attach;

const LISTEN4: &str = "10.9.0.2:8080";
const IPV4_HEADER: usize = 20;
const MORE_FRAGMENTS: u8 = 0x20;

/// The frame of an IPv4 segment, in two fragments: the first eight bytes of TCP and the rest.
fn fragments(segment: &Segment) -> [Vec<u8>; 2] {
    let frame = segment.to_bytes();
    let (ethernet, packet) = frame.split_at(14);
    let (header, payload) = packet.split_at(IPV4_HEADER);
    let (first, rest) = payload.split_at(8);
    let part = |flags_and_offset: [u8; 2], payload: &[u8]| {
        let mut header = header.to_vec();
        header[2..4].copy_from_slice(&((IPV4_HEADER + payload.len()) as u16).to_be_bytes());
        header[6..8].copy_from_slice(&flags_and_offset);
        header[10..12].fill(0);
        let sum = frame::checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [ethernet, &header, payload].concat()
    };
    [part([MORE_FRAGMENTS, 0], first), part([0, 1], rest)]
}

#[test]
fn root_reserv_sees_what_the_syn_stage_cannot_read() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, "reserv".parse().expect("policy"), Attach::Tcx, false);
    if let Some(warning) = guarded.guard.warnings().iter().find(|warning| warning.contains("BPF LSM")) {
        assert!(warning.contains("reserv may promise"), "{warning}");
        return eprintln!("skipped: BPF LSM is not to be had here");
    }
    let tap = world.tap();
    for port in 0..=BACKLOG as u16 {
        let syn = Segment::syn("in fragments", GHOST4, SERVER4, PORT)
            .with("in fragments", |syn| syn.source_port += port);
        fragments(&syn).iter().for_each(|frame| tap.send(frame));
        tap.receive("a SYN/ACK", |frame| syn_ack_to(frame, &syn).is_some());
    }
    let syn =
        Segment::syn("one too many", GHOST4, SERVER4, PORT).with("one too many", |syn| syn.source_port += 9);
    fragments(&syn).iter().for_each(|frame| tap.send(frame));
    let sample = guarded.wait("the last", |sample| sample.stats.late == 1);
    assert_eq!(sample.load.map(|load| load.syn_qlen), Some(BACKLOG as u32 + 1), "and no promise more");
    assert_eq!(sample.stats.seen, 0, "the SYN stage saw none of them");
}
