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
use super::elementwise::map;
use super::minifloat::{self, E8M0Rounding, Minifloat, decode_e8m0, encode_e8m0};
use crate::native::element::{
    Bool, Element, ElementType, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, I2, I4, U2, U4,
};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

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
    let attribute = |message: String| OpError::Attribute {
        name: "to".into(),
        message,
    };
    let code = node.int("to")?.ok_or_else(|| attribute("is missing".into()))?;
    let to = i32::try_from(code).ok().and_then(ElementType::from_code);
    let to = to.ok_or_else(|| attribute(format!("is {code}, which is no element type")))?;
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
            x,
            to,
            rules: self.rules,
        };
        use ElementType as E;
        match x.element_type() {
            E::Float32 => job.from(cx, |x: f32| x),
            E::Float64 => job.from(cx, |x: f64| x),
            E::Float16 => job.from(cx, f16::to_f32),
            E::Bfloat16 => job.from(cx, bf16::to_f32),
            E::Int8 => job.from(cx, |x: i8| i64::from(x)),
            E::Int16 => job.from(cx, |x: i16| i64::from(x)),
            E::Int32 => job.from(cx, |x: i32| i64::from(x)),
            E::Int64 => job.from(cx, |x: i64| x),
            E::Uint8 => job.from(cx, |x: u8| i64::from(x)),
            E::Uint16 => job.from(cx, |x: u16| i64::from(x)),
            E::Uint32 => job.from(cx, |x: u32| i64::from(x)),
            E::Uint64 => job.from(cx, |x: u64| x),
            E::Bool => job.from(cx, |x: Bool| i64::from(x.get())),
            E::Uint4 => job.from(cx, |x: U4| i64::from(x.0)),
            E::Int4 => job.from(cx, |x: I4| i64::from(x.0)),
            E::Uint2 => job.from(cx, |x: U2| i64::from(x.0)),
            E::Int2 => job.from(cx, |x: I2| i64::from(x.0)),
            E::Float8E4M3FN => job.from(cx, |x: F8E4M3FN| minifloat::E4M3FN.decode(x.0)),
            E::Float8E4M3FNUZ => job.from(cx, |x: F8E4M3FNUZ| minifloat::E4M3FNUZ.decode(x.0)),
            E::Float8E5M2 => job.from(cx, |x: F8E5M2| minifloat::E5M2.decode(x.0)),
            E::Float8E5M2FNUZ => job.from(cx, |x: F8E5M2FNUZ| minifloat::E5M2FNUZ.decode(x.0)),
            E::Float4E2M1 => job.from(cx, |x: F4E2M1| minifloat::E2M1.decode(x.0)),
            E::Float8E8M0 => job.from(cx, |x: F8E8M0| decode_e8m0(x.0)),
            E::String => job.parse_strings(cx),
            other @ (E::Complex64 | E::Complex128) => {
                Err(super::unsupported(other, "a real number or a string"))
            }
        }
    }
}

struct Job<'a> {
    x: TensorRef<'a>,
    to: ElementType,
    rules: Rules,
}

impl Job<'_> {
    /// From elements of `X`, which `widen` makes a number without loss.
    fn from<X: Element, W: Wide>(
        &self,
        cx: &mut RunContext<'_>,
        widen: impl Fn(X) -> W + Copy,
    ) -> Result<(), OpError> {
        use ElementType as E;
        let x = self.x.slice::<X>()?;
        let dims = self.x.dims();
        match self.to {
            E::Float32 => write(cx, dims, x, |x| widen(x).to_f32()),
            E::Float64 => write(cx, dims, x, |x| widen(x).to_f64()),
            E::Float16 => write(cx, dims, x, |x| widen(x).to_f16()),
            E::Bfloat16 => write(cx, dims, x, |x| widen(x).to_bf16()),
            E::Int8 => write(cx, dims, x, |x| widen(x).to_i32() as i8),
            E::Int16 => write(cx, dims, x, |x| widen(x).to_i32() as i16),
            E::Int32 => write(cx, dims, x, |x| widen(x).to_i32()),
            E::Int64 => write(cx, dims, x, |x| widen(x).to_i64()),
            E::Uint8 => write(cx, dims, x, |x| widen(x).to_i32() as u8),
            E::Uint16 => write(cx, dims, x, |x| widen(x).to_i32() as u16),
            E::Uint32 => write(cx, dims, x, |x| widen(x).to_u32()),
            E::Uint64 => write(cx, dims, x, |x| widen(x).to_u64()),
            E::Bool => write(cx, dims, x, |x| Bool::from(!widen(x).is_zero())),
            E::Uint4 => write(cx, dims, x, |x| U4(widen(x).to_i32() as u8 & 15)),
            // Shifting up and back down extends the sign.
            E::Int4 => write(cx, dims, x, |x| I4((widen(x).to_i32() as i8) << 4 >> 4)),
            E::Uint2 => write(cx, dims, x, |x| U2(widen(x).to_i32() as u8 & 3)),
            E::Int2 => write(cx, dims, x, |x| I2((widen(x).to_i32() as i8) << 6 >> 6)),
            E::Float8E4M3FN => {
                let encode = self.encoder(&minifloat::E4M3FN);
                write(cx, dims, x, |x| F8E4M3FN(encode(widen(x).to_f64())))
            }
            E::Float8E4M3FNUZ => {
                let encode = self.encoder(&minifloat::E4M3FNUZ);
                write(cx, dims, x, |x| F8E4M3FNUZ(encode(widen(x).to_f64())))
            }
            E::Float8E5M2 => {
                let encode = self.encoder(&minifloat::E5M2);
                write(cx, dims, x, |x| F8E5M2(encode(widen(x).to_f64())))
            }
            E::Float8E5M2FNUZ => {
                let encode = self.encoder(&minifloat::E5M2FNUZ);
                write(cx, dims, x, |x| F8E5M2FNUZ(encode(widen(x).to_f64())))
            }
            E::Float4E2M1 => {
                let encode = self.encoder(&minifloat::E2M1);
                write(cx, dims, x, |x| F4E2M1(encode(widen(x).to_f64())))
            }
            E::Float8E8M0 => {
                let Rules { saturate, rounding } = self.rules;
                write(cx, dims, x, |x| {
                    F8E8M0(encode_e8m0(widen(x).to_f64(), saturate, rounding))
                })
            }
            E::String => {
                let text = x.iter().map(|&x| widen(x).to_text()).collect();
                cx.output_strings(0, dims, text)
            }
            other @ (E::Complex64 | E::Complex128) => Err(OpError::Message(format!(
                "no cast from {} to {other}",
                self.x.element_type()
            ))),
        }
    }

    fn encoder(&self, format: &'static Minifloat) -> impl Fn(f64) -> u8 {
        let saturate = self.rules.saturate;
        move |x| format.encode(x, saturate)
    }

    /// Strings are read as numbers, which then go where such numbers go.
    fn parse_strings(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let mut numbers = Vec::new();
        for (i, text) in self.x.strings()?.iter().enumerate() {
            numbers.push(parse(text).ok_or_else(|| {
                OpError::Message(format!("element {i} of input 0, {text:?}, is not a number"))
            })?);
        }
        use ElementType as E;
        let integral = !matches!(
            self.to,
            E::Float32
                | E::Float64
                | E::Float16
                | E::Bfloat16
                | E::Float8E4M3FN
                | E::Float8E4M3FNUZ
                | E::Float8E5M2
                | E::Float8E5M2FNUZ
                | E::Float4E2M1
                | E::Float8E8M0
        );
        // A whole number beyond 2^53 would lose digits as an f64.
        let unsigned = self.to == E::Uint64;
        if integral && unsigned {
            let values: Vec<u64> = numbers
                .iter()
                .map(|number| number.wide(Wide::to_u64, Wide::to_u64, Wide::to_u64))
                .collect();
            return self.parsed(cx, &values);
        }
        if integral && self.to != E::Bool {
            let values: Vec<i64> = numbers
                .iter()
                .map(|number| number.wide(Wide::to_i64, Wide::to_i64, Wide::to_i64))
                .collect();
            return self.parsed(cx, &values);
        }
        let values: Vec<f64> = numbers
            .iter()
            .map(|number| number.wide(Wide::to_f64, Wide::to_f64, Wide::to_f64))
            .collect();
        self.parsed(cx, &values)
    }

    fn parsed<W: Wide + Element>(&self, cx: &mut RunContext<'_>, values: &[W]) -> Result<(), OpError> {
        let x = crate::native::tensor::Tensor::from_slice(self.x.dims(), values)?;
        let job = Job {
            x: x.view(),
            to: self.to,
            rules: self.rules,
        };
        match W::TYPE == self.to {
            true => cx.output::<W>(0, self.x.dims())?.copy_from(values),
            false => job.from(cx, |x: W| x),
        }
    }
}

impl Parsed {
    fn wide<T>(&self, signed: fn(i64) -> T, unsigned: fn(u64) -> T, float: fn(f64) -> T) -> T {
        match *self {
            Parsed::Integer(value) => signed(value),
            Parsed::Unsigned(value) => unsigned(value),
            Parsed::Float(value) => float(value),
        }
    }
}

fn write<X: Element, Y: Element>(
    cx: &mut RunContext<'_>,
    dims: &[usize],
    x: &[X],
    convert: impl Fn(X) -> Y,
) -> Result<(), OpError> {
    map(x, cx.output::<Y>(0, dims)?.into_mut(), convert);
    Ok(())
}
