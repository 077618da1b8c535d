//! What the answers come to for whoever wants to guard a port.

use bpf::Capability;

use crate::probe::name;
use crate::{Answer, Diagnosis, Verification};

/// Without these, nothing can be said.
const NEEDED: [Capability; 3] = [Capability::NetAdmin, Capability::Bpf, Capability::Perfmon];
/// The guard's own programs.
const GUARD: &str = "admit.bpf.c";
/// Of these, those without which it works, but not all of it.
const OPTIONAL_PROGRAMS: [&str; 1] = ["admit_request"];
/// Probes without which it works, but not all of it.
const OPTIONAL: [&str; 8] = [
    name::TCX,
    name::RAW_COOKIE,
    name::ASSIGN_REQUEST,
    name::LSM,
    name::CGROUP2,
    name::SOCKETS,
    name::SOCKOPT,
    name::FENTRY,
];

/// What `tidegate uplink` and `tidegate qdisc` come to, one line.
pub fn orders(diagnosis: &Diagnosis) -> String {
    let say = |command: &str, name: &str| match answer(diagnosis, name) {
        Some(Answer::Yes) => format!("{command} works here"),
        Some(Answer::No(_)) => format!("{command} does not"),
        Some(Answer::Unknown(_)) | None => format!("whether {command} does was not tried"),
    };
    format!("{}; {}.", say("tidegate uplink", name::UPLINK), say("tidegate qdisc", name::QDISC))
}

/// Whether the guard works here, on the first line, and what of it does not or could not be tried,
/// one line each.
pub fn verdict(diagnosis: &Diagnosis) -> String {
    let is_lacking = |name: &str| diagnosis.privileges.iter().any(|one| one.name == name && !one.is_held);
    let lacking: Vec<&str> =
        NEEDED.map(Capability::name).into_iter().filter(|name| is_lacking(name)).collect();
    if !lacking.is_empty() {
        return format!("Whether the guard works here takes {} to find out.", lacking.join(", "));
    }
    if let Some(program) = refused(diagnosis) {
        return format!("The guard does not work here: this kernel refuses its program {program}.");
    }
    // A hook that could not be tried for want of a namespace may be there.
    let is_out = |name: &str| matches!(answer(diagnosis, name), Some(Answer::No(_)) | None);
    let no_tcx = is_out(name::TCX) || is_out(name::LOOKUP_TC);
    let no_xdp = is_out(name::XDP_GENERIC) || is_out(name::LOOKUP_XDP);
    if is_out(name::BTF) || (no_tcx && no_xdp) {
        return "The guard does not work here: it needs BTF, and tcx or XDP with a listener lookup."
            .to_owned();
    }
    let of = |is_one: fn(&Answer) -> bool| -> String {
        let probes = diagnosis.probes.iter().filter(|probe| OPTIONAL.contains(&probe.name.as_str()));
        probes.filter(|probe| is_one(&probe.answer)).map(|probe| format!("\n  {}", probe.enables)).collect()
    };
    let out = of(|answer| matches!(answer, Answer::No(_)));
    let unknown = of(|answer| matches!(answer, Answer::Unknown(_)));
    let head = match (out.is_empty(), unknown.is_empty()) {
        (true, true) => return "The guard works here, with all it can do.".to_owned(),
        (true, false) => "The guard works here.".to_owned(),
        (false, _) => format!("The guard works here. What does not:{out}"),
    };
    if unknown.is_empty() { head } else { format!("{head}\nNot tried, for want of privileges:{unknown}") }
}

fn answer<'a>(diagnosis: &'a Diagnosis, name: &str) -> Option<&'a Answer> {
    diagnosis.probes.iter().find(|probe| probe.name == name).map(|probe| &probe.answer)
}

/// A program of the guard's that it cannot do without.
fn refused(diagnosis: &Diagnosis) -> Option<&str> {
    let mut needed = diagnosis
        .programs
        .iter()
        .filter(|program| program.source == GUARD && !OPTIONAL_PROGRAMS.contains(&program.name.as_str()));
    let refused = needed.find(|program| matches!(program.verification, Verification::Refused(_)));
    refused.map(|program| program.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Privilege, Probe, Program};

    fn of(is_held: bool, answers: &[(&str, Answer)], programs: Vec<Program>) -> String {
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
            programs,
        })
    }

    #[test]
    fn verdict_says_what_is_lacking_what_is_needed_and_what_is_not_known() {
        assert_eq!(of(false, &[], Vec::new()), "Whether the guard works here takes CAP_BPF to find out.");
        let (no, unknown) = (Answer::No("why".to_owned()), Answer::Unknown("why".to_owned()));
        let with = |tcx: &Answer, xdp: &Answer| {
            let answers = [
                (name::BTF, Answer::Yes),
                (name::LOOKUP_TC, Answer::Yes),
                (name::LOOKUP_XDP, Answer::Yes),
                (name::XDP_GENERIC, xdp.clone()),
                (name::TCX, tcx.clone()),
            ];
            of(true, &answers, Vec::new())
        };
        assert_eq!(with(&Answer::Yes, &Answer::Yes), "The guard works here, with all it can do.");
        assert_eq!(with(&no, &Answer::Yes), "The guard works here. What does not:\n  something");
        let untried = with(&unknown, &unknown);
        assert_eq!(untried, "The guard works here.\nNot tried, for want of privileges:\n  something");
        assert!(with(&no, &no).starts_with("The guard does not work here: it needs"));
    }

    #[test]
    fn refused_program_speaks_for_itself_unless_it_can_be_done_without() {
        let program = |name: &str| Program {
            source: GUARD,
            name: name.to_owned(),
            verification: Verification::Refused("why".to_owned()),
        };
        assert!(of(true, &[], vec![program("admit_tc")]).contains("refuses its program admit_tc"));
        assert!(!of(true, &[], vec![program("admit_request")]).contains("refuses"));
    }
}
