//! What `kernel/room.h` knows of an accept queue's room, called on the host.

use units::Nanos;

/// Of the listeners of one rule: `rooms` of `kernel/room.bpf.h`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    socket: u64,
    word: u64,
}

impl Room {
    /// A SYN for this socket has seen so many places. `has_cookies`: handshakes may end by a cookie
    /// of the guard's, for which tc looks at every segment.
    pub fn note(&mut self, socket: u64, has_cookies: bool, places: u64, now: Nanos) {
        self.word = kernel::next_room(self.word, self.socket == socket, has_cookies, places, now.0);
        self.socket = socket;
    }

    /// Whether a segment that may end a handshake finds a place for sure, which it takes then.
    pub fn take(&mut self, is_tc: bool, now: Nanos) -> bool {
        let has = kernel::has_room(self.word, is_tc, now.0);
        self.word -= u64::from(has);
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(10_000);
    const SOCKET: u64 = 0xffff_8883_40b8_b780;

    /// How many segments take one until somebody has to look.
    fn count(mut room: Room, is_tc: bool, now: Nanos) -> usize {
        std::iter::repeat_with(|| room.take(is_tc, now)).take_while(|&has| has).count()
    }

    fn seen(places: u64) -> Room {
        let mut room = Room::default();
        room.note(SOCKET, false, places, NOW);
        room
    }

    #[test]
    fn segments_take_places_until_those_of_a_batch_are_left() {
        for (places, taken) in [(0, 0), (32, 0), (33, 1), (129, 97), (4097, 4065), (1 << 20, 65_535 - 32)] {
            assert_eq!(count(seen(places), false, NOW), taken, "{places}");
        }
        let mut room = seen(129);
        assert!((0..97).all(|_| room.take(false, NOW)) && !room.take(false, NOW));
        room.note(SOCKET, false, 100, NOW);
        assert_eq!(count(room, false, NOW), 68, "by the last SYN");
    }

    #[test]
    fn what_a_syn_has_seen_is_good_for_milliseconds() {
        let after = |ms| count(seen(129), false, NOW + Nanos::from_millis(ms));
        assert_eq!([0, 3, 6, 5000].map(after), [97, 97, 0, 0]);
        assert_eq!(count(Room::default(), false, Nanos(1)), 0, "none was seen");
    }

    #[test]
    fn behind_several_listeners_somebody_looks() {
        let mut room = seen(129);
        room.note(SOCKET + 1, false, 129, NOW);
        assert_eq!(count(room, false, NOW), 0, "whose is it?");
        room.note(SOCKET + 1, false, 129, NOW);
        room.note(SOCKET + 1, false, 129, NOW + Nanos::from_millis(900));
        assert_eq!(count(room, false, NOW + Nanos::from_millis(900)), 0, "the other one may be there still");
        let later = NOW + Nanos::from_millis(1100);
        room.note(SOCKET + 1, false, 129, later);
        assert_eq!(count(room, false, later), 97);
        let later = later + Nanos::from_secs(2);
        room.note(SOCKET, false, 129, later);
        assert_eq!(count(room, false, later), 97, "a listener that was begun anew");
    }

    #[test]
    fn while_two_listeners_take_turns_somebody_looks() {
        let mut room = seen(129);
        for ms in 1..=3000 {
            let now = NOW + Nanos::from_millis(ms);
            room.note(SOCKET + ms % 2, false, 129, now);
            assert!(!room.take(false, now), "{ms}");
        }
    }

    #[test]
    fn at_tc_somebody_looks_for_the_guards_cookies() {
        let mut room = Room::default();
        room.note(SOCKET, true, 129, NOW);
        assert_eq!([true, false].map(|is_tc| count(room, is_tc, NOW)), [0, 97]);
        assert_eq!(count(seen(129), true, NOW), 97);
    }

    /// After 52 days.
    #[test]
    fn time_goes_round() {
        let round = Nanos(1 << 52);
        let mut room = Room::default();
        room.note(SOCKET, false, 129, Nanos(round.0 - 1));
        assert_eq!(count(room, false, round), 97);
        room.note(SOCKET, false, 129, round);
        assert_eq!(count(room, false, round), 97);
    }
}
