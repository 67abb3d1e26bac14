//! One declaration per section of the settings file: field, type, default, permitted values, meaning and reason stand
//! in one place, and the structure, its defaults, its parser, its range check and its documentation all follow from it.

use super::value::Value;
use std::borrow::Cow;

/// What a field may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// A count, a duration or the like, both ends included.
    Numbers { minimum: u64, maximum: u64 },
    /// A size in bytes, both ends included.
    Bytes { minimum: u64, maximum: u64 },
    /// One of a list.
    Names(&'static [&'static str]),
    /// Described in words; the type itself or a rule in `rules.rs` enforces it.
    Words(&'static str),
}

impl Permitted {
    pub(super) const fn numbers(minimum: u64, maximum: u64) -> Self {
        Self::Numbers { minimum, maximum }
    }

    pub(super) const fn bytes(minimum: u64, maximum: u64) -> Self {
        Self::Bytes { minimum, maximum }
    }

    pub(super) fn accepts(self, number: Option<u64>) -> bool {
        match (self, number) {
            (Self::Numbers { minimum, maximum } | Self::Bytes { minimum, maximum }, Some(number)) => {
                (minimum..=maximum).contains(&number)
            }
            _ => true,
        }
    }
}

impl std::fmt::Display for Permitted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use super::ByteSize;
        match *self {
            Self::Numbers { minimum, maximum } => write!(out, "{minimum} to {maximum}"),
            Self::Bytes { minimum, maximum } => write!(out, "{} to {}", ByteSize(minimum), ByteSize(maximum)),
            Self::Names(names) => write!(out, "`{}`", names.join("`, `")),
            Self::Words(words) => out.write_str(words),
        }
    }
}

/// A field with its present value, for checks and documentation.
#[derive(Clone, Debug)]
pub struct Field {
    /// Empty for the keys above all sections.
    pub section: Cow<'static, str>,
    pub key: &'static str,
    pub type_name: &'static str,
    /// As it would stand in the file; `None` when it is not set.
    pub value: Option<String>,
    pub(super) number: Option<u64>,
    pub permitted: Permitted,
    /// The documentation comment of the field, line by line.
    pub meaning: &'static [&'static str],
    /// Why the default and the bounds are what they are.
    pub reason: &'static str,
}

impl Field {
    pub(super) fn of<T: Value>(section: &'static str, key: &'static str, value: &T) -> Self {
        Self {
            section: section.into(),
            key,
            type_name: T::NAME,
            value: value.written(),
            number: value.number(),
            permitted: Permitted::Words(""),
            meaning: &[],
            reason: "",
        }
    }

    /// `[section] key`, as errors name it.
    pub fn name(&self) -> String {
        qualified(&self.section, self.key)
    }
}

pub(super) fn qualified(section: &str, key: &str) -> String {
    if section.is_empty() {
        key.to_owned()
    } else {
        format!("[{section}] {key}")
    }
}

/// A group of settings, usually one table of the file.
pub(super) trait Section {
    /// Sets one key. `None`: there is no such key.
    fn set(&mut self, key: &str, value: toml::Value) -> Option<Result<(), String>>;
    fn fields(&self) -> Vec<Field>;
}

macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $name:ident $table:literal {
            $(
                $(#[doc = $meaning:literal])+
                $key:ident: $type:ty = $default:expr, $permitted:expr, $reason:literal;
            )+
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[doc = $meaning])+ pub $key: $type, )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )+ }
            }
        }

        impl Section for $name {
            fn set(&mut self, key: &str, value: toml::Value) -> Option<Result<(), String>> {
                match key {
                    $( stringify!($key) => Some(<$type as Value>::parse(value).map(|value| self.$key = value)), )+
                    _ => None,
                }
            }

            fn fields(&self) -> Vec<Field> {
                vec![ $(
                    Field {
                        permitted: $permitted,
                        meaning: &[$($meaning),+],
                        reason: $reason,
                        ..Field::of($table, stringify!($key), &self.$key)
                    },
                )+ ]
            }
        }
    };
}

pub(super) use section;
