//! Cast: every element in another type; CastLike: in the type of input 1.
//!
//! All pairs of numbers, booleans, minifloats and strings; complex numbers are not castable. The
//! rules for one number are in `convert` and `minifloat`: between integers the low bits are kept,
//! to a float the nearest is taken (ties to even), to a bool everything but zero is true.
//! `saturate` is for the 8-bit floats, `round_mode` for float8e8m0.
//!
//! Cast: ai.onnx 6, 9, 13, 19, 21, 23, 24, 25. CastLike: ai.onnx 15, 19, 21, 23, 24, 25.

use half::{bf16, f16};

use super::Built;
use super::convert::{Parsed, Wide, parse};
use super::minifloat::{self, E8M0Rounding, Minifloat, decode_e8m0, encode_e8m0};
use super::moves::string_room;
use super::number::Number;
use crate::native::element::{
    Bool, Element, ElementType, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, I2, I4, U2, U4,
};
use crate::native::ending;
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::output::OutSlice;
use crate::native::workers::Workers;
use crate::native::working::Working;

#[derive(Debug)]
struct Cast {
    /// `None` is the type of input 1.
    to: Option<ElementType>,
    rules: Rules,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    saturate: bool,
    rounding: E8M0Rounding,
}

fn rules(node: &NodeInfo<'_>) -> Result<Rules, OpError> {
    let rounding = match node.since {
        24.. => node.string_or("round_mode", "up")?,
        _ => "up",
    };
    Ok(Rules {
        saturate: node.since < 19 || node.flag_or("saturate", true)?,
        rounding: match rounding {
            "up" => E8M0Rounding::Up,
            "down" => E8M0Rounding::Down,
            "nearest" => E8M0Rounding::Nearest,
            other => {
                return Err(OpError::Attribute {
                    name: "round_mode".into(),
                    message: format!("is \"{other}\", expected \"up\", \"down\" or \"nearest\""),
                });
            }
        },
    })
}

pub(in crate::native) fn cast(node: &NodeInfo<'_>) -> Built {
    let to = node.element_type("to")?.ok_or_else(|| OpError::Attribute {
        name: "to".into(),
        message: "is missing".into(),
    })?;
    Ok(Box::new(Cast {
        to: Some(to),
        rules: rules(node)?,
    }))
}

pub(in crate::native) fn cast_like(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Cast {
        to: None,
        rules: rules(node)?,
    }))
}

impl Operator for Cast {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = match self.to {
            Some(ty) => Some(ty),
            None => cx.required(1)?.ty,
        };
        let dims = cx.required(0)?.dims.clone();
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let to = match self.to {
            Some(to) => to,
            None => cx.required(1)?.element_type(),
        };
        if x.element_type() == to {
            return cx.output_same_as_input(0, 0, x.dims());
        }
        let job = Job {
            dims: x.dims(),
            to,
            rules: self.rules,
        };
        use ElementType as E;
        match x.element_type() {
            E::Float32 => job.cast(cx, x.slice()?, |x: f32| x),
            E::Float64 => job.cast(cx, x.slice()?, |x: f64| x),
            E::Float16 => job.cast_halves::<f16>(cx, x.slice()?),
            E::Bfloat16 => job.cast_halves::<bf16>(cx, x.slice()?),
            E::Int8 => job.cast(cx, x.slice()?, |x: i8| i64::from(x)),
            E::Int16 => job.cast(cx, x.slice()?, |x: i16| i64::from(x)),
            E::Int32 => job.cast(cx, x.slice()?, |x: i32| i64::from(x)),
            E::Int64 => job.cast(cx, x.slice()?, |x: i64| x),
            E::Uint8 => job.cast(cx, x.slice()?, |x: u8| i64::from(x)),
            E::Uint16 => job.cast(cx, x.slice()?, |x: u16| i64::from(x)),
            E::Uint32 => job.cast(cx, x.slice()?, |x: u32| i64::from(x)),
            E::Uint64 => job.cast(cx, x.slice()?, |x: u64| x),
            E::Bool => job.cast(cx, x.slice()?, |x: Bool| i64::from(x.get())),
            E::Uint4 => job.cast(cx, x.slice()?, |x: U4| i64::from(x.0)),
            E::Int4 => job.cast(cx, x.slice()?, |x: I4| i64::from(x.0)),
            E::Uint2 => job.cast(cx, x.slice()?, |x: U2| i64::from(x.0)),
            E::Int2 => job.cast(cx, x.slice()?, |x: I2| i64::from(x.0)),
            E::Float8E4M3FN => job.cast(cx, x.slice()?, |x: F8E4M3FN| minifloat::E4M3FN.decode(x.0)),
            E::Float8E4M3FNUZ => job.cast(cx, x.slice()?, |x: F8E4M3FNUZ| minifloat::E4M3FNUZ.decode(x.0)),
            E::Float8E5M2 => job.cast(cx, x.slice()?, |x: F8E5M2| minifloat::E5M2.decode(x.0)),
            E::Float8E5M2FNUZ => job.cast(cx, x.slice()?, |x: F8E5M2FNUZ| minifloat::E5M2FNUZ.decode(x.0)),
            E::Float4E2M1 => job.cast(cx, x.slice()?, |x: F4E2M1| minifloat::E2M1.decode(x.0)),
            E::Float8E8M0 => job.cast(cx, x.slice()?, |x: F8E8M0| decode_e8m0(x.0)),
            E::String => job.cast_strings(cx, x.strings()?),
            other @ (E::Complex64 | E::Complex128) => {
                Err(super::unsupported(other, "a real number or a string"))
            }
        }
    }

    fn is_row_wise(&self, _others: &[Option<&Fact>]) -> bool {
        true
    }
}

struct Job<'a> {
    dims: &'a [usize],
    to: ElementType,
    rules: Rules,
}

/// Elements that are widened at a time: the loop to the wide type and the loop from it are
/// compiled once for each type, not once for each pair of types.
const CHUNK: usize = 256;

/// Elements that a number costs as many as, where it is written as text or read from it.
const OF_TEXT: usize = 16;

impl Job<'_> {
    /// From elements of `X`, which `widen` makes numbers without loss.
    fn cast<X: Element, W: Wide>(
        &self,
        cx: &mut RunContext<'_>,
        x: &[X],
        widen: impl Fn(X) -> W + Sync,
    ) -> Result<(), OpError> {
        self.write(cx, x.len(), &|first, chunk| {
            for (wide, &x) in chunk.iter_mut().zip(&x[first..]) {
                *wide = widen(x);
            }
        })
    }

    fn cast_halves<X: Number<Wide = f32>>(&self, cx: &mut RunContext<'_>, x: &[X]) -> Result<(), OpError> {
        self.write(cx, x.len(), &|first, chunk| X::widen_all(&x[first..], chunk))
    }

    /// To the type asked for; `read(first, chunk)` gives the source from element `first` on.
    fn write<W: Wide>(
        &self,
        cx: &mut RunContext<'_>,
        len: usize,
        read: &(dyn Fn(usize, &mut [W]) + Sync),
    ) -> Result<(), OpError> {
        use ElementType as E;
        let dims = self.dims;
        match self.to {
            E::Float32 => convert(cx, dims, read, W::to_f32),
            E::Float64 => convert(cx, dims, read, W::to_f64),
            E::Float16 => convert_blocks(cx, dims, read, W::to_f16_all),
            E::Bfloat16 => convert_blocks(cx, dims, read, W::to_bf16_all),
            E::Int8 => convert(cx, dims, read, |x: W| x.to_i32() as i8),
            E::Int16 => convert(cx, dims, read, |x: W| x.to_i32() as i16),
            E::Int32 => convert(cx, dims, read, W::to_i32),
            E::Int64 => convert(cx, dims, read, W::to_i64),
            E::Uint8 => convert(cx, dims, read, |x: W| x.to_i32() as u8),
            E::Uint16 => convert(cx, dims, read, |x: W| x.to_i32() as u16),
            E::Uint32 => convert(cx, dims, read, W::to_u32),
            E::Uint64 => convert(cx, dims, read, W::to_u64),
            E::Bool => convert(cx, dims, read, |x: W| Bool::from(!x.is_zero())),
            E::Uint4 => convert(cx, dims, read, |x: W| U4(x.to_i32() as u8 & 15)),
            // Shifting up and back down extends the sign.
            E::Int4 => convert(cx, dims, read, |x: W| I4((x.to_i32() as i8) << 4 >> 4)),
            E::Uint2 => convert(cx, dims, read, |x: W| U2(x.to_i32() as u8 & 3)),
            E::Int2 => convert(cx, dims, read, |x: W| I2((x.to_i32() as i8) << 6 >> 6)),
            E::Float8E4M3FN => self.encode(cx, read, &minifloat::E4M3FN, F8E4M3FN),
            E::Float8E4M3FNUZ => self.encode(cx, read, &minifloat::E4M3FNUZ, F8E4M3FNUZ),
            E::Float8E5M2 => self.encode(cx, read, &minifloat::E5M2, F8E5M2),
            E::Float8E5M2FNUZ => self.encode(cx, read, &minifloat::E5M2FNUZ, F8E5M2FNUZ),
            E::Float4E2M1 => self.encode(cx, read, &minifloat::E2M1, F4E2M1),
            E::Float8E8M0 => {
                let Rules { saturate, rounding } = self.rules;
                convert(cx, dims, read, |x: W| {
                    F8E8M0(encode_e8m0(x.to_f64(), saturate, rounding))
                })
            }
            E::String => {
                let mut text = string_room(dims)?;
                for first in (0..len).step_by(CHUNK) {
                    let mut chunk = [W::default(); CHUNK];
                    let count = CHUNK.min(len - first);
                    ending::count(count * OF_TEXT);
                    read(first, &mut chunk[..count]);
                    for x in &chunk[..count] {
                        text.push_own(x.to_text())?;
                    }
                }
                cx.output_strings(0, dims, text)
            }
            other @ (E::Complex64 | E::Complex128) => {
                Err(OpError::Message(format!("there is no cast to {other}")))
            }
        }
    }

    fn encode<W: Wide, Y: Element>(
        &self,
        cx: &mut RunContext<'_>,
        read: &(dyn Fn(usize, &mut [W]) + Sync),
        format: &'static Minifloat,
        wrap: fn(u8) -> Y,
    ) -> Result<(), OpError> {
        let saturate = self.rules.saturate;
        convert(cx, self.dims, read, |x: W| {
            wrap(format.encode(x.to_f64(), saturate))
        })
    }

    /// Strings are read as numbers, which then go where such numbers go.
    fn cast_strings(&self, cx: &mut RunContext<'_>, strings: &[String]) -> Result<(), OpError> {
        let mut numbers = Working::with_room(strings.len())?;
        for (i, text) in strings.iter().enumerate() {
            ending::count(OF_TEXT);
            numbers.push(parse(text).ok_or_else(|| {
                OpError::Message(format!("element {i} of input 0, {text:?}, is not a number"))
            })?);
        }
        use ElementType as E;
        // As an f64, a whole number beyond 2^53 would lose digits.
        match self.to {
            E::Uint64 => {
                let mut values: Working<u64> = Working::with_room(numbers.len())?;
                values.extend(numbers.into_items().into_iter().map(Parsed::to_u64));
                self.cast(cx, &values, |x| x)
            }
            E::Int8 | E::Int16 | E::Int32 | E::Int64 | E::Uint8 | E::Uint16 | E::Uint32 => {
                let mut values: Working<i64> = Working::with_room(numbers.len())?;
                values.extend(numbers.into_items().into_iter().map(Parsed::to_i64));
                self.cast(cx, &values, |x| x)
            }
            _ => {
                let mut values: Working<f64> = Working::with_room(numbers.len())?;
                values.extend(numbers.into_items().into_iter().map(Parsed::to_f64));
                self.cast(cx, &values, |x| x)
            }
        }
    }
}

/// Output 0 from wide numbers.
fn convert<W: Wide, Y: Element>(
    cx: &mut RunContext<'_>,
    dims: &[usize],
    read: &(dyn Fn(usize, &mut [W]) + Sync),
    narrow: impl Fn(W) -> Y + Sync,
) -> Result<(), OpError> {
    convert_blocks(cx, dims, read, |wide, y| {
        for (y, &wide) in y.iter_mut().zip(wide) {
            *y = narrow(wide);
        }
    })
}

/// The same, a chunk at a time.
fn convert_blocks<W: Wide, Y: Element>(
    cx: &mut RunContext<'_>,
    dims: &[usize],
    read: &(dyn Fn(usize, &mut [W]) + Sync),
    narrow: impl Fn(&[W], &mut [Y]) + Sync,
) -> Result<(), OpError> {
    let y = cx.output::<Y>(0, dims)?;
    write_chunks(cx.workers(), y, &|first, y| {
        let mut wide = [W::default(); CHUNK];
        let wide = &mut wide[..y.len()];
        read(first, wide);
        narrow(wide, y);
    });
    Ok(())
}

/// Writes chunks on several threads: `write` gets the position of the first element, and at most
/// [`CHUNK`] of them.
fn write_chunks<Y: Element>(workers: &Workers, y: OutSlice<'_, Y>, write: &(dyn Fn(usize, &mut [Y]) + Sync)) {
    let chunk = y.chunk(workers, 1);
    y.split(workers, chunk, |first, y| {
        for (i, y) in y.chunks_mut(CHUNK).enumerate() {
            write(first + i * CHUNK, y);
        }
    });
}
