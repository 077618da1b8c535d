//! Holds the advice against what a guard then does, before random servers and crowds in virtual
//! time.

mod random;

use std::fmt;
use std::ops::Range;

use advise::{Advice, Answer};
use random::Case;
use verdict::Policy;

/// The guard helps if this share more of the users has an answer within a second.
const HELPS: f64 = 0.01;
/// A prediction is right within this share of the refusals, or this share of the clients.
const RIGHT: f64 = 0.2;
const OF_CLIENTS: f64 = 0.01;

/// The same servers for whoever changes the advice. `hundred_random_servers` has others.
#[test]
fn advice_is_what_the_guard_then_does() {
    let sum = judge(1000..1020);
    assert!(sum.right >= 19 && sum.predicted >= 18, "{sum}");
}

/// For `experiments/advise/RESULTS.md`: `FIRST` says which hundred.
#[test]
#[ignore = "long"]
fn hundred_random_servers() {
    let first = std::env::var("FIRST").map_or(0, |first| first.parse().expect("a number"));
    let sum = judge(first..first + 100);
    assert!(sum.right >= 95, "{sum}");
}

#[test]
fn too_few_clients_are_no_reason_to_say_yes_or_no() {
    let advice = Advice::new(&advise::Record::default(), Policy::UNSERVED);
    assert_eq!(advice.answer, Answer::NotYet);
    assert_eq!(advice.to_string(), "not yet: 0 clients came in 0 s, too few to tell");
}

/// How many of so many.
#[derive(Default)]
struct Sum {
    cases: u32,
    /// Yes or no was right.
    right: u32,
    /// The refusals were; of the crowds whose users do not reload, too.
    predicted: u32,
    patient: u32,
    patient_predicted: u32,
    /// Where one client in a hundred is refused, or more: the refusals were right, and those that a
    /// plain dry run counts.
    refusing: u32,
    refusing_predicted: u32,
    refusing_dry: u32,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, right, predicted, patient, patient_predicted, refusing, .. } = self;
        write!(
            f,
            "of {cases}: yes or no right in {right}, refusals in {predicted} ({patient_predicted} of {patient} \
             without reloads), of {refusing} with \
             refusals {}, and {} by a dry run",
            self.refusing_predicted, self.refusing_dry
        )
    }
}

fn judge(seeds: Range<u64>) -> Sum {
    let mut sum = Sum::default();
    for seed in seeds {
        let case = Case::random(seed);
        let (stock, guarded) = (case.run(false), case.run(true));
        let advice = Advice::new(&stock.record, Policy::UNSERVED);
        let refused = guarded.refused();
        let tolerance = (RIGHT * refused as f64).max(OF_CLIENTS * guarded.clients() as f64);
        let is_near = |predicted: u64| predicted.abs_diff(refused) as f64 <= tolerance;
        let helps = guarded.soon() > stock.soon() + HELPS;
        let is_right = advice.answer == if helps { Answer::Yes } else { Answer::No };
        let (is_predicted, is_patient) = (is_near(advice.with.refused), !case.reloads());
        sum.cases += 1;
        sum.right += u32::from(is_right);
        sum.predicted += u32::from(is_predicted);
        sum.patient += u32::from(is_patient);
        sum.patient_predicted += u32::from(is_patient && is_predicted);
        let is_refusing = refused as f64 > OF_CLIENTS * guarded.clients() as f64;
        sum.refusing += u32::from(is_refusing);
        sum.refusing_predicted += u32::from(is_refusing && is_predicted);
        sum.refusing_dry += u32::from(is_refusing && is_near(stock.counted_by_dry_run()));
        println!(
            "{seed}: {} {}; of {} clients {refused} refused, {} predicted, {} by a dry run; soon {:.3} without, \
             {:.3} with a guard\n    {advice}\n    {case:?}",
            if is_right { "right" } else { "WRONG" },
            if is_predicted { "near" } else { "FAR" },
            guarded.clients(),
            advice.with.refused,
            stock.counted_by_dry_run(),
            stock.soon(),
            guarded.soon()
        );
    }
    println!("{sum}");
    sum
}
