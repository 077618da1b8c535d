//! A question, its answer or a list of them, and what is in it.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{RtaType, Rtm};
use neli::consts::socket::NlFamily;
use neli::err::SocketError;
use neli::nl::{NlPayload, NlmsghdrBuilder};
use neli::rtnl::RtattrBuilder;
use neli::socket::synchronous::NlSocketHandle;
use neli::types::{Buffer, RtBuffer};
use neli::utils::Groups;
use neli::{FromBytesWithInput, Size, ToBytes};
use nix::errno::Errno;

/// `AF_INET` and `AF_INET6`, as messages have them.
pub(crate) const INET: u8 = 2;
pub(crate) const INET6: u8 = 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be asked, as when the host has no file descriptor left.
    #[error("ask the kernel by netlink: {0}")]
    Unasked(io::Error),
    /// It says that there is none, and why.
    #[error("{}", .0.desc().to_lowercase())]
    Refused(Errno),
}

impl From<SocketError> for Error {
    fn from(error: SocketError) -> Self {
        Self::Unasked(io::Error::other(error))
    }
}

/// Asks, and reads the first message of the answer.
pub(crate) fn ask<P, T>(kind: Rtm, question: P, read: impl FnOnce(&P) -> T) -> Result<T, Error>
where
    P: Size + ToBytes + FromBytesWithInput<Input = usize> + Debug,
{
    let socket = NlSocketHandle::connect(NlFamily::Route, None, Groups::empty())?;
    let question = NlmsghdrBuilder::default()
        .nl_type(kind)
        .nl_flags(NlmF::REQUEST)
        .nl_payload(NlPayload::Payload(question))
        .build();
    socket.send(&question.expect("all of it is set"))?;
    let (mut answers, _) = socket.recv::<Rtm, P>()?;
    let nothing = || Error::Unasked(io::ErrorKind::UnexpectedEof.into());
    match answers.next().ok_or_else(nothing)??.nl_payload() {
        NlPayload::Payload(answer) => Ok(read(answer)),
        NlPayload::Err(refused) => Err(Error::Refused(Errno::from_raw(-refused.error()))),
        _ => Err(nothing()),
    }
}

/// Attributes to ask with.
pub(crate) fn attributes<T: RtaType>(all: impl IntoIterator<Item = (T, Vec<u8>)>) -> RtBuffer<T, Buffer> {
    let attribute = |(kind, bytes)| {
        let attribute = RtattrBuilder::default().rta_type(kind).rta_payload(Buffer::from(bytes));
        attribute.build().expect("all of it is set")
    };
    all.into_iter().map(attribute).collect()
}

/// What an answer has of this kind.
pub(crate) fn attribute<T: RtaType + PartialEq>(all: &RtBuffer<T, Buffer>, kind: T) -> Option<&[u8]> {
    let attribute = all.iter().find(|attribute| *attribute.rta_type() == kind)?;
    Some(attribute.rta_payload().as_ref())
}

pub(crate) fn number_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

pub(crate) fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let of_four = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    of_four().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// What is in one of these attributes, in bytes as they came.
pub(crate) fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [first, second, third, fourth] = *attributes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([first, second]));
        let payload = attributes.get(4..length)?;
        if u16::from_ne_bytes([third, fourth]) == kind {
            return Some(payload);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// Asks for a list, and hands over each message of it, until `take` has had enough.
pub(crate) fn dump(
    family: NlFamily,
    kind: u16,
    question: Vec<u8>,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Error> {
    let message = NlmsghdrBuilder::default()
        .nl_type(kind)
        .nl_flags(NlmF::REQUEST | NlmF::DUMP)
        .nl_payload(NlPayload::Payload(Buffer::from(question)))
        .build();
    let socket = NlSocketHandle::connect(family, None, Groups::empty())?;
    socket.send(&message.expect("all of it is set"))?;
    loop {
        let (answers, _) = socket.recv::<u16, Buffer>()?;
        for answer in answers {
            match answer?.nl_payload() {
                NlPayload::Payload(bytes) => {
                    if take(bytes.as_ref()).is_break() {
                        return Ok(());
                    }
                }
                NlPayload::Err(refused) => return Err(Error::Refused(Errno::from_raw(-refused.error()))),
                _ => return Ok(()),
            }
        }
    }
}
