//! Calendar months, in which bills come. In UTC, as the providers' are.

use core::fmt;
use core::str::FromStr;

const DAY_S: u64 = 86_400;
/// The last second of the year 9999. What a clock says beyond it is nonsense.
const TIME_S_MAX: u64 = 253_402_300_799;

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// From 1970 on.
    pub year: u32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

/// A text that is no date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no date such as 2026-01-31")]
pub struct DateError;

impl Date {
    pub(crate) const fn of(year: u32, month: u32, day: u32) -> Self {
        Self { year, month, day }
    }

    /// The day of a time, in seconds since 1970, until the end of 9999.
    pub fn at(time_s: u64) -> Self {
        // Days since 1 March of year 0, by eras of 400 years (Hinnant, "chrono-compatible low-level date algorithms").
        let days = time_s.min(TIME_S_MAX) / DAY_S + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Self::of(
            year as u32,
            month as u32,
            (day_of_year - (153 * from_march + 2) / 5 + 1) as u32,
        )
    }

    /// Days since 1970.
    pub fn days(self) -> i64 {
        let (year, month) = (i64::from(self.year), i64::from(self.month));
        let year = if month <= 2 { year - 1 } else { year };
        let from_march = if month > 2 { month - 3 } else { month + 9 };
        let year_of_era = year % 400;
        let day_of_year = (153 * from_march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        year / 400 * 146_097 + day_of_era - 719_468
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, DateError> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
            part.parse().ok()
        };
        let date = part(4).zip(part(2)).zip(part(2));
        let ((year, month), day) = date.ok_or(DateError)?;
        let date = Self::of(year, month, day);
        let is_whole = parts.next().is_none() && year >= 1970;
        // What is no day of its month comes out as another one.
        let is_day = u64::try_from(date.days()).is_ok_and(|days| Self::at(days * DAY_S) == date);
        if is_whole && is_day { Ok(date) } else { Err(DateError) }
    }
}

/// A calendar month, by how many came before it since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Month(u32);

impl Month {
    /// The one that a time lies in, in seconds since 1970.
    pub fn at(time_s: u64) -> Self {
        let date = Date::at(time_s);
        Self((date.year - 1970) * 12 + date.month - 1)
    }

    /// When it begins.
    pub fn start_s(self) -> u64 {
        let first = Date::of(1970 + self.0 / 12, self.0 % 12 + 1, 1);
        u64::try_from(first.days()).unwrap_or_default() * DAY_S
    }

    /// When the next one begins.
    pub fn end_s(self) -> u64 {
        Self(self.0.saturating_add(1)).start_s()
    }
}

impl fmt::Display for Month {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}", 1970 + self.0 / 12, self.0 % 12 + 1)
    }
}
