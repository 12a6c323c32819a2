//! Stop strings over text that arrives in pieces.

use crate::error::{Error, Kind, Result};

/// Watches a text for stop strings. Text that could be the beginning of one is held back,
/// so nothing of a stop string is ever given out, and the outcome depends on the text
/// alone, never on how it was cut into pieces.
///
/// The match that ends first wins, since generation stops there. Among stop strings that
/// end at the same place the longest wins: the text is cut before it. Of equal strings the
/// first is reported.
#[derive(Clone, Debug)]
pub(crate) struct StopStrings {
    /// An Aho-Corasick automaton over bytes; the first node is its root.
    nodes: Vec<Node>,
    current: usize,
    /// The text that the current node stands for.
    held: String,
    matched: Option<usize>,
}

/// The state after reading the beginning of a stop string.
#[derive(Clone, Debug, Default)]
struct Node {
    next: Vec<(u8, usize)>,
    /// The node of the longest proper end that also begins a stop string.
    fallback: usize,
    /// The length of the beginning.
    byte_count: usize,
    /// The longest stop string that ends here: its place in the list and its length.
    ending: Option<(usize, usize)>,
}

impl Node {
    fn after(&self, byte: u8) -> Option<usize> {
        self.next
            .iter()
            .find_map(|&(key, node)| (key == byte).then_some(node))
    }
}

impl StopStrings {
    /// Watches for `strings`; none at all is allowed.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty string, which would match before any text.
    pub(crate) fn new<S: AsRef<str>>(strings: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut nodes = vec![Node::default()];
        for (index, string) in strings.into_iter().enumerate() {
            let bytes = string.as_ref().as_bytes();
            if bytes.is_empty() {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    format!("stop string is empty: number {index}"),
                ));
            }
            let end = bytes
                .iter()
                .fold(0, |at, &byte| insert(&mut nodes, at, byte));
            nodes[end].ending.get_or_insert((index, bytes.len()));
        }
        link(&mut nodes);
        Ok(Self {
            nodes,
            current: 0,
            held: String::new(),
            matched: None,
        })
    }

    /// Takes the next piece; what no stop string can take back, and with a match the place
    /// of the string in the list. The text then ends before the match, and whatever follows
    /// is ignored.
    pub(crate) fn push(&mut self, text: &str) -> (String, Option<usize>) {
        if self.matched.is_some() {
            return (String::new(), self.matched);
        }
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            self.current = self.step(byte);
            if let Some((index, byte_count)) = self.nodes[self.current].ending {
                self.held.push_str(&text[..=at]);
                self.held.truncate(self.held.len() - byte_count);
                self.matched = Some(index);
                return (std::mem::take(&mut self.held), self.matched);
            }
        }
        self.held.push_str(text);
        let settled = self.held.len() - self.nodes[self.current].byte_count;
        let begun = self.held.split_off(settled);
        (std::mem::replace(&mut self.held, begun), None)
    }

    /// What was held back, at the end of a text without a match.
    pub(crate) fn finish(&mut self) -> String {
        self.current = 0;
        std::mem::take(&mut self.held)
    }

    fn step(&self, byte: u8) -> usize {
        let mut at = self.current;
        loop {
            match self.nodes[at].after(byte) {
                Some(next) => return next,
                None if at == 0 => return 0,
                None => at = self.nodes[at].fallback,
            }
        }
    }
}

fn insert(nodes: &mut Vec<Node>, at: usize, byte: u8) -> usize {
    if let Some(node) = nodes[at].after(byte) {
        return node;
    }
    let node = nodes.len();
    let byte_count = nodes[at].byte_count + 1;
    nodes[at].next.push((byte, node));
    nodes.push(Node {
        byte_count,
        ..Node::default()
    });
    node
}

/// Sets fallbacks and endings, nodes of shorter beginnings first.
fn link(nodes: &mut [Node]) {
    let mut queue = std::collections::VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        for (byte, child) in nodes[at].next.clone() {
            queue.push_back(child);
            if at == 0 {
                continue;
            }
            let mut candidate = nodes[at].fallback;
            let fallback = loop {
                match nodes[candidate].after(byte) {
                    Some(node) => break node,
                    None if candidate == 0 => break 0,
                    None => candidate = nodes[candidate].fallback,
                }
            };
            nodes[child].fallback = fallback;
            let inherited = nodes[fallback].ending;
            nodes[child].ending = nodes[child].ending.or(inherited);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, on the whole text.
    fn reference(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in 1..=text.len() {
            let longest = stops
                .iter()
                .enumerate()
                .filter(|(_, stop)| text.as_bytes()[..end].ends_with(stop.as_bytes()))
                .max_by_key(|(index, stop)| (stop.len(), std::cmp::Reverse(*index)));
            if let Some((index, stop)) = longest {
                return (text[..end - stop.len()].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    fn run<'a>(
        stops: &[String],
        pieces: impl IntoIterator<Item = &'a str>,
    ) -> (String, Option<usize>) {
        let mut matcher = StopStrings::new(stops).unwrap();
        let mut out = String::new();
        let mut matched = None;
        for piece in pieces {
            let (text, now) = matcher.push(piece);
            out.push_str(&text);
            matched = now;
        }
        out.push_str(&matcher.finish());
        (out, matched)
    }

    fn strings(stops: &[&str]) -> Vec<String> {
        stops.iter().map(|stop| (*stop).to_owned()).collect()
    }

    #[test]
    fn a_stop_split_over_pieces_of_any_length_is_seen() {
        let text = "alpha beta gamma delta";
        for length in 1..=text.len() {
            let pieces = (0..text.len())
                .step_by(length)
                .map(|start| &text[start..text.len().min(start + length)]);
            assert_eq!(
                run(&strings(&["beta gamma"]), pieces),
                ("alpha ".to_owned(), Some(0))
            );
        }
    }

    #[test]
    fn a_match_inside_a_piece_is_cut_at_its_start() {
        let stops = strings(&["\n\nUser:", "<|end of turn|>"]);
        assert_eq!(
            run(&stops, ["Yes.", " No.\n\nUser: more", " text"]),
            ("Yes. No.".to_owned(), Some(0))
        );
        assert_eq!(
            run(&stops, ["Yes.<|end", " of", " turn|>!"]),
            ("Yes.".to_owned(), Some(1))
        );
    }

    #[test]
    fn the_first_end_wins_and_then_the_longest() {
        assert_eq!(
            run(&strings(&["abcd", "bc"]), ["xabcd"]),
            ("xa".to_owned(), Some(1))
        );
        assert_eq!(
            run(&strings(&["bc", "abc"]), ["xabcd"]),
            ("x".to_owned(), Some(1))
        );
        assert_eq!(
            run(&strings(&["b", "b"]), ["ab"]),
            ("a".to_owned(), Some(0))
        );
    }

    #[test]
    fn an_unfinished_stop_is_text_in_the_end() {
        let mut stops = StopStrings::new(["END"]).unwrap();
        assert_eq!(stops.push("the EN"), ("the ".to_owned(), None));
        assert_eq!(stops.finish(), "EN");
        assert_eq!(stops.push("D"), ("D".to_owned(), None));
    }

    #[test]
    fn nothing_follows_a_match() {
        let mut stops = StopStrings::new(["."]).unwrap();
        assert_eq!(stops.push("a. b"), ("a".to_owned(), Some(0)));
        assert_eq!(stops.push("c"), (String::new(), Some(0)));
        assert_eq!(stops.finish(), "");
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        let error = StopStrings::new(["a", ""]).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert_eq!(error.message(), "stop string is empty: number 1");
        assert_eq!(run(&[], ["a", "b"]), ("ab".to_owned(), None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn any_cut_gives_what_the_whole_text_gives(
            pieces in prop::collection::vec("[abcé😊]{0,4}", 0..10),
            stops in prop::collection::vec("[abcé😊]{1,5}", 0..5),
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let text = pieces.concat();
            let expected = reference(&text, &stops);
            prop_assert_eq!(run(&stops, pieces.iter().copied()), expected.clone());
            prop_assert_eq!(run(&stops, [text.as_str()]), expected);

            // What has been given out at any time is not part of a later match.
            let mut matcher = StopStrings::new(&stops).unwrap();
            let mut out = String::new();
            for piece in pieces {
                out.push_str(&matcher.push(piece).0);
                prop_assert!(reference(&text, &stops).0.starts_with(&out));
            }
        }
    }
}
