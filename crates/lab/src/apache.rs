//! The distribution's Apache with its own configuration, but processes in place of threads, all of
//! them there from the start, our backlog, and files of its own.
//!
//! What it is for: a server that takes a connection for each of its processes and no more, so that
//! all others wait in the accept queue. What it is not: Apache as Debian starts it, which is
//! `mpm_event`.

use std::fs;
use std::num::NonZeroU32;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use experiment::{Layout, ServerKind, ServerSpec};

use crate::server::Given;

/// Where Debian has it.
pub(crate) const PROGRAM: &str = "/usr/sbin/apache2";
const MAIN: &str = "/etc/apache2/apache2.conf";
const SITE: &str = "/etc/apache2/sites-available/000-default.conf";
const MODULES: &str = "/etc/apache2/mods-enabled";
const PREFORK: &str = "/etc/apache2/mods-available/mpm_prefork.load";
/// The page that the package brings. The one in `/var/www/html` is the machine's, and may be
/// anything.
const PAGES: &str = "/usr/share/apache2/default-site";

/// Whether it is installed with the configuration that we start from; if not, why not.
pub(crate) fn missing() -> Option<String> {
    let absent =
        [PROGRAM, MAIN, SITE, MODULES, PREFORK, PAGES].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("apache is left out: {absent} is not there (install apache2)"))
}

/// Version, as it prints it.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("Server version: ")).map(str::to_owned)
}

/// Writes the configuration and adds the arguments that use it.
pub(crate) fn configure(command: &mut Command, server: &ServerSpec, given: Given<'_>) -> Result<()> {
    let Given { scratch, pages, .. } = given;
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
    let site = scratch.join("site.conf");
    fs::write(&site, site_conf(&read(SITE)?, pages)?).context("write the site's configuration")?;
    let main = scratch.join("apache2.conf");
    let text = main_conf(&read(MAIN)?, &enabled()?, &site, server)?;
    fs::write(&main, text).context("write Apache's configuration")?;
    command.arg("-f").arg(&main).arg("-DFOREGROUND");
    // To end its processes it signals its whole group, which would be ours.
    command.process_group(0);
    // Debian's configuration has all places of files in the environment (/etc/apache2/envvars).
    command.envs([("LANG", "C"), ("APACHE_RUN_USER", "www-data"), ("APACHE_RUN_GROUP", "www-data")]);
    command.env("APACHE_PID_FILE", scratch.join("apache2.pid"));
    for folder in ["APACHE_RUN_DIR", "APACHE_LOCK_DIR", "APACHE_LOG_DIR"] {
        command.env(folder, scratch);
    }
    Ok(())
}

/// What is enabled of modules and their configuration, sorted.
fn enabled() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(MODULES).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> =
        entries.with_context(|| format!("list {MODULES}"))?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// The main file with the process pool in place of the enabled one, with our listener and our site.
/// It listens on IPv4 only, as nginx' default site does beside IPv6.
fn main_conf(text: &str, enabled: &[PathBuf], site: &Path, server: &ServerSpec) -> Result<String> {
    let include = |suffix: &str| -> String {
        let is_other = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(suffix) && !name.starts_with("mpm_")
        };
        enabled.iter().filter(is_other).map(|path| format!("Include {}\n", path.display())).collect()
    };
    let processes = server.processes.unwrap_or(ServerKind::PROCESSES);
    let mut pool = format!(
        "ServerLimit {processes}\nStartServers {processes}\nMinSpareServers 1\nMaxSpareServers {processes}\nMaxRequestWorkers {processes}"
    );
    // Comes after the main file's own lines, and the last ones count.
    match server.closes_after.map(NonZeroU32::get) {
        Some(1) => pool += "\nKeepAlive Off",
        // It closes with the next after so many.
        Some(requests) => pool += &format!("\nMaxKeepAliveRequests {}", requests - 1),
        None => {}
    }
    let backlog = server.backlog;
    let ours = [
        ("IncludeOptional mods-enabled/*.load", format!("{}Include {PREFORK}", include(".load"))),
        ("IncludeOptional mods-enabled/*.conf", format!("{}{pool}", include(".conf"))),
        (
            "Include ports.conf",
            format!(
                "Listen 0.0.0.0:{}\nListenBacklog {backlog}\nServerName localhost",
                Layout::SERVER.port()
            ),
        ),
        ("IncludeOptional sites-enabled/*.conf", format!("Include {}", site.display())),
    ];
    for (line, _) in &ours {
        ensure!(text.lines().any(|other| other.trim() == *line), "{MAIN} has no line {line:?} to replace");
    }
    let replaced = text.lines().map(|line| {
        ours.iter().find(|(theirs, _)| *theirs == line.trim()).map_or(line, |(_, ours)| ours.as_str())
    });
    Ok(replaced.collect::<Vec<_>>().join("\n") + "\n")
}

/// The default site with the package's page, or with the files of this folder.
fn site_conf(text: &str, pages: Option<&Path>) -> Result<String> {
    const ROOT: &str = "DocumentRoot /var/www/html";
    ensure!(text.contains(ROOT), "{SITE} has no line {ROOT:?} to replace");
    let Some(pages) = pages else { return Ok(text.replace(ROOT, &format!("DocumentRoot {PAGES}"))) };
    let pages = pages.display();
    let granted = format!("DocumentRoot {pages}\n<Directory {pages}>\n\tRequire all granted\n</Directory>");
    Ok(text.replace(ROOT, &granted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::experiment;

    const DEBIANS: &str = "PidFile ${APACHE_PID_FILE}\nKeepAlive On\nIncludeOptional mods-enabled/*.load\n\
                           IncludeOptional mods-enabled/*.conf\nInclude ports.conf\n# Include generic snippets\n\
                           IncludeOptional conf-enabled/*.conf\nIncludeOptional sites-enabled/*.conf\n";

    #[test]
    fn only_pool_listener_and_site_are_changed() {
        let enabled = ["mime.conf", "mime.load", "mpm_event.conf", "mpm_event.load"];
        let enabled = enabled.map(|name| Path::new("/m").join(name));
        let changed =
            main_conf(DEBIANS, &enabled, Path::new("/tmp/x/site.conf"), &experiment("", "").servers[0])
                .expect("as Debian's");
        let expected = "PidFile ${APACHE_PID_FILE}\nKeepAlive On\nInclude /m/mime.load\n\
                        Include /etc/apache2/mods-available/mpm_prefork.load\nInclude /m/mime.conf\nServerLimit 150\nStartServers 150\n\
                        MinSpareServers 1\nMaxSpareServers 150\nMaxRequestWorkers 150\nListen 0.0.0.0:80\nListenBacklog 7\n\
                        ServerName localhost\n# Include generic snippets\nIncludeOptional conf-enabled/*.conf\n\
                        Include /tmp/x/site.conf\n";
        assert_eq!(changed, expected);
    }

    #[test]
    fn pool_and_requests_of_a_connection_are_the_servers() {
        let server = &experiment("", "processes = 350\ncloses_after = 5").servers[0];
        let changed = main_conf(DEBIANS, &[], Path::new("/tmp/x/site.conf"), server).expect("as Debian's");
        assert!(changed.contains("ServerLimit 350\nStartServers 350\n"), "{changed}");
        assert!(changed.contains("MaxRequestWorkers 350\nMaxKeepAliveRequests 4\nListen "), "{changed}");
        let server = &experiment("", "closes_after = 1").servers[0];
        let changed = main_conf(DEBIANS, &[], Path::new("/tmp/x/site.conf"), server).expect("as Debian's");
        assert!(changed.contains("\nKeepAlive Off\nListen "), "{changed}");
    }

    #[test]
    fn folder_is_the_crowds_where_it_asks_for_files() {
        let site = site_conf("DocumentRoot /var/www/html", Some(Path::new("/tmp/x"))).expect("as Debian's");
        assert_eq!(site, "DocumentRoot /tmp/x\n<Directory /tmp/x>\n\tRequire all granted\n</Directory>");
    }

    #[test]
    fn unknown_configuration_is_refused_by_the_line_that_is_not_there() {
        let other = DEBIANS.replace("Include ports.conf", "Listen 8080");
        let error = main_conf(&other, &[], Path::new("/tmp/x/site.conf"), &experiment("", "").servers[0])
            .expect_err("no such line");
        assert!(error.to_string().contains("no line \"Include ports.conf\""), "{error}");
        assert!(site_conf("DocumentRoot /srv", None).is_err());
    }

    #[test]
    fn site_has_the_packages_page() {
        let site = site_conf("<VirtualHost *:80>\n\tDocumentRoot /var/www/html\n</VirtualHost>", None)
            .expect("as Debian's");
        assert_eq!(
            site,
            "<VirtualHost *:80>\n\tDocumentRoot /usr/share/apache2/default-site\n</VirtualHost>"
        );
    }
}
