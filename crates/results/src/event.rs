//! The lines of a crowd.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CrowdSummary;

/// A line of `tidegate load --json`, told apart by its `event` key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LoadEvent {
    /// All is set up; the first attempt starts now.
    Started,
    /// Once a second.
    Progress(LoadProgress),
    /// The last line: of the measured window.
    Summary(Box<CrowdSummary>),
}

/// What happened since the line before. Rates are of events, whenever their attempts began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadProgress {
    /// Since the start, with the warm-up; seconds.
    pub elapsed_s: f64,
    /// Attempts whose time to start came.
    pub offered_per_s: f64,
    /// Complete replies.
    pub replies_per_s: f64,
    /// Those whose status is not 2xx. Older versions do not say.
    #[serde(default)]
    pub non_2xx_per_s: f64,
    /// Attempts that a RST to their SYN ended.
    pub refused_per_s: f64,
    /// Attempts that a later RST ended.
    pub reset_per_s: f64,
    /// Attempts whose application or stack gave up.
    pub timed_out_per_s: f64,
    /// Attempts that failed otherwise.
    pub failed_per_s: f64,
    /// SYNs sent, with retransmissions.
    pub syns_per_s: f64,
    /// Of the replies; 0 when there is none.
    pub mean_response_ms: f64,
    /// See `mean_response_ms`.
    pub p99_response_ms: f64,
    /// Connections that are open now.
    pub live: u64,
}
