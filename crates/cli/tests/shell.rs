//! What a shell and man(1) need of us.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::TIDEGATE;

fn tidegate(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(TIDEGATE).args(arguments).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn bash_completes_commands_and_options_by_what_is_printed() {
    let (status, script, _) = tidegate(&["completions", "bash"]);
    assert_eq!(status, Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tidegate");
    fs::write(&file, script).expect("write");
    // As bash asks for the word that begins so, behind the ones before it.
    let complete = |before: &str, word: &str| {
        let asked = format!(
            ". {}; COMP_WORDS=({before} {word}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tidegate tidegate {word} ''; echo \"${{COMPREPLY[*]}}\"",
            file.display()
        );
        let output = Command::new("bash").args(["-c", &asked]).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Ok(commands) = complete("tidegate", "gu") else { return eprintln!("skipped: no bash here") };
    assert_eq!(commands, "guard");
    assert_eq!(complete("tidegate guard", "--pol").expect("bash is here"), "--policy");
}

#[test]
fn manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let (status, said, _) = tidegate(&["man", &folder.path().display().to_string()]);
    assert_eq!(status, Some(0));
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(page("tidegate.1").contains("tidegate\\-guard(1)"), "{}", page("tidegate.1"));
    assert!(page("tidegate-guard.1").contains("persistent\\-drop"));
    assert!(page("tidegate-lab-run.1").contains("tidegate lab run"), "{}", page("tidegate-lab-run.1"));
    let pages = fs::read_dir(folder.path()).expect("it is there").count();
    assert!(said.starts_with(&format!("{pages} pages in ")), "{said}");
    let file = folder.path().join("tidegate.1").display().to_string();
    let (status, _, error) = tidegate(&["man", &file]);
    assert!(status == Some(2) && error.contains("it is a file, and no folder"), "{error}");
    let (status, said, error) = tidegate(&["man", "/nosuch/folder"]);
    assert_eq!((status, said.as_str(), error.trim_end().lines().count()), (Some(2), "", 1), "{error}");
    assert!(error.contains("write /nosuch/folder/tidegate.1: "), "{error}");
}
