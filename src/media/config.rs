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

/// A number for each of red, green and blue. Deviations, which are divided by, are above 0.
pub(super) fn channels(config: &Value, key: &str, default: [f32; 3]) -> Result<[f32; 3], ConfigError> {
    let Some(list) = config.get(key).filter(|value| !value.is_null()) else {
        return Ok(default);
    };
    let numbers = list.as_array().and_then(|list| {
        let numbers = list.iter().map(|number| float(number, key).ok());
        numbers.collect::<Option<Vec<f32>>>()
    });
    match numbers.as_deref() {
        Some(numbers) if key.ends_with("std") && !numbers.iter().all(|&number| number > 0.0) => Err(
            ConfigError::new(key, "a number of it is not above 0, and is divided by"),
        ),
        Some(&[red, green, blue]) => Ok([red, green, blue]),
        _ => Err(ConfigError::new(key, "it is no list of three numbers of float32")),
    }
}

/// A number that a float32 holds.
pub(super) fn float(value: &Value, key: &str) -> Result<f32, ConfigError> {
    let number = value.as_f64().map(|number| number as f32);
    number
        .filter(|number| number.is_finite())
        .ok_or_else(|| ConfigError::new(key, "it is no number of float32"))
}
