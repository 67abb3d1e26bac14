//! Fields of a line.

use crate::error::Fault;

/// The words of a line, in order.
pub struct Fields<'a> {
    /// `None`: after the last field, which may be an empty one between commas.
    rest: Option<&'a [u8]>,
    separator: Separator,
}

#[derive(Clone, Copy)]
enum Separator {
    Blanks,
    Comma,
}

impl<'a> Fields<'a> {
    /// Separated by any number of blanks.
    pub fn words(line: &'a [u8]) -> Self {
        Self {
            rest: Some(line),
            separator: Separator::Blanks,
        }
    }

    /// Separated by single commas; blanks around a field do not count.
    pub fn values(line: &'a [u8]) -> Self {
        Self {
            rest: Some(line),
            separator: Separator::Comma,
        }
    }

    pub fn need(&mut self, field: &'static str) -> Result<&'a [u8], Fault> {
        self.next().ok_or(Fault::Missing { field })
    }

    pub fn number(&mut self, field: &'static str) -> Result<u64, Fault> {
        number(self.need(field)?, field)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        match self.separator {
            Separator::Blanks => {
                let rest = rest.trim_ascii_start();
                if rest.is_empty() {
                    return None;
                }
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                self.rest = Some(&rest[end..]);
                Some(&rest[..end])
            }
            Separator::Comma => {
                let end = rest.iter().position(|byte| *byte == b',');
                self.rest = end.map(|end| &rest[end + 1..]);
                Some(rest[..end.unwrap_or(rest.len())].trim_ascii())
            }
        }
    }
}

/// A decimal number of 64 bits.
pub fn number(word: &[u8], field: &'static str) -> Result<u64, Fault> {
    let mut value = 0u64;
    let mut is_good = !word.is_empty();
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        let next = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit)));
        match next {
            Some(next) if digit < 10 => value = next,
            _ => is_good = false,
        }
    }
    if is_good {
        Ok(value)
    } else {
        Err(malformed(word, field, "a number below 2^64"))
    }
}

/// A hexadecimal number of 64 bits.
pub fn hexadecimal(word: &[u8], field: &'static str) -> Result<u64, Fault> {
    let text = std::str::from_utf8(word).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or_else(|| malformed(word, field, "a hexadecimal number below 2^64"))
}

/// Seconds with a fraction, in microseconds; `per_second` is what a whole second is in the unit of the number.
pub fn time_us(word: &[u8], unit_ns: u64) -> Result<u64, Fault> {
    let (whole, fraction) = match word.iter().position(|byte| *byte == b'.') {
        Some(point) => (&word[..point], &word[point + 1..]),
        None => (word, &[][..]),
    };
    let bad = || malformed(word, "time", "a time");
    let mut nanos = u128::from(number(whole, "time").map_err(|_| bad())?) * u128::from(unit_ns);
    if !fraction.is_empty() {
        let digits = &fraction[..fraction.len().min(9)];
        let scale = 10u128.pow(digits.len() as u32);
        let value = number(digits, "time").map_err(|_| bad())?;
        if !fraction.iter().all(u8::is_ascii_digit) {
            return Err(bad());
        }
        nanos += u128::from(value) * u128::from(unit_ns) / scale;
    }
    u64::try_from(nanos / 1_000).map_err(|_| bad())
}

pub fn malformed(word: &[u8], field: &'static str, permitted: &'static str) -> Fault {
    let shown = &word[..word.len().min(80)];
    Fault::Malformed {
        field,
        found: String::from_utf8_lossy(shown).into_owned(),
        permitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_or_refused() {
        assert_eq!(number(b"18446744073709551615", "x").unwrap(), u64::MAX);
        for bad in ["18446744073709551616", "", "-1", "1x", "99999999999999999999999999"] {
            assert!(number(bad.as_bytes(), "x").is_err(), "{bad}");
        }
        assert_eq!(hexadecimal(b"ff", "x").unwrap(), 255);
        assert!(hexadecimal(b"+f", "x").is_err());
    }

    #[test]
    fn times_keep_their_microseconds() {
        assert_eq!(
            time_us(b"1006231504.285023", 1_000_000_000).unwrap(),
            1_006_231_504_285_023
        );
        assert_eq!(time_us(b"1.5", 1_000_000).unwrap(), 1_500);
        assert_eq!(time_us(b"7", 1_000).unwrap(), 7);
        assert!(time_us(b"1.5x", 1_000).is_err());
        assert!(time_us(b"18446744073709551615", 1_000_000_000).is_err());
    }

    #[test]
    fn fields_are_split() {
        let words: Vec<_> = Fields::words(b" a  b\tc ").collect();
        assert_eq!(words, [b"a", b"b", b"c"]);
        let values: Vec<_> = Fields::values(b"a, b,,c").collect();
        assert_eq!(values, [&b"a"[..], b"b", b"", b"c"]);
    }
}
