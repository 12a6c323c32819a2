//! Who may use a state: a hash over everything that shapes it.

/// The identity of what computes states: equal where one's state is another's, bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Namespace(pub(crate) [u8; 32]);
