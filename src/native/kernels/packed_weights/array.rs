use std::marker::PhantomData;
use std::ops::Deref;

use bytes::Bytes;

use crate::native::element::Element;
use crate::native::tensor::as_elements;

/// Elements on the heap or in a mapped file. Clones share them.
#[derive(Clone, Debug)]
pub struct Array<T> {
    /// A whole number of elements, and aligned for them.
    bytes: Bytes,
    of: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// `None` when the bytes are not whole elements, or not aligned for them.
    pub fn new(bytes: Bytes) -> Option<Self> {
        as_elements::<T>(&bytes)?;
        Some(Array {
            bytes,
            of: PhantomData,
        })
    }

    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl<T> Default for Array<T> {
    fn default() -> Self {
        Array {
            bytes: Bytes::new(),
            of: PhantomData,
        }
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        as_elements(&self.bytes).unwrap_or_default()
    }
}
