use std::fmt;
use std::str::FromStr;

/// A number of bytes, written as an integer or with a binary unit: `10GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Largest first, so that the first that divides is the one to show.
const UNITS: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByteSizeError {
    #[error("{0:?} is not a size; write an integer number of bytes, or one with KiB, MiB, GiB, TiB, PiB or EiB")]
    Malformed(String),
    #[error("{0:?} is more than 64 bits can count")]
    TooLarge(String),
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let trimmed = text.trim();
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?.trim_end(), *factor)))
            .unwrap_or((trimmed, 1));
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ByteSizeError::Malformed(text.into()));
        }
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(factor))
            .map(Self)
            .ok_or_else(|| ByteSizeError::TooLarge(text.into()))
    }
}

impl fmt::Display for ByteSize {
    /// Exact: the largest unit that divides the size, so that the text parses to the same number.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS
            .iter()
            .find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor))
        {
            Some((unit, factor)) => write!(out, "{}{unit}", self.0 / factor),
            None => write!(out, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("10GiB", 10 << 30),
            (" 3 KiB ", 3072),
            ("15EiB", 15 << 60),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "GiB", "-1", "+1", "1.5GiB", "10GB", "10gib", "lots", "1 2", "0x10"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError::Malformed(text.into())));
        }
        for text in ["16EiB", "18446744073709551616"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError::TooLarge(text.into())));
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same(count in any::<u64>(), shift in 0u32..64) {
            let size = ByteSize(count >> shift << (shift / 2));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<ByteSize>();
        }
    }
}
