//! What a settings key can hold, and how it is read from and written to TOML.

use super::ByteSize;
use std::path::PathBuf;

/// The type of a field.
pub(super) trait Value: Sized {
    /// As the documentation calls it.
    const NAME: &'static str;
    /// The error says what was found and what was expected.
    fn parse(value: toml::Value) -> Result<Self, String>;
    /// As TOML; `None` when there is nothing to write.
    fn written(&self) -> Option<String>;
    /// For range checks.
    fn number(&self) -> Option<u64> {
        None
    }
}

fn wanted(name: &str, found: &toml::Value) -> String {
    format!("expected {name}, found {} {found}", found.type_str())
}

impl Value for u64 {
    const NAME: &'static str = "integer";

    fn parse(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::Integer(number) => u64::try_from(number).map_err(|_| format!("{number} is negative")),
            other => Err(wanted("an integer", &other)),
        }
    }

    fn written(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Value for ByteSize {
    const NAME: &'static str = "size";

    fn parse(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(text) => text.parse().map_err(|error: super::ByteSizeError| error.to_string()),
            integer @ toml::Value::Integer(_) => u64::parse(integer).map(Self),
            other => Err(wanted("a size", &other)),
        }
    }

    fn written(&self) -> Option<String> {
        let shown = self.to_string();
        Some(if shown.bytes().all(|byte| byte.is_ascii_digit()) {
            shown
        } else {
            quoted(&shown)
        })
    }

    fn number(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl Value for bool {
    const NAME: &'static str = "boolean";

    fn parse(value: toml::Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| wanted("true or false", &value))
    }

    fn written(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for String {
    const NAME: &'static str = "string";

    fn parse(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(text) => Ok(text),
            other => Err(wanted("a string", &other)),
        }
    }

    fn written(&self) -> Option<String> {
        Some(quoted(self))
    }
}

impl Value for PathBuf {
    const NAME: &'static str = "path";

    fn parse(value: toml::Value) -> Result<Self, String> {
        String::parse(value).map(Self::from)
    }

    fn written(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

impl Value for Vec<String> {
    const NAME: &'static str = "list of strings";

    fn parse(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::Array(values) => values.into_iter().map(String::parse).collect(),
            other => Err(wanted("a list of strings", &other)),
        }
    }

    fn written(&self) -> Option<String> {
        let words: Vec<String> = self.iter().map(|word| quoted(word)).collect();
        Some(format!("[{}]", words.join(", ")))
    }
}

/// An amount of money, in millionths of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usd(pub u64);

impl Usd {
    const DOLLARS_MAX: f64 = 1e9;
    const MICROS: f64 = 1e6;

    pub fn dollars(self) -> f64 {
        self.0 as f64 / Self::MICROS
    }
}

impl Value for Usd {
    const NAME: &'static str = "amount";

    fn parse(value: toml::Value) -> Result<Self, String> {
        let dollars = match value {
            toml::Value::Float(dollars) => dollars,
            toml::Value::Integer(dollars) => dollars as f64,
            other => return Err(wanted("an amount in dollars", &other)),
        };
        if !(0.0..=Self::DOLLARS_MAX).contains(&dollars) {
            return Err(format!("{dollars} is no amount from 0 to {}", Self::DOLLARS_MAX));
        }
        Ok(Self((dollars * Self::MICROS).round() as u64))
    }

    fn written(&self) -> Option<String> {
        Some(toml::Value::Float(self.dollars()).to_string())
    }
}

/// An optional key: absent is `None`.
impl<T: Value> Value for Option<T> {
    const NAME: &'static str = T::NAME;

    fn parse(value: toml::Value) -> Result<Self, String> {
        T::parse(value).map(Some)
    }

    fn written(&self) -> Option<String> {
        self.as_ref().and_then(T::written)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }
}

pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// An enumeration that is written as one of a few words.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $( $(#[$meaning:meta])* $variant:ident = $word:literal ),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$meaning])* $variant, )+ }

        impl $name {
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl $crate::settings::value::Value for $name {
            const NAME: &'static str = "string";

            fn parse(value: toml::Value) -> Result<Self, String> {
                match value.as_str() {
                    $( Some($word) => Ok(Self::$variant), )+
                    _ => Err(format!("{value} is none of {}", [$($word),+].join(", "))),
                }
            }

            fn written(&self) -> Option<String> {
                Some($crate::settings::value::quoted(self.as_str()))
            }
        }
    };
}

pub(super) use choice;
