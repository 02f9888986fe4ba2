//! Hashes of many bytes, with all threads.
//!
//! XXH3 of 128 bits: no two contents will ever have the same by chance, and it is as fast as memory.
//! It does not withstand somebody who looks for two that do; who can write a model or the file
//! beside it has no need to.

use twox_hash::XxHash3_128;

use crate::native::element::ElementType;
use crate::native::operator::OpError;
use crate::native::tensor::{TensorRef, as_bytes};
use crate::native::workers::Workers;

/// Bytes that are hashed on one thread, whatever the number of threads is.
const PART: usize = 1 << 20;

/// Bytes after which it is said that they were looked at.
const STRIPE: usize = 16 * PART;

/// The hash of the hashes of parts.
pub(super) fn digest(workers: &Workers, bytes: &[u8]) -> u128 {
    digest_and(workers, bytes, &|_| {})
}

fn digest_and(workers: &Workers, bytes: &[u8], done: &dyn Fn(&[u8])) -> u128 {
    let mut hashes = vec![[0u64; 2]; bytes.len().div_ceil(PART)];
    for (bytes, hashes) in bytes.chunks(STRIPE).zip(hashes.chunks_mut(STRIPE / PART)) {
        workers.split_mut(hashes, 1, |part, hash| {
            let end = bytes.len().min((part + 1) * PART);
            let of_part = XxHash3_128::oneshot(bytes.get(part * PART..end).unwrap_or_default());
            hash.fill([of_part as u64, (of_part >> 64) as u64]);
        });
        done(bytes);
    }
    XxHash3_128::oneshot_with_seed(bytes.len() as u64, as_bytes(hashes.as_flattened()))
}

/// The hash of numbers and constants, their types and dims included. `done` is called with bytes of
/// large constants that have been hashed.
pub(super) fn key(
    workers: &Workers,
    numbers: &[u64],
    constants: &[Option<TensorRef<'_>>],
    done: &dyn Fn(&[u8]),
) -> Result<u128, OpError> {
    let mut all = vec![numbers.len() as u64, constants.len() as u64];
    all.extend(numbers);
    for constant in constants {
        let Some(constant) = constant else {
            all.push(0);
            continue;
        };
        let ty = ElementType::ALL
            .iter()
            .position(|&ty| ty == constant.element_type());
        all.extend([1, ty.map_or(0, |at| at as u64), constant.rank() as u64]);
        all.extend(constant.dims().iter().map(|&dim| dim as u64));
        let bytes = constant.bytes()?;
        let content = match bytes.len() {
            // They will be packed at once if they are not found.
            ..STRIPE => digest(workers, bytes),
            _ => digest_and(workers, bytes, done),
        };
        all.extend([content as u64, (content >> 64) as u64]);
    }
    Ok(digest(workers, as_bytes(&all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_anywhere_and_any_length_make_a_difference() {
        let workers = Workers::new(2);
        let mut bytes: Vec<u8> = (0..2 * PART + 77).map(|i| (i * 31 % 251) as u8).collect();
        let whole = digest(&workers, &bytes);
        assert_eq!(digest(&Workers::alone(), &bytes), whole);
        for at in [0, PART - 1, PART, 2 * PART, 2 * PART + 76] {
            bytes[at] ^= 4;
            assert_ne!(digest(&workers, &bytes), whole, "byte {at}");
            bytes[at] ^= 4;
        }
        for len in [0, 1, PART, PART + 1, 2 * PART + 76] {
            assert_ne!(digest(&workers, &bytes[..len]), whole, "{len} bytes");
        }
        assert_ne!(digest(&workers, &[]), digest(&workers, &[0]));
    }

    #[test]
    fn keys_tell_everything_apart() {
        let workers = Workers::alone();
        let bytes = [1u8, 2, 3, 4];
        let tensor = |ty, dims| Some(TensorRef::new(ty, dims, &bytes).expect("it fits"));
        let key = |numbers: &[u64], constants: &[_]| {
            key(&workers, numbers, constants, &|_| {}).expect("no strings")
        };
        let (u8s, i8s) = (ElementType::Uint8, ElementType::Int8);
        let keys = [
            key(&[], &[]),
            key(&[0], &[]),
            key(&[], &[None]),
            key(&[1], &[tensor(u8s, &[4])]),
            key(&[2], &[tensor(u8s, &[4])]),
            key(&[1], &[tensor(i8s, &[4])]),
            key(&[1], &[tensor(u8s, &[2, 2])]),
            key(&[1], &[None, tensor(u8s, &[4])]),
            key(&[1], &[tensor(u8s, &[4]), None]),
            key(&[1], &[tensor(u8s, &[4]), tensor(u8s, &[4])]),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys.iter().skip(i + 1).all(|b| a != b), "key {i}");
        }
    }
}
