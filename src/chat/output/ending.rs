//! When to read an open call again.

/// Whether reading an open call again, now that more of it has arrived, can have an outcome. A
/// long call is not read once for each of its tokens: that would take quadratic time.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    /// How much of the text was looked at.
    seen_bytes: usize,
    /// How long the text was when it was last read.
    read_bytes: usize,
    /// The brackets that are open in what was seen.
    depth: usize,
    /// The quotation mark of the text that is open in what was seen.
    quote: Option<u8>,
    /// A backslash came last.
    is_escaped: bool,
}

impl Ending {
    /// Whether to read `text`, of which more was shown each time. Calls end with one of a few
    /// characters; those whose arguments are `bracketed` values, with the last of their
    /// brackets. A value that is malformed may seem to have no end, so that now and then it is
    /// read in any case.
    pub(super) fn may_be_in(&mut self, text: &str, bracketed: bool) -> bool {
        /// What is shorter is read in any case, so that what is no call is seen early.
        const SHORT_BYTES: usize = 64;
        let news = &text[self.seen_bytes..];
        self.seen_bytes = text.len();
        let closes = self.closes_in(news.as_bytes());
        let may_end = news.contains(['>', '}', ']', ')']);
        let has_grown = text.len() - self.read_bytes > self.read_bytes / 4;
        let reads = text.len() <= SHORT_BYTES || closes || (may_end && (has_grown || !bracketed));
        if reads {
            self.read_bytes = text.len();
        }
        reads
    }

    /// Whether the last open bracket is closed in what follows.
    fn closes_in(&mut self, news: &[u8]) -> bool {
        let mut closes = false;
        for byte in news {
            match (self.quote, byte) {
                (Some(_), _) if self.is_escaped => self.is_escaped = false,
                (Some(_), b'\\') => self.is_escaped = true,
                (Some(quote), _) if quote == *byte => self.quote = None,
                (None, b'"' | b'\'') => self.quote = Some(*byte),
                (None, b'{' | b'[' | b'(') => self.depth += 1,
                (None, b'}' | b']' | b')') => {
                    self.depth = self.depth.saturating_sub(1);
                    closes |= self.depth == 0;
                }
                _ => {}
            }
        }
        closes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a text is read while it arrives, and whether its end is read at once.
    fn readings(text: &str, bracketed: bool) -> (usize, bool) {
        let mut ending = Ending::default();
        let mut count = 0;
        let mut reads = false;
        for (at, character) in text.char_indices() {
            reads = ending.may_be_in(&text[..at + character.len_utf8()], bracketed);
            count += usize::from(reads);
        }
        (count, reads)
    }

    #[test]
    fn a_long_value_is_read_a_few_times() {
        for unit in ["{\"a\": [1, 2]}, ", "\"f(x)} \\\" ] é\", ", "'[' , "] {
            let text = format!("{{\"x\": [{}]}}", unit.repeat(2000));
            let (count, reads_end) = readings(&text, true);
            assert!(count < 140, "{count} times: {unit}");
            assert!(reads_end, "{unit}");
        }
    }

    #[test]
    fn what_seems_to_have_no_end_is_read_again() {
        let text = format!("{{\"x\": don't {}", "} ".repeat(2000));
        assert!((70..140).contains(&readings(&text, true).0));
    }
}
