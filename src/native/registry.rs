//! Which operators the runtime has: one table, a line each.

use std::fmt;

use super::control::{self, ControlEntry};
use super::kernels::*;
use super::node::NodeInfo;
use super::operator::{OpError, Operator};

/// One operator: all versions of its definition that the constructor covers.
pub struct OperatorEntry {
    /// `""` is ONNX's own.
    pub domain: &'static str,
    pub op_type: &'static str,
    /// The versions in which the definition changed, ascending. A model of a version
    /// before the first is refused; every later change up to
    /// [`NEWEST_ONNX_OPSET`] is listed, or it is in `not_yet`.
    pub since: &'static [i64],
    /// The first version whose changed definition is not covered, if there is one.
    pub not_yet: Option<i64>,
    pub(super) build: Build,
}

/// Makes what a node does.
pub(super) enum Build {
    Kernel(fn(&NodeInfo<'_>) -> Result<Box<dyn Operator>, OpError>),
    /// An operator that runs graphs of its own.
    Control(&'static ControlEntry),
}

/// The newest version of ONNX's own operators that the table was checked against.
pub const NEWEST_ONNX_OPSET: i64 = 28;

pub(super) const ML: &str = "ai.onnx.ml";
pub(super) const MS: &str = "com.microsoft";
/// Of operators that passes put in, and no model has.
pub(super) const OWN: &str = "oxpipe";

const fn op(
    domain: &'static str,
    op_type: &'static str,
    since: &'static [i64],
    build: fn(&NodeInfo<'_>) -> Result<Box<dyn Operator>, OpError>,
) -> OperatorEntry {
    OperatorEntry {
        domain,
        op_type,
        since,
        not_yet: None,
        build: Build::Kernel(build),
    }
}

impl OperatorEntry {
    /// Withdrawn, or not covered, from this version on.
    const fn until(self, not_yet: i64) -> Self {
        OperatorEntry {
            not_yet: Some(not_yet),
            ..self
        }
    }
}

const fn control(
    op_type: &'static str,
    since: &'static [i64],
    entry: &'static ControlEntry,
) -> OperatorEntry {
    OperatorEntry {
        domain: "",
        op_type,
        since,
        not_yet: None,
        build: Build::Control(entry),
    }
}

/// Sorted by domain and name.
#[rustfmt::skip] // a line each
pub static OPERATORS: &[OperatorEntry] = &[
    op("", "Abs", &[6, 13], unary::abs),
    op("", "Acos", &[7, 22], unary::acos),
    op("", "Acosh", &[9, 22], unary::acosh),
    op("", "Add", &[6, 7, 13, 14], arithmetic::add),
    op("", "AffineGrid", &[20], affine_grid::affine_grid),
    op("", "And", &[7], compare::and),
    op("", "ArgMax", &[1, 11, 12, 13], order::arg_max),
    op("", "ArgMin", &[1, 11, 12, 13], order::arg_min),
    op("", "Asin", &[7, 22], unary::asin),
    op("", "Asinh", &[9, 22], unary::asinh),
    op("", "Atan", &[7, 22], unary::atan),
    op("", "Atanh", &[9, 22], unary::atanh),
    op("", "Attention", &[23, 24, 25], attention::attention),
    op("", "AveragePool", &[1, 7, 10, 11, 19, 22], pool::average_pool),
    op("", "BatchNormalization", &[6, 7, 9, 14, 15], channel_norm::batch_normalization),
    op("", "Bernoulli", &[15, 22], random::bernoulli),
    op("", "BitCast", &[26], bitwise::bit_cast),
    op("", "BitShift", &[11, 28], bitwise::shift),
    op("", "BitwiseAnd", &[18], bitwise::and),
    op("", "BitwiseNot", &[18], bitwise::not),
    op("", "BitwiseOr", &[18], bitwise::or),
    op("", "BitwiseXor", &[18], bitwise::xor),
    op("", "BlackmanWindow", &[17], signal::blackman_window),
    op("", "Cast", &[6, 9, 13, 19, 21, 23, 24, 25, 28], cast::cast),
    op("", "CastLike", &[15, 19, 21, 23, 24, 25], cast::cast_like),
    op("", "CausalConvWithState", &[27], causal_conv::causal_conv_with_state),
    op("", "Ceil", &[6, 13], unary::ceil),
    op("", "Celu", &[12, 28], activation::celu),
    op("", "CenterCropPad", &[18], crop_pad::center_crop_pad),
    op("", "Clip", &[6, 11, 12, 13], clip::clip),
    op("", "Col2Im", &[18], col2im::col2im),
    op("", "Compress", &[9, 11, 28], select::compress),
    op("", "Concat", &[4, 11, 13], join::concat),
    op("", "ConcatFromSequence", &[11], sequence::concat),
    op("", "Constant", &[1, 9, 11, 12, 13, 19, 21, 23, 24, 25], constant::constant),
    op("", "ConstantOfShape", &[9, 20, 21, 23, 24, 25], constant::constant_of_shape),
    op("", "Conv", &[1, 11, 22], conv::conv),
    op("", "ConvInteger", &[10], conv::conv_integer),
    op("", "ConvTranspose", &[1, 11, 22], conv_transpose::conv_transpose),
    op("", "Cos", &[7, 22], unary::cos),
    op("", "Cosh", &[9, 22], unary::cosh),
    op("", "CumProd", &[26], cumulate::cum_prod),
    op("", "CumSum", &[11, 14], cumulate::cum_sum),
    op("", "DFT", &[17, 20], fourier::dft),
    op("", "DeformConv", &[19, 22], deform_conv::deform_conv),
    op("", "DepthToSpace", &[1, 11, 13, 28], depth_space::depth_to_space),
    op("", "DequantizeLinear", &[10, 13, 19, 21, 23, 24, 25, 28], quantize::dequantize_linear),
    op("", "Det", &[11, 22], determinant::det),
    op("", "Div", &[6, 7, 13, 14], arithmetic::div),
    op("", "Dropout", &[7, 10, 12, 13, 22], dropout::dropout),
    op("", "DynamicQuantizeLinear", &[11], quantize::dynamic_quantize_linear),
    op("", "Einsum", &[12, 28], einsum::einsum),
    op("", "Elu", &[6, 22], activation::elu),
    op("", "Equal", &[7, 11, 13, 19], compare::equal),
    op("", "Erf", &[9, 13], unary::erf),
    op("", "Exp", &[6, 13], unary::exp),
    op("", "Expand", &[8, 13], rearrange::expand),
    op("", "EyeLike", &[9, 22], triangle::eye_like),
    op("", "Flatten", &[1, 9, 11, 13, 21, 23, 24, 25], reshape::flatten),
    op("", "Floor", &[6, 13], unary::floor),
    op("", "GRU", &[3, 7, 14, 22], recurrent::gru),
    op("", "Gather", &[1, 11, 13], gather::gather),
    op("", "GatherElements", &[11, 13], gather_nd::gather_elements),
    op("", "GatherND", &[11, 12, 13], gather_nd::gather_nd),
    op("", "Gelu", &[20], unary::gelu),
    op("", "Gemm", &[6, 7, 9, 11, 13], general_matmul::general_matmul),
    op("", "GlobalAveragePool", &[1, 22], pool::global_average_pool),
    op("", "GlobalLpPool", &[2, 22], pool::global_lp_pool),
    op("", "GlobalMaxPool", &[1, 22], pool::global_max_pool),
    op("", "Greater", &[7, 9, 13], compare::greater),
    op("", "GreaterOrEqual", &[12, 16], compare::greater_or_equal),
    op("", "GridSample", &[16, 20, 22], grid_sample::grid_sample),
    op("", "GroupNormalization", &[18, 21], channel_norm::group_normalization),
    op("", "HammingWindow", &[17], signal::hamming_window),
    op("", "HannWindow", &[17], signal::hann_window),
    op("", "HardSigmoid", &[6, 22], activation::hard_sigmoid),
    op("", "HardSwish", &[14, 22], activation::hard_swish),
    op("", "Hardmax", &[1, 11, 13], order::hardmax),
    op("", "Identity", &[1, 13, 14, 16, 19, 21, 23, 24, 25], reshape::identity),
    control("If", &[1, 11, 13, 16, 19, 21, 23, 24, 25], &control::IF),
    op("", "ImageDecoder", &[20], image_decoder::image_decoder),
    op("", "InstanceNormalization", &[6, 22], channel_norm::instance_normalization),
    op("", "IsInf", &[10, 20], float_tests::is_inf),
    op("", "IsNaN", &[9, 13, 20], float_tests::is_nan),
    op("", "LRN", &[1, 13], channel_norm::lrn),
    op("", "LSTM", &[7, 14, 22], recurrent::lstm),
    op("", "LayerNormalization", &[17], norm::layer_normalization),
    op("", "LeakyRelu", &[6, 16], activation::leaky_relu),
    op("", "Less", &[7, 9, 13], compare::less),
    op("", "LessOrEqual", &[12, 16], compare::less_or_equal),
    op("", "LinearAttention", &[27], linear_attention::linear_attention),
    op("", "Log", &[6, 13], unary::log),
    op("", "LogSoftmax", &[1, 11, 13], softmax::log_softmax),
    control("Loop", &[1, 11, 13, 16, 19, 21, 23, 24, 25], &control::LOOP),
    op("", "LpNormalization", &[1, 22], axis_norm::lp_normalization),
    op("", "LpPool", &[2, 11, 18, 22], pool::lp_pool),
    op("", "MatMul", &[1, 9, 13], matmul::matmul),
    op("", "MatMulInteger", &[10], quantized_matmul::matmul_integer),
    op("", "Max", &[6, 8, 12, 13], variadic::max),
    op("", "MaxPool", &[1, 8, 10, 11, 12, 22], pool::max_pool),
    op("", "MaxRoiPool", &[1, 22], roi::max_roi_pool),
    op("", "MaxUnpool", &[9, 11, 22], unpool::max_unpool),
    op("", "Mean", &[6, 8, 13], variadic::mean),
    op("", "MeanVarianceNormalization", &[9, 13], axis_norm::mean_variance_normalization),
    op("", "MelWeightMatrix", &[17], signal::mel_weight_matrix),
    op("", "Min", &[6, 8, 12, 13], variadic::min),
    op("", "Mish", &[18, 22], activation::mish),
    op("", "Mod", &[10, 13, 28], arithmetic::modulo),
    op("", "Mul", &[6, 7, 13, 14], arithmetic::mul),
    op("", "Multinomial", &[7, 22], random::multinomial),
    op("", "Neg", &[6, 13], unary::neg),
    op("", "NegativeLogLikelihoodLoss", &[12, 13, 22], loss::negative_log_likelihood_loss),
    op("", "NonMaxSuppression", &[10, 11], suppression::non_max_suppression),
    op("", "NonZero", &[9, 13], select::non_zero),
    op("", "Not", &[1], unary::not),
    op("", "OneHot", &[9, 11, 28], one_hot::one_hot),
    op("", "Optional", &[15, 28], optional::optional),
    op("", "OptionalGetElement", &[15, 18, 28], optional::get_element),
    op("", "OptionalHasElement", &[15, 18, 28], optional::has_element),
    op("", "Or", &[7], compare::or),
    op("", "PRelu", &[6, 7, 9, 16], activation::p_relu),
    op("", "Pad", &[2, 11, 13, 18, 19, 21, 23, 24, 25], pad::pad),
    op("", "Pow", &[1, 7, 12, 13, 15], arithmetic::pow),
    op("", "QLinearConv", &[10], conv::q_linear_conv),
    op("", "QLinearMatMul", &[10, 21], quantized_matmul::qlinear_matmul),
    op("", "QuantizeLinear", &[10, 13, 19, 21, 23, 24, 25, 28], quantize::quantize_linear),
    op("", "RMSNormalization", &[23], norm::rms_normalization),
    op("", "RNN", &[7, 14, 22], recurrent::rnn),
    op("", "RandomNormal", &[1, 22], random::random_normal),
    op("", "RandomNormalLike", &[1, 22], random::random_normal_like),
    op("", "RandomUniform", &[1, 22], random::random_uniform),
    op("", "RandomUniformLike", &[1, 22], random::random_uniform_like),
    op("", "Range", &[11, 27], constant::range),
    op("", "Reciprocal", &[6, 13], unary::reciprocal),
    op("", "ReduceL1", &[1, 11, 13, 18], reduce::l1),
    op("", "ReduceL2", &[1, 11, 13, 18], reduce::l2),
    op("", "ReduceLogSum", &[1, 11, 13, 18, 28], reduce::log_sum),
    op("", "ReduceLogSumExp", &[1, 11, 13, 18, 28], reduce::log_sum_exp),
    op("", "ReduceMax", &[1, 11, 12, 13, 18, 20], reduce::max),
    op("", "ReduceMean", &[1, 11, 13, 18], reduce::mean),
    op("", "ReduceMin", &[1, 11, 12, 13, 18, 20], reduce::min),
    op("", "ReduceProd", &[1, 11, 13, 18], reduce::prod),
    op("", "ReduceSum", &[1, 11, 13], reduce::sum),
    op("", "ReduceSumSquare", &[1, 11, 13, 18], reduce::sum_square),
    op("", "RegexFullMatch", &[20], string::full_match),
    op("", "Relu", &[6, 13, 14], unary::relu),
    op("", "Reshape", &[5, 13, 14, 19, 21, 23, 24, 25], reshape::reshape),
    op("", "Resize", &[10, 11, 13, 18, 19], resize::resize),
    op("", "ReverseSequence", &[10, 28], tile::reverse_sequence),
    op("", "RoiAlign", &[10, 16, 22], roi::roi_align),
    op("", "RotaryEmbedding", &[23], rotary::rotary_embedding),
    op("", "Round", &[11, 22], unary::round),
    op("", "STFT", &[17], fourier::stft),
    control("Scan", &[8, 9, 11, 16, 19, 21, 23, 24, 25], &control::SCAN),
    op("", "Scatter", &[9, 11], scatter::scatter_elements),
    op("", "ScatterElements", &[11, 13, 16, 18], scatter::scatter_elements),
    op("", "ScatterND", &[11, 13, 16, 18], scatter::scatter_nd),
    op("", "Selu", &[6, 22], activation::selu),
    op("", "SequenceAt", &[11], sequence::at),
    op("", "SequenceConstruct", &[11], sequence::construct),
    op("", "SequenceEmpty", &[11], sequence::empty),
    op("", "SequenceErase", &[11], sequence::erase),
    op("", "SequenceInsert", &[11], sequence::insert),
    op("", "SequenceLength", &[11], sequence::length),
    control("SequenceMap", &[17], &control::SEQUENCE_MAP),
    op("", "Shape", &[1, 13, 15, 19, 21, 23, 24, 25], shape::shape),
    op("", "Shrink", &[9], activation::shrink),
    op("", "Sigmoid", &[6, 13], unary::sigmoid),
    op("", "Sign", &[9, 13], unary::sign),
    op("", "SimplifiedLayerNormalization", &[1], norm::rms_normalization),
    op("", "Sin", &[7, 22], unary::sin),
    op("", "Sinh", &[9, 22], unary::sinh),
    op("", "Size", &[1, 13, 19, 21, 23, 24, 25], shape::size),
    op("", "Slice", &[1, 10, 11, 13], rearrange::slice),
    op("", "Softmax", &[1, 11, 13], softmax::softmax),
    op("", "SoftmaxCrossEntropyLoss", &[12, 13], loss::softmax_cross_entropy_loss),
    op("", "Softplus", &[1, 22], unary::softplus),
    op("", "Softsign", &[1, 22], activation::softsign),
    op("", "SpaceToDepth", &[1, 13, 28], depth_space::space_to_depth),
    op("", "Split", &[2, 11, 13, 18], join::split),
    op("", "SplitToSequence", &[11, 24], sequence::split),
    op("", "Sqrt", &[6, 13], unary::sqrt),
    op("", "Squeeze", &[1, 11, 13, 21, 23, 24, 25], reshape::squeeze),
    op("", "StringConcat", &[20], string::concat),
    op("", "StringNormalizer", &[10], string::normalize),
    op("", "StringSplit", &[20], string::split),
    op("", "Sub", &[6, 7, 13, 14], arithmetic::sub),
    op("", "Sum", &[6, 8, 13], variadic::sum),
    op("", "SwiGLU", &[28], gated_linear_unit::swiglu),
    op("", "Swish", &[24], activation::swish),
    op("", "Tan", &[7, 22], unary::tan),
    op("", "Tanh", &[6, 13], unary::tanh),
    op("", "TensorScatter", &[24], tensor_scatter::tensor_scatter),
    op("", "TfIdfVectorizer", &[9], ngrams::tf_idf_vectorizer),
    op("", "ThresholdedRelu", &[10, 22], activation::thresholded_relu),
    op("", "Tile", &[6, 13], tile::tile),
    op("", "TopK", &[1, 10, 11, 24], order::top_k),
    op("", "Transpose", &[1, 13, 21, 23, 24, 25], rearrange::transpose),
    op("", "Trilu", &[14], triangle::trilu),
    op("", "Unique", &[11, 28], unique::unique),
    op("", "Unsqueeze", &[1, 11, 13, 21, 23, 24, 25], reshape::unsqueeze),
    op("", "Upsample", &[7, 9, 10], resize::upsample),
    op("", "Where", &[9, 16], compare::where_),
    op("", "Xor", &[7], compare::xor),
    op(ML, "ArrayFeatureExtractor", &[1], feature::array_feature_extractor),
    op(ML, "Binarizer", &[1], feature::binarizer),
    op(ML, "CategoryMapper", &[1], label_encoder::category_mapper),
    op(ML, "FeatureVectorizer", &[1], feature::feature_vectorizer),
    op(ML, "Imputer", &[1], scaling::imputer),
    op(ML, "LabelEncoder", &[1, 2, 4], label_encoder::label_encoder),
    op(ML, "LinearClassifier", &[1], linear_model::linear_classifier),
    op(ML, "LinearRegressor", &[1], linear_model::linear_regressor),
    op(ML, "Normalizer", &[1], scaling::normalizer),
    op(ML, "OneHotEncoder", &[1], feature::one_hot_encoder),
    op(ML, "Scaler", &[1], scaling::scaler),
    op(ML, "TreeEnsemble", &[5], tree_ensemble::tree_ensemble),
    op(ML, "TreeEnsembleClassifier", &[1, 3], named_trees::tree_ensemble_classifier).until(5),
    op(ML, "TreeEnsembleRegressor", &[1, 3], named_trees::tree_ensemble_regressor).until(5),
    op(MS, "Attention", &[1], projected_attention::projected_attention),
    op(MS, "BiasAdd", &[1], bias_fusions::bias_add),
    op(MS, "BiasGelu", &[1], bias_gelu::bias_gelu),
    op(MS, "BiasSoftmax", &[1], bias_fusions::bias_softmax),
    op(MS, "BiasSplitGelu", &[1], bias_fusions::bias_split_gelu),
    op(MS, "BranchwiseRMSNorm", &[1], gated::branchwise_rms_norm),
    op(MS, "CDist", &[1], distances::c_dist),
    op(MS, "CausalConvWithState", &[1], causal_conv::contrib_causal_conv_with_state),
    op(MS, "DecoderMaskedMultiHeadAttention", &[1], multi_head_attention::decoder_masked_multi_head_attention),
    op(MS, "DequantizeLinear", &[1], quantize::contrib_dequantize_linear),
    op(MS, "DynamicQuantizeLSTM", &[1], dynamic_lstm::dynamic_quantize_lstm),
    op(MS, "DynamicQuantizeMatMul", &[1], integer_products::dynamic_quantize_matmul),
    op(MS, "DynamicTimeWarping", &[1], sequences::dynamic_time_warping),
    op(MS, "EmbedLayerNormalization", &[1], embed_norm::embed_layer_normalization),
    op(MS, "EngramGate", &[1], engram_gate::engram_gate),
    op(MS, "ExpandDims", &[1], reshape::expand_dims),
    op(MS, "FastGelu", &[1], bias_gelu::fast_gelu),
    op(MS, "FusedConv", &[1], conv::fused_conv),
    op(MS, "FusedGemm", &[1], general_matmul::fused_gemm),
    op(MS, "FusedMatMul", &[1], fused_matmul::fused_matmul),
    op(MS, "FusedMatMulActivation", &[1], fused_matmul::fused_matmul_activation),
    op(MS, "GatedAdd", &[1], gated::gated_add),
    op(MS, "GatedRMSNorm", &[1], gated::gated_rms_norm),
    op(MS, "GatherBlockQuantized", &[1], gather_block_quantized::gather_block_quantized),
    op(MS, "GatherND", &[1], gather_nd::gather_nd),
    op(MS, "Gelu", &[1], unary::contrib_gelu),
    op(MS, "GemmFastGelu", &[1], bias_fusions::gemm_fast_gelu),
    op(MS, "GridSample", &[1], grid_sample::grid_sample),
    op(MS, "GroupNorm", &[1], contrib_group_norm::group_norm),
    op(MS, "GroupQueryAttention", &[1], group_query_attention::group_query_attention),
    op(MS, "HyperConnectionPostMix", &[1], hyper_connection::post_mix),
    op(MS, "HyperConnectionPreMix", &[1], hyper_connection::pre_mix),
    op(MS, "Inverse", &[1], inverse::inverse),
    op(MS, "LinearAttention", &[1], linear_attention::contrib_linear_attention),
    op(MS, "LinearAttentionGate", &[1], gated::linear_attention_gate),
    op(MS, "MRotaryEmbedding", &[1], rotary::m_rotary_embedding),
    op(MS, "MatMulBnb4", &[1], bnb4::matmul_bnb4),
    op(MS, "MatMulIntegerToFloat", &[1], integer_products::matmul_integer_to_float),
    op(MS, "MatMulNBits", &[1], matmul_nbits::matmul_nbits),
    op(MS, "MoE", &[1], moe::moe),
    op(MS, "MultiHeadAttention", &[1], multi_head_attention::multi_head_attention),
    op(MS, "NGramRepeatBlock", &[1], sequences::ngram_repeat_block),
    op(MS, "NhwcConv", &[1], channels_last::nhwc_conv),
    op(MS, "NhwcFusedConv", &[1], channels_last::nhwc_fused_conv),
    op(MS, "NhwcMaxPool", &[1], channels_last::nhwc_max_pool),
    op(MS, "PackedAttention", &[1], packed_attention::packed_attention),
    op(MS, "PackedMultiHeadAttention", &[1], packed_attention::packed_multi_head_attention),
    op(MS, "Pad", &[1], pad::contrib_pad),
    op(MS, "QAttention", &[1], q_attention::q_attention),
    op(MS, "QEmbedLayerNormalization", &[1], q_embed_norm::q_embed_layer_normalization),
    op(MS, "QGemm", &[1], integer_products::q_gemm),
    op(MS, "QLinearAdd", &[1], through_floats::add),
    op(MS, "QLinearAveragePool", &[1], through_floats::average_pool),
    op(MS, "QLinearConcat", &[1], through_floats::concat),
    op(MS, "QLinearConv", &[1], channels_last::contrib_q_linear_conv),
    op(MS, "QLinearGlobalAveragePool", &[1], through_floats::global_average_pool),
    op(MS, "QLinearLeakyRelu", &[1], through_floats::leaky_relu),
    op(MS, "QLinearMul", &[1], through_floats::mul),
    op(MS, "QLinearReduceMean", &[1], through_floats::reduce_mean),
    op(MS, "QLinearSigmoid", &[1], through_floats::sigmoid),
    op(MS, "QLinearSoftmax", &[1], through_floats::softmax),
    op(MS, "QLinearWhere", &[1], through_floats::where_),
    op(MS, "QMoE", &[1], moe::quantized_moe),
    op(MS, "QuantizeLinear", &[1], quantize::contrib_quantize_linear),
    op(MS, "QuickGelu", &[1], unary::quick_gelu),
    op(MS, "Range", &[1], constant::contrib_range),
    op(MS, "RotaryEmbedding", &[1], rotary::contrib_rotary_embedding),
    op(MS, "ScaledSiLU", &[1], gated::scaled_silu),
    op(MS, "SkipGroupNorm", &[1], contrib_group_norm::skip_group_norm),
    op(MS, "SkipLayerNormalization", &[1], norm::skip_layer_normalization),
    op(MS, "SkipSimplifiedLayerNormalization", &[1], norm::skip_simplified_layer_normalization),
    op(MS, "SparseAttention", &[1], sparse_attention::sparse_attention),
    op(MS, "TransposeMatMul", &[1], fused_matmul::fused_matmul),
    op(MS, "Trilu", &[1], triangle::trilu),
    op(MS, "UnfoldTensor", &[1], sequences::unfold_tensor),
    op(MS, "Unique", &[1], unique::contrib_unique),
];

static OWN_OPERATORS: &[OperatorEntry] = &[
    op(OWN, "Dim", &[1], shape::dim),
    op(OWN, "GatedLinearUnit", &[1], gated_linear_unit::gated_linear_unit),
];

/// As [`find`], for what a pass puts in.
pub(super) fn find_for_pass(
    domain: &str,
    op_type: &str,
    opset: i64,
) -> Result<(&'static OperatorEntry, i64), Missing> {
    let mut own = OWN_OPERATORS.iter();
    match own.find(|entry| entry.op_type == op_type && entry.domain == domain) {
        Some(entry) => Ok((entry, 1)),
        None => find(domain, op_type, opset),
    }
}

/// The entry of an operator and the version of its definition in force, or why there is none.
pub(super) fn find(
    domain: &str,
    op_type: &str,
    opset: i64,
) -> Result<(&'static OperatorEntry, i64), Missing> {
    let entry = OPERATORS
        .iter()
        .find(|entry| entry.op_type == op_type && entry.domain == domain)
        .ok_or(Missing::Operator)?;
    if domain.is_empty() && opset > NEWEST_ONNX_OPSET {
        return Err(Missing::NewerThan(NEWEST_ONNX_OPSET));
    }
    if let Some(not_yet) = entry.not_yet.filter(|&not_yet| opset >= not_yet) {
        return Err(Missing::NewerThan(not_yet - 1));
    }
    match entry.since.iter().rev().find(|&&since| since <= opset) {
        Some(&since) => Ok((entry, since)),
        None => Err(Missing::OlderThan(entry.since.first().copied().unwrap_or(1))),
    }
}

/// Why the table has no entry for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Operator,
    /// Only versions up to this one are covered.
    NewerThan(i64),
    /// Only versions from this one on are covered.
    OlderThan(i64),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Operator => f.write_str("no such operator"),
            Missing::NewerThan(version) => write!(f, "only up to version {version}"),
            Missing::OlderThan(version) => write!(f, "only from version {version} on"),
        }
    }
}
