//! Dims that a model calls by one name, which graph passes take for one size.

use std::collections::HashMap;

use super::request::Request;
use crate::component::{ComponentIo, Dim};

/// A dim of an input: the input's index and the axis.
type Place = (usize, usize);

/// The dims of inputs that have the name of an earlier one, each with that one.
#[derive(Debug, Default)]
pub(in crate::native) struct SameDims(Vec<(Place, Place)>);

impl SameDims {
    pub(in crate::native) fn of(io: &ComponentIo) -> Self {
        let mut first = HashMap::new();
        let mut same = Vec::new();
        for (index, port) in io.inputs.iter().enumerate() {
            for (axis, dim) in port.dims.iter().flatten().enumerate() {
                let Dim::Symbol(Some(name)) = dim else { continue };
                let earlier = *first.entry(name).or_insert((index, axis));
                if earlier != (index, axis) {
                    same.push(((index, axis), earlier));
                }
            }
        }
        SameDims(same)
    }

    /// Whether they are the same in a request. Inputs that are not given say nothing.
    pub(in crate::native) fn hold(&self, request: &Request) -> bool {
        let size = |(index, axis): Place| request.inputs.get(index)?.as_ref()?.dims()?.get(axis).copied();
        self.0
            .iter()
            .all(|&(place, earlier)| match (size(place), size(earlier)) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            })
    }
}
