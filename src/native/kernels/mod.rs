//! Portable kernels, one file per operator family.
//!
//! Each file opens with the operator's equation, shapes and the version of its spec. Only
//! the constructors are used from outside, by the registry.

pub(super) mod identity;
