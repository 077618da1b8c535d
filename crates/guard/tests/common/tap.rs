//! A packet socket for tests: what cannot be had fails them.

use std::time::{Duration, Instant};

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub struct Tap(pub netns::Tap);

impl Tap {
    pub fn send(&self, frame: &[u8]) {
        self.0.send(frame).expect("send");
    }

    /// The next frame for which `wanted` holds; panics when none comes.
    pub fn receive(&self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(frame) = self.next()
                && wanted(&frame)
            {
                return frame;
            }
        }
        panic!("no answer: {what}");
    }

    /// The next frame that came in, or `None` after 20 ms.
    pub fn next(&self) -> Option<Vec<u8>> {
        self.0.receive(POLL).expect("receive").map(|frame| frame.bytes)
    }
}
