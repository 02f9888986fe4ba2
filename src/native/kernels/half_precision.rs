//! f16 as f32 and back, one element at a time, and f32 as bf16, in operations that the compiler can
//! make vectors of.
//!
//! For f16 the `half` crate asks for each element whether the CPU has an instruction for it, which keeps a
//! loop from becoming one of vectors; bf16 has no such question. Both directions give what the F16C
//! instructions give, NaNs included: IEEE 754-2008, binary16; ties to even; a NaN becomes quiet and
//! keeps the upper bits of its payload.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::simd::{Kernel, Lanes, run};

/// `elements[i]` = `wide[i]`, rounded, for as many as there are of both.
pub(super) fn to_f16(wide: &[f32], elements: &mut [f16]) {
    let len = elements.len().min(wide.len());
    elements[..len].convert_from_f32_slice(&wide[..len]);
}

/// `elements[i]` = `wide[i]`, rounded, ties to even, for as many as there are of both. A NaN becomes
/// quiet and keeps the upper bits of its payload.
pub(super) fn to_bf16(wide: &[f32], elements: &mut [bf16]) {
    run(ToBf16(wide, elements));
}

struct ToBf16<'a>(&'a [f32], &'a mut [bf16]);

impl Kernel for ToBf16<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let ToBf16(wide, elements) = self;
        for (to, x) in elements.iter_mut().zip(wide) {
            let bits = x.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet = bits >> 16 | 0x40;
            let is_nan = bits & 0x7fff_ffff > f32::INFINITY.to_bits();
            *to = bf16::from_bits(if is_nan { quiet } else { rounded } as u16);
        }
    }
}

/// Exponent and mantissa of f16, in the place of f32's.
const INFINITY: u32 = 0x7c00 << 13;
/// 2^112 takes f16's exponent to f32's.
const UP: f32 = f32::from_bits((127 + 112) << 23);
const QUIET: u32 = 1 << 22;

#[inline(always)]
pub(super) fn to_f32(x: f16) -> f32 {
    let bits = u32::from(x.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    // Exact, also from subnormals, which are normal numbers in f32.
    let finite = (f32::from_bits(magnitude) * UP).to_bits();
    let infinite = f32::INFINITY.to_bits() | magnitude;
    let quiet = if magnitude > INFINITY { QUIET } else { 0 };
    let magnitude = if magnitude >= INFINITY {
        infinite | quiet
    } else {
        finite
    };
    f32::from_bits((bits & 0x8000) << 16 | magnitude)
}

#[inline(always)]
pub(super) fn from_f32(x: f32) -> f16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // The exponent becomes f16's, and what is cut off is rounded.
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_add(0xfff + odd).wrapping_sub(112 << 23) >> 13;
    // The sum's lowest bit is that of f16's subnormals, 2^-24, so that the addition rounds.
    const LOWEST: f32 = f32::from_bits((127 - 24 + 23) << 23);
    let subnormal = (f32::from_bits(magnitude) + LOWEST)
        .to_bits()
        .wrapping_sub(LOWEST.to_bits());
    // From 2^-14 on numbers are normal, from 2^16 on too large.
    let finite = if magnitude < (127 - 14) << 23 {
        subnormal
    } else {
        normal
    };
    let infinity = f32::INFINITY.to_bits();
    let beyond = match magnitude > infinity {
        true => 0x7e00 | magnitude >> 13 & 0x1ff,
        false => 0x7c00,
    };
    let magnitude = if magnitude >= (127 + 16) << 23 {
        beyond
    } else {
        finite
    };
    f16::from_bits((bits >> 16 & 0x8000 | magnitude) as u16)
}

#[cfg(test)]
mod tests {
    use super::super::simd::PORTABLE_ONLY;
    use super::*;

    /// What is next to a number: the numbers between which rounding changes, and a few more.
    fn around(x: f32) -> impl Iterator<Item = f32> {
        (-2..=2i32).map(move |by| f32::from_bits(x.to_bits().wrapping_add_signed(by)))
    }

    /// Against the `half` crate, which uses the CPU's instructions where it has them.
    #[test]
    fn every_f16_is_the_f32_of_its_value() {
        for bits in 0..=u16::MAX {
            let x = f16::from_bits(bits);
            assert_eq!(to_f32(x).to_bits(), x.to_f32().to_bits(), "{bits:#06x}");
            assert_eq!(
                from_f32(x.to_f32()).to_bits(),
                f16::from_f32(x.to_f32()).to_bits()
            );
        }
    }

    #[test]
    fn an_f32_becomes_the_nearest_bf16() {
        let mut wide: Vec<f32> = (0..=u32::MAX).step_by(4099).map(f32::from_bits).collect();
        for bits in 0..u16::MAX {
            let (x, next) = (bf16::from_bits(bits).to_f32(), bf16::from_bits(bits + 1).to_f32());
            wide.extend(around(x).chain(around(x + (next - x) / 2.0)));
        }
        for portable in [false, true] {
            let mut found = vec![bf16::ZERO; wide.len()];
            PORTABLE_ONLY.set(portable);
            to_bf16(&wide, &mut found);
            PORTABLE_ONLY.set(false);
            for (found, x) in found.iter().zip(&wide) {
                let expected = bf16::from_f32(*x);
                assert_eq!(found.to_bits(), expected.to_bits(), "{:#010x}", x.to_bits());
            }
        }
    }

    #[test]
    fn an_f32_becomes_the_nearest_f16() {
        let check = |x: f32| {
            assert_eq!(
                from_f32(x).to_bits(),
                f16::from_f32(x).to_bits(),
                "{:#010x}",
                x.to_bits()
            );
        };
        for bits in 0..u16::MAX {
            let (x, next) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits + 1).to_f32());
            around(x).for_each(check);
            around(x + (next - x) / 2.0).for_each(check);
        }
        // And all over the range.
        for bits in (0..=u32::MAX).step_by(4099) {
            check(f32::from_bits(bits));
        }
        for x in [65_504.0, 65_519.996, 65_520.0, 65_536.0, f32::MAX, f32::INFINITY] {
            check(x);
            check(-x);
        }
    }
}
