//! Vectors and classes of texts: packages that run once over a text, called without a run.
//!
//! Texts are encoded with the tokenizer's special tokens, padded to the longest, and run together, as
//! many as come to [`MOST_TOGETHER`] tokens, where the graph takes a mask and any number of texts; else
//! one by one. A text of more tokens than the package says, in `max_seq_length` or in the truncation of
//! `tokenizer.json`, is cut off there, unless the host would rather have an error. A vector is what the package
//! says of the outputs of its tokens, padding left out; see `package::readout`.

use crate::component::{
    ComponentError, ComponentErrorKind, ComponentTensor, DataType, Dim, Input, Output, OutputResult, Port,
    RunControl, TensorView,
};
use crate::package::{Activation, ComponentSpec, InputDim, InputSource, Pooling, Readout};

use super::convert::{row_at, write_integers, write_ones};
use super::execute::{SharedSession, lock};
use super::value::Value;
use super::{Pipeline, PipelineError, RequestError};

/// Tokens of one pass over several texts, padding included, at most: what a layer makes of them, and
/// attention above all, takes memory, and weights are read once for so many with next to no loss.
const MOST_TOGETHER: usize = 8192;

/// A row of numbers for each text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextRows {
    pub width: usize,
    /// One row after the other.
    pub values: Vec<f32>,
}

impl TextRows {
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width.max(1))
    }
}

/// A component that runs once over tokens, and its output that is read.
struct Reader<'p> {
    component: &'p ComponentSpec,
    session: &'p SharedSession,
    output: usize,
    /// Whether texts can be padded and run side by side.
    joins: bool,
    pad: i32,
}

/// Texts that run together: ids, padded, and the tokens of each.
struct Padded {
    ids: Vec<i32>,
    lengths: Vec<usize>,
    longest: usize,
}

impl Pipeline {
    /// The vector of each text, as the package says that they are made.
    pub fn embed(&self, texts: &[&str], control: &RunControl) -> Result<TextRows, PipelineError> {
        let (pooling, normalize) = match &self.shared().readout {
            Some(Readout::Embedding {
                pooling, normalize, ..
            }) => (*pooling, *normalize),
            _ => return Err(self.no_readout("embed", "how its outputs become a vector").into()),
        };
        let pools = pooling != Pooling::None;
        let reader = self.reader("embed", if pools { 3 } else { 2 })?;
        let mut made = self.read(&reader, texts, control, |values, lengths, rows| {
            pool(pooling, values, lengths, rows)
        })?;
        if normalize {
            let width = made.width.max(1);
            made.values.chunks_exact_mut(width).for_each(normalize_row);
        }
        Ok(made)
    }

    /// The score of each class for each text, as the package says that they are made; see
    /// [`labels`](Self::labels).
    pub fn classify(&self, texts: &[&str], control: &RunControl) -> Result<TextRows, PipelineError> {
        let Some(Readout::Classes { labels, activation }) = &self.shared().readout else {
            return Err(self.no_readout("classify", "that its outputs are classes").into());
        };
        let reader = self.reader("classify", 2)?;
        let mut made = self.read(&reader, texts, control, |values, lengths, rows| {
            pool(Pooling::None, values, lengths, rows)
        })?;
        if !labels.is_empty() && !texts.is_empty() && labels.len() != made.width {
            return Err(RequestError::InvalidSetting {
                what: "classify",
                message: format!(
                    "component \"{}\" gives {} numbers a text, and the package names {} classes",
                    reader.component.name,
                    made.width,
                    labels.len()
                ),
            }
            .into());
        }
        let width = made.width.max(1);
        for row in made.values.chunks_exact_mut(width) {
            activate(*activation, row);
        }
        Ok(made)
    }

    /// The names of the classes, in their order; empty where the package has none.
    pub fn labels(&self) -> &[String] {
        match &self.shared().readout {
            Some(Readout::Classes { labels, .. }) => labels,
            _ => &[],
        }
    }

    fn no_readout(&self, what: &'static str, missing: &str) -> RequestError {
        RequestError::InvalidSetting {
            what,
            message: format!(
                "the package does not say {missing}: modules.json (sentence-transformers), id2label of a \
                 classifier's config.json, or the sections \"embedding\" or \"classifier\" of \
                 inference_metadata"
            ),
        }
    }

    /// The component of a single_pass, and its output of this rank.
    fn reader(&self, what: &'static str, rank: usize) -> Result<Reader<'_>, RequestError> {
        let shared = self.shared();
        let tokenizer = shared.tokenizer.as_ref().ok_or(RequestError::NoTokenizer)?;
        let refuse = |message: String| RequestError::InvalidSetting { what, message };
        let reads = |component: &ComponentSpec| {
            let mut inputs = component.inputs.iter();
            inputs.any(|input| input.source == InputSource::Tokens)
        };
        let components = &shared.spec.components;
        let ([component], [session]) = (components.as_slice(), shared.sessions.as_slice()) else {
            return Err(refuse(format!(
                "the package has {} components; one that reads tokens is expected",
                components.len()
            )));
        };
        if shared.spec.token_loop.is_some() || !reads(component) {
            return Err(refuse(format!(
                "the package is {}; one component that runs once over tokens is expected",
                shared.spec.strategy
            )));
        }
        let fits = |port: &Port| {
            let ranks = port.dims.as_ref().is_none_or(|dims| dims.len() == rank);
            ranks && port.dtype().is_some_and(DataType::is_float32_or_smaller)
        };
        let output = component.io.outputs.iter().position(fits).ok_or_else(|| {
            let ports: Vec<String> = component
                .io
                .outputs
                .iter()
                .map(|port| format!("{} {}", port.name, port.display_dims()))
                .collect();
            refuse(format!(
                "component \"{}\" has no output of floats and rank {rank}; it has {}",
                component.name,
                ports.join(", ")
            ))
        })?;
        let mut inputs = component.inputs.iter().zip(&component.io.inputs);
        if let Some((_, port)) = inputs.find(|(input, _)| {
            matches!(input.source, InputSource::Request { required: true }) && input.absent.is_none()
        }) {
            return Err(refuse(format!(
                "input \"{}\" of component \"{}\" comes from the request; use a run for it",
                port.name, component.name
            )));
        }
        let has_mask = component
            .inputs
            .iter()
            .any(|input| input.source == InputSource::AttentionMask);
        let is_free = |port: &Port| {
            let dims = port.dims.as_ref();
            dims.is_none_or(|dims| dims.iter().take(2).all(|dim| matches!(dim, Dim::Symbol(_))))
        };
        let mut tokens = component.inputs.iter().zip(&component.io.inputs);
        let joins =
            has_mask && tokens.any(|(input, port)| input.source == InputSource::Tokens && is_free(port));
        Ok(Reader {
            component,
            session,
            output,
            joins,
            pad: tokenizer.special_tokens().pad.as_ref().map_or(0, |(id, _)| *id),
        })
    }

    fn read(
        &self,
        reader: &Reader<'_>,
        texts: &[&str],
        control: &RunControl,
        pool: impl Fn(TensorView<'_>, &[usize], &mut TextRows) -> Option<()>,
    ) -> Result<TextRows, PipelineError> {
        let shared = self.shared();
        let tokenizer = shared.tokenizer.as_ref().ok_or(RequestError::NoTokenizer)?;
        let mut encoded = Vec::with_capacity(texts.len());
        let limit = shared
            .spec
            .context_length
            .and_then(|limit| usize::try_from(limit).ok());
        let said = match &shared.readout {
            Some(Readout::Embedding { max_tokens, .. }) => *max_tokens,
            _ => None,
        };
        let said = said.or(tokenizer.max_length());
        // The model takes no more, whatever the package cuts off at.
        let cut = said.map(|said| limit.map_or(said, |limit| said.min(limit)));
        let refused = shared.refuse_long_texts;
        let limit = if refused { cut.or(limit) } else { limit };
        for (index, text) in texts.iter().enumerate() {
            let ids = match cut.filter(|_| !refused) {
                Some(most) => tokenizer.encode_up_to(text, most)?,
                None => tokenizer.encode(text, true)?,
            };
            match limit {
                _ if ids.is_empty() => return Err(RequestError::EmptyText { index }.into()),
                Some(limit) if ids.len() > limit => {
                    let tokens = ids.len();
                    return Err(RequestError::LongText { index, tokens, limit }.into());
                }
                _ => encoded.push(ids),
            }
        }
        let mut rows = TextRows {
            width: 0,
            values: Vec::new(),
        };
        let mut rest = encoded.as_slice();
        while !rest.is_empty() {
            let together = if reader.joins { fitting(rest) } else { 1 };
            let (group, others) = rest.split_at(together.min(rest.len()));
            rest = others;
            let longest = group.iter().map(Vec::len).max().unwrap_or(0);
            let mut padded = Padded {
                ids: Vec::with_capacity(group.len() * longest),
                lengths: group.iter().map(Vec::len).collect(),
                longest,
            };
            for ids in group {
                padded.ids.extend_from_slice(ids);
                padded
                    .ids
                    .resize(padded.ids.len() + longest - ids.len(), reader.pad);
            }
            let made = reader.run(&padded, control)?;
            pool(made.view(), &padded.lengths, &mut rows).ok_or_else(|| RequestError::EmptyLogits {
                component: reader.component.name.clone(),
            })?;
        }
        Ok(rows)
    }
}

impl Reader<'_> {
    /// Runs the component over padded texts and gives its output.
    fn run(&self, padded: &Padded, control: &RunControl) -> Result<ComponentTensor, PipelineError> {
        let component = self.component;
        let in_component = |kind| ComponentError::new(component.name.as_str(), kind);
        let mut values = Vec::with_capacity(component.inputs.len());
        for (spec, port) in component.inputs.iter().zip(&component.io.inputs) {
            let mut value = Value::default();
            self.input(
                spec.source,
                (spec.dtype, &spec.dims),
                spec.absent.as_ref().map(|absent| &absent.dims[..]),
                padded,
                &mut value,
            )
            .map_err(|source| {
                let port = port.name.clone();
                in_component(ComponentErrorKind::BadTensor { port, source })
            })?;
            values.push(value);
        }
        let ports = component.io.inputs.iter().zip(&values);
        let inputs: Vec<Input<'_>> = ports
            .filter_map(|(port, value)| {
                Some(Input {
                    name: &port.name,
                    value: value.view()?,
                })
            })
            .collect();
        let name = component
            .io
            .outputs
            .get(self.output)
            .map_or("", |port| &port.name);
        let mut outputs = [Output::alloc(name)];
        let ran =
            lock(self.session, control).and_then(|mut session| session.run(&inputs, &mut outputs, control));
        ran.map_err(|mut error| {
            error.component = component.name.clone();
            PipelineError::Component(error)
        })?;
        let [output] = outputs;
        match output.result {
            OutputResult::Owned(tensor) => Ok(tensor),
            _ => Err(in_component(ComponentErrorKind::Backend {
                backend: "the",
                message: format!("output \"{name}\" was not made"),
            })
            .into()),
        }
    }

    /// Makes the value of an input; none of one that the graph has a default for.
    fn input(
        &self,
        source: InputSource,
        (dtype, dims): (DataType, &[InputDim]),
        absent: Option<&[InputDim]>,
        padded: &Padded,
        value: &mut Value,
    ) -> Result<(), crate::component::TensorError> {
        let (count, longest) = (padded.lengths.len(), padded.longest);
        let shape = [count as i64, longest as i64];
        match source {
            InputSource::Tokens => {
                let ids = padded.ids.iter().map(|&id| i64::from(id));
                write_integers(dtype, value.write(dtype, &shape)?, ids);
            }
            InputSource::AttentionMask => {
                let bytes = value.write(dtype, &shape)?;
                bytes.fill(0);
                let row = longest * dtype.size();
                for (row, &len) in bytes.chunks_exact_mut(row.max(1)).zip(&padded.lengths) {
                    write_ones(dtype, row.get_mut(..len * dtype.size()).unwrap_or_default());
                }
            }
            InputSource::Positions { rank, .. } => {
                let shape: &[i64] = if rank == 1 { &shape[1..] } else { &shape };
                let places = (0..longest as i64).cycle().take(count * longest);
                write_integers(dtype, value.write(dtype, shape)?, places);
            }
            InputSource::Ones => {
                let shape = sized(dims, shape);
                write_ones(dtype, value.write(dtype, &shape)?);
            }
            _ => {
                if let Some(dims) = absent {
                    value.write_zeros(dtype, &sized(dims, shape))?;
                }
            }
        }
        Ok(())
    }
}

/// How many of the texts, from the first, run in one pass; at least 1.
fn fitting(texts: &[Vec<i32>]) -> usize {
    let mut longest = 0;
    let fit = texts.iter().enumerate().take_while(|(before, text)| {
        longest = longest.max(text.len());
        longest.saturating_mul(before + 1) <= MOST_TOGETHER
    });
    fit.count().max(1)
}

/// Dims for so many texts of so many tokens: the first two are those, as of everything that goes
/// along with tokens.
fn sized(dims: &[InputDim], [count, longest]: [i64; 2]) -> Vec<i64> {
    let dims = dims.iter().enumerate();
    dims.map(|(place, dim)| match (*dim, place) {
        (_, 0) => count,
        (InputDim::Fixed(size), _) => size,
        (InputDim::SameAs { .. }, _) => longest,
    })
    .collect()
}

/// Appends a row for each text to `rows`; `None` where the output has not the shape for it.
fn pool(pooling: Pooling, made: TensorView<'_>, lengths: &[usize], rows: &mut TextRows) -> Option<()> {
    let (&width, leading) = made.shape().split_last()?;
    let width = usize::try_from(width).ok().filter(|&width| width > 0)?;
    let count = leading
        .iter()
        .map(|&dim| usize::try_from(dim).unwrap_or(0))
        .product::<usize>();
    // Rows of a text: one, or one a token.
    let each = count.checked_div(lengths.len())?;
    let fits = match pooling {
        Pooling::None => each == 1,
        _ => lengths.iter().all(|&len| (1..=each).contains(&len)),
    };
    if !fits || each * lengths.len() != count || (rows.width != 0 && rows.width != width) {
        return None;
    }
    rows.width = width;
    let mut row = Vec::new();
    for (text, &len) in lengths.iter().enumerate() {
        let first = text * each;
        let single = match pooling {
            Pooling::None | Pooling::Cls => Some(first),
            Pooling::LastToken => Some(first + len - 1),
            Pooling::Mean | Pooling::MeanSqrtLength | Pooling::Max => None,
        };
        if let Some(index) = single {
            row_at(made, index, &mut row)?;
            rows.values.extend_from_slice(&row);
            continue;
        }
        let start = if pooling == Pooling::Max {
            f64::NEG_INFINITY
        } else {
            0.0
        };
        let mut sums = vec![start; width];
        for index in first..first + len {
            row_at(made, index, &mut row)?;
            for (sum, &x) in sums.iter_mut().zip(&row) {
                match pooling {
                    // What is no number shows in the vector, as of torch.max; `f64::max` would leave it out.
                    Pooling::Max if x.is_nan() || f64::from(x) > *sum => *sum = f64::from(x),
                    Pooling::Max => {}
                    _ => *sum += f64::from(x),
                }
            }
        }
        let divisor = match pooling {
            Pooling::Mean => len as f64,
            Pooling::MeanSqrtLength => (len as f64).sqrt(),
            _ => 1.0,
        };
        rows.values.extend(sums.iter().map(|sum| (sum / divisor) as f32));
    }
    Some(())
}

/// x / max(|x|, 1e-12), as torch.nn.functional.normalize has it.
fn normalize_row(row: &mut [f32]) {
    let squares = row.iter().map(|&x| f64::from(x) * f64::from(x));
    let norm = squares.sum::<f64>().sqrt().max(1e-12);
    for x in row {
        *x = (f64::from(*x) / norm) as f32;
    }
}

fn activate(activation: Activation, row: &mut [f32]) {
    match activation {
        Activation::None => {}
        Activation::Sigmoid => {
            for x in row {
                *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32;
            }
        }
        Activation::Softmax => {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exponential = |x: f32| f64::from(x - most).exp();
            let sum: f64 = row.iter().map(|&x| exponential(x)).sum();
            for x in row {
                *x = (exponential(*x) / sum) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(pooling: Pooling) -> Vec<f32> {
        pooled_from(pooling, [1.0, 8.0, 4.0, 2.0, 4.0, 5.0])
    }

    fn pooled_from(pooling: Pooling, first: [f32; 6]) -> Vec<f32> {
        // Two texts of up to three tokens, of two numbers each; the second has one token.
        let second = [9.0, -3.0, 70.0, 70.0, 70.0, 70.0];
        let values: Vec<u8> = first
            .iter()
            .chain(&second)
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let made = TensorView::new(DataType::Float32, &[2, 3, 2], &values).unwrap();
        let mut rows = TextRows {
            width: 0,
            values: Vec::new(),
        };
        pool(pooling, made, &[3, 1], &mut rows).unwrap();
        assert_eq!(rows.width, 2);
        rows.values
    }

    #[test]
    fn padding_is_pooled_by_none() {
        assert_eq!(pooled(Pooling::Mean), [3.0, 5.0, 9.0, -3.0]);
        assert_eq!(pooled(Pooling::Cls), [1.0, 8.0, 9.0, -3.0]);
        assert_eq!(pooled(Pooling::LastToken), [4.0, 5.0, 9.0, -3.0]);
        assert_eq!(pooled(Pooling::Max), [4.0, 8.0, 9.0, -3.0]);
        let by_root = pooled(Pooling::MeanSqrtLength);
        assert!((by_root[0] - 9.0 / 3f32.sqrt()).abs() < 1e-6 && by_root[2] == 9.0);
    }

    #[test]
    fn what_is_no_number_shows_in_the_vector() {
        for pooling in [Pooling::Mean, Pooling::Max, Pooling::MeanSqrtLength] {
            for place in [0, 2, 4] {
                let mut first = [1.0, 8.0, 4.0, 2.0, 4.0, 5.0];
                first[place] = f32::NAN;
                let rows = pooled_from(pooling, first);
                assert!(
                    rows[0].is_nan() && !rows[1].is_nan(),
                    "{pooling:?} of {first:?}: {rows:?}"
                );
            }
        }
        assert_eq!(
            pooled_from(Pooling::Max, [f32::NEG_INFINITY; 6])[0],
            f32::NEG_INFINITY
        );
    }

    #[test]
    fn texts_run_together_as_far_as_they_fit() {
        let texts =
            |lengths: &[usize]| -> Vec<Vec<i32>> { lengths.iter().map(|&len| vec![1; len]).collect() };
        assert_eq!(fitting(&texts(&[512; 1000])), 16);
        assert_eq!(fitting(&texts(&[MOST_TOGETHER + 1, 1])), 1);
        // The second would have the first padded.
        assert_eq!(fitting(&texts(&[1, MOST_TOGETHER])), 1);
        assert_eq!(fitting(&texts(&[3, 4])), 2);
    }

    #[test]
    fn scores_are_probabilities() {
        let mut row = [0.0, 3f32.ln(), 0.0];
        activate(Activation::Softmax, &mut row);
        assert!((row[0] - 0.2).abs() < 1e-6 && (row[1] - 0.6).abs() < 1e-6);
        let mut row = [0.0, 3f32.ln(), f32::NEG_INFINITY];
        activate(Activation::Sigmoid, &mut row);
        assert!(row[0] == 0.5 && (row[1] - 0.75).abs() < 1e-6 && row[2] == 0.0);
        let mut row = [3.0, -4.0];
        normalize_row(&mut row);
        assert!((row[0] - 0.6).abs() < 1e-6 && (row[1] + 0.8).abs() < 1e-6);
        let mut nothing = [0.0, 0.0];
        normalize_row(&mut nothing);
        assert_eq!(nothing, [0.0, 0.0]);
    }
}
