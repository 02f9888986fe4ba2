//! Loops over lanes of eight f32, compiled once for each instruction set and chosen at run time.
//!
//! A kernel is written once, generic over [`Lanes`], with every function on its way
//! `#[inline(always)]`; [`run`] calls it in the variant that the CPU has. Variants agree to
//! rounding: with FMA a product is not rounded before it is added.
//!
//! | variant | needs |
//! |---|---|
//! | [`Portable`] | nothing |
//! | [`Avx2`](avx2::Avx2) | AVX2, FMA, F16C |
//! | [`Neon`](neon::Neon) | NEON, which every 64-bit ARM that Rust's targets mean has |
//!
//! A further one is an `impl Lanes` and an arm in [`run`]. Where vectors of sixteen pay, products with
//! many or few rows, AVX-512 has loops of its own in `gemm` and `packed_weights`, which load by
//! [`Stored::load_wide`].

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, _mm256_loadu_si256, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_loadu_ps,
    _mm512_slli_epi32,
};

use half::{bf16, f16};

use super::number::Number;

/// Eight f32.
pub(super) trait Lanes: Copy + Send + Sync {
    type V: Copy;

    fn splat(x: f32) -> Self::V;
    fn load(x: &[f32; 8]) -> Self::V;
    fn load_f16(x: &[f16; 8]) -> Self::V;
    fn load_bf16(x: &[bf16; 8]) -> Self::V;
    fn store(v: Self::V, to: &mut [f32; 8]);
    /// a * b + c
    fn multiply_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The same of one lane, with the same rounding.
    fn multiply_add_one(a: f32, b: f32, c: f32) -> f32;
    /// Of each of the eight the sum of its lanes, with the same rounding:
    /// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
    fn sums(v: [Self::V; 8]) -> Self::V;
    /// Asks for the cache line of an element that will be read soon.
    fn prefetch<T>(x: &[T], at: usize);
}

/// A type that [`Lanes`] are loaded from.
pub(super) trait Stored: Number<Wide = f32> {
    fn load<S: Lanes>(x: &[Self; 8]) -> S::V;

    /// Sixteen elements.
    ///
    /// # Safety
    /// There are so many at `x`, and the CPU has AVX-512.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load_wide(x: *const Self) -> __m512;
}

impl Stored for f32 {
    #[inline(always)]
    fn load<S: Lanes>(x: &[f32; 8]) -> S::V {
        S::load(x)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load_wide(x: *const f32) -> __m512 {
        // SAFETY: the caller's word.
        unsafe { _mm512_loadu_ps(x) }
    }
}

impl Stored for f16 {
    #[inline(always)]
    fn load<S: Lanes>(x: &[f16; 8]) -> S::V {
        S::load_f16(x)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load_wide(x: *const f16) -> __m512 {
        // SAFETY: the caller's word.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.cast())) }
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn load<S: Lanes>(x: &[bf16; 8]) -> S::V {
        S::load_bf16(x)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load_wide(x: *const bf16) -> __m512 {
        // SAFETY: the caller's word.
        unsafe {
            let x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x))
        }
    }
}

/// A computation that is compiled for each variant.
pub(super) trait Kernel {
    type Output;

    /// Must be `#[inline(always)]`, as all that it calls with `S`.
    fn run<S: Lanes>(self) -> Self::Output;
}

/// Runs a kernel in the best variant that this CPU has.
#[inline]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(test)]
    if PORTABLE_ONLY.get() {
        return kernel.run::<Portable>();
    }
    #[cfg(target_arch = "x86_64")]
    if avx2::is_there() {
        // SAFETY: the CPU has the features.
        return unsafe { avx2::run(kernel) };
    }
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    // SAFETY: every CPU that this is compiled for has the feature.
    return unsafe { neon::run(kernel) };
    #[cfg(not(all(target_arch = "aarch64", target_feature = "neon")))]
    kernel.run::<Portable>()
}

#[cfg(test)]
thread_local! {
    /// Whether tests on this thread want the portable variant.
    pub(super) static PORTABLE_ONLY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "used by tests alone"))]
pub(super) struct Portable;

impl Lanes for Portable {
    type V = [f32; 8];

    #[inline(always)]
    fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load(x: &[f32; 8]) -> [f32; 8] {
        *x
    }

    #[inline(always)]
    fn load_f16(x: &[f16; 8]) -> [f32; 8] {
        x.map(f16::to_f32)
    }

    #[inline(always)]
    fn load_bf16(x: &[bf16; 8]) -> [f32; 8] {
        x.map(bf16::to_f32)
    }

    #[inline(always)]
    fn store(v: [f32; 8], to: &mut [f32; 8]) {
        *to = v;
    }

    #[inline(always)]
    fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn multiply_add_one(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    #[inline(always)]
    fn sums(v: [[f32; 8]; 8]) -> [f32; 8] {
        v.map(|[a, b, c, d, e, f, g, h]| ((a + e) + (c + g)) + ((b + f) + (d + h)))
    }

    #[inline(always)]
    fn prefetch<T>(_: &[T], _: usize) {}
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm256_add_ps, _mm256_castpd_ps,
        _mm256_castps_pd, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_shuffle_ps, _mm256_slli_epi32,
        _mm256_storeu_ps, _mm256_unpackhi_pd, _mm256_unpacklo_pd,
    };

    use half::{bf16, f16};

    use super::{Kernel, Lanes};

    #[inline]
    pub fn is_there() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }

    /// # Safety
    /// [`is_there`].
    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx2>()
    }

    /// Named by [`run`] alone, so its functions run where the features are.
    #[derive(Clone, Copy, Debug)]
    pub struct Avx2;

    // These are functions, not closures, which nothing makes the compiler inline to where the features
    // are; there each instruction would be a call.

    /// The sums of low and high half, of x, then of y.
    ///
    /// # Safety
    /// [`is_there`].
    #[inline(always)]
    unsafe fn halves(x: __m256, y: __m256) -> __m256 {
        // SAFETY: the caller's word.
        unsafe {
            let low = _mm256_permute2f128_ps::<0x20>(x, y);
            _mm256_add_ps(low, _mm256_permute2f128_ps::<0x31>(x, y))
        }
    }

    /// The sums of the first and second pair, of each half of x, then of y.
    ///
    /// # Safety
    /// [`is_there`].
    #[inline(always)]
    unsafe fn pairs(x: __m256, y: __m256) -> __m256 {
        // SAFETY: the caller's word.
        unsafe {
            let (x, y) = (_mm256_castps_pd(x), _mm256_castps_pd(y));
            let first = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
            _mm256_add_ps(first, _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)))
        }
    }

    // Each block: SAFETY: the CPU has the features (see `Avx2`), and the pointer is that of a
    // reference to as many bytes as are read or written.
    impl Lanes for Avx2 {
        type V = __m256;

        #[inline(always)]
        fn splat(x: f32) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_set1_ps(x) }
        }

        #[inline(always)]
        fn load(x: &[f32; 8]) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_loadu_ps(x.as_ptr()) }
        }

        #[inline(always)]
        fn load_f16(x: &[f16; 8]) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast::<__m128i>())) }
        }

        #[inline(always)]
        fn load_bf16(x: &[bf16; 8]) -> __m256 {
            // SAFETY: as above.
            unsafe {
                let x = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast::<__m128i>()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x))
            }
        }

        #[inline(always)]
        fn store(v: __m256, to: &mut [f32; 8]) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
        }

        #[inline(always)]
        fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn multiply_add_one(a: f32, b: f32, c: f32) -> f32 {
            a.mul_add(b, c)
        }

        #[inline(always)]
        fn sums([a, b, c, d, e, f, g, h]: [__m256; 8]) -> __m256 {
            // SAFETY: as above.
            unsafe {
                let x = pairs(halves(a, e), halves(b, f));
                let y = pairs(halves(c, g), halves(d, h));
                let even = _mm256_shuffle_ps::<0b10_00_10_00>(x, y);
                _mm256_add_ps(even, _mm256_shuffle_ps::<0b11_01_11_01>(x, y))
            }
        }

        #[inline(always)]
        fn prefetch<T>(x: &[T], at: usize) {
            // SAFETY: a prefetch of any address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(x.as_ptr().wrapping_add(at).cast()) }
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon {
    use std::arch::aarch64::{
        float32x4_t, uint16x4_t, vadd_f32, vaddq_f32, vcombine_f32, vcvt_f32_f16, vdupq_n_f32, vfmaq_f32,
        vget_high_f32, vget_low_f32, vld1_u16, vld1q_f32, vpadd_f32, vreinterpret_f16_u16,
        vreinterpretq_f32_u32, vshll_n_u16, vst1q_f32,
    };
    use std::arch::asm;

    use half::{bf16, f16};

    use super::{Kernel, Lanes};

    /// # Safety
    /// The CPU has NEON.
    #[target_feature(enable = "neon")]
    pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Neon>()
    }

    /// Named by [`run`] alone, so its functions run where the feature is.
    #[derive(Clone, Copy, Debug)]
    pub struct Neon;

    // Each block: SAFETY: the CPU has NEON (see `Neon`), and the pointer is that of a reference to as
    // many bytes as are read or written.
    impl Lanes for Neon {
        type V = [float32x4_t; 2];

        #[inline(always)]
        fn splat(x: f32) -> Self::V {
            // SAFETY: as above.
            unsafe { [vdupq_n_f32(x); 2] }
        }

        #[inline(always)]
        fn load(x: &[f32; 8]) -> Self::V {
            let x = x.as_ptr();
            // SAFETY: as above.
            unsafe { [vld1q_f32(x), vld1q_f32(x.add(4))] }
        }

        #[inline(always)]
        fn load_f16(x: &[f16; 8]) -> Self::V {
            let float = |x: uint16x4_t| {
                // SAFETY: as above.
                unsafe { vcvt_f32_f16(vreinterpret_f16_u16(x)) }
            };
            let x = x.as_ptr().cast::<u16>();
            // SAFETY: as above.
            unsafe { [float(vld1_u16(x)), float(vld1_u16(x.add(4)))] }
        }

        #[inline(always)]
        fn load_bf16(x: &[bf16; 8]) -> Self::V {
            let float = |x: uint16x4_t| {
                // SAFETY: as above.
                unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(x)) }
            };
            let x = x.as_ptr().cast::<u16>();
            // SAFETY: as above.
            unsafe { [float(vld1_u16(x)), float(vld1_u16(x.add(4)))] }
        }

        #[inline(always)]
        fn store(v: Self::V, to: &mut [f32; 8]) {
            let to = to.as_mut_ptr();
            // SAFETY: as above.
            unsafe {
                vst1q_f32(to, v[0]);
                vst1q_f32(to.add(4), v[1]);
            }
        }

        #[inline(always)]
        fn multiply_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: as above.
            unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
        }

        #[inline(always)]
        fn multiply_add_one(a: f32, b: f32, c: f32) -> f32 {
            a.mul_add(b, c)
        }

        #[inline(always)]
        fn sums([a, b, c, d, e, f, g, h]: [Self::V; 8]) -> Self::V {
            // SAFETY: as above.
            unsafe {
                let two = |[low, high]: Self::V| {
                    let four = vaddq_f32(low, high);
                    vadd_f32(vget_low_f32(four), vget_high_f32(four))
                };
                let four = |a, b, c, d| vcombine_f32(vpadd_f32(two(a), two(b)), vpadd_f32(two(c), two(d)));
                [four(a, b, c, d), four(e, f, g, h)]
            }
        }

        #[inline(always)]
        fn prefetch<T>(x: &[T], at: usize) {
            let at = x.as_ptr().wrapping_add(at);
            // SAFETY: a prefetch of any address is allowed. (The intrinsic is not stable yet.)
            unsafe {
                asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly))
            }
        }
    }
}
