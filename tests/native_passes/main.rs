//! The graph passes of the native runtime: each one finds what it is for, leaves what is
//! nearly that alone, and the outputs are the same with it and without it.
#![cfg(feature = "native")]

mod activations;
mod attention_bodies;
mod attentions;
mod caches;
mod cleaning;
mod dims;
mod gates;
mod harness;
mod norms;
mod projections;
mod residuals;
mod ropes;
mod typed;
