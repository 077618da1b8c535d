//! What is wrong in a TOML file.

/// What is wrong, and where: toml draws the line and a caret below it, on several lines; ours is
/// one.
pub fn say_toml_error(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let place = text.lines().next().and_then(|line| line.strip_prefix("TOML parse error at "));
    let message = error.message().replace('\n', ", ");
    place.map_or(message.clone(), |place| format!("{place}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistake_is_told_on_say_toml_error_with_its_place() {
        let error = toml::from_str::<toml::Table>("a = 1\nb = ").expect_err("no value");
        let said = say_toml_error(&error);
        assert!(said.starts_with("line 2, column 5: ") && !said.contains('\n'), "{said}");
    }
}
