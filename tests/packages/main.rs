//! Packages made here, of graphs small enough to know their answers: what the loop does with
//! them on real backends, every component on each, in every mix.

mod caches;
mod heads;
mod loops;
mod masks;
mod mixes;
mod modalities;
mod nested;
mod positions;
mod sessions;
mod states;
mod texts;
