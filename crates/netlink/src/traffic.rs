//! Traffic control (rtnetlink(7), tc(8)): a BPF program as a filter of a queue discipline, and what
//! its classes count.

use std::os::fd::{AsRawFd, BorrowedFd};

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Rtm, Tca};
use neli::consts::socket::NlFamily;
use neli::nl::{NlPayload, NlmsghdrBuilder};
use neli::rtnl::{Tcmsg, TcmsgBuilder};
use neli::socket::synchronous::NlSocketHandle;
use neli::utils::Groups;
use nix::errno::Errno;

use crate::ask::{Error, attribute, attributes, find};

/// `include/uapi/linux/pkt_cls.h`; libc has none of them.
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
/// `include/uapi/linux/gen_stats.h`.
const TCA_STATS_QUEUE: u16 = 3;
const ETH_P_ALL: u16 = 3;

/// What a class of a queue discipline counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Class {
    /// Its number, `7467:10` as 0x7467_0010.
    pub id: u32,
    /// Waiting, packets.
    pub qlen_pkts: u32,
    /// Waiting, bytes.
    pub qlen_bytes: u32,
    /// Refused because its queue was full.
    pub drops: u32,
}

/// Makes a program the only filter of the queue discipline with the handle `parent`, of the
/// interface with this index. It is asked for each packet, and gives the packet's class, or 0 for
/// the default one (`direct-action` is off). It goes with the queue discipline.
///
/// # Errors
///
/// ENOENT where the kernel has no `cls_bpf`, EINVAL for a handle that is not there, EPERM without
/// CAP_NET_ADMIN.
pub fn add_bpf_filter(interface: u32, parent: u32, program: BorrowedFd<'_>, name: &str) -> Result<(), Error> {
    let file = program.as_raw_fd().to_ne_bytes();
    let name = [name.as_bytes(), &[0]].concat();
    let options = [nested(TCA_BPF_FD, &file), nested(TCA_BPF_NAME, &name)].concat();
    const PRIORITY: u32 = 1;
    let question = TcmsgBuilder::default()
        .tcm_family(0)
        .tcm_ifindex(interface.cast_signed())
        .tcm_handle(0)
        .tcm_parent(parent)
        .tcm_info(PRIORITY << 16 | u32::from(ETH_P_ALL.to_be()))
        .rtattrs(attributes([(Tca::Kind, b"bpf\0".to_vec()), (Tca::Options, options)]))
        .build();
    let socket = NlSocketHandle::connect(NlFamily::Route, None, Groups::empty())?;
    let message = NlmsghdrBuilder::default()
        .nl_type(Rtm::Newtfilter)
        .nl_flags(NlmF::REQUEST | NlmF::CREATE | NlmF::EXCL | NlmF::ACK)
        .nl_payload(NlPayload::Payload(question.expect("all of it is set")))
        .build();
    socket.send(&message.expect("all of it is set"))?;
    let (answers, _) = socket.recv::<Rtm, Tcmsg>()?;
    for answer in answers {
        if let NlPayload::Err(refused) = answer?.nl_payload()
            && *refused.error() != 0
        {
            return Err(Error::Refused(Errno::from_raw(-refused.error())));
        }
    }
    Ok(())
}

/// What the classes of the queue discipline with the handle `parent` count; none where there is no
/// such discipline.
///
/// # Errors
///
/// ENODEV when the interface is gone.
pub fn classes(interface: u32, parent: u32) -> Result<Vec<Class>, Error> {
    let question = TcmsgBuilder::default()
        .tcm_family(0)
        .tcm_ifindex(interface.cast_signed())
        .tcm_handle(0)
        .tcm_parent(parent)
        .tcm_info(0)
        .build();
    let socket = NlSocketHandle::connect(NlFamily::Route, None, Groups::empty())?;
    let message = NlmsghdrBuilder::default()
        .nl_type(Rtm::Gettclass)
        .nl_flags(NlmF::REQUEST | NlmF::DUMP)
        .nl_payload(NlPayload::Payload(question.expect("all of it is set")))
        .build();
    socket.send(&message.expect("all of it is set"))?;
    let mut classes = Vec::new();
    // A handful of classes comes in one datagram, and the end of the list in it or behind it.
    let (answers, _) = socket.recv::<Rtm, Tcmsg>()?;
    for answer in answers {
        match answer?.nl_payload() {
            NlPayload::Payload(class) => classes.push(read(class)),
            NlPayload::Err(refused) if *refused.error() != 0 => {
                return Err(Error::Refused(Errno::from_raw(-refused.error())));
            }
            _ => {}
        }
    }
    Ok(classes)
}

fn read(answer: &Tcmsg) -> Class {
    let stats = attribute(answer.rtattrs(), Tca::Stats2).unwrap_or_default();
    let queue = find(stats, TCA_STATS_QUEUE).unwrap_or_default();
    Class {
        id: *answer.tcm_handle(),
        qlen_pkts: word(queue, 0),
        qlen_bytes: word(queue, 1),
        drops: word(queue, 2),
    }
}

fn word(bytes: &[u8], index: usize) -> u32 {
    let word = bytes.get(4 * index..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// An attribute within an attribute: its length, its kind, and what it has, up to a multiple of
/// four bytes.
fn nested(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = 4 + payload.len();
    let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(payload);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_within_an_attribute_is_found_again() {
        let all = [nested(1, b"first"), nested(3, b"12345678"), nested(7, b"")].concat();
        assert_eq!(find(&all, 1), Some(&b"first"[..]));
        assert_eq!(find(&all, 3), Some(&b"12345678"[..]));
        assert_eq!(find(&all, 7), Some(&b""[..]));
        assert_eq!(find(&all, 8), None);
        assert_eq!(find(&[200, 0, 1, 0], 1), None, "cut short");
        assert_eq!(find(&[0, 0, 9, 0], 1), None, "shorter than itself");
    }

    #[test]
    fn interface_without_the_discipline_has_no_classes() {
        let lo = crate::Interface::find("lo").expect("ask").expect("every host has it");
        assert_eq!(classes(lo.index, 0x7467_0000).expect("ask"), []);
    }
}
