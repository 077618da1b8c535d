//! The distribution's nginx with its own configuration, but one worker, our backlog, and files of
//! its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::server::Given;

/// Where Debian has it.
pub(crate) const PROGRAM: &str = "/usr/sbin/nginx";
const MAIN: &str = "/etc/nginx/nginx.conf";
const SITE: &str = "/etc/nginx/sites-available/default";

/// Whether it is installed with the configuration that we start from; if not, why not.
pub(crate) fn missing() -> Option<String> {
    let absent = [PROGRAM, MAIN, SITE].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("nginx is left out: {absent} is not there (install nginx-light)"))
}

/// Version, as it prints it.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    text.strip_prefix("nginx version: ").map(str::to_owned)
}

/// Connections of a worker that must hold many beside a crowd's. Debian's 768 are fewer, and of
/// idle ones nginx closes some when a sixteenth of all is left.
pub(crate) const ROOMY: u32 = 16_384;

/// Writes the configuration and adds the arguments that use it.
pub(crate) fn configure(command: &mut Command, backlog: u32, given: Given<'_>) -> Result<()> {
    let Given { scratch, pages, room } = given;
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
    let site = scratch.join("site.conf");
    fs::write(&site, site_conf(&read(SITE)?, backlog, pages)?).context("write the site's configuration")?;
    let main = scratch.join("nginx.conf");
    fs::write(&main, main_conf(&read(MAIN)?, scratch, &site, room)?)
        .context("write nginx's configuration")?;
    command.arg("-c").arg(&main).args(["-g", "daemon off;", "-e", "stderr"]);
    Ok(())
}

/// The main file with one worker, with its pid and logs in `scratch`, and with [`ROOMY`]
/// connections where there is room for them.
fn main_conf(text: &str, scratch: &Path, site: &Path, room: Option<u64>) -> Result<String> {
    let scratch = scratch.display();
    let replaced: Vec<String> = text
        .lines()
        .map(|line| match line.split_whitespace().next() {
            Some("worker_processes") => match room {
                Some(descriptors) => format!("worker_processes 1;\nworker_rlimit_nofile {descriptors};"),
                None => "worker_processes 1;".to_owned(),
            },
            Some("worker_connections") if room.is_some() => format!("worker_connections {ROOMY};"),
            Some("pid") => format!("pid {scratch}/nginx.pid;"),
            Some("error_log") => "error_log stderr crit;".to_owned(),
            Some("access_log") => format!("access_log {scratch}/access.log;"),
            Some("include") if line.contains("sites-enabled") => format!("include {};", site.display()),
            _ => line.to_owned(),
        })
        .collect();
    let text = replaced.join("\n");
    ensure!(text.contains("worker_processes 1;"), "{MAIN} has no worker_processes line to replace");
    ensure!(
        room.is_none() || text.contains(&format!("worker_connections {ROOMY};")),
        "{MAIN} has no worker_connections line to replace"
    );
    ensure!(text.contains(&site.display().to_string()), "{MAIN} does not include sites-enabled");
    Ok(text)
}

/// The default site with the backlog on its IPv4 listener, and with nginx' own page: where Apache
/// is installed, there is its page of 10 kB, too, and goes first. `pages`: with the files of this
/// folder.
fn site_conf(text: &str, backlog: u32, pages: Option<&Path>) -> Result<String> {
    const ROOT: &str = "root /var/www/html;";
    const LISTEN: &str = "listen 80 default_server;";
    const PAGES: &str = "index index.html index.htm index.nginx-debian.html;";
    ensure!(text.contains(LISTEN), "{SITE} has no line {LISTEN:?} to add the backlog to");
    let mut text = text.replace(PAGES, "index index.nginx-debian.html;");
    if let Some(pages) = pages {
        ensure!(text.contains(ROOT), "{SITE} has no line {ROOT:?} to replace");
        text = text.replace(ROOT, &format!("root {};", pages.display()));
    }
    Ok(text.replace(LISTEN, &format!("listen 80 default_server backlog={backlog};")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_worker_pid_logs_and_site_are_changed() {
        let main = "user www-data;\nworker_processes auto;\npid /run/nginx.pid;\nhttp {\n\tsendfile on;\n\t\
                    access_log /var/log/nginx/access.log;\n\tinclude /etc/nginx/sites-enabled/*;\n}\n";
        let changed =
            main_conf(main, Path::new("/tmp/x"), Path::new("/tmp/x/site.conf"), None).expect("as Debian's");
        let expected = "user www-data;\nworker_processes 1;\npid /tmp/x/nginx.pid;\nhttp {\n\tsendfile on;\n\
                        access_log /tmp/x/access.log;\ninclude /tmp/x/site.conf;\n}";
        assert_eq!(changed, expected);
    }

    #[test]
    fn backlog_goes_to_the_listener_and_an_unknown_site_is_refused() {
        let site = site_conf("listen 80 default_server;\nlisten [::]:80 default_server;", 7, None)
            .expect("as Debian's");
        assert_eq!(site, "listen 80 default_server backlog=7;\nlisten [::]:80 default_server;");
        assert!(site_conf("listen 8080;", 7, None).is_err());
    }

    #[test]
    fn room_is_made_where_connections_are_held() {
        let main = "worker_processes auto;\nevents {\n\tworker_connections 768;\n}\ninclude /etc/nginx/sites-enabled/*;";
        let made = |room| {
            main_conf(main, Path::new("/tmp/x"), Path::new("/tmp/x/site.conf"), room).expect("as Debian's")
        };
        assert!(made(None).contains("\tworker_connections 768;"), "{}", made(None));
        let roomy = made(Some(20_000));
        assert!(roomy.starts_with("worker_processes 1;\nworker_rlimit_nofile 20000;\n"), "{roomy}");
        assert!(roomy.contains("\nworker_connections 16384;\n"), "{roomy}");
    }

    #[test]
    fn folder_is_the_crowds_where_it_asks_for_files() {
        let debians = "listen 80 default_server;\nroot /var/www/html;";
        let site = site_conf(debians, 7, Some(Path::new("/tmp/x/pages"))).expect("as Debian's");
        assert!(site.ends_with("\nroot /tmp/x/pages;"), "{site}");
        assert!(site_conf("listen 80 default_server;", 7, Some(Path::new("/tmp/x"))).is_err());
    }

    #[test]
    fn page_is_nginx_own() {
        let debians = "listen 80 default_server;\nindex index.html index.htm index.nginx-debian.html;";
        let site = site_conf(debians, 7, None).expect("as Debian's");
        assert!(site.ends_with("\nindex index.nginx-debian.html;"), "{site}");
    }
}
