//! Frames whose rank and flow the test says.

use std::os::fd::AsFd;

use bpf::{Hook, Link};
use netns::{Lan, Tap};

use super::{send, sender};

/// `TOLD_MARK` of `kernel/srpt.bpf.c`, and a source.
const TOLD: u32 = 0x7467_6c00 | 4;

/// Enough for all that any test has in the queue.
const WAITING_BYTES: u32 = 32 << 20;

/// A packet socket, and behind `tell` a program that overwrites what that says with what the socket
/// says.
pub struct Placed {
    tap: Tap,
    _link: Link,
}

impl Placed {
    /// To be made after the qdisc.
    pub fn open(lan: &Lan) -> Self {
        let link = lan.client.enter(|| {
            let program = bpf::program(Hook::TcxEgress, c"say_place", &program()).expect("load");
            Link::attach(program.as_fd(), lan.c0.ifindex, Hook::TcxEgress).expect("attach")
        });
        let tap = sender(lan);
        tap.allow_waiting(WAITING_BYTES).expect("allow");
        Self { tap, _link: link.expect("enter") }
    }

    /// The kernel's rank is the one given, shifted so that more than 32 bits are used.
    pub fn send(&self, frame: &[u8], rank: u32, flow: u32) {
        self.tap.mark(rank + 1, flow).expect("mark");
        send(&self.tap, frame);
    }
}

/// Of a frame with a mark: the rank is from the mark, the flow is the priority.
fn program() -> Vec<u64> {
    const MARK: u16 = 8;
    const PRIORITY: u16 = 32;
    const CB: u16 = 48;
    let instruction = |code: u8, to: u8, from: u8, offset: u16, value: i32| {
        u64::from(code)
            | u64::from(to | from << 4) << 8
            | u64::from(offset) << 16
            | u64::from(value.cast_unsigned()) << 32
    };
    let load = |to, offset| instruction(0x61, to, 1, offset, 0);
    let store = |index: u16, from| instruction(0x63, 1, from, CB + 4 * index, 0);
    vec![
        load(2, MARK),
        instruction(0x15, 2, 0, 11, 0), // if r2 == 0 goto the end
        instruction(0x07, 2, 0, 0, -1), // r2 += -1
        instruction(0x67, 2, 0, 0, 20), // r2 <<= 20
        store(0, 2),
        instruction(0x77, 2, 0, 0, 32), // r2 >>= 32
        store(1, 2),
        load(2, PRIORITY),
        store(2, 2),
        instruction(0xb7, 2, 0, 0, 0), // r2 = 0
        store(3, 2),
        instruction(0xb4, 2, 0, 0, TOLD.cast_signed()), // w2 = TOLD
        store(4, 2),
        instruction(0xb7, 0, 0, 0, -1), // r0 = -1
        instruction(0x95, 0, 0, 0, 0),  // exit
    ]
}
