//! The date and time that templates ask for with `strftime_now`.

use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;

/// Tells templates what time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's time in its own time zone.
    #[default]
    System,
    /// Always the same moment, for reproducible prompts.
    Fixed {
        /// The year, such as 2025.
        year: i16,
        /// The month, 1 to 12.
        month: i8,
        /// The day of the month, from 1.
        day: i8,
        /// The hour, 0 to 23.
        hour: i8,
        /// The minute.
        minute: i8,
        /// The second.
        second: i8,
    },
}

impl Clock {
    /// The time in C's `strftime` notation with English names. Directives that do not exist
    /// are kept as they are.
    pub(super) fn format(self, format: &str) -> Result<String, jiff::Error> {
        let now = self.now()?;
        BrokenDownTime::from(&now).to_string_with_config(&Config::new().lenient(true), format)
    }

    fn now(self) -> Result<Zoned, jiff::Error> {
        match self {
            Self::System => Ok(Zoned::now()),
            Self::Fixed {
                year,
                month,
                day,
                hour,
                minute,
                second,
            } => DateTime::new(year, month, day, hour, minute, second, 0)?.to_zoned(TimeZone::UTC),
        }
    }
}
