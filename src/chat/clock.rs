//! The date and time that templates ask for with `strftime_now`.

use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::fmt::strtime::{BrokenDownTime, Config};

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
    /// are kept as they are; those of the time zone are empty, as for Python's naive time.
    pub(super) fn format(self, format: &str) -> Result<String, jiff::Error> {
        let config = Config::new().lenient(true);
        BrokenDownTime::from(self.now()?).to_string_with_config(&config, spelled_out(format))
    }

    fn now(self) -> Result<DateTime, jiff::Error> {
        match self {
            Self::System => Ok(Zoned::now().datetime()),
            Self::Fixed {
                year,
                month,
                day,
                hour,
                minute,
                second,
            } => DateTime::new(year, month, day, hour, minute, second, 0),
        }
    }
}

/// The format without `%z` and `%Z`, and with what depends on a locale or is written in
/// another width spelled out as C has it.
fn spelled_out(format: &str) -> String {
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('z' | 'Z') => {}
            Some('c') => out.push_str("%a %b %e %H:%M:%S %Y"),
            Some('x') => out.push_str("%m/%d/%y"),
            Some('r') => out.push_str("%I:%M:%S %p"),
            Some('f') => out.push_str("%6f"),
            Some(directive) => out.extend(['%', directive]),
            None => out.push('%'),
        }
    }
    out
}
