//! Who keeps TIME_WAIT: a table of cases for `kernel/close.h`.

#[cfg(test)]
mod tests {
    use crate::{
        CloseAction, CloseSegment, CloseSocket, Hold, LastAck, on_ack_arriving, on_fin_arriving,
        on_held_fin_leaving, on_last_ack_leaving, on_last_fin_leaving,
    };

    const FIN: u32 = 1;
    const SYN: u32 = 2;
    const RST: u32 = 4;
    const ACK: u32 = 0x10;
    const ESTABLISHED: u32 = 1;
    const FIN_WAIT1: u32 = 4;
    const CLOSE_WAIT: u32 = 8;
    const LAST_ACK: u32 = 9;
    const SWAP: u32 = 1;
    const HOLD: u32 = 2;

    fn segment(seq: u32, ack: u32, payload: u32, flags: u32) -> CloseSegment {
        CloseSegment { seq, ack, payload, flags }
    }

    /// All that came up to 1000 is there, and read up to `copied_seq`; all up to 500 was
    /// acknowledged.
    fn socket(state: u32, copied_seq: u32) -> CloseSocket {
        CloseSocket { state, rcv_nxt: 1000, copied_seq }
    }

    fn held() -> Hold {
        Hold { fin: 1000, stage: 1 }
    }

    #[test]
    fn fin_is_held_once_and_only_if_there_is_something_to_read() {
        let cases = [
            ("unread data", socket(ESTABLISHED, 900), segment(1000, 500, 0, FIN | ACK), CloseAction::Hold),
            ("data with it", socket(ESTABLISHED, 1000), segment(1000, 500, 9, FIN | ACK), CloseAction::Hold),
            (
                "data on its way",
                socket(ESTABLISHED, 1000),
                segment(1500, 500, 0, FIN | ACK),
                CloseAction::Hold,
            ),
            ("idle", socket(ESTABLISHED, 1000), segment(1000, 500, 0, FIN | ACK), CloseAction::Pass),
            ("no FIN", socket(ESTABLISHED, 900), segment(1000, 500, 9, ACK), CloseAction::Pass),
            ("a RST", socket(ESTABLISHED, 900), segment(1000, 500, 0, FIN | RST), CloseAction::Pass),
            ("a SYN", socket(ESTABLISHED, 900), segment(1000, 500, 0, FIN | SYN), CloseAction::Pass),
            ("closed first", socket(FIN_WAIT1, 900), segment(1000, 500, 0, FIN | ACK), CloseAction::Pass),
            ("seen already", socket(CLOSE_WAIT, 900), segment(1000, 500, 0, FIN | ACK), CloseAction::Pass),
        ];
        for (what, socket, segment, wanted) in cases {
            let mut hold = Hold::default();
            assert_eq!(on_fin_arriving(&socket, &segment, &mut hold), wanted, "{what}");
            assert_eq!(hold.stage, u32::from(wanted == CloseAction::Hold), "{what}");
        }
        let mut hold = Hold::default();
        let fin = segment(990, 500, 10, FIN | ACK);
        let answers: Vec<_> =
            (0..3).map(|_| on_fin_arriving(&socket(ESTABLISHED, 900), &fin, &mut hold)).collect();
        assert_eq!(answers, [CloseAction::Hold, CloseAction::GiveUp, CloseAction::Pass]);
        assert_eq!(hold.fin, 1000, "behind its data");
        let mut late = Hold { stage: 3, ..hold };
        assert_eq!(on_fin_arriving(&socket(FIN_WAIT1, 900), &fin, &mut late), CloseAction::Pass);
        assert_eq!(late.stage, 2, "the server has repeated it");
    }

    #[test]
    fn held_fin_comes_in_with_ours_only_if_all_before_it_is_here() {
        let fin = segment(500, 1000, 0, FIN | ACK);
        let good = socket(FIN_WAIT1, 900);
        let cases = [
            ("all is there", good, fin, held(), CloseAction::Release),
            ("none is held", good, fin, Hold::default(), CloseAction::Pass),
            ("it is over", good, fin, Hold { stage: 2, ..held() }, CloseAction::Pass),
            ("our data is with it", good, segment(500, 1000, 9, FIN | ACK), held(), CloseAction::Pass),
            ("theirs is not", CloseSocket { rcv_nxt: 990, ..good }, fin, held(), CloseAction::Pass),
            ("not said to them", good, segment(500, 990, 0, FIN | ACK), held(), CloseAction::Pass),
            ("another state", socket(LAST_ACK, 900), fin, held(), CloseAction::Pass),
        ];
        for (what, socket, segment, mut hold, wanted) in cases {
            let mut last = LastAck::default();
            assert_eq!(on_held_fin_leaving(&socket, &segment, &mut hold, &mut last), wanted, "{what}");
            assert_ne!(hold.stage, 1, "{what}: the next FIN passes");
            let noted = LastAck { seq: 501, ack: 1001, way: HOLD, ..LastAck::default() };
            let is_noted = wanted == CloseAction::Release;
            assert_eq!(last, if is_noted { noted } else { LastAck::default() }, "{what}");
        }
    }

    #[test]
    fn server_whose_fin_was_held_is_freed_once_it_has_ours() {
        let mut last = LastAck { seq: 501, ack: 1001, way: HOLD, ..LastAck::default() };
        for (what, segment) in [
            ("data", segment(501, 1001, 9, ACK)),
            ("another number", segment(500, 1001, 0, ACK)),
            ("another ack", segment(501, 1000, 0, ACK)),
            ("a FIN", segment(501, 1001, 0, FIN | ACK)),
            ("a SYN", segment(501, 1001, 0, SYN)),
        ] {
            assert_eq!(on_last_ack_leaving(&segment, &mut last), CloseAction::Pass, "{what}");
        }
        let ours = segment(501, 1001, 0, ACK);
        assert_eq!(on_last_ack_leaving(&ours, &mut last), CloseAction::Drop, "of the FIN that came in by us");
        assert_eq!(on_last_ack_leaving(&ours, &mut last), CloseAction::Pass, "our FIN was lost, it may be");
        assert_eq!(on_ack_arriving(&segment(1001, 501, 0, ACK), &last), CloseAction::Answer);
        last.resets = 1;
        assert_eq!(on_ack_arriving(&segment(1001, 501, 0, ACK), &last), CloseAction::Pass, "the clone");
        assert_eq!(on_last_ack_leaving(&ours, &mut last), CloseAction::Reset, "the RST was lost");
        let mut of_swap = LastAck { way: SWAP, ..last };
        assert_eq!(on_last_ack_leaving(&ours, &mut of_swap), CloseAction::Pass);
    }

    #[test]
    fn swap_answers_exactly_the_last_ack_and_once() {
        let mut last = LastAck::default();
        let fin = segment(500, 1000, 20, FIN | ACK);
        for state in [ESTABLISHED, FIN_WAIT1, CLOSE_WAIT] {
            assert_eq!(on_last_fin_leaving(&socket(state, 900), &fin, &mut last), CloseAction::Pass);
        }
        assert_eq!(on_last_fin_leaving(&socket(LAST_ACK, 900), &fin, &mut last), CloseAction::Note);
        assert_eq!(last, LastAck { seq: 521, ack: 1000, way: SWAP, ..LastAck::default() });
        for (what, segment, wanted) in [
            ("of all", segment(1000, 521, 0, ACK), CloseAction::Answer),
            ("not of the FIN", segment(1000, 520, 0, ACK), CloseAction::Pass),
            ("the FIN again", segment(999, 500, 0, FIN | ACK), CloseAction::Pass),
            ("a RST", segment(1000, 521, 0, RST | ACK), CloseAction::Pass),
            ("data", segment(1000, 521, 1, ACK), CloseAction::Pass),
            ("an old one", segment(999, 521, 0, ACK), CloseAction::Pass),
        ] {
            assert_eq!(on_ack_arriving(&segment, &last), wanted, "{what}");
        }
        last.resets = 1;
        assert_eq!(on_ack_arriving(&segment(1000, 521, 0, ACK), &last), CloseAction::Pass, "the clone");
    }

    #[test]
    fn numbers_may_wrap() {
        let at = u32::MAX;
        let (mut hold, mut last) = (Hold::default(), LastAck::default());
        let socket = CloseSocket { state: ESTABLISHED, rcv_nxt: at, copied_seq: at - 9 };
        let fin = segment(at, at, 1, FIN | ACK);
        assert_eq!(on_fin_arriving(&socket, &fin, &mut hold), CloseAction::Hold);
        let ours = CloseSocket { state: FIN_WAIT1, rcv_nxt: 0, copied_seq: 0 };
        let leaving = segment(at, 0, 0, FIN | ACK);
        assert_eq!(on_held_fin_leaving(&ours, &leaving, &mut hold, &mut last), CloseAction::Release);
        assert_eq!((last.seq, last.ack), (0, 1));
    }
}
