//! What a shell and man(1) need of us.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::TIDEGATE;

fn tidegate(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(TIDEGATE).args(arguments).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Values that a shell's script offers for the last word.
fn completed(shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = Command::new(TIDEGATE);
    command.env("TIDEGATE_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    command.env("_CLAP_IFS", "\n").arg("--").args(words);
    let output = command.output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values_by_what_is_printed() {
    let (status, script, _) = tidegate(&["completions", "bash"]);
    assert_eq!(status, Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tidegate");
    fs::write(&file, script).expect("write");
    // As bash asks for the last word.
    let complete = |line: &str| {
        let programs = Path::new(TIDEGATE).parent().expect("it is in a folder").display();
        let asked = format!(
            "PATH={programs}:$PATH; . {}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _clap_complete_tidegate tidegate \"${{COMP_WORDS[COMP_CWORD]}}\" ''; echo \"${{COMPREPLY[*]}}\"",
            file.display()
        );
        let output = Command::new("bash").args(["-c", &asked]).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if complete("tidegate").is_err() {
        return eprintln!("skipped: no bash here");
    }
    for (line, completed) in [
        ("tidegate gu", "guard"),
        ("tidegate guard --pol", "--policy"),
        ("tidegate guard --policy ab", "abort"),
        ("tidegate guard --policy abort+rst-s", "abort+rst-syn"),
        ("tidegate policies abort+rst-syn+so", "abort+rst-syn+sojourn:"),
        ("tidegate guard --attach tc", "tcx"),
        ("tidegate guard --netns hos", "host"),
        ("tidegate guard --interface l", "lo"),
        ("tidegate load --stacks linux:0.5,win-", "linux:0.5,win-emu"),
        ("tidegate load --workload one", "one-packet"),
        ("tidegate sim --profile xe", "xeon-2005"),
        ("tidegate help gu", "guard"),
        ("tidegate completions fi", "fish"),
    ] {
        assert_eq!(complete(line).expect("bash is here"), completed, "{line}");
    }
}

#[test]
fn namespaces_are_completed_that_are_there_now() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let words = ["tidegate", "guard", "--netns", "tg-shell"];
    assert!(completed("bash", &words).is_empty());
    let namespace = netns::Namespace::create("shell").expect("create");
    assert_eq!(completed("bash", &words), [namespace.name()]);
}

#[test]
fn every_shell_gets_a_script_that_it_can_read_and_an_explanation_of_values() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (status, script, _) = tidegate(&["completions", shell]);
        assert!(status == Some(0) && script.contains("TIDEGATE_COMPLETE"), "{shell}: {script}");
        // No path of the machine that made it.
        assert!(!script.contains(TIDEGATE), "{shell}: {script}");
        let file = folder.path().join(shell);
        fs::write(&file, script).expect("write");
        let reads = ["bash", "fish", "zsh"].contains(&shell);
        match Command::new(shell).arg("-n").arg(&file).output() {
            Ok(output) if reads => assert!(output.status.success(), "{shell}: {output:?}"),
            _ => eprintln!("{shell} is not here to read its script"),
        }
    }
    assert_eq!(
        completed("fish", &["tidegate", "guard", "--policy", "ab"]),
        ["abort\tIt is answered with RST, where the kernel would be silent."]
    );
}

#[test]
fn help_and_version_are_commands_that_do_as_the_options() {
    for (command, option) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "guard"], &["guard", "--help"]),
        (&["help", "lab", "run"], &["lab", "run", "--help"]),
        (&["help", "help"], &["help", "--help"]),
        (&["version"], &["--version"]),
    ] {
        let said = tidegate(command);
        assert_eq!(said, tidegate(option), "{command:?}");
        assert!(said.0 == Some(0) && !said.1.is_empty() && said.2.is_empty(), "{command:?}: {said:?}");
    }
    let (status, said, error) = tidegate(&["help", "gaurd"]);
    assert_eq!((status, said.as_str(), error.trim_end().lines().count()), (Some(2), "", 1), "{error}");
    assert!(error.contains("'gaurd'") && error.contains("'guard'"), "{error}");
    let (status, said, error) = tidegate(&["policies", "abrot"]);
    assert_eq!((status, said.as_str()), (Some(2), ""));
    assert_eq!(
        error,
        "tidegate: \"abrot\" is no mechanism; did you mean abort? tidegate policies lists them\n"
    );
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
