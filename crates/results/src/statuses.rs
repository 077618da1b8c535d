//! Replies by the class of their status.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Complete replies by the class of their status code (RFC 9110 section 15), and interim ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Statuses {
    /// Interim replies (1xx) that came before a complete one. They are no replies of their own.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// Successful.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// Redirections. They are not followed.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// The client's errors, such as 404.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// The server's errors, such as 503; also any code beyond 599, or below 100, which RFC 9110 has
    /// read so.
    #[serde(rename = "5xx")]
    pub server_error: u64,
}

impl Statuses {
    /// One complete reply with this status code, and the interim replies before it.
    pub fn of_reply(status: u16, interim: u64) -> Self {
        let mut one = Self { informational: interim, ..Self::default() };
        *match status / 100 {
            2 => &mut one.successful,
            3 => &mut one.redirection,
            4 => &mut one.client_error,
            _ => &mut one.server_error,
        } = 1;
        one
    }

    /// Complete replies: all classes but the interim one. `None` when there are more than 2^64,
    /// which no run has.
    pub fn replies(&self) -> Option<u64> {
        self.successful.checked_add(self.non_2xx()?)
    }

    /// Complete replies with any other status than 2xx. `None` as for [`Statuses::replies`].
    pub fn non_2xx(&self) -> Option<u64> {
        self.redirection.checked_add(self.client_error)?.checked_add(self.server_error)
    }

    /// Each class by its name, `1xx` to `5xx`.
    pub fn by_class(&self) -> [(&'static str, u64); 5] {
        let Self { informational, successful, redirection, client_error, server_error } = *self;
        [
            ("1xx", informational),
            ("2xx", successful),
            ("3xx", redirection),
            ("4xx", client_error),
            ("5xx", server_error),
        ]
    }
}

impl AddAssign for Statuses {
    fn add_assign(&mut self, other: Self) {
        // Every field by its name: a new one is not forgotten.
        let Self { informational, successful, redirection, client_error, server_error } = other;
        self.informational += informational;
        self.successful += successful;
        self.redirection += redirection;
        self.client_error += client_error;
        self.server_error += server_error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_in_one_class_and_what_is_beyond_them_is_an_error_of_the_server() {
        let mut all = Statuses::default();
        for status in [200, 206, 301, 404, 429, 410, 500, 600, 999, 99] {
            let one = Statuses::of_reply(status, 0);
            assert_eq!(one.replies(), Some(1), "{status}");
            all += one;
        }
        all += Statuses::of_reply(200, 2);
        assert_eq!(all.by_class().map(|(_, count)| count), [2, 3, 1, 3, 4]);
        assert_eq!((all.replies(), all.non_2xx()), (Some(11), Some(8)));
    }

    #[test]
    fn classes_are_written_by_their_names() {
        let text = serde_json::to_string(&Statuses::of_reply(404, 1)).expect("plain data");
        assert_eq!(text, r#"{"1xx":1,"2xx":0,"3xx":0,"4xx":1,"5xx":0}"#);
    }
}
