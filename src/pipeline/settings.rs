//! How a run generates, and which of that fits a package.

use crate::component::MemoryAccount;
use crate::generation::{Beams, OptionError, SAMPLING_OPTIONS, Sampler, SamplingOptions};
use crate::package::{ComponentSpec, PipelineSpec};
use crate::text::DEFAULT_JSON_WHITESPACE;

use super::RequestError;

/// How a run generates.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Tokens to choose after each append; wins over the package's own limit. `None` takes
    /// the package's, or none at all.
    pub max_tokens: Option<u64>,
    /// Whether an end token of the package finishes the run.
    pub stop_on_eos: bool,
    /// Tokens of prompt and answers together, after which the run is finished; wins over the
    /// package's own limit. `None` takes the package's, unless there is a `max_tokens`.
    pub max_length: Option<u64>,
    /// Any of these finishes the run once the text of the turn's chosen tokens has come to it.
    pub stop_strings: Vec<String>,
    /// Whether the stop string that finishes the run is part of the events' text.
    pub keep_stop_string: bool,
    /// Any of these finishes the run once the turn's chosen tokens end with it.
    pub stop_tokens: Vec<Vec<i32>>,
    /// Whether the text of events is without that of special tokens.
    pub skip_special_tokens: bool,
    /// White-space characters that a constraint allows in a row between the parts of JSON; 0
    /// allows none.
    pub json_whitespace: u32,
    /// The most tokens that one pass feeds; `None` feeds a whole prompt at once.
    pub chunk_size: Option<usize>,
    /// Whether a pass over several tokens keeps the logits of all of them. Choosing a token
    /// needs the last position's alone, and to compute no others saves a good part of a
    /// prompt's work.
    pub all_logits: bool,
    /// Steps of an iterative package's loop; `None` takes the package's. Where it has several, this
    /// and what follows are of the last one, whose steps are those of the run if it chooses no
    /// tokens; the others are as the package says, and draw from the same seed.
    pub num_steps: Option<u64>,
    /// The first step of the loop that runs, the others being left out: what the host sets at
    /// the loop's input is then what they would have made of it. `None` takes the package's.
    pub start_step: Option<u64>,
    /// Whether what the host sets at the loop's input is clean, and gets as much noise as the first
    /// step that runs begins with: an image to be made into another. For packages with a scheduler
    /// that takes noise back.
    pub add_noise: bool,
    /// How far an iterative package's guidance goes, 0 to 1000; 1 is none. `None` takes the
    /// package's.
    pub guidance_scale: Option<f64>,
    /// What tokens are drawn from, or, in an iterative package with a scheduler, noise; `None` is the
    /// package's, or 0. The same seed gives the same tokens and noise, on every system.
    pub seed: Option<u64>,
    /// How tokens are chosen; what is not said here is as the package says, and greedy where that says
    /// nothing. The codes that an inner decoder makes for a frame are its most probable ones always.
    pub sampling: SamplingOptions,
    /// Whether a pass has guesses of the tokens that come next, and whose.
    pub speculation: Speculation,
    /// The most tokens that are guessed for a pass, 1 to [`MAX_SPECULATION`](super::MAX_SPECULATION).
    /// `None` is what the package says of its head, else 4.
    pub speculation_tokens: Option<usize>,
    /// Bytes of memory that the run may take: KV caches, inputs that were set, outputs, and what its
    /// components compute between them. `None` is no limit.
    pub memory_bytes: Option<u64>,
    /// Bytes that decoding and preprocessing one image or sound may take; `None` is 4 GiB, and
    /// nothing is more.
    pub media_bytes: Option<u64>,
}

/// Who guesses the next tokens of a run. The tokens are the same whoever does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    #[default]
    Off,
    /// What followed the last few tokens when they were there before.
    PromptLookup,
    /// Another model, see [`Run::set_draft`](super::Run::set_draft).
    Draft,
    /// The package's own head, of the EAGLE or of the MTP kind.
    Head,
}

impl RunSettings {
    /// Those that the values of a run depend on, as options have them.
    pub(super) fn named(&self) -> Vec<(&'static str, String)> {
        let RunSettings {
            // When to end, which nothing that there is depends on.
            max_tokens: _,
            max_length: _,
            stop_on_eos,
            stop_strings,
            keep_stop_string,
            stop_tokens,
            skip_special_tokens,
            json_whitespace,
            chunk_size,
            all_logits,
            num_steps,
            start_step,
            add_noise,
            guidance_scale,
            seed,
            // What the tokens do not depend on.
            speculation: _,
            speculation_tokens: _,
            memory_bytes: _,
            media_bytes: _,
            sampling,
        } = self;
        fn shown<T: ToString>(value: &Option<T>) -> String {
            value.as_ref().map_or("(default)".to_owned(), T::to_string)
        }
        let mut named = vec![
            ("stop_on_eos", stop_on_eos.to_string()),
            ("stop_strings", format!("{stop_strings:?}")),
            ("keep_stop_string", keep_stop_string.to_string()),
            ("stop_tokens", format!("{stop_tokens:?}")),
            ("skip_special_tokens", skip_special_tokens.to_string()),
            ("json_whitespace", json_whitespace.to_string()),
            ("chunk_size", shown(chunk_size)),
            ("logits", (if *all_logits { "all" } else { "last" }).to_owned()),
            ("num_steps", shown(num_steps)),
            ("start_step", shown(start_step)),
            ("add_noise", add_noise.to_string()),
            ("guidance_scale", shown(guidance_scale)),
            ("seed", shown(seed)),
        ];
        let mut sampling = sampling.clone();
        for option in SAMPLING_OPTIONS {
            named.push((option.name, shown(&option.to_json(&mut sampling))));
        }
        named
    }
}

impl RunSettings {
    /// What a run's memory counts for, if it has a limit.
    pub(super) fn memory_account(&self) -> Option<MemoryAccount> {
        let limit = self.memory_bytes?;
        Some(MemoryAccount::new("the run", "memory_bytes", limit))
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            max_tokens: None,
            stop_on_eos: true,
            max_length: None,
            stop_strings: Vec::new(),
            keep_stop_string: false,
            stop_tokens: Vec::new(),
            skip_special_tokens: true,
            json_whitespace: DEFAULT_JSON_WHITESPACE,
            chunk_size: None,
            all_logits: false,
            num_steps: None,
            start_step: None,
            add_noise: false,
            guidance_scale: None,
            seed: None,
            sampling: SamplingOptions::default(),
            speculation: Speculation::Off,
            speculation_tokens: None,
            memory_bytes: None,
            media_bytes: None,
        }
    }
}

/// Settings that are for a loop, where there is none.
pub(super) fn refuse_steps(
    settings: &RunSettings,
    strategy: &'static str,
    has_tokens: bool,
) -> Result<(), RequestError> {
    let given = [
        ("num_steps", settings.num_steps.is_some()),
        ("start_step", settings.start_step.is_some()),
        ("add_noise", settings.add_noise),
        ("guidance_scale", settings.guidance_scale.is_some()),
        // Tokens are drawn from it too.
        ("seed", settings.seed.is_some() && !has_tokens),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some(&(what, _)) => Err(RequestError::InvalidSetting {
            what,
            message: format!("for packages with an iterative strategy; this one is {strategy}"),
        }),
    }
}

pub(super) fn check_settings(
    settings: &RunSettings,
    decoder: Option<&ComponentSpec>,
    keeps_cache: bool,
    embeds: bool,
    has_text: bool,
) -> Result<(), RequestError> {
    let refuse = |what, message: &str| {
        Err(RequestError::InvalidSetting {
            what,
            message: message.to_owned(),
        })
    };
    if settings.max_tokens == Some(0) {
        return refuse("max_tokens", "0 would choose none; give at least 1");
    }
    if settings.max_length == Some(0) {
        return refuse("max_length", "0 leaves no place for a token; give at least 1");
    }
    for (what, given) in [
        ("max_length", settings.max_length.is_some()),
        ("stop_tokens", !settings.stop_tokens.is_empty()),
    ] {
        if given && decoder.is_none() {
            return refuse(what, "the package has no token loop that it could end");
        }
    }
    for (what, given) in [
        ("stop_strings", !settings.stop_strings.is_empty()),
        ("skip_special_tokens", !settings.skip_special_tokens),
    ] {
        if given && !has_text {
            return refuse(
                what,
                "the tokens that the package chooses have no text: it has no tokenizer for them",
            );
        }
    }
    if settings.stop_strings.iter().any(String::is_empty) {
        return refuse(
            "stop_strings",
            "an empty one would end every text at once; leave it out",
        );
    }
    if settings.stop_tokens.iter().any(Vec::is_empty) {
        return refuse(
            "stop_tokens",
            "an empty sequence would end every turn at once; leave it out",
        );
    }
    match settings.chunk_size {
        Some(0) => refuse("chunk_size", "0 would feed nothing; give at least 1"),
        Some(_) if decoder.is_none() => {
            refuse("chunk_size", "the package has no token loop to feed in chunks")
        }
        Some(_) if embeds => refuse(
            "chunk_size",
            "the decoder reads embeddings of the whole prompt at once, from the package's pre_embedder",
        ),
        Some(_) if !keeps_cache => refuse(
            "chunk_size",
            "the decoder keeps no cache, so that every step must feed all tokens at once",
        ),
        _ => Ok(()),
    }
}

/// What chooses the tokens of a run, by its settings and the package's defaults.
pub(super) fn sampler(
    settings: &RunSettings,
    spec: &PipelineSpec,
) -> Result<(Sampler, Option<Beams>), RequestError> {
    let own = &settings.sampling;
    if spec.token_loop.is_none()
        && let Some(what) = own.given()
    {
        return Err(RequestError::InvalidSetting {
            what,
            message: format!("for packages that choose tokens; this one is {}", spec.strategy),
        });
    }
    let mut options = own.over(&spec.generation.sampling).map_err(invalid)?;
    let stops = [
        ("stop_strings", !settings.stop_strings.is_empty()),
        ("stop_tokens", !settings.stop_tokens.is_empty()),
    ];
    let stops = stops.iter().find(|(_, given)| *given);
    if own.num_beams.is_none() && (stops.is_some() || settings.speculation != Speculation::Off) {
        // What the caller says comes before a search that only the package asks for.
        options.num_beams = None;
        options.num_return_sequences = own.num_return_sequences;
    }
    let beams = match spec.token_loop {
        Some(_) => Beams::new(&options).map_err(invalid)?,
        None => None,
    };
    if let (Some(_), Some(&(what, _))) = (&beams, stops) {
        return Err(RequestError::InvalidSetting {
            what,
            message: "beams are searched without it; leave it out, or set num_beams to 1".to_owned(),
        });
    }
    if beams.is_some() && spec.nested.is_some() {
        return Err(RequestError::InvalidSetting {
            what: "num_beams",
            message: format!("beams are searched over text; this package is {}", spec.strategy),
        });
    }
    let seed = settings.seed.or(spec.generation.seed).unwrap_or(0);
    Ok((Sampler::new(&options, seed, &spec.eos_token_ids), beams))
}

fn invalid(error: OptionError) -> RequestError {
    let (what, message) = match error {
        OptionError::Invalid { name, expected } => (name, format!("out of range; it is {expected}")),
        OptionError::Contradiction { name, message } => (name, message),
        OptionError::Unknown(name) => ("sampling", format!("there is no option \"{name}\"")),
    };
    RequestError::InvalidSetting { what, message }
}
