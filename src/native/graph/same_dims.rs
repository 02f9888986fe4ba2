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

    /// Two dims of one name that have different sizes in a request, if there are such. Inputs that
    /// are not given say nothing.
    pub(in crate::native) fn broken_by(&self, request: &Request) -> Option<Differing> {
        let size = |(index, axis): Place| request.inputs.get(index)?.as_ref()?.dims()?.get(axis).copied();
        self.0.iter().find_map(|&(place, earlier)| {
            let (found, other) = (size(place)?, size(earlier)?);
            (found != other).then_some(Differing([(earlier, other), (place, found)]))
        })
    }
}

/// Two dims of one name, and their different sizes.
#[derive(Debug)]
pub(in crate::native) struct Differing([(Place, usize); 2]);

impl Differing {
    /// For a message: what the dims are, in terms of the model.
    pub(in crate::native) fn display(&self, io: &ComponentIo) -> String {
        let Differing([first, second]) = self;
        let port = |&((index, _), _): &(Place, usize)| io.inputs.get(index);
        let name = |dim: &(Place, usize)| port(dim).map_or("", |port| port.name.as_str());
        let ((_, axis), _) = *first;
        let symbol = match port(first).and_then(|port| port.dims.as_ref()?.get(axis)) {
            Some(Dim::Symbol(Some(symbol))) => symbol.as_str(),
            _ => "",
        };
        format!(
            "the model calls dim {axis} of input \"{}\" and dim {} of input \"{}\" by one name, \"{symbol}\", but \
             they are {} and {}",
            name(first),
            second.0.1,
            name(second),
            first.1,
            second.1
        )
    }
}
