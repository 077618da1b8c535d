//! What a run says of the claims of its experiment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A claim, the paper's number, ours, and whether it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimAnswer {
    /// Name of the experiment, as in its file.
    pub experiment: String,
    /// Name of the server.
    pub server: String,
    /// Where the claim stands, as `[Shu05] figure 4.7(a)`.
    pub source: String,
    /// The claim, in a sentence.
    pub text: String,
    /// What was computed, as `goodput of abort over stock at 1.25x, 1.8x`.
    pub measured: String,
    /// Of all numbers below.
    pub unit: Unit,
    /// The paper's number, where it prints one.
    pub paper: Option<f64>,
    /// The claim holds from here on.
    pub at_least: Option<f64>,
    /// The claim holds up to here.
    pub at_most: Option<f64>,
    /// Ours; `None` when something it needs was not measured.
    pub ours: Option<Estimate>,
    /// Whether it holds.
    pub answer: Answer,
    /// Why the answer should be read with care, or why there is none; empty when there is no
    /// reason.
    #[serde(default)]
    pub marks: Vec<String>,
    /// Why the claim does not hold, where somebody has looked into it.
    #[serde(default)]
    pub why: Option<String>,
}

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// One number over another of its kind.
    Ratio,
    /// A part of a whole, 0 to 1.
    Share,
    /// Per second.
    PerSecond,
    /// Milliseconds.
    Milliseconds,
    /// For each attempt.
    PerAttempt,
    /// How many.
    Count,
}

/// A number that was measured a few times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Arithmetic mean of the repetitions; geometric of ratios.
    pub mean: f64,
    /// Lower end of the 95% confidence interval; the mean itself when there is one repetition.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Repetitions.
    pub count: usize,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The whole interval is within the bounds.
    Holds,
    /// None of it is.
    Fails,
    /// A part of it is: more repetitions might tell.
    Undecided,
    /// Something that it needs was not measured.
    NotMeasured,
}
