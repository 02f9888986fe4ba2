//! Nodes that make sense, to be spoiled: what random inputs would never hit upon.

use crate::{Input, Random};
use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::Node;

/// Operator, inputs, attributes. Several lines for operators whose versions differ.
///
/// An input is a type and dims: `f` a float of the same type throughout, `i` int64 (of 0 and 1),
/// `u` uint8, `c` int8, `n` int32, `b` bool, `s` string, `h` f32, and for `n` also `=` and the values;
/// or `=` and the values of a list of int64; or `-`, left out. An attribute is a list where it has a comma, a float where it has a
/// point, else an int or a text.
const SOUND: &[(&str, &str, &str)] = &[
    ("AffineGrid", "f:1x2x3 =1,1,2,3", ""),
    ("And", "b:2x3 b:3", ""),
    ("ArgMax", "f:2x3", "axis=1"),
    ("ArrayFeatureExtractor", "f:2x3 i:4", ""),
    ("Attention", "f:1x2x3x4 f:1x2x5x4 f:1x2x5x4", ""),
    (
        "Attention",
        "f:1x3x8 f:1x5x8 f:1x5x8 f:3x5 f:1x2x2x4 f:1x2x2x4",
        "q_num_heads=2 kv_num_heads=2",
    ),
    (
        "AveragePool",
        "f:1x2x5x5",
        "kernel_shape=2,2 strides=2,1 pads=1,0,1,0 count_include_pad=1",
    ),
    ("BatchNormalization", "f:2x3x2 f:3 f:3 f:3 f:3", ""),
    ("Bernoulli", "f:2x3", "dtype=9"),
    ("BiasAdd", "f:1x2x4 f:4 f:1x2x4", ""),
    ("BiasSoftmax", "f:2x3x4 f:1x3x4", "axis=2 is_inner_broadcast=0"),
    ("BiasSplitGelu", "f:1x2x4 f:4", ""),
    ("Binarizer", "f:2x3", "threshold=0.5"),
    ("BitCast", "f:2x3", "to=6"),
    ("BitShift", "u:2x3 u:3", "direction=LEFT"),
    ("BitwiseAnd", "u:2x3 u:3", ""),
    ("BitwiseXor", "i:2x3 i:3", ""),
    ("BlackmanWindow", "=7", ""),
    ("BranchwiseRMSNorm", "f:2x3x4 f:3x4", ""),
    ("BranchwiseRMSNorm", "f:2x6 f:6", "num_branches=3"),
    ("CDist", "f:2x3 f:4x3", "metric=euclidean"),
    ("Cast", "f:2x3", "to=7"),
    ("CategoryMapper", "s:2x3", "cats_strings=a,b cats_int64s=5,6"),
    ("CategoryMapper", "i:2x3", "cats_strings=a,b cats_int64s=0,1"),
    ("CausalConvWithState", "f:1x2x5 f:2x1x3", ""),
    ("CenterCropPad", "f:2x3 =3,2", ""),
    ("Clip", "f:2x3 f: f:", ""),
    ("Col2Im", "f:1x4x6 =3,4 =2,2", ""),
    ("Compress", "f:2x3 b:3", "axis=1"),
    ("Concat", "f:2x3 f:2x1 f:2x0", "axis=1"),
    ("Constant", "", "value_ints=1,2"),
    ("ConstantOfShape", "=2,3", ""),
    (
        "Conv",
        "f:1x2x5x5 f:4x1x3x3 f:4",
        "group=2 pads=1,1,1,1 strides=1,2 dilations=1,1",
    ),
    ("ConvInteger", "u:1x2x5 u:3x2x3", "pads=1,1"),
    (
        "ConvTranspose",
        "f:1x2x4 f:2x3x3 f:3",
        "strides=2, output_padding=1,",
    ),
    ("CumProd", "f:2x3 =1", "exclusive=1"),
    ("CumSum", "f:2x3 =1", "reverse=1"),
    ("DFT", "f:1x4x2 - =1", ""),
    (
        "DecoderMaskedMultiHeadAttention",
        "f:1x1x8 f:1x1x8 f:1x1x8 - - f:1x2x4x4 f:1x2x4x4 n:1=2",
        "num_heads=2 past_present_share_buffer=1",
    ),
    ("DeformConv", "f:1x2x4x4 f:3x2x2x2 f:1x8x3x3 f:3 f:1x4x3x3", ""),
    ("DepthToSpace", "f:1x4x2x3", "blocksize=2"),
    ("DequantizeLinear", "u:2x3 h: u:", ""),
    ("DequantizeLinear", "c:2x3 h:3 c:3", "axis=1"),
    ("DequantizeLinear", "c:2x5 h:2x2", "axis=1 block_size=3"),
    ("Det", "f:2x3x3", ""),
    ("Dropout", "f:2x3 f: b:", "seed=1"),
    (
        "DynamicQuantizeLSTM",
        "h:3x2x4 u:1x4x12 u:1x3x12 h:1x24 - h:1x2x3 h:1x2x3 - h:1 u:1 h:1 u:1",
        "hidden_size=3",
    ),
    ("DynamicQuantizeMatMul", "h:2x3 c:3x4 h:4 c:4 h:4", ""),
    ("DynamicTimeWarping", "h:3x4", ""),
    ("Einsum", "f:2x3 f:3x4", "equation=ij,jk->ik"),
    (
        "EmbedLayerNormalization",
        "n:1x2 n:1x2 f:5x4 f:4x4 f:2x4 f:4 f:4",
        "",
    ),
    ("EngramGate", "f:1x2x2x4 f:1x2x2x4 f:1x2x4 f:2x4 f:2x4 f:2x4", ""),
    ("Expand", "f:2x1 =3,2,4", ""),
    ("ExpandDims", "f:2x3 =1", ""),
    ("EyeLike", "f:3x4", "k=1"),
    ("FeatureVectorizer", "f:2x3 f:2x1", "inputdimensions=2,3"),
    ("FeatureVectorizer", "f:2x3 f:2x1", "inputdimensions=0,0"),
    ("FusedMatMul", "f:2x3 f:4x3", "transB=1"),
    ("FusedMatMulActivation", "f:2x3 f:3x4", "activation=Relu"),
    ("GRU", "f:3x2x4 f:1x9x4 f:1x9x3 f:1x18 - f:1x2x3", "hidden_size=3"),
    ("GatedAdd", "f:2x3 f:2x3 f:2x1", ""),
    ("GatedLinearUnit", "f:2x8", ""),
    ("GatedRMSNorm", "f:2x6 f:3 f:2x6", ""),
    ("Gather", "f:2x3 i:4x1", "axis=1"),
    ("GatherBlockQuantized", "u:3x16 i:2 f:3x1", "bits=8 block_size=16"),
    ("GatherElements", "f:2x3 i:2x2", "axis=1"),
    ("GatherND", "f:2x3x2 i:4x2", ""),
    ("GatherND", "f:2x3x2 i:2x4x1", "batch_dims=1"),
    ("Gemm", "f:2x3 f:4x3 f:4", "transB=1"),
    ("GemmFastGelu", "f:2x3 f:3x4 f:4", ""),
    ("GlobalAveragePool", "f:1x2x3x3", ""),
    ("GlobalMaxPool", "f:1x2x3x3", ""),
    ("GridSample", "f:1x2x3x4 f:1x2x3x2", "mode=nearest"),
    ("GroupNorm", "f:1x2x3x4 f:4 f:4", "groups=2 activation=1"),
    ("GroupNormalization", "f:2x4x3 f:4 f:4", "num_groups=2"),
    ("GroupNormalization", "f:2x4x3 f:2 f:2", "num_groups=2"),
    (
        "GroupQueryAttention",
        "f:1x1x8 f:1x1x4 f:1x1x4 f:1x1x2x4 f:1x1x2x4 n:1 n:",
        "num_heads=2 kv_num_heads=1",
    ),
    (
        "GroupQueryAttention",
        "f:1x1x8 f:1x1x4 f:1x1x4 c:1x1x2x4 c:1x1x2x4 n:1 n: - - - - - h:1 h:4",
        "num_heads=2 kv_num_heads=1 k_quant_type=PER_TENSOR v_quant_type=PER_CHANNEL kv_cache_bit_width=8",
    ),
    (
        "GroupQueryAttention",
        "f:1x1x8 f:1x1x4 f:1x1x4 c:1x1x2x8 c:1x1x2x8 n:1 n:",
        "num_heads=2 kv_num_heads=1 k_quant_type=PER_ROW v_quant_type=PER_ROW kv_cache_bit_width=8",
    ),
    (
        "GroupQueryAttention",
        "f:1x1x8 f:1x1x4 f:1x1x4 f:1x1x2x4 f:1x1x2x4 n:1 n:",
        "num_heads=2 kv_num_heads=1 local_window_size=2 sliding_window_cache=1",
    ),
    ("HammingWindow", "=7", ""),
    ("HannWindow", "=7", ""),
    ("Hardmax", "f:2x3", "axis=1"),
    ("HyperConnectionPostMix", "f:2x3x4 f:2x4 f:2x3 f:2x3x3", ""),
    ("HyperConnectionPreMix", "f:2x3x4 f:2x3", ""),
    ("HyperConnectionPreMix", "f:2x6 f:2x3", "num_branches=3"),
    (
        "Imputer",
        "f:2x3",
        "imputed_value_floats=1.5,2.,3. replaced_value_float=0.5",
    ),
    (
        "Imputer",
        "i:2x3",
        "imputed_value_int64s=4, replaced_value_int64=1",
    ),
    ("InstanceNormalization", "f:2x3x4 f:3 f:3", ""),
    ("Inverse", "f:2x3x3", ""),
    ("LRN", "f:1x4x2x2", "size=3"),
    (
        "LSTM",
        "f:3x2x4 f:1x12x4 f:1x12x3 f:1x24 - f:1x2x3 f:1x2x3",
        "hidden_size=3",
    ),
    ("LabelEncoder", "s:2x3", "keys_strings=a,b, values_int64s=5,6"),
    ("LabelEncoder", "h:2x3", "keys_floats=0.5,1. values_strings=x,y"),
    ("LabelEncoder", "i:2x3", "classes_strings=x,y"),
    ("LayerNormalization", "f:2x3x4 f:4 f:4", ""),
    (
        "LinearAttention",
        "f:1x3x4 f:1x3x4 f:1x3x6 f:1x2x2x3 f:1x3x2 f:1x3x2",
        "q_num_heads=2 kv_num_heads=2",
    ),
    ("LinearAttentionGate", "f:1x2x3 h:3 h:3 f:1x2x3", ""),
    (
        "LinearClassifier",
        "f:2x2",
        "coefficients=0.5,1.,2.,3. intercepts=0.5,1. classlabels_ints=4,5 post_transform=SOFTMAX",
    ),
    (
        "LinearRegressor",
        "f:2x2",
        "coefficients=0.5,1.,2.,3. intercepts=0.5,1. targets=2",
    ),
    ("LogSoftmax", "f:2x3x4", "axis=1"),
    ("LpNormalization", "f:2x3", "axis=1"),
    ("LpPool", "f:1x2x5", "kernel_shape=3, strides=2,"),
    (
        "MRotaryEmbedding",
        "f:1x2x3x6 i:3x1x3 f:8x3 f:8x3",
        "mrope_section=1,1,1",
    ),
    ("MatMul", "f:2x3x4 f:4x2", ""),
    (
        "MatMulBnb4",
        "f:2x8 u:12 f:2",
        "K=8 N=3 block_size=16 quant_type=1",
    ),
    (
        "MatMulBnb4",
        "f:2x3 u:12 f:2",
        "K=8 N=3 block_size=16 quant_type=0 transB=0",
    ),
    ("MatMulInteger", "u:2x3 c:3x4 u: c:4", ""),
    ("MatMulIntegerToFloat", "u:2x3 c:3x4 h: h:4 u: c:4 h:4", ""),
    (
        "MatMulNBits",
        "f:2x32 u:3x1x16 f:3",
        "K=32 N=3 bits=4 block_size=32",
    ),
    ("Max", "f:2x3 f:3 f:2x1", ""),
    (
        "MaxPool",
        "f:1x2x5x5",
        "kernel_shape=3,2 strides=2,2 auto_pad=SAME_UPPER",
    ),
    ("MaxRoiPool", "f:1x2x4x4 f:3x5", "pooled_shape=2,2"),
    ("MaxUnpool", "f:1x2x3 i:1x2x3", "kernel_shape=2, strides=2,"),
    ("Mean", "f:2x3 f:3 f:2x1", ""),
    ("MeanVarianceNormalization", "f:2x3x4", ""),
    ("MelWeightMatrix", "=4 =16 =8000 =0 =4000", ""),
    (
        "MoE",
        "f:3x4 f:3x2 f:2x6x4 f:2x6 f:2x4x6 f:2x4",
        "k=1 activation_type=relu",
    ),
    ("MultiHeadAttention", "f:1x2x8 f:1x3x8 f:1x3x6", "num_heads=2"),
    ("Multinomial", "f:2x3", "sample_size=4"),
    ("NGramRepeatBlock", "i:2x5 h:2x4", "ngram_size=2"),
    ("NegativeLogLikelihoodLoss", "f:2x3x4 i:2x4 f:3", "reduction=mean"),
    ("NhwcConv", "f:1x5x5x2 f:4x2x3x3 f:4", "pads=1,1,1,1"),
    (
        "NhwcFusedConv",
        "f:1x3x3x2 f:4x2x3x3 f:4 f:1x1x1x4",
        "activation=Relu",
    ),
    ("NhwcMaxPool", "u:1x5x5x2", "kernel_shape=3,2"),
    ("NonMaxSuppression", "h:1x4x4 h:1x2x4 =2", ""),
    ("NonZero", "f:2x3", ""),
    ("Normalizer", "f:2x3", "norm=L2"),
    ("Not", "b:2x3", ""),
    ("OneHot", "i:2x3 =4 f:2", "axis=1"),
    ("OneHotEncoder", "i:2x3", "cats_int64s=1,0"),
    ("OneHotEncoder", "s:2", "cats_strings=a,b"),
    ("Or", "b:2x3 b:3", ""),
    ("PRelu", "f:2x3 f:3", ""),
    (
        "PackedAttention",
        "f:3x4 f:4x12 f:12 n:2x2=0,2,3,1 n:3=0,1,3 f:1x2x2x2",
        "num_heads=2",
    ),
    (
        "PackedMultiHeadAttention",
        "f:3x4 f:3x4 f:3x6 f:14 n:2x2=0,2,3,1 n:3=0,1,3 f:2x1x2x2",
        "num_heads=2",
    ),
    (
        "PackedMultiHeadAttention",
        "f:3x2x3x4 - - - n:2x2=0,1,2,3 n:3=0,2,3",
        "num_heads=2",
    ),
    ("Pad", "f:2x3 =1,0,1,2", "mode=reflect"),
    ("Pad", "f:2x3", "pads=1,0,1,2 mode=edge"),
    ("QAttention", "u:1x2x4 u:4x6 h:6 h: h: - u: u:", "num_heads=1"),
    (
        "QEmbedLayerNormalization",
        "n:1x2 n:1x2 u:5x4 u:4x4 u:2x4 u:4 u:4 n:1x2 h: h: h: h: h: u: u: u: u: u:",
        "",
    ),
    ("QGemm", "u:2x3 h: u: c:4x3 h:4 c:4 n:4 h: u:", "transB=1"),
    ("QLinearAdd", "u:2x3 h: u: u:3 h: u: h: u:", ""),
    ("QLinearAveragePool", "u:1x2x5x5 h: u: h: u:", "kernel_shape=2,2"),
    (
        "QLinearAveragePool",
        "u:1x5x5x2 h: u: h: u:",
        "kernel_shape=2,2 channels_last=1",
    ),
    ("QLinearConcat", "h: u: u:2x3 h: u: u:2x1 h: u:", "axis=1"),
    ("QLinearConv", "u:1x2x5 h: u: u:3x2x3 h: u: h: u:", ""),
    (
        "QLinearConv",
        "u:1x5x2 h: u: u:3x2x3 h: u: h: u:",
        "channels_last=1",
    ),
    ("QLinearGlobalAveragePool", "u:1x2x5x5 h: u: h: u:", ""),
    ("QLinearLeakyRelu", "c:2x3 h: c: h: c:", ""),
    ("QLinearMatMul", "u:2x3 h: u: u:3x4 h:4 u:4 h: u:", ""),
    ("QLinearMul", "c:2x3 h: c: c:3 h: c: h: c:", ""),
    ("QLinearReduceMean", "u:2x3 h: u: h: u:", "axes=0, keepdims=1"),
    ("QLinearSigmoid", "u:2x3 h: u: h: u:", ""),
    ("QLinearSoftmax", "u:2x3 h: u: h: u:", "opset=13 axis=1"),
    ("QLinearWhere", "b:2x3 u:2x3 h: u: u:3 h: u: h: u:", ""),
    (
        "QMoE",
        "f:3x4 f:3x2 u:2x6x4 h:2x6 - u:2x4x6 h:2x4",
        "k=1 activation_type=relu expert_weight_bits=8",
    ),
    ("QuantizeLinear", "h:2x3 h: u:", ""),
    ("QuantizeLinear", "h:2x3 h:3 c:3", "axis=1"),
    (
        "QuantizeLinear",
        "h:2x5 h:2x2",
        "axis=1 block_size=3 output_dtype=22",
    ),
    ("RMSNormalization", "f:2x3x4 f:4", ""),
    (
        "RNN",
        "f:3x2x4 f:2x3x4 f:2x3x3",
        "hidden_size=3 direction=bidirectional",
    ),
    ("RandomNormal", "", "shape=2,3"),
    ("RandomNormalLike", "f:2x3", "dtype=1"),
    ("RandomUniform", "", "shape=2,3 dtype=11"),
    ("RandomUniformLike", "f:2x3", "dtype=1"),
    ("Range", "=1 =7 =2", ""),
    ("ReduceL2", "f:2x3x4", "axes=0,2"),
    ("ReduceLogSum", "f:2x3x4 =0,2", "keepdims=0"),
    ("ReduceLogSum", "f:2x3x4", ""),
    ("ReduceLogSumExp", "f:2x3x4 =1", ""),
    ("ReduceMin", "f:2x3x4", ""),
    ("ReduceProd", "f:2x3x4", ""),
    ("ReduceSum", "f:2x3x4 =0,2", "keepdims=0"),
    ("Reshape", "f:2x3x4 =0,-1", ""),
    ("Resize", "h:1x2x3x4 - - =1,2,5,3", "mode=linear"),
    ("Resize", "h:1x2x3 - - =1,2,5", "mode=cubic"),
    ("Resize", "h:1x2x3 - - =1,2,5", ""),
    ("ReverseSequence", "f:3x2x2 =3,2", ""),
    (
        "RoiAlign",
        "f:1x2x4x4 f:3x4 =0,0,0",
        "output_height=2 output_width=2 sampling_ratio=2",
    ),
    ("RotaryEmbedding", "f:1x2x3x4 f:8x2 f:8x2 i:1x3", ""),
    ("RotaryEmbedding", "f:1x2x3x4 i:1x3 f:8x2 f:8x2", ""),
    ("STFT", "h:1x16x1 =4 h:8", ""),
    ("ScaledSiLU", "f:2x3 h:", "alpha=0.5"),
    ("Scaler", "f:2x3", "offset=0.5,1.,2. scale=2.,3.,4."),
    ("Scatter", "f:2x3 i:2x2 f:2x2", "axis=1"),
    ("ScatterElements", "f:2x3 i:2x2 f:2x2", "axis=1"),
    ("ScatterElements", "f:2x3 i:2x2 f:2x2", "reduction=add"),
    ("ScatterND", "f:2x3 i:4x1 f:4x3", ""),
    ("ScatterND", "f:2x3 i:4x2 f:4", "reduction=mul"),
    ("SimplifiedLayerNormalization", "f:2x3x4 f:4", ""),
    (
        "SkipGroupNorm",
        "f:1x2x3x4 f:4 f:4 f:1x4 f:4",
        "groups=2 activation=0",
    ),
    ("SkipLayerNormalization", "f:2x3x4 f:2x3x4 f:4 f:4", ""),
    ("SkipSimplifiedLayerNormalization", "f:2x3x4 f:2x3x4 f:4", ""),
    ("Slice", "f:5x4 =3,0 =-6,4 =0,1 =-2,1", ""),
    ("Slice", "f:5x4", "starts=1,0 ends=4,3"),
    ("Softmax", "f:2x3x4", "axis=1"),
    ("SoftmaxCrossEntropyLoss", "f:2x3x4 i:2x4", "reduction=sum"),
    ("SpaceToDepth", "f:1x2x4x6", "blocksize=2"),
    (
        "SparseAttention",
        "f:1x1x8 f:1x1x4 f:1x1x4 f:1x1x32x4 f:1x1x32x4 n:1x3 n:1x2 n: n:1",
        "num_heads=2 kv_num_heads=1 sparse_block_size=16",
    ),
    ("Split", "f:6x2 =6", ""),
    ("Split", "f:6x2", "split=6,"),
    ("Squeeze", "f:1x3 =0", ""),
    ("Squeeze", "f:1x3", "axes=0,"),
    ("StringConcat", "s:2x3 s:3", ""),
    ("StringNormalizer", "s:3", "stopwords=a,b is_case_sensitive=0"),
    ("StringSplit", "s:2x3", "delimiter=."),
    ("TensorScatter", "f:2x2x4x3 f:2x2x2x3 =1,2", ""),
    ("TensorScatter", "f:2x4x3 f:2x2x3 =3,9", "mode=circular"),
    (
        "TfIdfVectorizer",
        "i:2x3",
        "mode=TFIDF min_gram_length=1 max_gram_length=2 max_skip_count=1 ngram_counts=0,2 ngram_indexes=1,0,3 \
         pool_int64s=0,1,0,1 weights=1.,2.,3.",
    ),
    (
        "TfIdfVectorizer",
        "s:5",
        "mode=IDF min_gram_length=2 max_gram_length=2 max_skip_count=9 ngram_counts=0,0 ngram_indexes=2, \
         pool_strings=a,1.5",
    ),
    ("Tile", "f:2x3 =2,3", ""),
    ("TopK", "f:2x5 =3", ""),
    ("TopK", "f:2x5", "k=3"),
    ("Transpose", "f:2x3x4", "perm=2,0,1"),
    (
        "TreeEnsembleClassifier",
        "f:2x3",
        "nodes_treeids=0,0,0 nodes_nodeids=0,1,2 nodes_featureids=1,0,0 nodes_values=0.5,0.,0. nodes_modes=BRANCH_LEQ,LEAF,LEAF nodes_truenodeids=1,0,0 nodes_falsenodeids=2,0,0 class_treeids=0,0 class_nodeids=1,2 class_ids=0,2 class_weights=0.5,1. classlabels_strings=a,b,c",
    ),
    (
        "TreeEnsembleRegressor",
        "f:2x3",
        "nodes_treeids=0,0,0 nodes_nodeids=0,1,2 nodes_featureids=1,0,0 nodes_values=0.5,0.,0. nodes_modes=BRANCH_LEQ,LEAF,LEAF nodes_truenodeids=1,0,0 nodes_falsenodeids=2,0,0 target_treeids=0,0 target_nodeids=1,2 target_ids=0,1 target_weights=0.5,1. n_targets=2 aggregate_function=MAX",
    ),
    ("Trilu", "f:2x3x4 =-1", "upper=0"),
    ("UnfoldTensor", "f:2x5", "size=3 step=2 dim=1"),
    ("Unique", "f:3x2x2", "axis=1"),
    ("Unique", "f:7", ""),
    ("Unsqueeze", "f:2x3 =0,-1", ""),
    ("Unsqueeze", "f:2x3", "axes=0,3"),
    ("Upsample", "h:1x1x2x2", "scales=1.,1.,2.,2."),
    ("Where", "b:2x3 f:3 f:2x1", ""),
    ("Xor", "b:2x3 b:3", ""),
];

/// Operators, inputs and attributes of all nodes that make sense, with floats of 32 bits.
pub fn nodes() -> impl Iterator<Item = (&'static str, Vec<Option<Input>>, Vec<&'static str>)> {
    SOUND.iter().map(|&(op_type, inputs, attributes)| {
        let inputs = inputs
            .split_whitespace()
            .map(|text| input(text, ElementType::Float32));
        (op_type, inputs.collect(), attributes.split_whitespace().collect())
    })
}

/// The inputs and the attributes of a node that makes sense, if there is one.
pub fn node_of(op_type: &str, random: &mut Random) -> Option<(Vec<Option<Input>>, Vec<&'static str>)> {
    let lines: Vec<_> = SOUND.iter().filter(|line| line.0 == op_type).collect();
    if lines.is_empty() {
        return None;
    }
    let (_, inputs, attributes) = lines[random.below(lines.len())];
    use ElementType as E;
    let float = [E::Float32, E::Float32, E::Float64, E::Float16, E::Bfloat16][random.below(5)];
    let inputs = inputs.split_whitespace().map(|text| input(text, float)).collect();
    Some((inputs, attributes.split_whitespace().collect()))
}

/// The inputs of a node that makes sense, by this name where they are there, and its attributes.
pub fn names_of(op_type: &str, name: &'static str) -> Option<(Vec<&'static str>, Vec<&'static str>)> {
    let (_, inputs, attributes) = SOUND.iter().find(|line| line.0 == op_type)?;
    let named = |input: &str| if input == "-" { "" } else { name };
    let inputs = inputs.split_whitespace().map(named).collect();
    Some((inputs, attributes.split_whitespace().collect()))
}

fn input(text: &str, float: ElementType) -> Option<Input> {
    if text == "-" {
        return None;
    }
    if let Some(list) = text.strip_prefix('=') {
        let list: Vec<i64> = list.split(',').map(|value| value.parse().unwrap()).collect();
        return Some(Input {
            ty: ElementType::Int64,
            dims: vec![list.len()],
            list: Some(list),
        });
    }
    let (ty, dims) = text.split_once(':').unwrap();
    let (dims, list) = match dims.split_once('=') {
        Some((dims, list)) => (dims, Some(list)),
        None => (dims, None),
    };
    let list = list.map(|list| list.split(',').map(|value| value.parse().unwrap()).collect());
    let ty = match ty {
        "f" => float,
        "h" => ElementType::Float32,
        "i" => ElementType::Int64,
        "n" => ElementType::Int32,
        "u" => ElementType::Uint8,
        "c" => ElementType::Int8,
        "b" => ElementType::Bool,
        "s" => ElementType::String,
        other => panic!("no type {other}"),
    };
    let dims = dims.split('x').filter(|dim| !dim.is_empty());
    Some(Input {
        ty,
        dims: dims.map(|dim| dim.parse().unwrap()).collect(),
        list,
    })
}

/// The node with an attribute as the table writes it.
pub fn with_attribute(node: Node, text: &str) -> Node {
    let (name, value) = text.split_once('=').unwrap();
    if name == "equation" {
        return node.string(name, value);
    }
    if value.contains(',') {
        let values = value.split(',').filter(|value| !value.is_empty());
        if values.clone().any(|value| value.parse::<f32>().is_err()) {
            return node.strings(name, &values.collect::<Vec<_>>());
        }
        return match value.contains('.') {
            true => node.floats(
                name,
                &values.map(|value| value.parse().unwrap()).collect::<Vec<_>>(),
            ),
            false => node.ints(
                name,
                &values.map(|value| value.parse().unwrap()).collect::<Vec<_>>(),
            ),
        };
    }
    match (value.parse::<i64>(), value.parse::<f32>()) {
        (Ok(value), _) => node.int(name, value),
        (_, Ok(value)) => node.float(name, value),
        _ => node.string(name, value),
    }
}
