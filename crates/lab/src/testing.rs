//! What tests share.

use std::path::Path;

use experiment::Experiment;

/// A server behind an uplink, with these lines more of both.
pub(crate) fn experiment(of_uplink: &str, of_server: &str) -> Experiment {
    let file = format!(
        r#"
        name = "uplink"
        title = "?"
        [crowd]
        timeout = "10s"
        close = "fin"
        arrivals = "poisson"
        workload = "world-cup"
        demand = "W1"
        [uplink]
        rate = "10mbit"
        {of_uplink}
        [grid]
        loads = [1.0]
        warmup = "0s"
        duration = "1m"
        [[server]]
        name = "apache"
        kind = "apache"
        backlog = 7
        {of_server}
        [[policy]]
        name = "one"
        "#
    );
    Experiment::parse(Path::new("uplink.toml"), file).expect("an experiment")
}
