//! Defaults for generation and roles of tokens, which all formats name alike.

use super::PackageError;
use super::declaration::{GenerationDefaults, Said, TOKEN_ROLES};
use super::document::{Cursor, Fields};

/// Tokens that end the text, where a section names any.
pub(super) type EndTokens = Option<Vec<Said<i32>>>;

/// Reads the section `generation` of package metadata.
pub(super) fn read_generation(
    fields: &mut Fields<'_>,
) -> Result<(GenerationDefaults, EndTokens), PackageError> {
    let Some(section) = fields.get("generation") else {
        return Ok((GenerationDefaults::default(), None));
    };
    let mut generation = section.fields()?;
    let defaults = read_defaults(&mut generation, 1)?;
    let eos = generation
        .get("eos_token_id")
        .map(|at| token_ids(&at))
        .transpose()?;
    generation.finish();
    Ok((defaults, eos))
}

/// Reads the fields that formats have in common. `shortest` is the least `max_length`: some
/// formats write 0 for none.
pub(super) fn read_defaults(
    generation: &mut Fields<'_>,
    shortest: u64,
) -> Result<GenerationDefaults, PackageError> {
    let max_length = generation
        .get("max_length")
        .map(|value| value.count(shortest))
        .transpose()?;
    let do_sample = match generation.get("do_sample") {
        Some(value) => {
            let sampled = value.bool()?;
            if sampled {
                value.warn("sampling is not done by this version; the most probable token is chosen");
            }
            Some(sampled)
        }
        None => None,
    };
    // Without sampling, temperature, top_k and top_p do not change the largest logit. The others
    // change which token is chosen, unless they have the neutral value.
    let mut number = |name: &'static str, neutral: Option<f64>| {
        let Some(value) = generation.get(name) else {
            return Ok(None);
        };
        let number = value.number()?;
        if neutral.is_some_and(|neutral| neutral != number) {
            value.warn("not done by this version; the most probable token is chosen");
        }
        Ok::<_, PackageError>(Some(number))
    };
    let temperature = number("temperature", None)?;
    let top_p = number("top_p", None)?;
    let repetition_penalty = number("repetition_penalty", Some(1.0))?;
    // Of beams alone, as is early_stopping.
    let length_penalty = number("length_penalty", None)?;
    let diversity_penalty = number("diversity_penalty", None)?;
    let mut count = |name: &'static str, neutral: Option<u64>| {
        let Some(value) = generation.get(name) else {
            return Ok(None);
        };
        let count = value.count(0)?;
        if neutral.is_some_and(|neutral| neutral != count) {
            value.warn("not done by this version; the most probable token is chosen");
        }
        Ok::<_, PackageError>(Some(count))
    };
    Ok(GenerationDefaults {
        do_sample,
        temperature,
        top_k: count("top_k", None)?,
        top_p,
        repetition_penalty,
        num_beams: count("num_beams", Some(1))?,
        num_return_sequences: count("num_return_sequences", Some(1))?,
        min_length: count("min_length", Some(0))?,
        max_length,
        length_penalty,
        no_repeat_ngram_size: count("no_repeat_ngram_size", Some(0))?,
        diversity_penalty,
        // "never" is a third value of some formats.
        early_stopping: generation
            .get("early_stopping")
            .and_then(|value| value.bool().ok()),
    })
}

/// Reads the section `tokens` of package metadata.
#[expect(clippy::type_complexity, reason = "two parts of one section")]
pub(super) fn read_tokens(
    fields: &mut Fields<'_>,
) -> Result<(EndTokens, Vec<(&'static str, i32)>), PackageError> {
    let Some(section) = fields.get("tokens") else {
        return Ok((None, Vec::new()));
    };
    let mut tokens = section.fields()?;
    let eos = tokens.get("eos_token_id").map(|at| token_ids(&at)).transpose()?;
    let roles = read_roles(&mut tokens)?;
    tokens.finish();
    Ok((eos, roles))
}

/// The roles of tokens that a section names.
pub(super) fn read_roles(tokens: &mut Fields<'_>) -> Result<Vec<(&'static str, i32)>, PackageError> {
    let mut roles = Vec::new();
    for role in TOKEN_ROLES {
        if let Some(id) = tokens.get(role) {
            roles.push((role, id.token_id()?));
        }
    }
    Ok(roles)
}

/// A list of token ids, or one by itself.
pub(super) fn token_ids(at: &Cursor<'_>) -> Result<Vec<Said<i32>>, PackageError> {
    let one = |at: &Cursor<'_>| {
        Ok(Said {
            value: at.token_id()?,
            at: at.location(),
        })
    };
    if at.is_list() {
        at.items()?.map(|id| one(&id)).collect()
    } else {
        Ok(vec![one(at)?])
    }
}
