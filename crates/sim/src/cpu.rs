//! Whose turn it is on the server's one CPU: softirq before programs, and both in turns once the
//! softirq has had it for too long.
//!
//! Sources: Linux `kernel/softirq.c` (`handle_softirqs()`: two milliseconds, then ksoftirqd, which
//! is scheduled like a program; from 4.9 to 6.4 nothing else ran softirq while it waited, and both
//! had turns; since 6.5, commit d15121be7485, each program that leaves a lock runs what there is,
//! and softirq goes first again) and `net/core/dev.c`; receive livelock is Mogul and
//! Ramakrishnan, 1997. What it is not: no interrupts of its own, one CPU, and of caches only that a
//! program takes them from softirq.

use units::Nanos;

use crate::kernel::WorkPath;
use crate::profile::TurnToFrames;

/// What the CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Softirq,
    Program,
}

/// What it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A frame out of the ring.
    Frame,
    /// The program goes on with what it was about, which takes this much more.
    Resume(Nanos),
    /// The program's next step, if it has one.
    Step,
    /// Nothing waits.
    Idle,
}

/// One CPU.
#[derive(Debug)]
pub(crate) struct Cpu {
    doing: Doing,
    /// When what it does is done.
    done_at: Nanos,
    /// What the program's step still takes that was interrupted.
    left: Option<Nanos>,
    turn_to_frames: TurnToFrames,
    /// It has turned to them, and to nothing else since.
    is_at_frames: bool,
    /// What the caches hold since a program ran last.
    is_warm_for_connections: bool,
    is_warm_for_refusals: bool,
    /// Longest time in softirq, and turns.
    turns: Option<(Nanos, Nanos)>,
    /// When softirq began that has not ended since.
    softirq_since: Option<Nanos>,
    /// Both have turns, this one until then; ended when no frame waits.
    shared: Option<(Doing, Nanos)>,
    /// Time in softirq, and in programs.
    pub(crate) softirq: Nanos,
    pub(crate) program: Nanos,
    /// How often it turned to frames.
    pub(crate) turned: u64,
}

impl Cpu {
    pub(crate) fn new(turns: Option<(Nanos, Nanos)>, turn_to_frames: TurnToFrames) -> Self {
        Self {
            turn_to_frames,
            is_at_frames: false,
            is_warm_for_connections: false,
            is_warm_for_refusals: false,
            doing: Doing::Nothing,
            done_at: Nanos::ZERO,
            left: None,
            turns,
            softirq_since: None,
            shared: None,
            softirq: Nanos::ZERO,
            program: Nanos::ZERO,
            turned: 0,
        }
    }

    /// A frame has come. Whether the CPU is to look what is next: it was idle, or leaves the
    /// program for it.
    pub(crate) fn on_frame(&mut self, now: Nanos) -> bool {
        match self.doing {
            Doing::Nothing => true,
            Doing::Program if self.shared.is_none() => {
                let left = self.done_at.since(now);
                self.program = Nanos(self.program.0 - left.0);
                self.left = Some(left);
                self.doing = Doing::Nothing;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.doing == Doing::Nothing
    }

    /// What comes next, with `frames` in the ring.
    pub(crate) fn next(&mut self, has_frames: bool, has_steps: bool, now: Nanos) -> Next {
        let has_program = self.left.is_some() || has_steps;
        if !has_frames {
            self.softirq_since = None;
            self.shared = None;
            return self.program_or_idle(has_steps);
        }
        if !has_program {
            return Next::Frame;
        }
        if let Some((whose, until)) = self.shared {
            let (_, turn) = self.turns.expect("turns are taken only where there are some");
            let whose = match whose {
                whose if now < until => whose,
                Doing::Program => Doing::Softirq,
                _ => Doing::Program,
            };
            if now >= until {
                self.shared = Some((whose, now + turn));
            }
            return if whose == Doing::Program { self.program_or_idle(has_steps) } else { Next::Frame };
        }
        let since = *self.softirq_since.get_or_insert(now);
        match self.turns {
            Some((longest, turn)) if now.since(since) >= longest => {
                self.shared = Some((Doing::Program, now + turn));
                self.program_or_idle(has_steps)
            }
            _ => Next::Frame,
        }
    }

    fn program_or_idle(&mut self, has_steps: bool) -> Next {
        match self.left.take() {
            Some(left) => Next::Resume(left),
            None if has_steps => Next::Step,
            None => {
                self.is_at_frames = false;
                Next::Idle
            }
        }
    }

    /// Does a frame's work, and turns to it if it did something else before; `None` for a timer's.
    /// Gives when it is done.
    pub(crate) fn begin_frame(&mut self, path: Option<WorkPath>, cost: Nanos, now: Nanos) -> Nanos {
        let mut cost = cost;
        if !std::mem::replace(&mut self.is_at_frames, true) {
            cost += self.turn_to_frames.wake;
            self.turned += 1;
        }
        let (is_warm, cold) = match path {
            Some(WorkPath::Connections) => {
                (&mut self.is_warm_for_connections, self.turn_to_frames.cold_connection)
            }
            Some(WorkPath::Refusals) => (&mut self.is_warm_for_refusals, self.turn_to_frames.cold_refusal),
            None => (&mut true, Nanos::ZERO),
        };
        if !std::mem::replace(is_warm, true) {
            cost += cold;
        }
        self.softirq += cost;
        self.begin(Doing::Softirq, cost, now)
    }

    /// Does a step of the program. Gives when it is done.
    pub(crate) fn begin_step(&mut self, cost: Nanos, now: Nanos) -> Nanos {
        self.is_at_frames = false;
        (self.is_warm_for_connections, self.is_warm_for_refusals) = (false, false);
        self.program += cost;
        self.begin(Doing::Program, cost, now)
    }

    fn begin(&mut self, doing: Doing, cost: Nanos, now: Nanos) -> Nanos {
        self.doing = doing;
        self.done_at = now + cost;
        self.done_at
    }

    /// What was begun last is done. Whether that was a step.
    pub(crate) fn done(&mut self) -> bool {
        debug_assert!(!self.is_idle(), "something was begun");
        std::mem::replace(&mut self.doing, Doing::Nothing) == Doing::Program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNS: Option<(Nanos, Nanos)> = Some((Nanos(2000), Nanos(3000)));

    #[test]
    fn frame_interrupts_the_program_which_goes_on_after_it() {
        let mut cpu = Cpu::new(None, TurnToFrames::default());
        assert_eq!(cpu.next(false, true, Nanos(0)), Next::Step);
        assert_eq!(cpu.begin_step(Nanos(100), Nanos(0)), Nanos(100));
        assert!(cpu.on_frame(Nanos(30)));
        assert_eq!(cpu.next(true, false, Nanos(30)), Next::Frame);
        assert_eq!(cpu.begin_frame(None, Nanos(10), Nanos(30)), Nanos(40));
        assert!(!cpu.done());
        assert_eq!(cpu.next(false, false, Nanos(40)), Next::Resume(Nanos(70)));
        cpu.begin_step(Nanos(70), Nanos(40));
        assert_eq!((cpu.program, cpu.softirq), (Nanos(100), Nanos(10)));
    }

    #[test]
    fn cpu_turns_to_frames_once_for_all_that_come_before_it_has_none() {
        let mut cpu = Cpu::new(None, TurnToFrames { wake: Nanos(1000), ..TurnToFrames::default() });
        let frame = |cpu: &mut Cpu, now| {
            assert_eq!(cpu.next(true, false, Nanos(now)), Next::Frame);
            let done = cpu.begin_frame(None, Nanos(10), Nanos(now));
            assert!(!cpu.done());
            done.0 - now
        };
        assert_eq!((frame(&mut cpu, 0), frame(&mut cpu, 1010)), (1010, 10));
        assert_eq!(cpu.next(false, false, Nanos(1020)), Next::Idle);
        assert_eq!(frame(&mut cpu, 5000), 1010, "it had nothing to do meanwhile");
        assert_eq!(cpu.next(false, true, Nanos(6010)), Next::Step);
        cpu.begin_step(Nanos(100), Nanos(6010));
        assert!(cpu.on_frame(Nanos(6050)));
        assert_eq!(frame(&mut cpu, 6050), 1010, "it was at the program");
        assert_eq!((cpu.softirq, cpu.turned), (Nanos(3040), 3));
    }

    #[test]
    fn first_segment_of_a_kind_after_the_program_ran_finds_the_caches_cold() {
        let cold = TurnToFrames { wake: Nanos(1), cold_connection: Nanos(300), cold_refusal: Nanos(70) };
        let mut cpu = Cpu::new(None, cold);
        let frame = |cpu: &mut Cpu, path| {
            let before = cpu.softirq;
            cpu.begin_frame(Some(path), Nanos(10), Nanos(0));
            cpu.done();
            cpu.softirq.0 - before.0
        };
        let kinds = [WorkPath::Refusals, WorkPath::Connections, WorkPath::Refusals, WorkPath::Connections];
        assert_eq!(kinds.map(|path| frame(&mut cpu, path)), [81, 310, 10, 10]);
        assert_eq!(cpu.next(false, false, Nanos(0)), Next::Idle);
        assert_eq!(kinds.map(|path| frame(&mut cpu, path)), [11, 10, 10, 10], "nobody else had them");
        cpu.begin_step(Nanos(5), Nanos(0));
        cpu.done();
        assert_eq!(kinds.map(|path| frame(&mut cpu, path)), [81, 310, 10, 10]);
    }

    /// Frames without end, of 100 ns each, and a program that always has something to do: who had
    /// the CPU, in the end.
    fn share_of_program(turns: Option<(Nanos, Nanos)>) -> f64 {
        let mut cpu = Cpu::new(turns, TurnToFrames::default());
        let mut now = Nanos(0);
        while now < Nanos(1_000_000) {
            let done = match cpu.next(true, true, now) {
                Next::Frame => cpu.begin_frame(None, Nanos(100), now),
                Next::Step => cpu.begin_step(Nanos(100), now),
                other => panic!("{other:?}"),
            };
            cpu.done();
            now = done;
        }
        cpu.program.0 as f64 / now.0 as f64
    }

    #[test]
    fn program_starves_under_frames_without_end_unless_both_have_turns() {
        assert_eq!(share_of_program(None), 0.0);
        let share = share_of_program(TURNS);
        assert!((0.45..0.55).contains(&share), "{share}");
    }
}
