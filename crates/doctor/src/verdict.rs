//! What the answers come to for whoever wants to guard a port.

use bpf::Capability;

use crate::{Answer, Diagnosis};

/// Without these, nothing can be said.
const NEEDED: [Capability; 3] = [Capability::NetAdmin, Capability::Bpf, Capability::Perfmon];

/// Probes without which the guard works, but not all of it.
const OPTIONAL: [&str; 6] = [
    "tcx",
    "SYN cookie without a listener",
    "request socket from a cookie",
    "BPF LSM",
    "cgroup sockopt hook",
    "fentry",
];

/// Whether the guard works here, on the first line, and what of it does not, one line each.
pub fn verdict(diagnosis: &Diagnosis) -> String {
    let answer =
        |name: &str| diagnosis.probes.iter().find(|probe| probe.name == name).map(|probe| &probe.answer);
    let has = |name: &str| answer(name) == Some(&Answer::Yes);
    let at_tcx = has("tcx") && has("listener lookup at tc");
    let in_xdp = has("generic XDP") && has("listener lookup in XDP");
    let is_lacking = |name: &str| diagnosis.privileges.iter().any(|one| one.name == name && !one.is_held);
    let lacking: Vec<&str> =
        NEEDED.map(Capability::name).into_iter().filter(|name| is_lacking(name)).collect();
    if !lacking.is_empty() {
        return format!("Whether the guard works here takes {} to find out.", lacking.join(", "));
    }
    if !has("BTF") || !(at_tcx || in_xdp) {
        return "The guard does not work here: it needs BTF, and tcx or XDP with a listener lookup."
            .to_owned();
    }
    let lacking = diagnosis
        .probes
        .iter()
        .filter(|probe| OPTIONAL.contains(&probe.name.as_str()) && matches!(probe.answer, Answer::No(_)));
    let lacking: Vec<String> = lacking.map(|probe| format!("\n  {}", probe.enables)).collect();
    match &lacking[..] {
        [] => "The guard works here, with all it can do.".to_owned(),
        lacking => format!("The guard works here. What does not:{}", lacking.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Privilege, Probe};

    fn of(is_held: bool, answers: &[(&str, Answer)]) -> String {
        let probe = |(name, answer): &(&str, Answer)| Probe {
            name: (*name).to_owned(),
            answer: answer.clone(),
            enables: "something",
        };
        verdict(&Diagnosis {
            kernel: String::new(),
            privileges: vec![Privilege { name: Capability::Bpf.name(), is_held, enables: "all" }],
            probes: answers.iter().map(probe).collect(),
            sysctls: Vec::new(),
            programs: Vec::new(),
        })
    }

    #[test]
    fn verdict_says_what_is_lacking_and_what_is_needed() {
        assert_eq!(of(false, &[]), "Whether the guard works here takes CAP_BPF to find out.");
        let no = Answer::No("why".to_owned());
        let mut answers = vec![
            ("BTF", Answer::Yes),
            ("listener lookup in XDP", Answer::Yes),
            ("generic XDP", Answer::Yes),
            ("tcx", Answer::Yes),
        ];
        assert_eq!(of(true, &answers), "The guard works here, with all it can do.");
        answers[3].1 = no.clone();
        assert_eq!(of(true, &answers), "The guard works here. What does not:\n  something");
        answers[2].1 = no;
        assert!(of(true, &answers).starts_with("The guard does not work here"));
    }
}
