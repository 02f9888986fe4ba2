//! LabelEncoder: y = value of the key x, or a default where x is no key.  ai.onnx.ml 1, 2, 4
//!
//! Any shape. Keys and values are strings or numbers, given by two attributes of one length:
//! `keys_strings`, `keys_int64s` or `keys_floats` and `values_...`; from version 4 on also by
//! tensors of strings, int16, int32, int64, float or double. The default is `default_tensor` or
//! that of the type of the values: "_Unused", -1 or -0.
//!
//! Version 1 has `classes_strings` only: integers become the string at that position, strings
//! their position.
//!
//! CategoryMapper is version 1 with `cats_int64s` in place of positions.       ai.onnx.ml 1
//!
//! Of keys that are equal, the last one counts, before version 4 (which does not say) the first
//! one of keys_* and the last one of classes_strings, as in ONNX Runtime. Floats are equal when
//! their bits are; from version 4 on a NaN equals every NaN, and zeros have no sign.

use std::collections::HashMap;

use super::infer::{input_dims, input_type};
use super::moves::gather_starts;
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::{Element, ElementType};
use crate::native::ending::counted;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::strings::Strings;
use crate::native::tensor::{Tensor, TensorRef};
use crate::native::working::Working;

/// The types of keys and values.
const EXPECTED: &str = "string, int16, int32, int64, float or double";

/// As the macros of `dispatch`, for the numbers that can be keys.
macro_rules! with_key {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            ElementType::Int16 => {
                type $T = i16;
                $body
            }
            ElementType::Int32 => {
                type $T = i32;
                $body
            }
            ElementType::Int64 => {
                type $T = i64;
                $body
            }
            ElementType::Float32 => {
                type $T = f32;
                $body
            }
            ElementType::Float64 => {
                type $T = f64;
                $body
            }
            other => Err(OpError::WrongType {
                what: "a key".into(),
                found: other,
                expected: EXPECTED.into(),
            }),
        }
    };
}

/// By the type of the input, which is that of the keys.
#[derive(Debug)]
struct LabelEncoder(Vec<Lookup>);

#[derive(Debug)]
struct Lookup {
    key_type: ElementType,
    keys: Keys,
    /// The values, and the default after them.
    values: Tensor,
}

/// The position of the value of each key.
#[derive(Debug)]
enum Keys {
    Strings(HashMap<String, usize>),
    Numbers {
        positions: HashMap<u64, usize>,
        equality: Equality,
    },
}

#[derive(Clone, Copy, Debug)]
enum Equality {
    OfBits,
    OfValues,
}

pub(in crate::native) fn label_encoder(node: &NodeInfo<'_>) -> Built {
    let lookups = match node.since {
        1 => classes(node)?,
        since => vec![keys_and_values(node, since >= 4)?],
    };
    Ok(Box::new(LabelEncoder(lookups)))
}

pub(in crate::native) fn category_mapper(node: &NodeInfo<'_>) -> Built {
    let strings = required_attribute("cats_strings", node.strings("cats_strings")?)?;
    let strings = Tensor::from_strings(&[strings.len()], owned(strings))?;
    let ints = required_attribute("cats_int64s", node.ints("cats_int64s")?)?;
    let ints = Tensor::from_slice(&[ints.len()], ints)?;
    Ok(Box::new(LabelEncoder(both_ways(node, &strings, &ints)?)))
}

fn classes(node: &NodeInfo<'_>) -> Result<Vec<Lookup>, OpError> {
    let classes = required_attribute("classes_strings", node.strings("classes_strings")?)?;
    let strings = Tensor::from_strings(&[classes.len()], owned(classes))?;
    let positions: Vec<i64> = (0..).take(strings.view().len()).collect();
    let positions = Tensor::from_slice(&[positions.len()], &positions)?;
    both_ways(node, &strings, &positions)
}

fn both_ways(node: &NodeInfo<'_>, strings: &Tensor, ints: &Tensor) -> Result<Vec<Lookup>, OpError> {
    let lookup = |keys: &Tensor, values: &Tensor| {
        let default = default_of(node, values.element_type())?;
        Lookup::new(
            &keys.view(),
            &values.view(),
            &default.view(),
            Equality::OfValues,
            true,
        )
    };
    Ok(vec![lookup(strings, ints)?, lookup(ints, strings)?])
}

fn keys_and_values(node: &NodeInfo<'_>, tensors: bool) -> Result<Lookup, OpError> {
    let keys = list(
        node,
        ["keys_strings", "keys_int64s", "keys_floats"],
        "keys_tensor",
        tensors,
    )?;
    let values = list(
        node,
        ["values_strings", "values_int64s", "values_floats"],
        "values_tensor",
        tensors,
    )?;
    let mut default = default_of(node, values.element_type())?;
    if let Some(given) = tensors
        .then(|| node.tensor("default_tensor"))
        .transpose()?
        .flatten()
    {
        if given.element_type() != values.element_type() || given.view().len() != 1 {
            let message = format!("is {given:?}, expected one {}", values.element_type());
            return Err(wrong_attribute("default_tensor", message));
        }
        default = given.clone();
    }
    let equality = match tensors {
        true => Equality::OfValues,
        false => Equality::OfBits,
    };
    Lookup::new(&keys.view(), &values.view(), &default.view(), equality, tensors)
}

fn owned(strings: Vec<&str>) -> Vec<String> {
    strings.into_iter().map(str::to_owned).collect()
}

/// The one of these attributes that the node has.
fn list(
    node: &NodeInfo<'_>,
    [strings, ints, floats]: [&str; 3],
    tensor: &str,
    tensors: bool,
) -> Result<Tensor, OpError> {
    let mut found = Vec::new();
    if let Some(values) = node.strings(strings)? {
        found.push(Tensor::from_strings(&[values.len()], owned(values))?);
    }
    if let Some(values) = node.ints(ints)? {
        found.push(Tensor::from_slice(&[values.len()], values)?);
    }
    if let Some(values) = node.floats(floats)? {
        found.push(Tensor::from_slice(&[values.len()], values)?);
    }
    if tensors && let Some(values) = node.tensor(tensor)? {
        found.push(values.clone());
    }
    match (found.pop(), found.pop()) {
        (Some(only), None) => Ok(only),
        _ => Err(OpError::Message(format!(
            "one of the attributes {strings}, {ints}, {floats} and {tensor} is expected, and only one"
        ))),
    }
}

/// One element, for values of this type.
fn default_of(node: &NodeInfo<'_>, ty: ElementType) -> Result<Tensor, OpError> {
    let string = node.string_or("default_string", "_Unused")?;
    let int = node.int_or("default_int64", -1)?;
    // Version 1 has none.
    let float = match node.since {
        1 => -0.0,
        _ => node.float_or("default_float", -0.0)?,
    };
    match ty {
        ElementType::String => Tensor::from_strings(&[1], vec![string.to_owned()]),
        ElementType::Int16 => Tensor::from_slice(&[1], &[-1_i16]),
        ElementType::Int32 => Tensor::from_slice(&[1], &[-1_i32]),
        ElementType::Int64 => Tensor::from_slice(&[1], &[int]),
        ElementType::Float32 => Tensor::from_slice(&[1], &[float]),
        ElementType::Float64 => Tensor::from_slice(&[1], &[-0.0_f64]),
        other => Err(OpError::WrongType {
            what: "attribute \"values_tensor\"".into(),
            found: other,
            expected: EXPECTED.into(),
        }),
    }
}

impl Lookup {
    fn new(
        keys: &TensorRef<'_>,
        values: &TensorRef<'_>,
        default: &TensorRef<'_>,
        equality: Equality,
        last_counts: bool,
    ) -> Result<Self, OpError> {
        if keys.len() != values.len() {
            return Err(OpError::Message(format!(
                "there are {} keys and {} values",
                keys.len(),
                values.len()
            )));
        }
        Ok(Lookup {
            key_type: keys.element_type(),
            keys: match keys.element_type() {
                ElementType::String => Keys::Strings(positions(keys.strings()?.iter().cloned(), last_counts)),
                _ => Keys::Numbers {
                    positions: with_key!(keys.element_type(), T => {
                        let keys = keys.slice::<T>()?.iter();
                        Ok(positions(keys.map(|key| key.bits(equality)), last_counts))
                    })?,
                    equality,
                },
            },
            values: joined(values, default)?,
        })
    }

    fn positions(&self, x: &TensorRef<'_>) -> Result<Working<usize>, OpError> {
        let mut found = Working::with_room(x.len())?;
        let default = self.values.view().len() - 1;
        match &self.keys {
            Keys::Strings(positions) => {
                let keys = counted(x.strings()?);
                found.extend(keys.map(|key| positions.get(key).copied().unwrap_or(default)));
                Ok(found)
            }
            Keys::Numbers { positions, equality } => with_key!(x.element_type(), T => {
                let keys = counted(x.slice::<T>()?);
                found.extend(keys.map(|key| {
                    positions.get(&key.bits(*equality)).copied().unwrap_or(default)
                }));
                Ok(found)
            }),
        }
    }
}

fn positions<K: Eq + std::hash::Hash>(keys: impl Iterator<Item = K>, last_counts: bool) -> HashMap<K, usize> {
    let mut positions = HashMap::new();
    for (at, key) in keys.enumerate() {
        let position = positions.entry(key).or_insert(at);
        if last_counts {
            *position = at;
        }
    }
    positions
}

/// The values and the default, of one type.
fn joined(values: &TensorRef<'_>, default: &TensorRef<'_>) -> Result<Tensor, OpError> {
    let dims = [values.len() + 1];
    match values.element_type() {
        ElementType::String => {
            let mut strings = Strings::with_room(values.len() + 1)?;
            strings.extend(values.strings()?)?;
            strings.extend(default.strings()?)?;
            Tensor::of_strings(&dims, strings)
        }
        ty => Tensor::from_raw(ty, &dims, &[values.bytes()?, default.bytes()?].concat()),
    }
}

/// A number as a key.
trait Key: Element {
    fn bits(self, equality: Equality) -> u64;
}

macro_rules! integer_key {
    ($($t:ident)+) => { $(
        impl Key for $t {
            fn bits(self, _: Equality) -> u64 {
                i64::from(self) as u64
            }
        }
    )+ };
}

integer_key!(i16 i32 i64);

macro_rules! float_key {
    ($($t:ident)+) => { $(
        impl Key for $t {
            fn bits(self, equality: Equality) -> u64 {
                let value = match equality {
                    Equality::OfBits => self,
                    Equality::OfValues if self.is_nan() => $t::NAN,
                    // -0 + 0 is 0.
                    Equality::OfValues => self + 0.0,
                };
                value.to_bits().into()
            }
        }
    )+ };
}

float_key!(f32 f64);

impl LabelEncoder {
    fn lookup(&self, ty: ElementType) -> Result<&Lookup, OpError> {
        let found = self.0.iter().find(|lookup| lookup.key_type == ty);
        found.ok_or_else(|| {
            let types: Vec<&str> = self.0.iter().map(|lookup| lookup.key_type.name()).collect();
            OpError::WrongType {
                what: "input".into(),
                found: ty,
                expected: format!("{}, like the keys", types.join(" or ")),
            }
        })
    }
}

impl Operator for LabelEncoder {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = match input_type(cx, 0) {
            Some(ty) => Some(self.lookup(ty)?.values.element_type()),
            None => None,
        };
        let dims = input_dims(cx, 0);
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let lookup = self.lookup(x.element_type())?;
        let positions = lookup.positions(&x)?;
        gather_starts(
            cx,
            0,
            &lookup.values.view(),
            x.dims(),
            1,
            positions.iter().copied(),
        )
    }
}
