//! Every program of `kernel/`, loaded alone.

use std::os::fd::AsFd;
use std::sync::Mutex;

use libbpf_rs::{ObjectBuilder, PrintLevel, set_print};
use serde::Serialize;

use crate::privilege;

/// Sources of `kernel/` and what they were compiled to.
static OBJECTS: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// A program and what the kernel says to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// File in `kernel/`.
    pub source: &'static str,
    /// Name.
    pub name: String,
    /// What became of it.
    #[serde(flatten)]
    pub verification: Verification,
}

/// What the verifier said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// Accepted after so many instructions, on all paths together; a measure of how far the program
    /// is from the limit (a million) and of what loading it costs. 0 on kernels before 5.16.
    VerifiedInstructions(u32),
    /// Refused, and why.
    Refused(String),
    /// Not tried, and why.
    Unknown(String),
}

pub(crate) fn all() -> Vec<Program> {
    OBJECTS.iter().flat_map(|&(source, object)| of_object(source, object)).collect()
}

fn of_object(source: &'static str, object: &[u8]) -> Vec<Program> {
    let names: Vec<String> = match ObjectBuilder::default().open_memory(object) {
        Ok(open) => open.progs().map(|program| program.name().to_string_lossy().into_owned()).collect(),
        Err(error) => {
            let verification = Verification::Refused(error.to_string());
            return vec![Program { source, name: "(all)".to_owned(), verification }];
        }
    };
    let verify = |name: String| Program { source, verification: verify(object, &name), name };
    names.into_iter().map(verify).collect()
}

/// Alone, so that one that this kernel refuses does not hide the others. Constants are what they
/// are in the source. Programs of one `struct Qdisc_ops` come all together, as libbpf has it:
/// refused is then each for what is wrong with any.
fn verify(object: &[u8], name: &str) -> Verification {
    if let Err(why) = privilege::to_load() {
        return Verification::Unknown(why);
    }
    let (result, said) = listening(|| count(object, name));
    result.map_or_else(
        |error| Verification::Refused(complaint(&said).map_or_else(|| error.to_string(), str::to_owned)),
        Verification::VerifiedInstructions,
    )
}

fn count(object: &[u8], name: &str) -> libbpf_rs::Result<u32> {
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut program in open.progs_mut() {
        let is_wanted = program.name() == name;
        program.set_autoload(is_wanted);
    }
    let loaded = open.load()?;
    let program = loaded.progs().find(|program| program.name() == name).expect("it was there when opened");
    Ok(bpf::verified_instructions(program.as_fd())?)
}

/// What `act` gives, and what libbpf would have printed meanwhile, the verifier's log among it.
fn listening<T>(act: impl FnOnce() -> T) -> (T, String) {
    static SAID: Mutex<String> = Mutex::new(String::new());
    // libbpf has one printer for the whole process, so one at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().expect("nobody panics in its turn");
    let before = set_print(Some((PrintLevel::Warn, |_, text| {
        SAID.lock().expect("nobody panics while printing").push_str(&text);
    })));
    let result = act();
    set_print(before);
    (result, std::mem::take(&mut *SAID.lock().expect("nobody panics while printing")))
}

/// The verifier's last word before its sums, which is why it refused; `None` if it was not asked.
fn complaint(said: &str) -> Option<&str> {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("processed ")).collect();
    let has_log = said.contains("\nprocessed ");
    lines.last().copied().filter(|_| has_log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaint_is_the_last_line_before_the_verifiers_sums() {
        let said =
            "libbpf: -- BEGIN PROG LOAD LOG --\n0: (b7) r0 = 1\nR2 !read_ok\nprocessed 3 insns\n-- END --\n";
        assert_eq!(complaint(said), Some("R2 !read_ok"));
        assert_eq!(complaint("libbpf: no such thing\n"), None);
    }
}
