//! Keys of a preprocessor_config.json.

use serde_json::Value;

/// What is wrong with a configuration, and under which key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ConfigError {
    pub key: String,
    pub message: String,
    /// Whether the configuration is right, and what it says is not done here.
    pub unsupported: bool,
}

impl ConfigError {
    pub(crate) fn new(key: &str, message: impl Into<String>) -> Self {
        ConfigError {
            key: key.to_owned(),
            message: message.into(),
            unsupported: false,
        }
    }

    pub(super) fn unsupported(key: &str, message: impl Into<String>) -> Self {
        ConfigError {
            unsupported: true,
            ..ConfigError::new(key, message)
        }
    }
}

pub(super) fn flag(config: &Value, key: &str, default: bool) -> Result<bool, ConfigError> {
    match config.get(key).filter(|value| !value.is_null()) {
        None => Ok(default),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| ConfigError::new(key, "it is not true or false")),
    }
}

pub(super) fn count(value: &Value, key: &str, most: u64) -> Result<usize, ConfigError> {
    let count = value.as_u64().filter(|count| (1..=most).contains(count));
    count
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| ConfigError::new(key, format!("it is no number from 1 to {most}")))
}

/// A number that has a default.
pub(super) fn count_or(config: &Value, key: &str, default: usize, most: u64) -> Result<usize, ConfigError> {
    match config.get(key).filter(|value| !value.is_null()) {
        Some(value) => count(value, key, most),
        None => Ok(default),
    }
}
