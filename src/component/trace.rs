//! What ran when, written into a file while it runs: the "JSON array" form of Chrome's trace events,
//! which Perfetto and chrome://tracing draw. (Trace Event Format, the Catapult project.)
//!
//! Events are complete ones (`"ph": "X"`): name, category, begin and duration in microseconds, a number
//! for the thread, and arguments. The array is closed when the last user lets go of the trace; without
//! its end, should the process end before, it can still be read, because the format leaves the bracket
//! out if it must.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{
    Backend, Call, ComponentError, ComponentIo, ComponentSession, InPlaceCache, Input, Output, RunControl,
    Shape, byte_len,
};

/// A file of events. Clones write into the same one, from any thread.
#[derive(Clone)]
pub struct Trace(Arc<Shared>);

struct Shared {
    began: Instant,
    /// Told of the first failure to write, after which nothing more is written.
    failed: Box<dyn Fn(&io::Error) + Send + Sync>,
    writer: Mutex<Writer>,
}

struct Writer {
    /// None once writing has failed.
    file: Option<File>,
    /// What is to be written, whole events: the file never ends inside of one.
    pending: Vec<u8>,
    /// A number for each thread that has written.
    threads: HashMap<ThreadId, usize>,
    has_events: bool,
}

/// What an event says beside its name and times.
#[derive(Clone, Copy, Debug)]
pub enum TraceArgument<'a> {
    Number(u64),
    Text(&'a str),
}

impl Trace {
    /// Begins a file, in the place of one that is there. `failed` is told if it cannot be written
    /// later, once.
    ///
    /// # Errors
    /// What creating the file gave.
    pub fn create(path: &Path, failed: impl Fn(&io::Error) + Send + Sync + 'static) -> io::Result<Self> {
        let mut file = File::create(path)?;
        // Shows at once what cannot be written to.
        file.write_all(b"[")?;
        Ok(Trace(Arc::new(Shared {
            began: Instant::now(),
            failed: Box::new(failed),
            writer: Mutex::new(Writer {
                file: Some(file),
                pending: Vec::new(),
                threads: HashMap::new(),
                has_events: false,
            }),
        })))
    }

    /// Time since the trace began.
    pub fn now(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// Writes that something has gone on since `began`, on this thread.
    pub fn complete(
        &self,
        category: &str,
        name: &str,
        began: Duration,
        arguments: &[(&str, TraceArgument<'_>)],
    ) {
        let took = self.now().saturating_sub(began);
        let mut writer = self.0.writer.lock();
        let result = writer.write(category, name, began, took, arguments);
        if let Err(error) = result {
            writer.file = None;
            drop(writer);
            (self.0.failed)(&error);
        }
    }

    /// An event that ends when what is returned is dropped.
    pub fn span(&self, category: &'static str, name: &'static str) -> TraceSpan {
        TraceSpan {
            trace: self.clone(),
            category,
            name,
            began: self.now(),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

impl Writer {
    fn write(
        &mut self,
        category: &str,
        name: &str,
        began: Duration,
        took: Duration,
        arguments: &[(&str, TraceArgument<'_>)],
    ) -> io::Result<()> {
        let count = self.threads.len();
        let mut is_new = false;
        let thread = *self.threads.entry(thread::current().id()).or_insert_with(|| {
            is_new = true;
            count + 1
        });
        if self.file.is_none() {
            return Ok(());
        }
        let file = &mut self.pending;
        if is_new {
            let begin = if self.has_events { ",\n" } else { "\n" };
            let of = thread::current();
            let of = of
                .name()
                .map_or_else(|| format!("thread {thread}"), str::to_owned);
            write!(
                file,
                "{begin}{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"args\":{{\"name\":{}}}}}",
                Json(&of)
            )?;
            self.has_events = true;
        }
        write!(
            file,
            ",\n{{\"name\":{},\"cat\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":1,\"tid\":{thread}",
            Json(name),
            Json(category),
            Microseconds(began),
            Microseconds(took)
        )?;
        for (place, (key, value)) in arguments.iter().enumerate() {
            let begin = if place == 0 { ",\"args\":{" } else { "," };
            write!(file, "{begin}{}:", Json(key))?;
            match value {
                TraceArgument::Number(number) => write!(file, "{number}")?,
                TraceArgument::Text(text) => write!(file, "{}", Json(text))?,
            }
        }
        file.write_all(if arguments.is_empty() { b"}" } else { b"}}" })?;
        // Operators come by the thousand; what holds them is written at its end, and they with it.
        if category != OPERATOR || self.pending.len() >= MOST_PENDING {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(&self.pending)?;
        }
        self.pending.clear();
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let writer = self.writer.get_mut();
        writer.pending.extend(b"\n]\n");
        if let Err(error) = writer.flush() {
            (self.failed)(&error);
        }
    }
}

/// Bytes that are kept before they are written.
const MOST_PENDING: usize = 1 << 16;

/// The category of an operator of a graph.
pub const OPERATOR: &str = "operator";
/// The category of a component's run.
pub const COMPONENT: &str = "component";
/// The category of a component's loading.
pub const LOAD: &str = "load";
/// The category of what a host has called.
pub const CALL: &str = "call";

struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A string always has a form in JSON.
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}

struct Microseconds(Duration);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        write!(f, "{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
    }
}

/// See [`Trace::span`].
#[must_use]
#[derive(Debug)]
pub struct TraceSpan {
    trace: Trace,
    category: &'static str,
    name: &'static str,
    began: Duration,
}

impl Drop for TraceSpan {
    fn drop(&mut self) {
        self.trace.complete(self.category, self.name, self.began, &[]);
    }
}

/// A session whose runs are traced.
pub struct TracedSession {
    session: Box<dyn ComponentSession>,
    trace: Trace,
    threads: usize,
}

impl TracedSession {
    /// `threads` is the most that the session may use.
    pub fn new(session: Box<dyn ComponentSession>, trace: Trace, threads: usize) -> Self {
        TracedSession {
            session,
            trace,
            threads,
        }
    }

    /// Writes down a run of so many calls together, with the bytes that they read and made.
    fn complete(&self, began: Duration, calls: usize, bytes: [usize; 2], error: Option<&ComponentError>) {
        let [read, made] = bytes;
        let error = error.map(ToString::to_string);
        let mut arguments = vec![
            ("backend", TraceArgument::Text(self.session.backend().name())),
            ("threads", TraceArgument::Number(self.threads as u64)),
            ("calls", TraceArgument::Number(calls as u64)),
            ("input_bytes", TraceArgument::Number(read as u64)),
            ("output_bytes", TraceArgument::Number(made as u64)),
        ];
        if let Some(error) = &error {
            arguments.push(("error", TraceArgument::Text(error)));
        }
        let name = match self.session.name() {
            "" => "session",
            name => name,
        };
        self.trace.complete(COMPONENT, name, began, &arguments);
    }
}

/// Bytes that a call reads, and those that it has made.
fn bytes(inputs: &[Input<'_>], outputs: &[Output<'_>]) -> [usize; 2] {
    let made = outputs.iter().filter_map(|output| {
        let (dtype, shape) = output.result.dtype_and_shape()?;
        byte_len(dtype, shape).ok()
    });
    let read = inputs.iter().map(|input| input.value.bytes().len());
    [read.sum(), made.sum()]
}

impl ComponentSession for TracedSession {
    fn name(&self) -> &str {
        self.session.name()
    }

    fn backend(&self) -> Backend {
        self.session.backend()
    }

    fn io(&self) -> &ComponentIo {
        self.session.io()
    }

    fn metadata(&self) -> &[(String, String)] {
        self.session.metadata()
    }

    fn in_place_caches(&self) -> &[InPlaceCache] {
        self.session.in_place_caches()
    }

    fn overwrites(&self, past: usize, present: usize) -> bool {
        self.session.overwrites(past, present)
    }

    fn takes_buffer(&self, past: usize, present: usize) -> bool {
        self.session.takes_buffer(past, present)
    }

    fn output_shapes(
        &mut self,
        inputs: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError> {
        self.session.output_shapes(inputs, outputs)
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentError> {
        let began = self.trace.now();
        let result = self.session.execute(inputs, outputs, control);
        self.complete(began, 1, bytes(inputs, outputs), result.as_ref().err());
        result
    }

    fn joins_calls(&self) -> bool {
        self.session.joins_calls()
    }

    fn execute_together(
        &mut self,
        calls: &mut [Call<'_, '_>],
        control: &RunControl,
    ) -> Option<Result<(), ComponentError>> {
        let began = self.trace.now();
        let result = self.session.execute_together(calls, control);
        if let Some(result) = &result {
            let each = calls.iter().map(|call| bytes(call.inputs, call.outputs));
            let all = each.fold([0, 0], |[read, made], [more, and]| [read + more, made + and]);
            self.complete(began, calls.len(), all, result.as_ref().err());
        }
        result
    }
}
