//! How tokens are chosen, as a caller or a package says it: names, ranges, and how values are
//! written.

use std::fmt::{self, Display};

use thiserror::Error;

/// How tokens are chosen, as far as it is said. What nobody says has its neutral value.
///
/// The names are those of Hugging Face's `GenerationConfig` where that has them. A caller's values
/// win over a package's, one by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOptions {
    /// Whether tokens are drawn; otherwise the most probable one is taken. Unsaid, a caller who
    /// asks for one of the options of sampling (`temperature` and what follows) means to draw.
    pub do_sample: Option<bool>,
    /// No end token before prompt and answer have so many tokens.
    pub min_length: Option<u64>,
    /// No end token before the answer has so many tokens.
    pub min_new_tokens: Option<u64>,
    /// 1 is none.
    pub repetition_penalty: Option<f64>,
    /// 0 is none.
    pub frequency_penalty: Option<f64>,
    /// 0 is none.
    pub presence_penalty: Option<f64>,
    /// 0 is no DRY at all.
    pub dry_multiplier: Option<f64>,
    pub dry_base: Option<f64>,
    pub dry_allowed_length: Option<u64>,
    /// How many of the last tokens DRY looks at; 0 is all.
    pub dry_range: Option<u64>,
    /// Tokens that end a repetition for DRY.
    pub dry_breakers: Option<Vec<i32>>,
    /// 0 is none.
    pub no_repeat_ngram_size: Option<u64>,
    /// What is added to the logits of tokens; -inf rules one out.
    pub logit_bias: Option<Vec<(i32, f32)>>,
    /// Sequences of tokens that are never completed.
    pub bad_words: Option<Vec<Vec<i32>>>,
    /// Tokens that are never chosen.
    pub suppress_tokens: Option<Vec<i32>>,
    /// Tokens that are not chosen first.
    pub begin_suppress_tokens: Option<Vec<i32>>,
    /// 1 changes nothing; 0 takes the most probable token.
    pub temperature: Option<f64>,
    /// 0 is all.
    pub top_k: Option<u64>,
    /// 1 is all.
    pub top_p: Option<f64>,
    /// 0 is all.
    pub min_p: Option<f64>,
    /// 1 is all.
    pub typical_p: Option<f64>,
    /// 0 is all.
    pub top_a: Option<f64>,
    pub xtc_threshold: Option<f64>,
    /// 0 is never.
    pub xtc_probability: Option<f64>,
    /// The version, 1 or 2; 0 is none.
    pub mirostat: Option<u64>,
    pub mirostat_tau: Option<f64>,
    pub mirostat_eta: Option<f64>,
    /// How many alternatives to a chosen token are kept with their probabilities.
    pub logprobs: Option<u64>,
    /// 1 is no search.
    pub num_beams: Option<u64>,
    pub num_return_sequences: Option<u64>,
    pub length_penalty: Option<f64>,
    pub early_stopping: Option<EarlyStopping>,
    pub num_beam_groups: Option<u64>,
    pub diversity_penalty: Option<f64>,
}

/// When a beam search ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When it is unlikely that there are better sequences: judged by the best unfinished one as
    /// it is now.
    #[default]
    No,
    /// As soon as there are as many finished sequences as beams.
    Yes,
    /// When there can be no better sequences.
    Never,
}

impl EarlyStopping {
    pub(crate) const NAMES: [(&'static str, EarlyStopping); 3] = [
        ("true", EarlyStopping::Yes),
        ("false", EarlyStopping::No),
        ("never", EarlyStopping::Never),
    ];

    fn name(self) -> &'static str {
        match self {
            EarlyStopping::Yes => "true",
            EarlyStopping::No => "false",
            EarlyStopping::Never => "never",
        }
    }
}

/// An option that cannot be what it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionError {
    #[error("there is no option \"{0}\"")]
    Unknown(String),
    /// `expected` is what it may be: "a number from 0 to 1".
    #[error("\"{name}\" is out of range; it is {expected}")]
    Invalid { name: &'static str, expected: String },
    /// Options that contradict each other.
    #[error("\"{name}\" {message}")]
    Contradiction { name: &'static str, message: String },
}

/// One option: its name, where it is kept, and what it may be.
pub(crate) struct SamplingOption {
    pub name: &'static str,
    pub field: Field,
    part: Part,
}

/// What an option is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Logits, whether tokens are then drawn or not.
    Logits,
    /// Which tokens are drawn.
    Sampling,
    /// Nothing without another option, whose name it is.
    Of(&'static str),
    Beams,
}

/// The place of an option that is a `T`.
type Place<T> = fn(&mut SamplingOptions) -> &mut Option<T>;

/// Where an option is kept.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Flag(Place<bool>),
    Count(Place<u64>, u64, u64),
    Number(Place<f64>, f64, f64),
    Tokens(Place<Vec<i32>>),
    Words(Place<Vec<Vec<i32>>>),
    Biases(Place<Vec<(i32, f32)>>),
    Stopping(Place<EarlyStopping>),
}

const MOST_TOKENS: u64 = u32::MAX as u64;
/// Beams of a search, each of which has caches of its own.
const MOST_BEAMS: u64 = 64;
/// How far a bias goes, other than -inf.
pub(crate) const MOST_BIAS: f32 = 10_000.0;

macro_rules! options {
    ($($name:ident: $kind:ident $(($least:expr, $most:expr))?, $part:expr;)*) => {
        &[$(SamplingOption {
            name: stringify!($name),
            field: Field::$kind(|options| &mut options.$name $(, $least, $most)?),
            part: $part,
        },)*]
    };
}

/// All of them, in the order in which they act.
pub(crate) const SAMPLING_OPTIONS: &[SamplingOption] = options! {
    do_sample: Flag, Part::Logits;
    min_length: Count(0, MOST_TOKENS), Part::Logits;
    min_new_tokens: Count(0, MOST_TOKENS), Part::Logits;
    repetition_penalty: Number(0.01, 100.0), Part::Logits;
    frequency_penalty: Number(-100.0, 100.0), Part::Logits;
    presence_penalty: Number(-100.0, 100.0), Part::Logits;
    dry_multiplier: Number(0.0, 100.0), Part::Logits;
    dry_base: Number(1.0, 10.0), Part::Of("dry_multiplier");
    dry_allowed_length: Count(1, 50), Part::Of("dry_multiplier");
    dry_range: Count(0, MOST_TOKENS), Part::Of("dry_multiplier");
    dry_breakers: Tokens, Part::Of("dry_multiplier");
    no_repeat_ngram_size: Count(0, 1000), Part::Logits;
    logit_bias: Biases, Part::Logits;
    bad_words: Words, Part::Logits;
    suppress_tokens: Tokens, Part::Logits;
    begin_suppress_tokens: Tokens, Part::Logits;
    temperature: Number(0.0, 100.0), Part::Sampling;
    top_k: Count(0, MOST_TOKENS), Part::Sampling;
    top_p: Number(0.0, 1.0), Part::Sampling;
    min_p: Number(0.0, 1.0), Part::Sampling;
    typical_p: Number(0.0, 1.0), Part::Sampling;
    top_a: Number(0.0, 1.0), Part::Sampling;
    xtc_threshold: Number(0.0, 1.0), Part::Of("xtc_probability");
    xtc_probability: Number(0.0, 1.0), Part::Sampling;
    mirostat: Count(0, 2), Part::Sampling;
    mirostat_tau: Number(0.0, 100.0), Part::Of("mirostat");
    mirostat_eta: Number(0.0, 1.0), Part::Of("mirostat");
    logprobs: Count(0, 1000), Part::Logits;
    num_beams: Count(1, MOST_BEAMS), Part::Beams;
    num_return_sequences: Count(1, MOST_BEAMS), Part::Beams;
    length_penalty: Number(-100.0, 100.0), Part::Beams;
    early_stopping: Stopping, Part::Beams;
    num_beam_groups: Count(1, MOST_BEAMS), Part::Beams;
    diversity_penalty: Number(0.0, 100.0), Part::Beams;
};

impl SamplingOption {
    pub fn named(name: &str) -> Option<&'static SamplingOption> {
        SAMPLING_OPTIONS.iter().find(|option| option.name == name)
    }

    fn is_given(&self, options: &mut SamplingOptions) -> bool {
        match self.field {
            Field::Flag(field) => field(options).is_some(),
            Field::Count(field, ..) => field(options).is_some(),
            Field::Number(field, ..) => field(options).is_some(),
            Field::Tokens(field) => field(options).is_some(),
            Field::Words(field) => field(options).is_some(),
            Field::Biases(field) => field(options).is_some(),
            Field::Stopping(field) => field(options).is_some(),
        }
    }

    /// What the option may be, if it is not that.
    fn fault(&self, options: &mut SamplingOptions) -> Option<String> {
        let bad_token = |tokens: &[i32]| tokens.iter().any(|&token| token < 0);
        match self.field {
            Field::Flag(_) | Field::Stopping(_) => None,
            Field::Count(field, least, most) => {
                let value = (*field(options))?;
                (!(least..=most).contains(&value)).then(|| expected_count(least, most))
            }
            Field::Number(field, least, most) => {
                let value = (*field(options))?;
                (!(least..=most).contains(&value)).then(|| expected_number(least, most))
            }
            Field::Tokens(field) => {
                let tokens = field(options).as_ref()?;
                bad_token(tokens).then(|| EXPECTED_TOKENS.to_owned())
            }
            Field::Words(field) => {
                let words = field(options).as_ref()?;
                let bad = words.iter().any(|word| word.is_empty() || bad_token(word));
                bad.then(|| EXPECTED_WORDS.to_owned())
            }
            Field::Biases(field) => {
                let biases = field(options).as_ref()?;
                let good = |bias: f32| bias == f32::NEG_INFINITY || bias.abs() <= MOST_BIAS;
                let bad = biases.iter().any(|&(token, bias)| token < 0 || !good(bias));
                bad.then(expected_biases)
            }
        }
    }

    /// The option's value as JSON; `None` if it is not given.
    pub fn to_json(&self, options: &mut SamplingOptions) -> Option<serde_json::Value> {
        use serde_json::json;
        match self.field {
            Field::Flag(field) => field(options).map(|value| json!(value)),
            Field::Count(field, ..) => field(options).map(|value| json!(value)),
            Field::Number(field, ..) => field(options).map(|value| json!(value)),
            Field::Tokens(field) => field(options).as_ref().map(|value| json!(value)),
            Field::Words(field) => field(options).as_ref().map(|value| json!(value)),
            Field::Biases(field) => field(options).as_ref().map(|biases| {
                let entries = biases.iter();
                let entries = entries.map(|(token, bias)| (token.to_string(), json!(bias)));
                serde_json::Value::Object(entries.collect())
            }),
            Field::Stopping(field) => field(options).map(|value| match value {
                EarlyStopping::Yes => json!(true),
                EarlyStopping::No => json!(false),
                EarlyStopping::Never => json!(value.name()),
            }),
        }
    }
}

const EXPECTED_TOKENS: &str = "token ids (0 to 2147483647) with commas between them: \"13,198\"";
const EXPECTED_WORDS: &str =
    "sequences of token ids (0 to 2147483647), spaces within and commas between them: \"13,5 198\"";

fn expected_biases() -> String {
    format!(
        "token ids (0 to 2147483647), each with a colon and a number from -{MOST_BIAS} to {MOST_BIAS} or \
         -inf, and commas between them: \"13:-2.5,198:-inf\""
    )
}

fn expected_count(least: u64, most: u64) -> String {
    format!("a whole number from {least} to {most}")
}

fn expected_number(least: f64, most: f64) -> String {
    format!("a number from {least} to {most}")
}

impl SamplingOptions {
    /// The names of all options.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SAMPLING_OPTIONS.iter().map(|option| option.name)
    }

    /// Sets an option by its name, from text: whole numbers and decimals as they are usually
    /// written, `true` and `false`; token ids with commas between them; `logit_bias` as `id:value`
    /// with commas between; `bad_words` as ids with spaces within a word and commas between words.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let Some(option) = SamplingOption::named(name) else {
            return Err(OptionError::Unknown(name.to_owned()));
        };
        let read = match option.field {
            Field::Flag(field) => {
                let words = [("true", true), ("false", false)];
                one_of(value, &words, "\"true\" or \"false\"").map(|value| *field(self) = Some(value))
            }
            Field::Stopping(field) => {
                let expected = "\"true\", \"false\" or \"never\"";
                one_of(value, &EarlyStopping::NAMES, expected).map(|value| *field(self) = Some(value))
            }
            Field::Count(field, least, most) => {
                count(value, least, most).map(|value| *field(self) = Some(value))
            }
            Field::Number(field, least, most) => {
                number(value, least, most).map(|value| *field(self) = Some(value))
            }
            Field::Tokens(field) => tokens(value, ',').map(|tokens| *field(self) = Some(tokens)),
            Field::Words(field) => words(value).map(|words| *field(self) = Some(words)),
            Field::Biases(field) => biases(value).map(|biases| *field(self) = Some(biases)),
        };
        read.map_err(|expected| OptionError::Invalid {
            name: option.name,
            expected,
        })
    }

    /// Whether all values are in range.
    pub fn check(&self) -> Result<(), OptionError> {
        let mut options = self.clone();
        for option in SAMPLING_OPTIONS {
            if let Some(expected) = option.fault(&mut options) {
                let name = option.name;
                return Err(OptionError::Invalid { name, expected });
            }
        }
        Ok(())
    }

    /// The name of one that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let mut options = self.clone();
        let mut all = SAMPLING_OPTIONS.iter();
        all.find(|option| option.is_given(&mut options))
            .map(|option| option.name)
    }

    /// A caller's options, with a package's for what the caller does not say. A package's `num_beams`
    /// gives way where tokens are drawn or `logprobs` asked for, and its `num_return_sequences` where
    /// there are not so many beams.
    ///
    /// An error if the caller's own contradict each other: an option of sampling where `do_sample`
    /// is false, or one that belongs to another which nobody gives.
    pub fn over(&self, package: &SamplingOptions) -> Result<SamplingOptions, OptionError> {
        self.check()?;
        let (mut caller, mut package, mut merged) = (self.clone(), package.clone(), self.clone());
        let mut asks_to_sample = None;
        for option in SAMPLING_OPTIONS {
            if option.is_given(&mut caller) {
                if option.part == Part::Sampling {
                    asks_to_sample.get_or_insert(option.name);
                }
            } else {
                option.copy(&mut package, &mut merged);
            }
        }
        if let (Some(name), Some(false)) = (asks_to_sample, self.do_sample) {
            let message =
                "is about sampling, which \"do_sample\" false says not to do; leave one of them out";
            return Err(OptionError::Contradiction {
                name,
                message: message.to_owned(),
            });
        }
        for option in SAMPLING_OPTIONS {
            if let Part::Of(other) = option.part
                && option.is_given(&mut caller)
                && SamplingOption::named(other).is_some_and(|other| !other.is_given(&mut merged))
            {
                return Err(OptionError::Contradiction {
                    name: option.name,
                    message: format!("does nothing without \"{other}\"; give that too"),
                });
            }
        }
        let searches = self.num_beams.is_some_and(|count| count > 1);
        if searches && self.do_sample.is_none() && asks_to_sample.is_none() {
            merged.do_sample = Some(false);
        }
        let draws = self.do_sample.unwrap_or(asks_to_sample.is_some());
        let by_package = self.do_sample.is_none() && merged.do_sample == Some(true);
        if self.num_beams.is_none() && (draws || by_package || self.logprobs.is_some()) {
            // A package's search, which is not done with that, gives way.
            merged.num_beams = None;
        }
        let most = merged.num_beams.unwrap_or(1);
        if self.num_return_sequences.is_none()
            && merged.num_return_sequences.is_some_and(|count| count > most)
        {
            merged.num_return_sequences = None;
        }
        for option in SAMPLING_OPTIONS {
            let needs_beams = option.part == Part::Beams && !matches!(option.name, "num_beams");
            if needs_beams && option.is_given(&mut caller) && merged.num_beams.unwrap_or(1) == 1 {
                return Err(OptionError::Contradiction {
                    name: option.name,
                    message: "does nothing without \"num_beams\" above 1; give that too".to_owned(),
                });
            }
        }
        if merged.do_sample.is_none() || (self.do_sample.is_none() && asks_to_sample.is_some()) {
            merged.do_sample = Some(asks_to_sample.is_some());
        }
        Ok(merged)
    }
}

impl SamplingOption {
    fn copy(&self, from: &mut SamplingOptions, to: &mut SamplingOptions) {
        match self.field {
            Field::Flag(field) => *field(to) = *field(from),
            Field::Count(field, ..) => *field(to) = *field(from),
            Field::Number(field, ..) => *field(to) = *field(from),
            Field::Tokens(field) => field(to).clone_from(field(from)),
            Field::Words(field) => field(to).clone_from(field(from)),
            Field::Biases(field) => field(to).clone_from(field(from)),
            Field::Stopping(field) => *field(to) = *field(from),
        }
    }
}

/// What is wrong with one part of a list.
fn in_list(expected: &dyn Display, part: &str, place: usize) -> String {
    let part: String = part.chars().take(40).collect();
    format!(
        "{expected}; \"{}\", number {place} of them, is none",
        part.escape_debug()
    )
}

fn one_of<T: Copy>(value: &str, words: &[(&str, T)], expected: &str) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, value)| *value).ok_or_else(|| expected.to_owned())
}

fn count(value: &str, least: u64, most: u64) -> Result<u64, String> {
    // `parse` takes a sign as well.
    let digits = Some(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    let count = digits.and_then(|digits| digits.parse().ok());
    let count = count.filter(|count| (least..=most).contains(count));
    count.ok_or_else(|| expected_count(least, most))
}

fn number(value: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| expected_number(least, most))
}

fn token(value: &str) -> Option<i32> {
    count(value, 0, i32::MAX as u64)
        .ok()
        .and_then(|id| i32::try_from(id).ok())
}

/// Token ids; none of them in an empty text.
fn tokens(value: &str, separator: char) -> Result<Vec<i32>, String> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let parts = value.split(separator).enumerate();
    let one =
        |(at, part): (usize, &str)| token(part.trim()).ok_or_else(|| in_list(&EXPECTED_TOKENS, part, at + 1));
    parts.map(one).collect()
}

fn words(value: &str) -> Result<Vec<Vec<i32>>, String> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let parts = value.split(',').enumerate();
    let one = |(at, part): (usize, &str)| {
        let ids: Option<Vec<i32>> = part.split_ascii_whitespace().map(token).collect();
        ids.filter(|ids| !ids.is_empty())
            .ok_or_else(|| in_list(&EXPECTED_WORDS, part, at + 1))
    };
    parts.map(one).collect()
}

fn biases(value: &str) -> Result<Vec<(i32, f32)>, String> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let parts = value.split(',').enumerate();
    let one = |(at, part): (usize, &str)| {
        let found = part.split_once(':').and_then(|(id, bias)| {
            let bias = match bias.trim() {
                "-inf" => Some(f32::NEG_INFINITY),
                bias => bias.parse().ok().filter(|bias: &f32| bias.abs() <= MOST_BIAS),
            };
            token(id.trim()).zip(bias)
        });
        found.ok_or_else(|| in_list(&expected_biases(), part, at + 1))
    };
    parts.map(one).collect()
}

impl fmt::Display for EarlyStopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: &[(&str, &str)]) -> SamplingOptions {
        let mut all = SamplingOptions::default();
        for (name, value) in options {
            all.set(name, value).unwrap();
        }
        all
    }

    #[test]
    fn values_are_read_and_bad_ones_are_told_what_they_may_be() {
        let options = given(&[
            ("logit_bias", "5:-2.5, 7:-inf"),
            ("bad_words", "5 6,7"),
            ("suppress_tokens", "1, 2"),
            ("early_stopping", "never"),
            ("top_k", "50"),
            ("top_p", "0.9"),
        ]);
        assert_eq!(options.logit_bias, Some(vec![(5, -2.5), (7, f32::NEG_INFINITY)]));
        assert_eq!(options.bad_words, Some(vec![vec![5, 6], vec![7]]));
        assert_eq!(options.suppress_tokens, Some(vec![1, 2]));
        assert_eq!(options.early_stopping, Some(EarlyStopping::Never));
        let bad = [
            ("top_p", "1.5", "a number from 0 to 1"),
            ("top_p", "nan", "a number from 0 to 1"),
            ("top_k", "-1", "a whole number from 0 to 4294967295"),
            ("temperature", "inf", "a number from 0 to 100"),
            ("mirostat", "3", "a whole number from 0 to 2"),
            ("do_sample", "1", "\"true\" or \"false\""),
            ("early_stopping", "1", "\"true\", \"false\" or \"never\""),
            ("logit_bias", "5:1,6", "\"6\", number 2 of them"),
            ("logit_bias", "5:inf", "\"5:inf\", number 1 of them"),
            ("bad_words", "1 2,,3", "\"\", number 2 of them"),
            ("dry_breakers", "1,2147483648", "\"2147483648\", number 2 of them"),
        ];
        for (name, value, fragment) in bad {
            let error = SamplingOptions::default().set(name, value).unwrap_err();
            assert!(error.to_string().contains(fragment), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        let unknown = SamplingOptions::default().set("top_q", "1");
        assert_eq!(unknown, Err(OptionError::Unknown("top_q".to_owned())));
        let outside = SamplingOptions {
            min_p: Some(f64::NAN),
            ..SamplingOptions::default()
        };
        assert!(outside.check().is_err());
    }

    #[test]
    fn a_packages_search_gives_way_to_the_caller() {
        let searching = [("num_beams", "4"), ("num_return_sequences", "3")];
        let package = given(&searching);
        let sampled = given(&[searching[0], searching[1], ("do_sample", "true")]);
        let own = |options: &[(&str, &str)], package: &SamplingOptions| {
            let merged = given(options).over(package).unwrap();
            (merged.num_beams, merged.num_return_sequences, merged.do_sample)
        };
        assert_eq!(own(&[], &package), (Some(4), Some(3), Some(false)));
        for options in [("temperature", "0.5"), ("do_sample", "true")] {
            assert_eq!(own(&[options], &package), (None, None, Some(true)));
        }
        assert_eq!(own(&[("logprobs", "2")], &package), (None, None, Some(false)));
        assert_eq!(own(&[("num_beams", "1")], &package), (Some(1), None, Some(false)));
        assert_eq!(own(&[("num_beams", "2")], &package), (Some(2), None, Some(false)));
        assert_eq!(own(&[], &sampled), (None, None, Some(true)));
        assert_eq!(
            own(&[("do_sample", "false")], &sampled),
            (Some(4), Some(3), Some(false))
        );
        assert_eq!(
            own(&[("num_beams", "4")], &sampled),
            (Some(4), Some(3), Some(false))
        );
    }

    #[test]
    fn a_callers_options_win_one_by_one() {
        let package = given(&[("do_sample", "true"), ("top_k", "50"), ("temperature", "0.5")]);
        let merged = given(&[("temperature", "2")]).over(&package).unwrap();
        assert_eq!(
            merged,
            given(&[("do_sample", "true"), ("top_k", "50"), ("temperature", "2")])
        );
        let greedy = given(&[("do_sample", "false")]).over(&package).unwrap();
        assert_eq!(greedy.do_sample, Some(false));
        let nothing = SamplingOptions::default();
        assert_eq!(nothing.over(&nothing).unwrap().do_sample, Some(false));
        assert_eq!(
            given(&[("min_p", "0.1")]).over(&nothing).unwrap().do_sample,
            Some(true)
        );
        let greedy_package = given(&[("do_sample", "false"), ("top_k", "50")]);
        assert_eq!(
            given(&[("top_p", "1")]).over(&greedy_package).unwrap().do_sample,
            Some(true)
        );
        let contradiction = given(&[("do_sample", "false"), ("top_p", "0.9")]).over(&nothing);
        assert!(contradiction.unwrap_err().to_string().contains("do_sample"));
        let alone = given(&[("mirostat_tau", "5")]).over(&nothing);
        assert!(alone.unwrap_err().to_string().contains("without \"mirostat\""));
    }
}
