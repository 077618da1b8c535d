//! The requests of a crowd, as bytes.

use std::fmt::Display;
use std::io::Write;

use traffic::Workload;

/// What each attempt asks for.
#[derive(Debug)]
pub struct Asks {
    workload: Workload,
    seed: u64,
    host: String,
    path: String,
    /// The request for the page that the crowd was told of.
    page: Vec<u8>,
    /// The server is to close the connection after its reply.
    is_last: bool,
    /// Where others are written.
    scratch: Vec<u8>,
}

impl Asks {
    /// Requests to `host` for what the workload says; where it says nothing, for `path`.
    pub fn new(workload: Workload, seed: u64, host: &str, path: &str) -> Self {
        let mut page = Vec::new();
        write_request(&mut page, host, path, false);
        Self {
            workload,
            seed,
            host: host.to_owned(),
            path: path.to_owned(),
            page,
            is_last: false,
            scratch: Vec::new(),
        }
    }

    /// What says that the client closes now, after its last reply: CLIENT_CLOSE of `[FTY97]`.
    pub(crate) fn client_close(&mut self) -> &[u8] {
        self.scratch.clear();
        write!(self.scratch, "CLIENT_CLOSE * HTTP/1.1\r\nHost: {}\r\n\r\n", self.host)
            .expect("a Vec takes all");
        &self.scratch
    }

    /// Each request says `Connection: close`.
    pub(crate) fn close_after_each(&mut self) {
        self.is_last = true;
        self.page.clear();
        write_request(&mut self.page, &self.host, &self.path, true);
    }

    /// How many requests the connection of an attempt has, by what tells it from others.
    pub fn requests(&self, asker: u64) -> u8 {
        self.workload.requests(self.seed, asker)
    }

    /// How long the body of the reply to that request is, where the workload says.
    pub fn bytes(&self, asker: u64, n: u8) -> Option<u64> {
        self.workload.object(self.seed, asker, n).bytes()
    }

    /// The `n`-th request, from 0, of an attempt, whole. The same each time.
    pub fn request(&mut self, asker: u64, n: u8) -> &[u8] {
        let Some(path) = self.workload.object(self.seed, asker, n).path() else {
            return &self.page;
        };
        self.scratch.clear();
        write_request(&mut self.scratch, &self.host, path, self.is_last);
        &self.scratch
    }
}

fn write_request(to: &mut Vec<u8>, host: &str, path: impl Display, is_last: bool) {
    let close = if is_last { "Connection: close\r\n" } else { "" };
    write!(to, "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tidegate\r\n{close}\r\n")
        .expect("a Vec takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_a_workload_names_its_object_and_the_same_again() {
        let table = toml::from_str("kind = \"specweb99\"\ndirectories = 5").expect("a table");
        let workload = Workload::new(&table).expect("a workload");
        let mut asks = Asks::new(workload, 1, "host:80", "/page");
        let first = asks.request(7, 0).to_vec();
        assert_eq!(asks.request(7, 0), first);
        let text = String::from_utf8(first).expect("text");
        assert!(text.starts_with("GET /file_set/dir") && text.contains("\r\nHost: host:80\r\n"), "{text}");
        let others = (0..20).filter(|user| asks.request(*user, 0) != text.as_bytes()).count();
        assert!(others > 15, "{others} of 20 ask for something else");
    }

    #[test]
    fn without_a_workload_everybody_asks_for_the_page() {
        let mut asks = Asks::new(Workload::default(), 1, "host:80", "/page");
        assert!(asks.request(3, 0).starts_with(b"GET /page HTTP/1.1\r\n"));
        assert_eq!(asks.requests(3), 1);
    }
}
