//! Text that waits for what follows it.

/// Text whose meaning is not settled. It may begin with the end of a prompt, which is read
/// with the answer but never given out.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    text: String,
    /// How many bytes of it the model did not write.
    given_bytes: usize,
}

impl Held {
    /// Holds the end of a prompt.
    pub(super) fn prompt(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            given_bytes: text.len(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Takes bytes from the beginning; what of them the model wrote.
    pub(super) fn take(&mut self, byte_count: usize) -> String {
        let mut taken = self.text.split_off(byte_count);
        std::mem::swap(&mut taken, &mut self.text);
        let hidden = self.given_bytes.min(byte_count);
        self.given_bytes -= hidden;
        taken.drain(..hidden);
        taken
    }

    /// The marker that is complete first, its place among `markers` and in the text.
    pub(super) fn find(&self, markers: &[&str]) -> Option<(usize, usize)> {
        let found = markers.iter().enumerate().filter_map(|(index, marker)| {
            let at = self.text.find(marker)?;
            Some((at + marker.len(), at, index))
        });
        found.min().map(|(_, at, index)| (index, at))
    }

    /// Where the end of the text begins that may become one of `markers`.
    pub(super) fn settled(&self, markers: &[&str]) -> usize {
        let text = self.text.as_bytes();
        let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
        let first = text.len().saturating_sub(longest.saturating_sub(1));
        (first..text.len())
            .find(|at| {
                markers
                    .iter()
                    .any(|marker| marker.as_bytes().starts_with(&text[*at..]))
            })
            .unwrap_or(text.len())
    }
}
