//! The two files of the AWS tools, `~/.aws/credentials` and `~/.aws/config`: sections of `name = value`.
//!
//! Read: static keys, `region`, `endpoint_url`. A profile that must be resolved by running programs or by signing in
//! (`credential_process`, `sso_*`, `source_profile`) is refused by name; export its result to the environment instead.

use super::environment::Environment;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

pub(super) type Section = BTreeMap<String, String>;

/// Settings of one profile; those in the credentials file go before those in the config file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub name: String,
    settings: Section,
}

impl Profile {
    /// An absent profile is an error only when a person named it; `Ok(None)` then means "no default profile".
    pub(super) fn load(environment: &Environment, named: Option<&str>) -> Result<Option<Self>, String> {
        let name = match named {
            Some(name) => name.to_owned(),
            None => environment.get("AWS_PROFILE").unwrap_or_else(|| "default".into()),
        };
        let required = named.is_some() || environment.get("AWS_PROFILE").is_some();
        let config = environment.aws_file("AWS_CONFIG_FILE", "config");
        let credentials = environment.aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let mut settings = Section::new();
        let mut found = false;
        for (path, in_config) in [(&config, true), (&credentials, false)] {
            let Some(path) = path else { continue };
            if let Some(section) = read_section(path, &name, in_config)? {
                found = true;
                settings.extend(section);
            }
        }
        if found {
            return Ok(Some(Self { name, settings }));
        }
        if !required {
            return Ok(None);
        }
        let shown = |path: &Option<std::path::PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => "~/.aws (HOME is not set)".into(),
        };
        Err(format!(
            "profile {name:?} is neither in {} nor in {}",
            shown(&credentials),
            shown(&config)
        ))
    }

    pub(super) fn get(&self, setting: &str) -> Option<&str> {
        self.settings
            .get(setting)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A way of getting credentials that the profile asks for and that is not supported here.
    pub(super) fn unsupported(&self) -> Option<&str> {
        [
            "credential_process",
            "sso_session",
            "sso_start_url",
            "source_profile",
            "credential_source",
            "role_arn",
        ]
        .into_iter()
        .find(|setting| self.get(setting).is_some())
    }
}

fn read_section(path: &Path, profile: &str, in_config: bool) -> Result<Option<Section>, String> {
    match fs::read_to_string(path) {
        Ok(text) => parse_section(&text, profile, in_config).map_err(|line| {
            format!(
                "{}: line {line} is neither [section], name = value, nor a comment",
                path.display()
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The section of one profile, or the number of the first line that is not understood. In the config file sections are called
/// `[profile NAME]`, but `[default]`.
pub(super) fn parse_section(text: &str, profile: &str, in_config: bool) -> Result<Option<Section>, usize> {
    let mut found: Option<Section> = None;
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(heading) = line.strip_prefix('[') {
            let (heading, _) = heading.split_once(']').ok_or(line_number)?;
            inside = names_profile(heading.trim(), profile, in_config);
            if inside {
                found.get_or_insert_with(Section::new);
            }
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(line_number)?;
        // Indented lines belong to a nested block such as `s3 =`, which is none of ours.
        if inside && !is_nested {
            let value = without_comment(value.trim());
            found
                .get_or_insert_with(Section::new)
                .insert(name.trim().to_ascii_lowercase(), value.into());
        }
    }
    Ok(found)
}

fn names_profile(heading: &str, profile: &str, in_config: bool) -> bool {
    if !in_config || (heading == "default" && profile == "default") {
        return heading == profile;
    }
    heading
        .strip_prefix("profile")
        .filter(|rest| rest.starts_with([' ', '\t']))
        .is_some_and(|rest| rest.trim() == profile)
}

/// A comment begins with '#' or ';' after a blank.
fn without_comment(value: &str) -> &str {
    let ends = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark));
    match ends.min() {
        Some(end) => value[..end].trim_end(),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
# a comment
[default]
region = eu-central-1
s3 =
  addressing_style = path
[profile  work]
Region=us-west-2 ; ours
endpoint_url = https://s3.example:9000
[profilework]
region = wrong
[sso-session work]
region = wrong too
";

    #[test]
    fn sections_and_comments_are_understood() {
        let default = parse_section(CONFIG, "default", true).unwrap().unwrap();
        assert_eq!(default["region"], "eu-central-1");
        assert!(!default.contains_key("addressing_style"));
        let work = parse_section(CONFIG, "work", true).unwrap().unwrap();
        assert_eq!(
            (&work["region"][..], &work["endpoint_url"][..]),
            ("us-west-2", "https://s3.example:9000")
        );
        assert_eq!(parse_section(CONFIG, "absent", true), Ok(None));
        assert_eq!(
            parse_section("[a]\nb = c=d#e\n", "a", false).unwrap().unwrap()["b"],
            "c=d#e"
        );
    }

    #[test]
    fn nonsense_is_located() {
        assert_eq!(parse_section("[a]\nwhat\n", "a", false), Err(2));
        assert_eq!(parse_section("[a\n", "a", false), Err(1));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(?s).{0,200}") {
            let _ = parse_section(&text, "default", true);
        }
    }
}
