//! What is measured again when the machine disturbed it.

use anyhow::Result;

/// What counts of something that was measured once or more.
#[derive(Debug)]
pub(crate) struct Undisturbed<T> {
    /// The last.
    pub measured: T,
    /// How many there were before it.
    pub times_set_aside: u32,
    /// Why it was not measured once more, although the machine disturbed it.
    pub failed: Option<anyhow::Error>,
}

/// Measures until the machine did not disturb it, and at most so many times more. What is set aside
/// is chosen by what the machine did, and never by what came of it; it is so only once there is
/// another.
pub(crate) fn undisturbed<T>(
    again: u32,
    mut measure: impl FnMut() -> Result<(T, bool)>,
    mut set_aside: impl FnMut(T) -> Result<()>,
) -> Result<Undisturbed<T>> {
    let (mut measured, mut is_disturbed) = measure()?;
    let (mut times_set_aside, mut failed) = (0, None);
    while is_disturbed && times_set_aside < again {
        match measure() {
            Ok(next) => {
                set_aside(std::mem::replace(&mut measured, next.0)).map(|()| is_disturbed = next.1)?
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        times_set_aside += 1;
    }
    Ok(Undisturbed { measured, times_set_aside, failed })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, bail};

    use super::*;

    /// A machine that disturbs as is said, and then cannot be measured on: what counts, what was
    /// set aside, and whether an error is told.
    fn run(again: u32, disturbed: &[bool]) -> (usize, Vec<usize>, bool) {
        let (mut times, mut aside) = (0, Vec::new());
        let measure = || {
            times += 1;
            disturbed.get(times - 1).map(|is_disturbed| (times, *is_disturbed)).context("stopped")
        };
        let set_aside = |time| {
            aside.push(time);
            Ok(())
        };
        let Undisturbed { measured, times_set_aside, failed } =
            undisturbed(again, measure, set_aside).expect("measured once");
        assert_eq!(times_set_aside as usize, aside.len());
        (measured, aside, failed.is_some())
    }

    #[test]
    fn what_the_machine_disturbed_is_set_aside_and_measured_again_but_not_for_ever() {
        assert_eq!(run(2, &[false, true, true]), (1, vec![], false));
        assert_eq!(run(2, &[true, false, true]), (2, vec![1], false));
        assert_eq!(run(2, &[true, true, true]), (3, vec![1, 2], false), "the last counts, with its marks");
        assert_eq!(run(0, &[true, true, true]), (1, vec![], false));
    }

    #[test]
    fn what_was_measured_counts_although_it_cannot_be_measured_again() {
        assert_eq!(run(2, &[true]), (1, vec![], true));
        assert_eq!(run(2, &[true, true]), (2, vec![1], true));
        undisturbed(2, || bail!("stopped"), |()| Ok(())).expect_err("there is nothing");
    }
}
