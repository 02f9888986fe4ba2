//! Defaults for generation and roles of tokens, which all formats name alike.

use crate::generation::{EarlyStopping, Field, MOST_BIAS, SAMPLING_OPTIONS, SamplingOptions};

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
    let mut defaults = read_defaults(&mut generation, 1)?;
    defaults.seed = generation.get("seed").map(|seed| seed.count(0)).transpose()?;
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
    let mut sampling = SamplingOptions::default();
    for option in SAMPLING_OPTIONS {
        // Which alternatives are looked at is for the host to say; and it has another name here.
        if matches!(option.name, "logprobs" | "bad_words") {
            continue;
        }
        if let Some(value) = generation.get(option.name) {
            read_option(option.field, &value, &mut sampling)?;
        }
    }
    if sampling.do_sample == Some(true)
        && sampling.num_beams.is_some_and(|count| count > 1)
        && let Some(value) = generation.get("num_beams")
    {
        value.warn("a search that draws tokens is not done by this version; they are drawn without one");
    }
    let groups = sampling.num_beam_groups.take().is_some_and(|groups| groups > 1);
    let diverse = sampling
        .diversity_penalty
        .take()
        .is_some_and(|penalty| penalty > 0.0);
    for (name, given) in [("num_beam_groups", groups), ("diversity_penalty", diverse)] {
        if given && let Some(value) = generation.get(name) {
            value.warn("groups of beams are not searched by this version; beams are searched as one group");
        }
    }
    if let Some(words) = generation.get("bad_words_ids") {
        let words = words.items()?.map(|word| ids(&word)).collect::<Result<_, _>>()?;
        sampling.bad_words = Some(words);
    }
    for (name, neutral) in NOT_DONE {
        if let Some(value) = generation.get(name)
            && !neutral.is(&value)
        {
            value.warn("not done by this version; tokens are chosen without it");
        }
    }
    Ok(GenerationDefaults {
        sampling,
        seed: None,
        max_length,
    })
}

/// The value that a field has where it does nothing.
#[derive(Clone, Copy)]
enum Neutral {
    Empty,
    Number(f64),
}

impl Neutral {
    fn is(self, value: &Cursor<'_>) -> bool {
        match self {
            Neutral::Empty => value.is_list() && value.items().is_ok_and(|mut items| items.next().is_none()),
            Neutral::Number(neutral) => value.number().is_ok_and(|number| number == neutral),
        }
    }
}

/// What transformers does with tokens and this library does not.
const NOT_DONE: [(&str, Neutral); 14] = [
    ("constraints", Neutral::Empty),
    ("dola_layers", Neutral::Empty),
    ("encoder_no_repeat_ngram_size", Neutral::Number(0.0)),
    ("encoder_repetition_penalty", Neutral::Number(1.0)),
    ("epsilon_cutoff", Neutral::Number(0.0)),
    ("eta_cutoff", Neutral::Number(0.0)),
    ("exponential_decay_length_penalty", Neutral::Empty),
    ("force_words_ids", Neutral::Empty),
    ("forced_bos_token_id", Neutral::Empty),
    ("forced_decoder_ids", Neutral::Empty),
    ("forced_eos_token_id", Neutral::Empty),
    ("guidance_scale", Neutral::Number(1.0)),
    ("penalty_alpha", Neutral::Number(0.0)),
    ("sequence_bias", Neutral::Empty),
];

fn read_option(field: Field, value: &Cursor<'_>, sampling: &mut SamplingOptions) -> Result<(), PackageError> {
    match field {
        Field::Flag(field) => *field(sampling) = Some(value.bool()?),
        Field::Count(field, least, most) => *field(sampling) = Some(value.count_up_to(least, most)?),
        Field::Number(field, least, most) => {
            let expected = format!("a number from {least} to {most}");
            let number = value.number_where(&expected, |number| (least..=most).contains(&number))?;
            *field(sampling) = Some(number);
        }
        Field::Tokens(field) => *field(sampling) = Some(ids(value)?),
        Field::Words(_) => {}
        Field::Biases(field) => {
            let most = f64::from(MOST_BIAS);
            let expected = format!("a number from -{most} to {most}");
            let mut biases = Vec::new();
            for (token, bias) in value.entries()? {
                let id = token.parse().ok().filter(|id: &i32| *id >= 0);
                let id = id.ok_or_else(|| bias.invalid("the key is no token id (0 to 2^31 - 1)"))?;
                let bias = bias.number_where(&expected, |bias| (-most..=most).contains(&bias))?;
                biases.push((id, bias as f32));
            }
            *field(sampling) = Some(biases);
        }
        Field::Stopping(field) => {
            let stopping = match value.bool() {
                Ok(true) => EarlyStopping::Yes,
                Ok(false) => EarlyStopping::No,
                Err(_) => value.one_of(&[("never", EarlyStopping::Never)])?,
            };
            *field(sampling) = Some(stopping);
        }
    }
    Ok(())
}

fn ids(at: &Cursor<'_>) -> Result<Vec<i32>, PackageError> {
    at.items()?.map(|id| id.token_id()).collect()
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
