//! Einsum: the sum over all labels that are not in the output of the product of all operands.
//!
//!   "ij,jk->ik" is a matrix product, "ii->i" a diagonal, "...ij->...ji" a transpose
//!
//! Without "->" the output has the ellipsis dims, then the labels that appear once, in ASCII
//! order. Ellipsis dims are matched from the right and broadcast; so does a dim of 1 of any label.
//! ai.onnx 12, 28: floats and integers of 8 to 64 bits, which wrap.
//!
//! Operands are taken in from the left: each is summed over labels of its own and, as a stack of
//! matrices, multiplied with what there is so far.

use smallvec::SmallVec;

use super::Built;
use super::dispatch::{with_integer, with_number};
use super::gemm::gemm;
use super::infer::{input_dims, input_type};
use super::number::{Number, Scalar};
use super::strided::{Strided, Strides, dense_strides};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, element_count};
use crate::native::workers::Workers;
use crate::native::working::Working;

/// A letter, or a dim of the ellipsis counted from the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

type Labels = SmallVec<[Label; 8]>;

/// One side of a comma: letters before and after the ellipsis, if there is one.
#[derive(Debug)]
struct Term {
    before: Vec<char>,
    after: Option<Vec<char>>,
}

#[derive(Debug)]
struct Einsum {
    terms: Vec<Term>,
    output: Option<Term>,
}

fn parse(text: &str) -> Option<Term> {
    let letters = |text: &str| -> Option<Vec<char>> {
        let letters = text.chars().filter(|c| *c != ' ');
        letters.map(|c| c.is_ascii_alphabetic().then_some(c)).collect()
    };
    match text.split_once("...") {
        None => Some(Term {
            before: letters(text)?,
            after: None,
        }),
        Some((before, after)) => Some(Term {
            before: letters(before)?,
            after: Some(letters(after)?),
        }),
    }
}

pub(in crate::native) fn einsum(node: &NodeInfo<'_>) -> Built {
    let equation = node.string("equation")?.unwrap_or_default();
    let parsed = || {
        let (inputs, output) = match equation.split_once("->") {
            Some((inputs, output)) => (inputs, Some(parse(output)?)),
            None => (equation, None),
        };
        let terms = inputs.split(',').map(parse).collect::<Option<Vec<_>>>()?;
        Some(Einsum { terms, output })
    };
    let invalid = |message: String| OpError::Attribute {
        name: "equation".into(),
        message,
    };
    let einsum = parsed().ok_or_else(|| invalid(format!("\"{equation}\" is not an equation of letters")))?;
    if einsum.terms.len() != node.input_count() {
        return Err(invalid(format!(
            "\"{equation}\" has {} terms for {} inputs",
            einsum.terms.len(),
            node.input_count()
        )));
    }
    let known = |letter: &char| {
        let in_term =
            |term: &Term| term.before.contains(letter) || term.after.iter().flatten().any(|c| c == letter);
        einsum.terms.iter().any(in_term)
    };
    if let Some(output) = &einsum.output {
        let letters: Vec<char> = output
            .before
            .iter()
            .chain(output.after.iter().flatten())
            .copied()
            .collect();
        let repeated = letters.iter().enumerate().any(|(i, c)| letters[..i].contains(c));
        if repeated || !letters.iter().all(known) {
            return Err(invalid(format!(
                "\"{equation}\" has an output label that is repeated or in no input"
            )));
        }
    }
    Ok(Box::new(einsum))
}

impl Term {
    /// A label per dim.
    fn labels(&self, rank: usize) -> Result<Labels, OpError> {
        let letters = self.before.len() + self.after.as_ref().map_or(0, Vec::len);
        let wrong = || {
            OpError::Message(format!(
                "an operand of rank {rank} has a term of {letters} labels"
            ))
        };
        let between = rank.checked_sub(letters).ok_or_else(wrong)?;
        if self.after.is_none() && between > 0 {
            return Err(wrong());
        }
        let letter = |c: &char| Label::Letter(*c);
        let mut labels: Labels = self.before.iter().map(letter).collect();
        labels.extend((0..between).rev().map(Label::Ellipsis));
        labels.extend(self.after.iter().flatten().map(letter));
        Ok(labels)
    }
}

impl Einsum {
    /// The labels of the output, from those of the inputs.
    fn output_labels(&self, inputs: &[Labels]) -> Labels {
        let all = || inputs.iter().flatten().copied();
        let ellipsis = all().filter_map(|label| match label {
            Label::Ellipsis(at) => Some(at + 1),
            Label::Letter(_) => None,
        });
        let ellipsis = ellipsis.max().unwrap_or(0);
        if let Some(output) = &self.output {
            let letters = output.before.len() + output.after.as_ref().map_or(0, Vec::len);
            let between = if output.after.is_some() { ellipsis } else { 0 };
            return output.labels(letters + between).unwrap_or_default();
        }
        let mut letters: Labels = all()
            .filter(|label| {
                matches!(label, Label::Letter(_)) && all().filter(|other| other == label).count() == 1
            })
            .collect();
        letters.sort();
        (0..ellipsis).rev().map(Label::Ellipsis).chain(letters).collect()
    }
}

impl Operator for Einsum {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let operands: Option<SmallVec<[SymDims; 4]>> =
            (0..self.terms.len()).map(|i| input_dims(cx, i)).collect();
        let dims = match operands {
            Some(operands) => {
                let labels = self
                    .terms
                    .iter()
                    .zip(&operands)
                    .map(|(term, dims)| term.labels(dims.len()));
                let labels = labels.collect::<Result<Vec<Labels>, _>>()?;
                let size = |label: Label| {
                    let of_label = labels
                        .iter()
                        .zip(&operands)
                        .flat_map(|(labels, dims)| labels.iter().zip(dims));
                    let mut sizes = of_label
                        .filter(|(other, _)| **other == label)
                        .map(|(_, dim)| *dim);
                    let first = sizes.next().unwrap_or(SymDim::Fixed(1));
                    sizes.fold(first, |size, dim| match (size, dim) {
                        (size, dim) if size == dim || dim == SymDim::Fixed(1) => size,
                        (SymDim::Fixed(1), dim) => dim,
                        (SymDim::Fixed(size), _) | (_, SymDim::Fixed(size)) => SymDim::Fixed(size),
                        _ => SymDim::Unknown,
                    })
                };
                Some(self.output_labels(&labels).into_iter().map(size).collect())
            }
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let first = cx.required(0)?;
        for index in 1..self.terms.len() {
            super::same_type(&first, &cx.required(index)?, index)?;
        }
        with_number!(first.element_type(), T => self.run_as::<T>(cx))
    }
}

/// A dense tensor with a label per dim, each once.
struct Labelled<W> {
    labels: Labels,
    dims: Dims,
    data: Working<W>,
}

fn zeros<W: Scalar>(len: usize) -> Result<Working<W>, OpError> {
    let mut data = Working::with_room(len)?;
    data.resize(len, W::ZERO);
    Ok(data)
}

/// The dims that `order` names, and their strides; 1 and 0 for a label that is not there.
fn pick(order: &[Label], labels: &[Label], dims: &[usize], strides: &[isize]) -> (Dims, Strides) {
    let entry = |label: &Label| match labels.iter().position(|other| other == label) {
        Some(at) => (dims[at], strides[at]),
        None => (1, 0),
    };
    order.iter().map(entry).unzip()
}

/// The elements of `x` with the labels `kept`, in that order, summed over all other labels.
/// A label may be there more than once: a diagonal.
fn gather<X: Copy, W: Scalar>(
    x: &[X],
    widen: impl Fn(X) -> W,
    (labels, dims): (&[Label], &[usize]),
    kept: &[Label],
) -> Result<Labelled<W>, OpError> {
    let mut unique = (Labels::new(), Dims::new(), Strides::new());
    for ((&label, &dim), stride) in labels.iter().zip(dims).zip(dense_strides(dims)) {
        match unique.0.iter().position(|&other| other == label) {
            Some(at) => {
                let (size, total) = (&mut unique.1[at], &mut unique.2[at]);
                if *size != dim && *size != 1 && dim != 1 {
                    return Err(OpError::Message(format!(
                        "a repeated label has sizes {size} and {dim}"
                    )));
                }
                // Along a dim of 1 there is nowhere to go.
                *total = if *size == 1 { 0 } else { *total } + if dim == 1 { 0 } else { stride };
                *size = if *size == 1 { dim } else { *size };
            }
            None => {
                unique.0.push(label);
                unique.1.push(dim);
                unique.2.push(stride);
            }
        }
    }
    let (labels, dims, strides) = unique;
    let summed: Labels = labels
        .iter()
        .copied()
        .filter(|label| !kept.contains(label))
        .collect();
    let (kept_dims, kept_strides) = pick(kept, &labels, &dims, &strides);
    let (summed_dims, summed_strides) = pick(&summed, &labels, &dims, &strides);
    let mut data = zeros::<W>(element_count(&kept_dims)?)?;
    let inner = Strided::new(&summed_dims, [&summed_strides], [0]);
    let mut to = data.iter_mut();
    Strided::new(&kept_dims, [&kept_strides], [0]).for_each(&mut |[base]| {
        let Some(to) = to.next() else { return };
        inner.for_each(&mut |[at]| *to = to.add(widen(x[base + at])));
    });
    Ok(Labelled {
        labels: kept.into(),
        dims: kept_dims,
        data,
    })
}

impl<W: Scalar + Number<Wide = W>> Labelled<W> {
    /// The size of a label here, 1 if it is not there.
    fn size(&self, label: &Label) -> usize {
        let at = self.labels.iter().position(|other| other == label);
        at.map_or(1, |at| self.dims[at])
    }

    /// Its elements under other labels in another order.
    fn ordered(&self, order: &[Label]) -> Result<Self, OpError> {
        gather(&self.data, |x| x, (&self.labels, &self.dims), order)
    }

    /// The product with `other`, summed over the labels of both that are not `needed`.
    fn contract(
        &self,
        workers: &Workers,
        other: &Self,
        needed: impl Fn(Label) -> bool,
    ) -> Result<Self, OpError> {
        let shared = |label: &Label| self.size(label) != 1 && other.size(label) != 1;
        for label in self.labels.iter().filter(|label| shared(label)) {
            let (a, b) = (self.size(label), other.size(label));
            if a != b {
                return Err(OpError::Message(format!("label {label:?} has sizes {a} and {b}")));
            }
        }
        let (mut batch, mut summed, mut left, mut right) =
            (Labels::new(), Labels::new(), Labels::new(), Labels::new());
        for &label in &self.labels {
            match (shared(&label), needed(label)) {
                (true, true) => batch.push(label),
                (true, false) => summed.push(label),
                // A dim of 1 here that is longer there is a dim of the other.
                (false, _) if self.size(&label) == 1 && other.labels.contains(&label) => {}
                (false, _) => left.push(label),
            }
        }
        let others = other
            .labels
            .iter()
            .filter(|label| !shared(label) && !left.contains(label));
        right.extend(others.copied());
        let joined = |parts: [&Labels; 3]| -> Labels { parts.into_iter().flatten().copied().collect() };
        let a = self.ordered(&joined([&batch, &left, &summed]))?;
        let b = other.ordered(&joined([&batch, &summed, &right]))?;
        let count = |labels: &Labels, of: &Self| labels.iter().map(|label| of.size(label)).product::<usize>();
        let (stacks, m, k, n) = (
            count(&batch, &a),
            count(&left, &a),
            count(&summed, &a),
            count(&right, &b),
        );
        let labels = joined([&batch, &left, &right]);
        let dims: Dims = labels
            .iter()
            .map(|label| a.size(label).max(b.size(label)))
            .collect();
        // A size of 0 beside one of 1 is 0.
        let dims: Dims = labels
            .iter()
            .zip(dims)
            .map(|(label, dim)| {
                if a.size(label) == 0 || b.size(label) == 0 {
                    0
                } else {
                    dim
                }
            })
            .collect();
        let mut data = zeros::<W>(element_count(&dims)?)?;
        if !data.is_empty() {
            for stack in 0..stacks {
                ending::look();
                gemm(
                    workers,
                    (m, k, n),
                    &a.data[stack * m * k..][..m * k],
                    &b.data[stack * k * n..][..k * n],
                    &mut data[stack * m * n..][..m * n],
                );
            }
        }
        Ok(Labelled { labels, dims, data })
    }
}

impl Einsum {
    fn run_as<T: Number>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let operands: SmallVec<[_; 4]> = (0..self.terms.len())
            .map(|i| cx.required(i))
            .collect::<Result<_, _>>()?;
        let labels = self
            .terms
            .iter()
            .zip(&operands)
            .map(|(term, x)| term.labels(x.rank()));
        let labels = labels.collect::<Result<Vec<Labels>, _>>()?;
        let output = self.output_labels(&labels);
        let mut result: Option<Labelled<T::Wide>> = None;
        for (index, (operand, own)) in operands.iter().zip(&labels).enumerate() {
            let later = |label: Label| {
                output.contains(&label) || labels[index + 1..].iter().any(|labels| labels.contains(&label))
            };
            let before = |label: Label| {
                result
                    .as_ref()
                    .is_some_and(|result| result.labels.contains(&label))
            };
            let mut kept = Labels::new();
            for &label in own {
                if (later(label) || before(label)) && !kept.contains(&label) {
                    kept.push(label);
                }
            }
            let operand = gather(operand.slice::<T>()?, T::widen, (own, operand.dims()), &kept)?;
            result = Some(match result {
                None => operand,
                Some(result) => {
                    let product = result.contract(cx.workers(), &operand, later)?;
                    // Labels of one side only that are not needed any more.
                    let kept: Labels = product
                        .labels
                        .iter()
                        .copied()
                        .filter(|&label| later(label))
                        .collect();
                    match kept.len() == product.labels.len() {
                        true => product,
                        false => product.ordered(&kept)?,
                    }
                }
            });
        }
        let Some(result) = result else {
            return Err(OpError::MissingInput { index: 0 });
        };
        let result = result.ordered(&output)?;
        let mut y = cx.output::<T>(0, &result.dims)?;
        y.extend(result.data.iter().map(|&wide| T::narrow(wide)))
    }
}
