//! Lists that are made while a model is read or run, as long as the model says: a refused allocation is an
//! error, and they count for the [account](crate::component::MemoryAccount) that the thread is in.

use std::ops::{Deref, DerefMut};

use super::operator::OpError;
use crate::component::Charge;
use crate::reserve;

/// A list that is made once, and no longer than the room it has unless by [`add`](Self::add).
pub(super) struct Working<T> {
    items: Vec<T>,
    charge: Option<Charge>,
}

impl<T> Working<T> {
    /// No items, with room for `count`.
    pub(super) fn with_room(count: usize) -> Result<Self, OpError> {
        let bytes = count.saturating_mul(size_of::<T>());
        let refused = OpError::OutOfMemory { bytes };
        let Ok(charge) = Charge::of_entered(bytes) else {
            return Err(refused);
        };
        let mut items = Vec::new();
        match reserve::fallible(|| items.try_reserve_exact(count)) {
            Ok(()) => Ok(Working { items, charge }),
            Err(_) => Err(refused),
        }
    }
}

impl<T> Working<T> {
    /// Items that are there already.
    pub(super) fn of(items: Vec<T>) -> Result<Self, OpError> {
        let bytes = items.capacity().saturating_mul(size_of::<T>());
        match Charge::of_entered(bytes) {
            Ok(charge) => Ok(Working { items, charge }),
            Err(_) => Err(OpError::OutOfMemory { bytes }),
        }
    }

    /// The items, which then count for nobody.
    pub(super) fn into_items(self) -> Vec<T> {
        self.items
    }

    /// Adds an item, for which room is made.
    pub(super) fn add(&mut self, item: T) -> Result<(), OpError> {
        if self.items.len() == self.items.capacity() {
            let more = self.items.capacity().max(16);
            let bytes = more.saturating_mul(size_of::<T>());
            let refused = |_| OpError::OutOfMemory { bytes };
            if let Some(charge) = &mut self.charge {
                charge
                    .grow(bytes as u64)
                    .map_err(|_| OpError::OutOfMemory { bytes })?;
            }
            reserve::fallible(|| self.items.try_reserve_exact(more)).map_err(refused)?;
        }
        self.items.push(item);
        Ok(())
    }
}

impl<T> Deref for Working<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.items
    }
}

impl<T> DerefMut for Working<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.items
    }
}
