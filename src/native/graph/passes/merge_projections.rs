//! Products of one value with several constant matrices (queries, keys and values; gate and up):
//!
//!   merge_projections   MatMul(x, B1), MatMul(x, B2), ... with B1 [K, N1], B2 [K, N2], ... becomes
//!                       Split(MatMul(x, [B1 B2 ...])) along the last axis; likewise
//!                       MatMulNBits, whose weights, scales and zero points are stacked; and the
//!                       biases of both
//!
//! Every element is the sum of the same products. Their order is the same whatever columns are beside
//! it in `packed_weights` and in `gemm` with many rows; with few rows floats are cut along K into as
//! many parts as the size of B asks for (`gemm::few_rows`), so that sums differ by rounding.
//!
//! The weights are copied, while those of a mapped model are shared with other processes, and
//! the Split copies results. So it is done only where it pays: see [`MAX_BYTES`], [`REGION`] and
//! [`MIN_DEPTH`]. What another node reads too stays where it is, and so does a product that may
//! be cut to its last row (see `last_row`), as a Split may not.
//!
//! It comes after the passes that make a product part of something else or look for a pair of
//! them. Adds of biases that are still there read the parts.

use smallvec::SmallVec;

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::super::last_row::row_source;
use crate::native::element::ElementType;
use crate::native::infer::SymDim;
use crate::native::node::Attribute;
use crate::native::registry::MS;
use crate::native::tensor::Tensor;
use crate::native::workers::MIN_PART;

/// Bytes that a merged weight may take: what one core reads in some 100 microseconds. With more
/// the nodes that are saved no longer count beside the product, and the layers of a large model
/// would be copied out of their file.
const MAX_BYTES: usize = 1 << 20;

/// Simple operations that take as long as a region costs, see `workers`: a microsecond, where
/// `MIN_PART` is ten. A row of the merged product may have this many elements for each
/// product that is saved, for the Split copies them.
const REGION: usize = MIN_PART / 10;

/// K must be at least this. Four multiply-adds are as much as the copy of an element, so the
/// Split adds at most one part in sixteen, however many rows there are.
const MIN_DEPTH: usize = 64;

/// What more inputs read than this is left alone: each product is compared with all others of
/// the same value, and loading should take time in proportion to the model.
const MAX_READS: usize = 64;

pub(super) fn merge_projections(draft: &mut Draft, id: NodeId) -> bool {
    let Some(group) = group(draft, id) else {
        return false;
    };
    let Some((attributes, operands)) = merged(draft, &group) else {
        return false;
    };
    let (Some(first), Some(sizes)) = (group.first(), sizes(&group)) else {
        return false;
    };
    let (domain, op_type, version) = match first.form {
        Form::Whole { .. } => ("", "MatMul", 13),
        Form::Blocks { .. } => (MS, "MatMulNBits", 1),
    };
    let right = operands
        .iter()
        .map(|operand| operand.as_ref().map(|operand| draft.add_constant(operand)));
    let inputs = std::iter::once(Some(first.x)).chain(right).collect();
    let sizes = draft.add_constant(&sizes);
    let product = draft.new_value();
    let name = draft.name(id);
    let product_node = NewNode {
        domain,
        op_type,
        version,
        attributes,
        inputs,
        outputs: [Some(product)].into_iter().collect(),
    };
    let split = NewNode {
        domain: "",
        op_type: "Split",
        version: 13,
        attributes: vec![("axis", Attribute::Int(-1))],
        inputs: [Some(product), Some(sizes)].into_iter().collect(),
        outputs: group.iter().map(|projection| Some(projection.y)).collect(),
    };
    draft.replace(&name, vec![product_node, split])
}

/// What products must have in common.
#[derive(PartialEq)]
enum Form {
    Whole {
        ty: ElementType,
        depth: usize,
        biased: bool,
    },
    Blocks {
        depth: usize,
        bits: i64,
        block_size: i64,
        accuracy_level: i64,
        /// Of each operand after the left one.
        types: SmallVec<[Option<ElementType>; 5]>,
    },
}

struct Projection {
    form: Form,
    x: ValueId,
    y: ValueId,
    columns: usize,
    /// The constants after the left operand; those that can be left out are `None` then.
    operands: SmallVec<[Option<ValueId>; 5]>,
    bytes: usize,
}

/// The product that this node is, and those after it that can be merged with it.
fn group(draft: &Draft, id: NodeId) -> Option<Vec<Projection>> {
    let node = draft.node(id)?;
    if !(2..=MAX_READS).contains(&draft.reads(node.input(0)?)) {
        return None;
    }
    let first = projection(draft, node)?;
    let mut left = MAX_BYTES.checked_sub(first.bytes)?;
    let mut columns = first.columns;
    let readers = draft.readers(first.x);
    let mut group = vec![first];
    for &other in readers.iter().skip_while(|&&other| other != id).skip(1) {
        let Some(other) = draft.node(other).and_then(|node| projection(draft, node)) else {
            continue;
        };
        let fits = group
            .first()
            .is_some_and(|first| first.x == other.x && first.form == other.form);
        if fits && let Some(rest) = left.checked_sub(other.bytes) {
            left = rest;
            columns += other.columns;
            group.push(other);
        }
    }
    let saved = group.len() - 1;
    (saved > 0 && columns <= saved * REGION).then_some(group)
}

fn projection(draft: &Draft, node: &DraftNode) -> Option<Projection> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let operands: SmallVec<[Option<ValueId>; 5]> = node.node.inputs.iter().skip(1).copied().collect();
    let tensor = |index: usize| draft.constant(node.input(index)?);
    let mut bytes = 0usize;
    for &operand in operands.iter().flatten() {
        let tensor = draft.constant(operand).filter(|_| draft.is_read_once(operand))?;
        bytes = bytes.checked_add(tensor.byte_len())?;
    }
    let (form, depth, columns) = if node.is("MatMul") {
        let weight = tensor(1)?;
        let &[depth, columns] = weight.dims() else {
            return None;
        };
        let (ty, biased) = (weight.element_type(), node.input(2).is_some());
        // A residual (input 3) is as large as the product.
        if node.input(3).is_some() {
            return None;
        }
        (Form::Whole { ty, depth, biased }, depth, columns)
    } else if node.is_of(MS, "MatMulNBits") {
        let size = |name| usize::try_from(node.definition.int(name)?).ok();
        let (depth, columns) = (size("K")?, size("N")?);
        // Groups of a row (input 4) are an order of its own, and a residual is input 6.
        if node.input(4).is_some() || node.input(6).is_some() || !has_only_known_attributes(node) {
            return None;
        }
        let types = (1..=5).map(|index| tensor(index).map(Tensor::element_type));
        let form = Form::Blocks {
            depth,
            bits: node.definition.int_or("bits", 4),
            block_size: node.definition.int("block_size")?,
            accuracy_level: node.definition.int_or("accuracy_level", 0),
            types: types.collect(),
        };
        (form, depth, columns)
    } else {
        return None;
    };
    let fits = depth >= MIN_DEPTH && columns > 0 && bytes <= MAX_BYTES && !may_be_cut(draft, node, y);
    fits.then_some(Projection {
        form,
        x,
        y,
        columns,
        operands,
        bytes,
    })
}

fn has_only_known_attributes(node: &DraftNode) -> bool {
    let known = [
        "K",
        "N",
        "bits",
        "block_size",
        "accuracy_level",
        "weight_prepacked",
    ];
    let mut attributes = node.definition.attributes.iter();
    attributes.all(|attribute| known.contains(&attribute.name.as_str()))
}

/// Whether a run may ask for the last row alone of an output of the graph and so of this
/// product of several rows.
fn may_be_cut(draft: &Draft, node: &DraftNode, y: ValueId) -> bool {
    let is_row_wise = |node: &DraftNode, source, value| {
        row_source(|value| draft.fact(value), &node.node, value) == Some(source)
    };
    let dims = draft.fact(y).and_then(|fact| fact.dims.as_deref());
    let is_one_row = matches!(dims, Some([.., SymDim::Fixed(1), _]));
    if is_one_row || !node.input(0).is_some_and(|x| is_row_wise(node, x, y)) {
        return false;
    }
    let mut value = y;
    loop {
        let readers = draft.readers(value);
        if draft.is_output(value) {
            return readers.is_empty();
        }
        let &[reader] = readers.as_slice() else {
            return false;
        };
        let Some((reader, result)) = draft
            .node(reader)
            .and_then(|reader| Some((reader, reader.output(0)?)))
        else {
            return false;
        };
        if !draft.is_read_once(value) || !is_row_wise(reader, value, result) {
            return false;
        }
        value = result;
    }
}

/// How many columns each has.
fn sizes(group: &[Projection]) -> Option<Tensor> {
    let sizes: Option<Vec<i64>> = group
        .iter()
        .map(|projection| i64::try_from(projection.columns).ok())
        .collect();
    Tensor::from_slice(&[group.len()], &sizes?).ok()
}

type Operands = SmallVec<[Option<Tensor>; 5]>;

/// The attributes of the merged product and what it reads after the left operand.
fn merged(draft: &Draft, group: &[Projection]) -> Option<(Vec<(&'static str, Attribute)>, Operands)> {
    let first = group.first()?;
    let columns: usize = group.iter().map(|projection| projection.columns).sum();
    match first.form {
        Form::Whole { ty, depth, biased } => {
            let weight = side_by_side(draft, group, ty, [depth, columns])?;
            let mut operands: Operands = [Some(weight)].into_iter().collect();
            if biased {
                let bias = stacked(draft, group, 1, columns)?.with_dims(&[columns]).ok()?;
                operands.push(Some(bias));
            }
            Some((Vec::new(), operands))
        }
        Form::Blocks {
            depth,
            bits,
            block_size,
            accuracy_level,
            ..
        } => {
            let count = group
                .iter()
                .map(|projection| projection.operands.len())
                .max()
                .unwrap_or(0);
            let operands: Option<Operands> = (0..count)
                .map(|index| {
                    let is_given = first.operands.get(index).copied().flatten().is_some();
                    match is_given {
                        true => Some(Some(stacked(draft, group, index, columns)?)),
                        false => Some(None),
                    }
                })
                .collect();
            let attributes = [
                ("K", i64::try_from(depth).ok()?),
                ("N", i64::try_from(columns).ok()?),
                ("bits", bits),
                ("block_size", block_size),
                ("accuracy_level", accuracy_level),
            ];
            let attributes = attributes.map(|(name, value)| (name, Attribute::Int(value)));
            Some((attributes.into(), operands?))
        }
    }
}

/// The columns of all weights of the group, one weight after the other.
fn side_by_side(
    draft: &Draft,
    group: &[Projection],
    ty: ElementType,
    [depth, columns]: [usize; 2],
) -> Option<Tensor> {
    let width = ty.size()?;
    let mut weights = Vec::with_capacity(group.len());
    for projection in group {
        let weight = draft.constant(projection.operands.first().copied().flatten()?)?;
        let row = projection.columns.checked_mul(width)?;
        weights.push(weight.view().bytes().ok()?.chunks_exact(row));
    }
    let mut bytes = Vec::with_capacity(depth * columns * width);
    for _ in 0..depth {
        for rows in &mut weights {
            bytes.extend_from_slice(rows.next()?);
        }
    }
    Tensor::from_raw(ty, &[depth, columns], &bytes).ok()
}

/// An operand of MatMulNBits that says something of each of `columns` columns, as much of
/// every one.
fn stacked(draft: &Draft, group: &[Projection], index: usize, columns: usize) -> Option<Tensor> {
    let mut bytes = Vec::new();
    let mut each = None;
    for projection in group {
        let part = draft.constant(projection.operands.get(index).copied().flatten()?)?;
        let part = part.view();
        let size = part.len() / projection.columns;
        if size * projection.columns != part.len() || *each.get_or_insert(size) != size {
            return None;
        }
        bytes.extend_from_slice(part.bytes().ok()?);
    }
    let first = group.first()?.operands.get(index).copied().flatten()?;
    Tensor::from_raw(draft.constant(first)?.element_type(), &[columns, each?], &bytes).ok()
}
