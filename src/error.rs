//! The one error type of the library.

use std::fmt;

/// What went wrong, as a caller can act on it. Mirrors `mlxb_status` of the C header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument is missing, out of range, or contradicts another one.
    InvalidArgument,
    /// A text argument is not valid UTF-8.
    InvalidUtf8,
    /// The named thing does not exist.
    NotFound,
    /// A query matches several things; the error's detail lists them.
    Ambiguous,
    /// The object is in use by another call, or the call would wait for itself.
    Busy,
    /// The caller asked to stop.
    Cancelled,
    /// The caller's buffer cannot hold the answer.
    BufferTooSmall,
    /// Understood, but not something that this library or platform does.
    Unsupported,
    /// The caller was built against a header that this library cannot serve.
    VersionMismatch,
    /// The operating system refused a file operation.
    Io,
    /// A file's content contradicts itself.
    Corrupt,
    /// The disk is full.
    NoSpace,
    /// Another process holds the lock.
    Locked,
    /// Memory could not be allocated.
    OutOfMemory,
    /// The request would exceed the memory budget.
    OverBudget,
    /// The model folder is incomplete or inconsistent.
    ModelFormat,
    /// The chat template does not compile or render.
    Template,
    /// The grammar is malformed.
    Grammar,
    /// The tokens do not fit the model's context.
    ContextFull,
    /// The request in a wire protocol is malformed, or asks for what is not done here.
    Protocol,
    /// MLX reported an error.
    Backend,
    /// A bug in the library: a panic was caught at the boundary.
    Panic,
    /// An earlier panic left this object unusable.
    Poisoned,
}

/// An error with its kind, a one-line message that names the offending thing, and
/// optionally a longer detail and the error below it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    detail: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; `message` is one line in lower case with the offending value last.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.contains(['\n', '\r', '\0']) {
            message = message.replace(['\n', '\r', '\0'], " ");
        }
        Self {
            kind,
            message,
            detail: None,
            source: None,
        }
    }

    /// Adds what does not fit into one line, such as a list of candidates.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of the file system about `what` (a path, or a path with the operation).
    pub fn io(what: impl fmt::Display, error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            std::io::ErrorKind::OutOfMemory => Kind::OutOfMemory,
            _ => Kind::Io,
        };
        Self::new(kind, format!("{what}: {error}")).with_source(error)
    }

    /// What a caller can act on.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// One line, lower case, without prompt text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// More than one line may say, where there is more.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let error = Error::new(Kind::Io, "no such file: a\nb\0c");
        assert_eq!(error.to_string(), "no such file: a b c");
    }
}
