//! From the schemas that ONNX Runtime 1.31 registers.

use super::{Arity, MS, arity};

#[rustfmt::skip] // a line each
pub(super) static ARITIES: &[Arity] = &[
    arity("", "SimplifiedLayerNormalization", 1, "RR", "Ro"),
    arity(MS, "Attention", 1, "RRooooo", "Ro"),
    arity(MS, "BiasGelu", 1, "RR", "R"),
    arity(MS, "CausalConvWithState", 1, "RRoo", "RR"),
    arity(MS, "DecoderMaskedMultiHeadAttention", 1, "Roooooooooo", "Rooo"),
    arity(MS, "EmbedLayerNormalization", 1, "RoRRoRRoo", "Roo"),
    arity(MS, "FastGelu", 1, "Ro", "R"),
    arity(MS, "FusedConv", 1, "RRoo", "R"),
    arity(MS, "FusedGemm", 1, "RRo", "R"),
    arity(MS, "FusedMatMul", 1, "RR", "R"),
    arity(MS, "GatherBlockQuantized", 1, "RRRo", "R"),
    arity(MS, "Gelu", 1, "R", "R"),
    arity(MS, "GroupQueryAttention", 1, "RooooRRooooooooo", "Rooo"),
    arity(MS, "LinearAttention", 1, "RRRooo", "RR"),
    arity(MS, "MatMulNBits", 1, "RRRooo", "R"),
    arity(MS, "MoE", 1, "RRRoRooo", "R"),
    arity(MS, "MultiHeadAttention", 1, "Rooooooooo", "Rooo"),
    arity(MS, "QMoE", 1, "RRRooRooooooooooooooo", "R"),
    arity(MS, "QuickGelu", 1, "R", "R"),
    arity(MS, "RotaryEmbedding", 1, "RRRR", "R"),
    arity(MS, "SkipLayerNormalization", 1, "RRRoo", "Rooo"),
    arity(MS, "SkipSimplifiedLayerNormalization", 1, "RRRo", "Rooo"),
    arity(MS, "TransposeMatMul", 1, "RR", "R"),
];
