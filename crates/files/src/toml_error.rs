//! What is wrong in a TOML file.

/// What is wrong, and where: toml draws the line and a caret below it, on several lines; ours is
/// one.
pub fn say_toml_error(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let place = text.lines().next().and_then(|line| line.strip_prefix("TOML parse error at "));
    let message = in_words_of_toml(&with_meant(&error.message().replace('\n', ", ")));
    place.map_or(message.clone(), |place| format!("{place}: {message}"))
}

/// serde says what is not known and then, each between backticks, what is.
fn with_meant(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    let is_unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match (is_unknown, words.next(), message.split_once(", expected ")) {
        (true, Some(given), Some((what, known))) => {
            what.to_owned() + &spelling::did_you_mean(given, words, &format!("expected {known}"))
        }
        _ => message.to_owned(),
    }
}

/// serde speaks of Rust's types.
fn in_words_of_toml(message: &str) -> String {
    const WORDS: [(&str, &str); 6] = [
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected a sequence", "expected a list, as [1, 2]"),
        ("expected struct Bounds", "expected a table, as { at_least = 0.9 }"),
        ("unknown variant", "unknown word"),
    ];
    WORDS.iter().fold(message.to_owned(), |message, (rust, toml)| message.replace(rust, toml))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_said_in_words_of_toml() {
        let error =
            toml::from_str::<std::collections::BTreeMap<String, u16>>("a = -1").expect_err("negative");
        let said = say_toml_error(&error);
        assert!(said.contains("expected a whole number from 0 to 65535"), "{said}");
    }

    #[test]
    fn key_that_is_nearly_right_is_told_which_was_meant() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Word {
            Uniform,
            Poisson,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            _arrivals: Word,
            _rate: u8,
        }
        let said = |text: &str| say_toml_error(&toml::from_str::<File>(text).expect_err(text));
        let word = said("_arrivals = \"unifrom\"\n_rate = 1");
        assert!(
            word.contains("unknown word `unifrom`; did you mean uniform? expected `uniform` or"),
            "{word}"
        );
        let key = said("_raet = 1");
        assert!(key.contains("unknown field `_raet`; did you mean _rate? expected `_arrivals` or"), "{key}");
        let other = said("_arrivals = \"weekly\"");
        assert!(other.contains("unknown word `weekly`; expected `uniform` or"), "{other}");
    }

    #[test]
    fn mistake_is_told_on_say_toml_error_with_its_place() {
        let error = toml::from_str::<toml::Table>("a = 1\nb = ").expect_err("no value");
        let said = say_toml_error(&error);
        assert!(said.starts_with("line 2, column 5: ") && !said.contains('\n'), "{said}");
    }
}
