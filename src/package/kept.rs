//! What a component keeps from step to step: KV caches and recurrent states, and the inputs that
//! say how much of it there is.

use crate::component::{ComponentIo, Dim, Port, Shape};

use super::PackageError;
use super::declaration::{ComponentDeclaration, KvUpdate, Said};
use super::resolve::mismatch;
use super::spec::{Buffer, ComponentSpec, InputDim, OutputRole, TokenLoop};

/// A past input and its present output: same type, rank 4 (3 for a buffer of heads in one dim),
/// only the batch, 1 here, and the sequence without a fixed size. Of a buffer the sequence may
/// have one, the same at both.
pub(super) fn present_role(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    input: usize,
    output: usize,
) -> Result<OutputRole, PackageError> {
    let (Some(past), Some(present)) = (io.inputs.get(input), io.outputs.get(output)) else {
        return Ok(OutputRole::Plain);
    };
    if past.dtype() != present.dtype() {
        let expected = format!("{}, as its past \"{}\"", past.ty, past.name);
        return Err(mismatch(&component.name, present, &component.at, expected));
    }
    let bad = |port: &Port, expected: &str| Err(mismatch(&component.name, port, &component.at, expected));
    let Some(dims) = &past.dims else {
        return bad(past, "declared dims: a cache needs its heads and head size");
    };
    let is_buffer = component.io.kv_update == KvUpdate::SharedBuffer;
    match (dims.len(), is_buffer) {
        (4, _) | (3, true) => {}
        (_, false) => return bad(past, "a cache of rank 4"),
        (_, true) => return bad(past, "a buffer of rank 4, or 3 with the heads in one dim"),
    }
    let axis = component.io.kv_layout.sequence_axis(dims.len());
    let mut empty = Shape::new();
    let mut capacity = None;
    for (position, dim) in dims.iter().enumerate() {
        match dim {
            Dim::Fixed(size) if position == axis && is_buffer => {
                capacity = usize::try_from(*size).ok();
                empty.push(0);
            }
            Dim::Fixed(_) if position == axis => {
                return bad(past, "a sequence dim without a fixed size (kv_update: append)");
            }
            _ if position == axis => empty.push(0),
            Dim::Fixed(size) if position != 0 || *size == 1 => empty.push(*size),
            Dim::Fixed(_) => return bad(past, "a batch of 1"),
            Dim::Symbol(_) if position == 0 => empty.push(1),
            Dim::Symbol(_) => {
                let said = match position + 1 == dims.len() {
                    true => component.io.kv_head_size,
                    false => component.io.kv_heads,
                };
                match said {
                    Some(size) if dims.len() == 4 => empty.push(size),
                    _ => {
                        return bad(
                            past,
                            "fixed heads and head size, or io.kv_heads and io.kv_head_size",
                        );
                    }
                }
            }
        }
    }
    check_strides(component, past, &empty, axis, capacity)?;
    if let Some(dims) = &present.dims {
        let fits = dims.len() == empty.len()
            && dims
                .iter()
                .zip(&empty)
                .enumerate()
                .all(|(position, (dim, size))| match dim {
                    Dim::Fixed(fixed) if position == axis => {
                        capacity.is_some_and(|capacity| usize::try_from(*fixed) == Ok(capacity))
                    }
                    Dim::Fixed(fixed) => fixed == size,
                    Dim::Symbol(_) => true,
                });
        if !fits {
            let longer = if is_buffer { "" } else { ", one longer" };
            let expected = format!("{}, as its past \"{}\"{longer}", past.display_dims(), past.name);
            return bad(present, &expected);
        }
    }
    Ok(OutputRole::Present {
        axis,
        empty,
        in_place: is_buffer.then_some(input),
        buffer: is_buffer.then_some(Buffer {
            capacity,
            shared: false,
        }),
    })
}

/// Strides that a package gives are those of the dense tensor that the port is, as far as its
/// dims tell.
fn check_strides(
    component: &ComponentDeclaration,
    past: &Port,
    empty: &[i64],
    axis: usize,
    capacity: Option<usize>,
) -> Result<(), PackageError> {
    let Some(strides) = component.io.kv_layout.strides_by_axis() else {
        return Ok(());
    };
    let size = |position: usize| match position == axis {
        true => capacity.and_then(|capacity| i64::try_from(capacity).ok()),
        false => empty.get(position).copied(),
    };
    let mut dense = Some(1i64);
    for (position, stride) in strides.iter().enumerate().rev() {
        // The batch is 1: nobody steps over it.
        if position > 0 && empty.len() == strides.len() && dense.is_some_and(|dense| dense != *stride) {
            let expected =
                format!("strides of {strides:?}, axis by axis; a dense tensor of its dims has others");
            return Err(mismatch(&component.name, past, &component.at, expected));
        }
        dense = dense
            .zip(size(position))
            .and_then(|(dense, size)| dense.checked_mul(size));
    }
    Ok(())
}

/// The shape of an attention mask that is longer than the sequence: as long as the graph fixes
/// it, or as the buffer whose dim has the same name.
pub(super) fn mask_dims(component: &ComponentDeclaration, io: &ComponentIo, mask: &Port) -> Vec<InputDim> {
    let Some(last) = mask.dims.as_ref().and_then(|dims| dims.last()) else {
        return Vec::new();
    };
    let name = match last {
        Dim::Fixed(size) => return vec![InputDim::Fixed(1), InputDim::Fixed(*size)],
        Dim::Symbol(name) => name.as_deref(),
    };
    let buffers = match component.io.kv_update {
        KvUpdate::SharedBuffer => component.io.kv_inputs.as_slice(),
        KvUpdate::Append => &[],
    };
    let same_dim = |said: &Said<String>| {
        let input = io.inputs.iter().position(|port| port.name == said.value)?;
        let dims = io.inputs.get(input)?.dims.as_ref()?;
        let axis = component.io.kv_layout.sequence_axis(dims.len());
        let is_it =
            matches!(dims.get(axis)?, Dim::Symbol(found) if found.is_some() && found.as_deref() == name);
        is_it.then_some(InputDim::SameAs { input, axis })
    };
    match buffers.iter().find_map(same_dim) {
        Some(dim) => vec![InputDim::Fixed(1), dim],
        None => Vec::new(),
    }
}

/// The most tokens that a sequence may have: as many as the package says, and no more than the
/// decoder's buffers hold.
pub(super) fn context_length(
    declared: Option<u64>,
    token_loop: Option<TokenLoop>,
    components: &[ComponentSpec],
) -> Option<u64> {
    let decoder = token_loop.and_then(|token_loop| components.get(token_loop.decoder));
    let outputs = decoder.into_iter().flat_map(|decoder| &decoder.outputs);
    let capacities = outputs.filter_map(|output| match output.role {
        OutputRole::Present { buffer, .. } => Some(buffer?.capacity? as u64),
        _ => None,
    });
    capacities.chain(declared).min()
}

/// A recurrent state: one fixed shape, its batch 1.
pub(super) fn state_role(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    input: usize,
    output: usize,
) -> Result<OutputRole, PackageError> {
    let (Some(before), Some(after)) = (io.inputs.get(input), io.outputs.get(output)) else {
        return Ok(OutputRole::Plain);
    };
    let shape: Option<Shape> = before.dims.as_ref().and_then(|dims| {
        dims.iter()
            .enumerate()
            .map(|(position, dim)| match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Symbol(_) if position == 0 => Some(1),
                Dim::Symbol(_) => None,
            })
            .collect()
    });
    let Some(shape) = shape else {
        return Err(mismatch(
            &component.name,
            before,
            &component.at,
            "a state of a fixed shape",
        ));
    };
    if before.dtype() != after.dtype() || !after.accepts_shape(&shape) {
        let expected = format!(
            "{} {}, as its input \"{}\"",
            before.ty,
            before.display_dims(),
            before.name
        );
        return Err(mismatch(&component.name, after, &component.at, expected));
    }
    Ok(OutputRole::State { shape })
}
