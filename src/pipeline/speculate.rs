//! Several tokens in one pass: what may come next is guessed, fed behind the last token, and kept as
//! far as it is what the run chooses.
//!
//! A pass over one token reads all weights, and a pass over a few hardly takes longer. So the tokens
//! that a run chooses are proposed by something cheap (the prompt itself, a small model, the package's
//! own head), and one pass
//! makes the logits behind each of them (Leviathan, Kalman & Matias, "Fast Inference from Transformers
//! via Speculative Decoding", 2023). The run then chooses from these logits as it always does, token
//! by token; where its choice is the proposed token, the logits behind that are there already and no
//! pass is needed; where it is not, the rows behind it go from the caches.
//!
//! The tokens are those of the run without speculation, greedy or drawn: each is chosen from the same
//! logits by the same draw. To draw x from p and keep the proposal d if x = d is rejection sampling for
//! a proposal that is certain: it is kept with probability p(d), and else x is of p without d.

use std::time::Instant;

use crate::component::{MemoryAccount, RunControl};
use crate::generation::{Beams, SamplingOptions, prompt_lookup};
use crate::package::{ComponentSpec, TokenLoop};

use super::convert::row_at;
use super::head::Head;
use super::open::{PipelineShared, vocabulary};
use super::settings::{RunSettings, Speculation};
use super::{ErrorKind, Pipeline, PipelineError, RequestError, Run, Timings};

/// The most tokens that one pass has guesses of.
pub const MAX_SPECULATION: usize = 7;

/// How many are guessed where nobody says it.
const DEFAULT: usize = 4;

/// The tokens at the end of a sequence that are looked for in it, at most.
const LONGEST: usize = 3;

/// What the last pass has computed beyond the tokens that there are.
#[derive(Default)]
pub(super) struct Ahead {
    /// A smaller model that guesses.
    draft: Option<Box<Run>>,
    /// The package's own head that guesses.
    head: Option<Box<Head>>,
    /// Tokens that are proposed and have rows in the caches, behind those that count.
    proposed: Vec<i32>,
    /// Logits behind each of them.
    logits: Vec<Vec<f32>>,
    /// How many of them have been chosen since.
    taken: usize,
    /// All tokens of the pass under way.
    tokens: Vec<i32>,
    /// The graph gives the logits of the last position alone.
    is_impossible: bool,
}

impl Ahead {
    /// What it needs for guesses counts for the account of the run.
    pub fn new(
        pipeline: &Pipeline,
        settings: &RunSettings,
        account: Option<MemoryAccount>,
    ) -> Result<Ahead, PipelineError> {
        let head = match settings.speculation {
            Speculation::Head => Head::new(pipeline, account)?.map(Box::new),
            _ => None,
        };
        Ok(Ahead {
            head,
            ..Ahead::default()
        })
    }

    /// Bytes that the caches of who guesses hold, beside the run's own.
    pub fn cache_bytes(&self) -> u64 {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.cache_bytes());
        draft + self.head.as_ref().map_or(0, |head| head.cache_bytes())
    }

    pub fn fork(&mut self, account: Option<MemoryAccount>) -> Result<Ahead, PipelineError> {
        let draft = self.draft.as_mut();
        let draft = draft.map(|draft| draft.fork_for(account.clone())).transpose()?;
        Ok(Ahead {
            draft: draft.map(Box::new),
            head: self.head.as_mut().map(|head| Box::new(head.fork(account))),
            is_impossible: self.is_impossible,
            ..Ahead::default()
        })
    }

    /// There is nothing in the caches any more.
    pub fn forget(&mut self) {
        self.proposed.clear();
        self.taken = 0;
    }

    /// Undoes what a pass that ended in a panic has left.
    pub fn roll_back(&mut self) {
        self.tokens.clear();
        if let Some(draft) = &mut self.draft {
            draft.roll_back();
        }
        if let Some(head) = &mut self.head {
            head.roll_back();
        }
    }

    /// The tokens of the pass under way, if it is one with guesses.
    pub fn tokens(&self) -> Option<&[i32]> {
        Some(self.tokens.as_slice()).filter(|tokens| !tokens.is_empty())
    }
}

/// Whether a package's runs can be run with guesses.
pub(super) fn check_speculation(
    settings: &RunSettings,
    shared: &PipelineShared,
    keeps_cache: bool,
) -> Result<(), RequestError> {
    let spec = &shared.spec;
    if settings.speculation == Speculation::Off {
        return Ok(());
    }
    let refuse = |message: &str| {
        Err(RequestError::InvalidSetting {
            what: "speculation",
            message: message.to_owned(),
        })
    };
    let most = settings.speculation_tokens.unwrap_or(DEFAULT);
    if !(1..=MAX_SPECULATION).contains(&most) {
        return refuse(&format!("{most} tokens in a pass; give 1 to {MAX_SPECULATION}"));
    }
    match spec.token_loop {
        None => refuse("the package has no token loop"),
        Some(_) if spec.nested.is_some() => refuse("the package's steps are frames of codes"),
        Some(_) if !keeps_cache => refuse("the decoder keeps no cache, so that every pass feeds all tokens"),
        Some(token_loop) if token_loop.one_at_a_time => {
            refuse("the decoder takes one token at a time behind a prompt")
        }
        Some(_) if spec.components.iter().any(ComponentSpec::has_recurrent_state) => {
            refuse("the package has a recurrent state, which does not go back behind a wrong guess")
        }
        Some(_) if settings.speculation == Speculation::Head && shared.head.is_none() => {
            let why = shared.no_head.as_deref();
            refuse(why.unwrap_or("the package has no head that guesses (speculative, model.mtp)"))
        }
        Some(_) => Ok(()),
    }
}

/// An error when beams are searched, whose copies of a run go on from what it has computed.
pub(super) fn refuse_beams(speculation: Speculation, beams: Option<&Beams>) -> Result<(), RequestError> {
    match beams {
        Some(_) if speculation != Speculation::Off => Err(RequestError::InvalidSetting {
            what: "speculation",
            message: "beams are searched without guesses; set num_beams to 1".to_owned(),
        }),
        _ => Ok(()),
    }
}

impl Run {
    /// Has another pipeline's model guess what this run chooses: a smaller one of the same
    /// vocabulary. It is given this run's tokens as they come. Settings say how many tokens it guesses
    /// for a pass; with [`Speculation::Off`] they are as many as the default. What it takes of memory
    /// counts for this run.
    pub fn set_draft(&mut self, pipeline: &Pipeline) -> Result<(), PipelineError> {
        let size_of = |pipeline: &Pipeline| {
            let shared = pipeline.shared();
            vocabulary(&shared.spec, shared.tokenizer.as_deref())
        };
        let mut settings = self.settings.clone();
        settings.speculation = Speculation::Draft;
        check_speculation(&settings, self.pipeline.shared(), self.keeps_cache)?;
        refuse_beams(settings.speculation, self.beams.as_ref())?;
        let (own, drafts) = (size_of(&self.pipeline), size_of(pipeline));
        let refuse = |message: String| RequestError::InvalidSetting {
            what: "draft",
            message,
        };
        if let (Some(own), Some(drafts)) = (own, drafts)
            && own != drafts
        {
            let message = format!("its vocabulary has {drafts} tokens, and this one's {own}");
            return Err(refuse(message).into());
        }
        let spec = &pipeline.shared().spec;
        if spec.token_loop.is_none() || spec.nested.is_some() {
            let message = format!("it is {}; give an autoregressive package", spec.strategy);
            return Err(refuse(message).into());
        }
        let of_draft = RunSettings {
            sampling: SamplingOptions {
                do_sample: Some(false),
                num_beams: Some(1),
                ..SamplingOptions::default()
            },
            stop_on_eos: false,
            max_tokens: Some(u64::MAX),
            ..RunSettings::default()
        };
        let draft = Run::for_account(pipeline, &of_draft, self.pool.account())?;
        self.ahead.draft = Some(Box::new(draft));
        self.ahead.head = None;
        self.settings = settings;
        Ok(())
    }

    /// Takes what the last pass has computed of tokens that were chosen since.
    pub(super) fn use_ahead(&mut self) -> Result<(), PipelineError> {
        while self.ahead.taken < self.ahead.proposed.len() {
            let next = self.transcript.tokens().get(self.ran);
            let (Some(next), Some(proposed)) = (next, self.ahead.proposed.get(self.ahead.taken)) else {
                return Ok(());
            };
            if next != proposed {
                return self.forget_ahead();
            }
            if let Some(logits) = self.ahead.logits.get_mut(self.ahead.taken) {
                std::mem::swap(&mut self.logits, logits);
            }
            self.ahead.taken += 1;
            self.ran += 1;
            self.has_logits = true;
            self.logits_are_used = false;
            self.stats.accepted_tokens += 1;
        }
        Ok(())
    }

    /// Drops the rows of the caches that are of tokens which were not chosen.
    pub(super) fn forget_ahead(&mut self) -> Result<(), PipelineError> {
        if self.ahead.taken < self.ahead.proposed.len() {
            let pipeline = self.pipeline.clone();
            let rows = self.outer_rows(self.ran);
            self.pool.truncate_caches(&pipeline.shared().spec, rows)?;
        }
        self.ahead.forget();
        Ok(())
    }

    /// Feeds the last token and guesses behind it, if there are any; says whether it did.
    pub(super) fn feed_ahead(
        &mut self,
        token_loop: TokenLoop,
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<bool, PipelineError> {
        let count = self.transcript.len();
        if self.ran == 0 || self.ran + 1 != count || self.ahead.is_impossible {
            return Ok(false);
        }
        let most = self.room_ahead(count);
        let started = Instant::now();
        let proposed = self.propose(most, control)?;
        timings.step_components += started.elapsed();
        if proposed.is_empty() {
            return Ok(false);
        }
        self.forget_ahead()?;
        self.ahead.tokens.clear();
        self.ahead.tokens.extend_from_slice(self.transcript.tokens());
        self.ahead.tokens.extend_from_slice(&proposed);
        let (past, len) = (self.outer_rows(self.ran), proposed.len() + 1);
        let range = self.ran..count + proposed.len();
        let outcome = self.pass(token_loop, range, (past, len), control, timings);
        self.ahead.tokens.clear();
        let outcome = outcome.and_then(|()| self.take_rows(token_loop, len));
        let all_there = match outcome {
            Ok(all_there) => all_there,
            Err(error) => return self.settle(Err(error)),
        };
        if !all_there {
            self.ahead.is_impossible = true;
            self.pool.roll_back();
            // The pass has made its last row the logits.
            std::mem::swap(&mut self.logits, &mut self.next_logits);
            return Ok(false);
        }
        self.settle(Ok(()))?;
        self.last_span = 1;
        self.ran = count;
        self.has_logits = true;
        self.logits_are_used = false;
        self.stats.proposed_tokens += proposed.len() as u64;
        self.ahead.proposed = proposed;
        self.show_head(token_loop, (count - 1, len), control)?;
        Ok(true)
    }

    /// How many tokens may be guessed behind so many.
    fn room_ahead(&self, count: usize) -> usize {
        let limit = self
            .stop
            .context_length
            .and_then(|limit| usize::try_from(limit).ok());
        let rows = limit.into_iter().chain(self.pool.most_rows()).min();
        let room = rows.map_or(usize::MAX, |rows| rows.saturating_sub(count));
        let head = self.pipeline.shared().head.as_ref();
        let by_head = head.filter(|_| self.settings.speculation == Speculation::Head);
        let most = self.settings.speculation_tokens;
        let most = most.or(by_head.and_then(|head| head.spec.tokens));
        most.unwrap_or(DEFAULT).min(MAX_SPECULATION).min(room)
    }

    fn propose(&mut self, most: usize, control: &RunControl) -> Result<Vec<i32>, PipelineError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let tokens = self.transcript.tokens();
        let ahead = &mut self.ahead;
        let mut guesses = match (self.settings.speculation, &mut ahead.draft, &mut ahead.head) {
            (Speculation::PromptLookup, ..) => prompt_lookup(tokens, LONGEST, most).to_vec(),
            (Speculation::Head, _, Some(head)) => head.guess(tokens, most, control)?,
            (Speculation::Draft, Some(draft), _) => match draft.guess(tokens, most, control) {
                Ok(guesses) => guesses,
                Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded) => {
                    return Err(error);
                }
                // It may have less room than this run, and nothing depends on it.
                Err(_) => Vec::new(),
            },
            (Speculation::Off | Speculation::Draft | Speculation::Head, ..) => Vec::new(),
        };
        // What is no token of the model is no guess, and nor is what comes behind it.
        let known = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < self.logits.len());
        let good = guesses.iter().take_while(|id| known(id)).count();
        guesses.truncate(good);
        Ok(guesses)
    }

    /// Shows the head what a pass over so many positions from `start` on has made.
    pub(super) fn show_head(
        &mut self,
        token_loop: TokenLoop,
        (start, len): (usize, usize),
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let Some(head) = &mut self.ahead.head else {
            return Ok(());
        };
        // A component that stands in for the decoder has no hidden states.
        if start > 0 || self.pipeline.shared().spec.first_pass.is_none() {
            head.take_rows(&self.pool, token_loop, self.transcript.tokens(), (start, len));
        }
        head.catch_up(self.transcript.tokens(), self.ran, control)
    }

    /// What this run would choose behind these tokens.
    fn guess(
        &mut self,
        tokens: &[i32],
        count: usize,
        control: &RunControl,
    ) -> Result<Vec<i32>, PipelineError> {
        let alike = self
            .tokens()
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count();
        self.rewind(alike)?;
        self.append_tokens(tokens.get(alike..).unwrap_or_default())?;
        let mut guesses = Vec::with_capacity(count);
        while guesses.len() < count {
            let event = self.step(control)?;
            guesses.extend(event.token);
            if event.finish.is_some() {
                break;
            }
        }
        Ok(guesses)
    }

    /// Takes the logits of the last positions of a pass, of which the first are the run's now; false
    /// where there are fewer.
    fn take_rows(&mut self, token_loop: TokenLoop, count: usize) -> Result<bool, PipelineError> {
        let Some(made) = self.pool.output(token_loop.decoder, token_loop.logits) else {
            return Ok(false);
        };
        let rows = made.shape().split_last().map_or(&[][..], |(_, rows)| rows);
        let rows = rows.iter().fold(1usize, |all, &dim| {
            all.saturating_mul(usize::try_from(dim).unwrap_or(0))
        });
        let Some(first) = rows.checked_sub(count) else {
            return Ok(false);
        };
        let ahead = &mut self.ahead;
        ahead.logits.resize_with(count - 1, Vec::new);
        let all = std::iter::once(&mut self.logits).chain(&mut ahead.logits);
        Ok((first..)
            .zip(all)
            .all(|(row, to)| row_at(made, row, to).is_some()))
    }
}
