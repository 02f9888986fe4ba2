//! Choosing tokens from logits, without a model: each processor and sampler beside straight
//! evaluations of its definition and beside Hugging Face transformers, and what comes of drawing.

mod definitions;
mod draws;
mod hugging_face;
mod logits;
