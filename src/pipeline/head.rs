//! A package's own head that guesses tokens for a run.
//!
//! The head's row i is made of the target's hidden states at position i and of the token at i + 1. So
//! each pass of the decoder leaves rows here, which the head takes once the tokens behind them are
//! chosen; then it goes on from its own hidden state, token by token, and these rows go again. Rows of
//! positions that this run has not run itself (those of a prefix that another run has computed, of a
//! state that was loaded, of a step together with others) are not known; the head then begins anew
//! behind them, as if the text began there. Rows of a text that goes on in another way now go.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::component::{Backend, Charge, Dim, MemoryAccount, RunControl, TensorView};
use crate::generation::greedy;
use crate::package::{HeadPackage, HeadSpec, PipelineSpec, TokenLoop};
use crate::runtime::{LogLevel, OpenedComponent, Runtime};

use super::convert::last_row;
use super::execute::SharedSession;
use super::info::ComponentInfo;
use super::placement::grow_in_place;
use super::pool::{Pool, Span, at_port};
use super::{ErrorKind, Pipeline, PipelineError};

/// Rows that may wait until tokens are guessed: those of a long prompt that is fed in chunks do not
/// pile up.
const MOST_WAITING: usize = 256;

/// Bytes of rows for which room is kept.
const MOST_KEPT: usize = 1 << 20;

/// A head, loaded.
pub(super) struct HeadModel {
    pub spec: HeadSpec,
    /// One for each of its components; those that the package's decoder has too are shared.
    pub sessions: Vec<SharedSession>,
    pub name: String,
    pub backend: Backend,
    pub reason: String,
}

impl HeadModel {
    /// `sessions` are those of the target's components.
    pub fn new(
        runtime: &Runtime,
        head: &HeadPackage,
        opened: OpenedComponent,
        target: &PipelineSpec,
        sessions: &[SharedSession],
    ) -> Result<Self, PipelineError> {
        let names = head.package.declaration().component_names();
        let place = |name: &str| {
            target
                .components
                .iter()
                .position(|component| component.name == name)
        };
        let mut own = Vec::with_capacity(names.len());
        for name in names.iter().filter(|name| *name != head.name()) {
            let Some(index) = place(name) else { continue };
            own.extend(sessions.get(index).cloned());
        }
        let mut spec = head.resolve(target, opened.session.io())?;
        grow_in_place(&mut spec.spec, spec.component, opened.session.as_ref())?;
        let message = format!(
            "the head \"{}\" runs on {}: {}",
            head.name(),
            opened.backend,
            opened.reason
        );
        runtime.log(LogLevel::Info, &message);
        own.push(Arc::new(Mutex::new(opened.session)));
        Ok(HeadModel {
            spec,
            sessions: own,
            name: head.name().to_owned(),
            backend: opened.backend,
            reason: opened.reason,
        })
    }

    /// The head as a component of the pipeline.
    pub fn info(&self) -> Option<ComponentInfo> {
        let component = self.spec.spec.components.get(self.spec.component)?;
        Some(ComponentInfo {
            name: self.name.clone(),
            component_type: component.component_type.clone(),
            file: component.file.clone(),
            backend: self.backend,
            reason: self.reason.clone(),
            phase: component.phase,
            when_present: None,
            io: component.io.clone(),
        })
    }
}

/// What a head has of one run.
pub(super) struct Head {
    pipeline: Pipeline,
    pool: Pool,
    /// The position that its first row is of.
    base: usize,
    /// Tokens of the rows in its cache, that of row i being at position base + i + 1.
    tokens: Vec<i32>,
    /// The text that all rows are of, as far as it is known.
    text: Vec<i32>,
    /// Rows of hidden states behind those, position by position, and how many.
    waiting: Vec<u8>,
    waiting_rows: usize,
    /// What those count for.
    waiting_charge: Option<Charge>,
    /// Elements of a row that the target gives.
    width: usize,
    /// It has given what no head gives, and is not asked again.
    is_broken: bool,
    row: Vec<f32>,
}

impl Head {
    /// `None` where the package has no head. Its memory counts for the account of the run.
    pub fn new(pipeline: &Pipeline, account: Option<MemoryAccount>) -> Result<Option<Head>, PipelineError> {
        let Some(model) = pipeline.shared().head.as_ref() else {
            return Ok(None);
        };
        Ok(Some(Head {
            pool: Pool::new(&model.spec.spec, account)?,
            pipeline: pipeline.clone(),
            base: 0,
            tokens: Vec::new(),
            text: Vec::new(),
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_charge: None,
            width: 0,
            is_broken: false,
            row: Vec::new(),
        }))
    }

    pub fn fork(&mut self, account: Option<MemoryAccount>) -> Head {
        let mut fork = Head {
            pipeline: self.pipeline.clone(),
            pool: self.pool.fork(account),
            base: self.base,
            tokens: self.tokens.clone(),
            text: self.text.clone(),
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_charge: None,
            width: self.width,
            is_broken: self.is_broken,
            row: Vec::new(),
        };
        // Without room for those, the fork's begin anew with the next.
        if fork.make_room(self.waiting.len()).is_some() {
            fork.waiting.extend_from_slice(&self.waiting);
            fork.waiting_rows = self.waiting_rows;
        }
        fork
    }

    /// Undoes what a pass that ended in a panic has left.
    pub fn roll_back(&mut self) {
        self.pool.roll_back();
        if self.begin_at(0).is_err() {
            self.is_broken = true;
        }
    }

    /// Bytes that its caches hold, in use or reserved.
    pub fn cache_bytes(&self) -> u64 {
        let head = self.pipeline.shared().head.as_ref();
        head.map_or(0, |model| self.pool.cache_bytes(&model.spec.spec))
    }

    /// Takes the hidden states of a pass of the decoder over so many positions from `start` on. The last
    /// of them may be those of guesses behind the text.
    pub fn take_rows(
        &mut self,
        of: &Pool,
        token_loop: TokenLoop,
        text: &[i32],
        (start, len): (usize, usize),
    ) {
        if self.is_broken {
            return;
        }
        let placed = self.place(start, text);
        let taken = placed.map(|()| self.copy_rows(of, token_loop, len));
        if !matches!(taken, Ok(Some(()))) {
            self.give_up();
        }
    }

    /// What its rows are of when those of position `start` come next.
    fn place(&mut self, start: usize, text: &[i32]) -> Result<(), PipelineError> {
        self.drop_stale(text)?;
        let fed = self.base + self.tokens.len();
        if start < self.base || start > fed + self.waiting_rows {
            return self.begin_at(start);
        }
        if start < fed {
            self.keep(start - self.base)?;
        }
        self.keep_waiting(start.saturating_sub(fed));
        Ok(())
    }

    /// Drops the rows that are of another text than this one.
    fn drop_stale(&mut self, text: &[i32]) -> Result<(), PipelineError> {
        let alike = self.text.iter().zip(text).take_while(|(a, b)| a == b).count();
        let differ = alike < self.text.len().min(text.len());
        if differ {
            let fed = self.base + self.tokens.len();
            // A row is made of the token behind it too.
            match alike.checked_sub(self.base + 1) {
                Some(rows) if rows < self.tokens.len() => {
                    self.keep(rows)?;
                    self.keep_waiting(0);
                }
                Some(_) => self.keep_waiting(alike - fed),
                None => self.begin_at(self.base)?,
            }
        }
        self.text.truncate(alike);
        self.text.extend_from_slice(text.get(alike..).unwrap_or_default());
        Ok(())
    }

    fn begin_at(&mut self, position: usize) -> Result<(), PipelineError> {
        self.keep(0)?;
        self.keep_waiting(0);
        self.base = position;
        Ok(())
    }

    /// Keeps the first rows of the cache.
    fn keep(&mut self, rows: usize) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        if let Some(model) = &pipeline.shared().head {
            self.pool.truncate_caches(&model.spec.spec, rows)?;
        }
        self.tokens.truncate(rows);
        Ok(())
    }

    /// Keeps the first rows of those that wait.
    fn keep_waiting(&mut self, rows: usize) {
        if rows < self.waiting_rows {
            self.waiting
                .truncate(self.waiting.len() / self.waiting_rows * rows);
            self.waiting_rows = rows;
        }
    }

    /// Nothing depends on guesses: a run goes on without, and has what they took.
    fn give_up(&mut self) {
        self.is_broken = true;
        self.pool = Pool::default();
        self.tokens = Vec::new();
        self.text = Vec::new();
        self.drop_waiting();
    }

    fn drop_waiting(&mut self) {
        self.waiting = Vec::new();
        self.waiting_rows = 0;
        self.waiting_charge = None;
    }

    /// Room for so many more bytes of rows, if the run may have them.
    fn make_room(&mut self, bytes: usize) -> Option<()> {
        let all = self.waiting.len().checked_add(bytes)?;
        if all > self.waiting.capacity() {
            self.waiting_charge = None;
            let charge = self.pool.account().map(|account| account.charge(all as u64));
            self.waiting_charge = charge.transpose().ok()?;
            self.waiting.try_reserve_exact(bytes).ok()?;
        }
        Some(())
    }

    /// `None` where what the decoder has made is no hidden state of each position.
    fn copy_rows(&mut self, of: &Pool, token_loop: TokenLoop, len: usize) -> Option<()> {
        let pipeline = self.pipeline.clone();
        let model = pipeline.shared().head.as_ref()?;
        let mut rows = Vec::with_capacity(model.spec.targets.len());
        let mut bytes = 0;
        for &target in &model.spec.targets {
            let made = of.output(token_loop.decoder, target)?;
            bytes += made.bytes().len();
            rows.push(row_chunks(made, model, len)?);
        }
        self.make_room(bytes)?;
        for _ in 0..len {
            for target in &mut rows {
                self.waiting.extend_from_slice(target.next()?);
            }
        }
        self.waiting_rows += len;
        Some(())
    }

    /// Has the head take rows where many wait.
    pub fn catch_up(
        &mut self,
        tokens: &[i32],
        ran: usize,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        match self.waiting_rows > MOST_WAITING {
            true => {
                let outcome = self.feed_waiting(tokens, ran, control);
                self.unless_ended(outcome).map(|_| ())
            }
            false => Ok(()),
        }
    }

    /// What the head guesses behind these tokens, all but the last of which have run; at most so many.
    pub fn guess(
        &mut self,
        tokens: &[i32],
        most: usize,
        control: &RunControl,
    ) -> Result<Vec<i32>, PipelineError> {
        let mut guesses = Vec::new();
        let outcome = self.guess_into(tokens, most, control, &mut guesses);
        if self.unless_ended(outcome)?.is_none() {
            guesses.clear();
        }
        Ok(guesses)
    }

    /// An error that ends the call is one; another is the end of guessing.
    fn unless_ended<T>(&mut self, outcome: Result<T, PipelineError>) -> Result<Option<T>, PipelineError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded) => {
                self.pool.roll_back();
                Err(error)
            }
            Err(_) => {
                self.give_up();
                Ok(None)
            }
        }
    }

    /// Feeds the rows of positions that have run, of which the tokens behind are known. Says whether the
    /// last of them is that of the last position.
    fn feed_waiting(
        &mut self,
        tokens: &[i32],
        ran: usize,
        control: &RunControl,
    ) -> Result<bool, PipelineError> {
        self.drop_stale(tokens)?;
        let fed = self.base + self.tokens.len();
        // What was computed of guesses that were wrong.
        self.keep_waiting(ran.saturating_sub(fed));
        let known = self
            .waiting_rows
            .min(tokens.len().saturating_sub(1).saturating_sub(fed));
        let Some(behind) = tokens.get(fed + 1..fed + 1 + known).filter(|_| known > 0) else {
            return Ok(false);
        };
        let bytes = self.waiting.len() / self.waiting_rows.max(1) * known;
        let waiting = std::mem::take(&mut self.waiting);
        let outcome = self.run(behind, waiting.get(..bytes).unwrap_or_default(), false, control);
        self.waiting = waiting;
        outcome?;
        self.waiting.drain(..bytes);
        self.waiting_rows -= known;
        // Those of a prompt are many, and of a step few.
        if self.waiting_rows == 0 && self.waiting.capacity() > MOST_KEPT {
            self.drop_waiting();
        }
        Ok(fed + known == ran && self.waiting_rows == 0)
    }

    fn guess_into(
        &mut self,
        tokens: &[i32],
        most: usize,
        control: &RunControl,
        guesses: &mut Vec<i32>,
    ) -> Result<(), PipelineError> {
        if self.is_broken || most == 0 {
            return Ok(());
        }
        let pipeline = self.pipeline.clone();
        let Some(model) = pipeline.shared().head.as_ref() else {
            return Ok(());
        };
        if !self.feed_waiting(tokens, tokens.len().saturating_sub(1), control)? {
            return Ok(());
        }
        let rows = self.tokens.len();
        let mut outcome = Ok(());
        loop {
            let logits = self.pool.output(model.spec.component, model.spec.logits);
            let chosen = logits.and_then(|logits| last_row(logits, &mut self.row));
            let chosen = chosen.and_then(|()| greedy(&self.row).ok());
            let Some(guess) = chosen.and_then(|choice| i32::try_from(choice.index).ok()) else {
                break;
            };
            guesses.push(guess);
            let hidden = model.spec.hidden_output;
            let hidden = hidden.and_then(|output| self.pool.output(model.spec.component, output));
            let hidden = hidden.and_then(|hidden| row_chunks(hidden, model, rows_of(hidden))?.last());
            let (Some(hidden), true) = (hidden.map(<[u8]>::to_vec), guesses.len() < most) else {
                break;
            };
            outcome = self.run(&[guess], &hidden, true, control);
            if outcome.is_err() {
                break;
            }
        }
        // Rows of its own hidden states give way to those of the target's.
        self.keep(rows)?;
        outcome
    }

    /// Runs the head over rows of hidden states, the target's or its own.
    fn run(
        &mut self,
        tokens: &[i32],
        hidden: &[u8],
        is_own: bool,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let Some(model) = pipeline.shared().head.as_ref() else {
            return Ok(());
        };
        let HeadSpec {
            spec,
            component,
            hidden_input,
            recurrent_input,
            dtype,
            ..
        } = &model.spec;
        let past = self.tokens.len();
        let len = tokens.len();
        let element = dtype.size();
        let width = hidden.len() / len.max(1) / element.max(1);
        let _entered = self.pool.enter();
        if !is_own {
            self.width = width;
        }
        // Those of the target, or of the head: the other one's may be wider.
        let other = if is_own { self.width } else { width };
        let (to, zeros) = match (recurrent_input, is_own) {
            (Some(recurrent), true) => (*recurrent, Some(*hidden_input)),
            (recurrent, _) => (*hidden_input, *recurrent),
        };
        let head = spec.components.get(*component);
        let ports = head.map_or(&[][..], |head| &head.io.inputs);
        let put = |pool: &mut Pool, input: usize, width: usize, bytes: Option<&[u8]>| {
            let (Some(head), Some(port)) = (head, ports.get(input)) else {
                return Ok(());
            };
            let Some(value) = pool.request_mut(*component, input) else {
                return Ok(());
            };
            let shape = [1, len as i64, i64::try_from(width).unwrap_or(i64::MAX)];
            let room = value.write(*dtype, &shape);
            let room = room.map_err(|error| at_port(head, port, error))?;
            match bytes {
                Some(bytes) if bytes.len() == room.len() => room.copy_from_slice(bytes),
                _ => room.fill(0),
            }
            Ok::<_, PipelineError>(())
        };
        put(&mut self.pool, to, width, Some(hidden))?;
        if let Some(input) = zeros {
            let dims = ports.get(input).and_then(|port| port.dims.as_ref());
            let width = match dims.and_then(|dims| dims.last()) {
                Some(Dim::Fixed(width)) => usize::try_from(*width).unwrap_or(0),
                _ => other,
            };
            put(&mut self.pool, input, width, None)?;
        }
        self.tokens.extend_from_slice(tokens);
        let span = |index: usize| Span {
            ids: tokens,
            len,
            past,
            last_row: (index == *component && len > 1).then_some(model.spec.logits),
            tokens: &self.tokens,
        };
        let mut outcome = Ok(());
        for &index in &spec.order {
            outcome = self
                .pool
                .execute(spec, &model.sessions, index, span(index), control);
            if outcome.is_err() {
                break;
            }
        }
        match &outcome {
            Ok(()) => self.pool.commit(),
            Err(_) => {
                self.pool.roll_back();
                self.tokens.truncate(past);
            }
        }
        outcome
    }
}

/// Positions of `[1, positions, width]`.
fn rows_of(made: TensorView<'_>) -> usize {
    let rows = made.shape().get(1).copied().unwrap_or(0);
    usize::try_from(rows).unwrap_or(0)
}

/// The rows of `[1, len, width]`, in bytes; `None` of what is no such tensor.
fn row_chunks<'t>(
    made: TensorView<'t>,
    model: &HeadModel,
    len: usize,
) -> Option<std::slice::ChunksExact<'t, u8>> {
    let [1, rows, width] = *made.shape() else {
        return None;
    };
    let width = usize::try_from(width)
        .ok()?
        .checked_mul(model.spec.dtype.size())?;
    let good = made.dtype() == model.spec.dtype && usize::try_from(rows) == Ok(len) && width > 0;
    let bytes = made.bytes();
    good.then(|| bytes.chunks_exact(width))
}
