//! Where tests run: on this kernel, or on one that is booted for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::build::Built;

/// A kernel to run tests on.
pub struct Machine {
    name: String,
    /// The unpacked kernel to boot; `None` is the one that runs.
    kernel: Option<PathBuf>,
}

/// What came back.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The kernel's release.
    pub kernel: String,
    /// Whether it is a kernel of Debian, whose configuration is known.
    pub is_booted: bool,
    /// Of each test program its name, exit status and output; without a status it never ended.
    pub tests: Vec<(String, Option<i32>, String)>,
    /// Doctor's probes and their answers.
    pub probes: Vec<(String, String)>,
    /// Our programs, each with its file, and how much of them the verifier looked at, or why it
    /// refused.
    pub programs: Vec<(String, Result<u32, String>)>,
    /// How long it took.
    pub took: Duration,
}

/// Runs in the guest and on the host: OUT TIDEGATE, and on standard input a name and a program in
/// each line.
const SCRIPT: &str = r#"out=$1
"$2" doctor --json >"$out/doctor.json" 2>"$out/doctor.log"
run() { timeout 7200 "$program" "$@" --show-output >>"$tested" 2>&1 </dev/null || status=$?; }
while read -r name program; do
	tested="$out/$name.log" status=0 skipped=
	# The lab measures, on two CPUs of its own.
	case $name in cli-tests) skipped='--skip lab:: --skip dumbbell::' ;; esac
	# Apache and HAProxy do not begin to listen in the guest, for whatever reason.
	case $name in close-tests) skipped='--skip root_haproxy' ;; esac
	run root_ --skip take_over:: $skipped
	# A guard finds the one that it takes over by its process: these tests have one of their own.
	case $name in guard-tests) run take_over::root_ ;; esac
	echo $status >"$out/$name.status"
done <"$out/programs"
"#;

impl Machine {
    /// Downloads what is missing.
    pub fn find(root: &Path, suite: &str) -> Result<Self> {
        let name = suite.to_owned();
        if suite == "running" {
            return Ok(Self { name, kernel: None });
        }
        if suite.is_empty() || !suite.bytes().all(|byte| byte.is_ascii_lowercase()) {
            bail!("{suite:?} is no suite of Debian; name one as trixie, or running");
        }
        let output = Command::new(root.join("tests/kernels/get.sh"))
            .arg(suite)
            .arg(root.join("target/kernels").join(suite))
            .stderr(Stdio::inherit())
            .output()
            .context("start get.sh")?;
        if !output.status.success() {
            bail!("there is no kernel of {suite} to boot");
        }
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { name, kernel: Some(path.into()) })
    }

    /// Runs every test, and doctor.
    pub fn run(&self, root: &Path, built: &Built) -> Result<Outcome> {
        let out = root.join("target/kernels/out").join(&self.name);
        // What an earlier run left would be taken for this one's.
        fs::remove_dir_all(&out).ok();
        fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
        let programs: Vec<String> =
            built.tests.iter().map(|(name, path)| format!("{name} {}\n", path.display())).collect();
        fs::write(out.join("programs"), programs.concat()).context("write the list of programs")?;
        fs::write(out.join("run.sh"), SCRIPT).context("write the script")?;
        let start = Instant::now();
        let status = self.command(root, &out, built).current_dir(root).status().context("start the tests")?;
        let outcome = read(&out, built, self.kernel.is_some())?;
        if !status.success() {
            bail!("{}: the run itself failed ({status}); see {}", self.name, out.display());
        }
        Ok(Outcome { took: start.elapsed(), ..outcome })
    }

    fn command(&self, root: &Path, out: &Path, built: &Built) -> Command {
        let Some(kernel) = &self.kernel else {
            let mut command = Command::new("sh");
            command.arg(out.join("run.sh")).arg(out).arg(&built.tidegate);
            return command;
        };
        let mut command = Command::new(root.join("tests/kernels/boot.sh"));
        command.arg(kernel).arg(out).arg(format!("sh /out/run.sh /out '{}'", built.tidegate.display()));
        command
    }
}

fn read(out: &Path, built: &Built, is_booted: bool) -> Result<Outcome> {
    let text = |name: String| fs::read_to_string(out.join(name)).unwrap_or_default();
    let tests = built.tests.iter().map(|(name, _)| {
        let status = text(format!("{name}.status")).trim().parse().ok();
        (name.clone(), status, text(format!("{name}.log")))
    });
    let diagnosis: Value = serde_json::from_str(&text("doctor.json".to_owned()))
        .with_context(|| format!("read what doctor said: {}", text("doctor.log".to_owned())))?;
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |name: &str| diagnosis[name].as_array().cloned().unwrap_or_default();
    Ok(Outcome {
        kernel: string(&diagnosis["kernel"]),
        is_booted,
        tests: tests.collect(),
        probes: list("probes")
            .iter()
            .map(|probe| (string(&probe["name"]), string(&probe["answer"])))
            .collect(),
        programs: list("programs")
            .iter()
            .map(|program| {
                let name = format!("{} {}", string(&program["source"]), string(&program["name"]));
                let count =
                    program["verified_instructions"].as_u64().and_then(|count| u32::try_from(count).ok());
                (
                    name,
                    count.ok_or_else(|| {
                        format!("{}{}", string(&program["refused"]), string(&program["unknown"]))
                    }),
                )
            })
            .collect(),
        took: Duration::ZERO,
    })
}
