/// Why an image or a sound cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The first bytes are those of no format that is read.
    #[error("the {kind} is in no known format; {known} are read")]
    UnknownFormat { kind: &'static str, known: &'static str },
    #[error("the {kind} cannot be decoded: {message}")]
    Malformed { kind: &'static str, message: String },
    #[error("{what} of {found} is too large; the most is {most}")]
    TooLarge {
        what: &'static str,
        found: String,
        most: String,
    },
    /// What the caller says about raw pixels or samples does not fit them.
    #[error("{message}")]
    Argument { message: String },
    /// A preprocessing program cannot be done with this image or sound.
    #[error("{message}")]
    Unfit { message: String },
    #[error("no memory for {bytes} bytes")]
    OutOfMemory { bytes: u64 },
    /// More than the caller allows; nothing was allocated.
    #[error("{bytes} more bytes are beyond the limit of {limit}, of which {used} are taken")]
    OverMemoryLimit { bytes: u64, used: u64, limit: u64 },
    /// The caller's control ended the work.
    #[error("cancelled")]
    Cancelled,
    #[error("the deadline is over")]
    DeadlineExceeded,
}

impl MediaError {
    /// Says which output does not fit.
    pub(super) fn of_output(self, name: &str) -> Self {
        match self {
            MediaError::Unfit { message } => MediaError::unfit(format!("for {name}: {message}")),
            other => other,
        }
    }

    pub(super) fn unfit(message: impl Into<String>) -> Self {
        MediaError::Unfit {
            message: message.into(),
        }
    }
}
