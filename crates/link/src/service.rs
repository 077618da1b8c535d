//! What is left of the responses that frames are of.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use path::{Content, DEFAULT_CONNECTIONS, Responses, Seen, Service, Side};

use crate::classify::{Carries, IpPacket};

const SYN: u8 = 0x02;

/// The responses of a link, both directions together.
pub(crate) struct Services {
    responses: Responses,
    key: FixedState,
}

impl Services {
    pub(crate) fn new(seed: u64) -> Self {
        Self { responses: Responses::new(DEFAULT_CONNECTIONS), key: FixedState::with_seed(seed) }
    }

    /// A packet of IP comes by.
    pub(crate) fn of(&mut self, packet: &IpPacket<'_>) -> Service {
        let (connection, side) = self.connection(packet);
        match packet.carries {
            Carries::Tcp { seq, flags, payload } => {
                let seen = Seen {
                    seq,
                    is_syn: flags & SYN != 0,
                    payload_bytes: payload.len() as u32,
                    content: Content::Bytes(payload),
                };
                self.responses.segment(connection, side, &seen)
            }
            Carries::Other(bytes) => self.responses.datagram(connection, side, bytes),
        }
    }

    /// The same in both directions, and which of them it is.
    fn connection(&self, packet: &IpPacket<'_>) -> (u64, Side) {
        let (from, to) = packet.addresses.split_at(packet.addresses.len() / 2);
        let [from, to] = [(from, packet.ports[0]), (to, packet.ports[1])];
        let (side, first, second) =
            if from <= to { (Side::First, from, to) } else { (Side::Second, to, from) };
        (self.key.hash_one((packet.protocol, first, second)), side)
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::classify::classify;

    const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 9], 4000);
    const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

    fn see(services: &mut Services, [from, to]: [([u8; 4], u16); 2], seq: u32, payload: &[u8]) -> Service {
        let mut frame = Vec::new();
        let step = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64);
        step.tcp(from.1, to.1, seq, 512).ack(1).write(&mut frame, payload).expect("build");
        services.of(&classify(&frame, &FixedState::with_seed(1)).packet.expect("it is IP"))
    }

    #[test]
    fn response_is_known_by_its_frames() {
        let mut services = Services::new(1);
        let [ask, answer] = [[CLIENT, SERVER], [SERVER, CLIENT]];
        see(&mut services, ask, 1, b"GET / HTTP/1.1\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n";
        let total = head.len() as u64 + 5000;
        assert_eq!(see(&mut services, answer, 1, head), Service { left: Some(total), attained: 0 });
        let other = [SERVER, (CLIENT.0, 4001)];
        assert_eq!(see(&mut services, other, 1, &[0; 900]), Service { left: None, attained: 0 });
        let seq = 1 + head.len() as u32;
        let attained = head.len() as u64;
        assert_eq!(see(&mut services, answer, seq, &[0; 900]), Service { left: Some(5000), attained });
        assert_eq!(services.responses.len(), 2);
    }
}
