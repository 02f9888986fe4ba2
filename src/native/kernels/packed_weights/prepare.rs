//! Packing when a model is loaded.

use super::OutOfMemory;
use super::layout::{Arithmetic, PackedWeights};
use super::pack::{Source, SourceCodes, SourcePoints};
use crate::native::operator::{OpError, PrepareContext};
use crate::native::tensor::TensorRef;

/// Packs weights, or takes them as they were packed before from the file that keeps them.
///
/// `constants` are all that the source reads.
pub fn prepare(
    cx: &mut PrepareContext<'_>,
    source: &Source<'_>,
    arithmetic: Arithmetic,
    constants: &[Option<TensorRef<'_>>],
) -> Result<PackedWeights, OpError> {
    let out_of_memory = |OutOfMemory { bytes }| OpError::OutOfMemory { bytes };
    let (workers, give_back) = (cx.workers(), cx.give_back());
    let pack = || PackedWeights::pack(source, arithmetic, workers).map_err(out_of_memory);
    let Some(cache) = cx.packed_cache() else {
        return pack();
    };
    let key = cache.key(&numbers(source, arithmetic), constants, give_back)?;
    if let Some(arrays) = cache.find(key) {
        let packed = PackedWeights::of_arrays(source, arithmetic, arrays.clone()).map_err(out_of_memory)?;
        if let Some(packed) = packed {
            cache.taken(key, arrays);
            return Ok(packed);
        }
    }
    let packed = pack()?;
    cache.made(key, packed.arrays());
    Ok(packed)
}

/// All that the packed weights depend on, apart from the constants.
fn numbers(source: &Source<'_>, arithmetic: Arithmetic) -> [u64; 7] {
    let arithmetic = match arithmetic {
        Arithmetic::Float => 0,
        Arithmetic::Integer => 1,
        Arithmetic::Words => 2,
    };
    let codes = match source.codes {
        SourceCodes::Stored(..) | SourceCodes::Rows(_) => 0,
        SourceCodes::Transposed(_, bits) => 1 << 8 | u64::from(bits),
    };
    let points = match source.points {
        SourcePoints::Middle => 0,
        SourcePoints::Whole(_) => 1,
        SourcePoints::Float(_) => 2,
    };
    let sizes = [source.bits, source.n, source.k, source.block_size].map(|size| size as u64);
    let [bits, n, k, block_size] = sizes;
    [bits, n, k, block_size, arithmetic, codes, points]
}
