//! Environment variables as a value, so that the credential chain can be tested without changing the process.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where the credential chain looks variables up.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Environment {
    /// The process's own.
    #[default]
    Process,
    /// These and no others.
    Fixed(BTreeMap<String, String>),
}

impl Environment {
    /// Names with their values.
    pub fn fixed<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self::Fixed(variables.into_iter().map(own).collect())
    }

    /// `None` when unset or empty.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        match self {
            Self::Process => std::env::var(name).ok(),
            Self::Fixed(variables) => variables.get(name).cloned(),
        }
        .filter(|value| !value.is_empty())
    }

    /// The file that `variable` names, else `~/.aws/NAME`.
    pub(super) fn aws_file(&self, variable: &str, name: &str) -> Option<PathBuf> {
        match self.get(variable) {
            Some(path) => Some(path.into()),
            None => Some(PathBuf::from(self.get("HOME")?).join(".aws").join(name)),
        }
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => out.write_str("Process"),
            Self::Fixed(variables) => out.debug_tuple("Fixed").field(&variables.keys()).finish(),
        }
    }
}
