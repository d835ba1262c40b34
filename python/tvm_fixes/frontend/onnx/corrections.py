# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""The table of corrections: the converters that wrap TVM's, in order, for each operator."""

from functools import partial

import onnx
from tvm import relax

from ...fixes.elements import INDEX_LEGALIZE
from ...fixes.onnx_importer import (
    ACTIVATIONS,
    BOXES,
    CONV_AUTO_PAD,
    CONV_TRANSPOSE_OUTPUT_SHAPE,
    DTYPE,
    ELEMENTWISE,
    EXPAND,
    MICROSOFT,
    ML,
    NORMS,
    OPERATORS,
    PAD,
    PARAMETERS,
    POOLING,
    PRELU,
    QUANTIZED,
    RECURRENT,
    REDUCTIONS,
    RESHAPE,
    RESIZE,
    SLICE,
)
from ...support import switches
from .accumulation import sum_convolution, sum_gemm, sum_matmul
from .activations import (
    convert_clip,
    convert_elu,
    convert_hardmax,
    convert_shrink,
    convert_sign,
    convert_softmax,
    convert_thresholded_relu,
)
from .boxes import convert_nms, convert_roi_align
from .broadcast import BROADCASTING, broadcast_batches, convert_broadcasting
from .contractions import check_convolution, check_einsum, check_gemm, check_matmul
from .convolution import pad_conv, pad_conv_transpose
from .elements import (
    convert_affine_grid,
    convert_bit_cast,
    convert_det,
    convert_tensor_scatter,
)
from .elementwise import (
    convert_bit_shift,
    convert_cast,
    convert_dropout,
    convert_is_inf,
    convert_mish,
    convert_mod,
    convert_pow,
    convert_softplus,
    convert_space_to_depth,
)
from .expand import convert_constant_of_shape, convert_expand, convert_tile
from .indices import INDEXED, convert_indexed
from .microsoft import MICROSOFT_CONVERTERS
from .microsoft_norms import convert_simplified_layer_norm
from .ml import CORRECTIONS as ML_CORRECTIONS
from .narrow import convert_narrow_cast
from .node import Converter, Correction, Node
from .norms import (
    convert_batch_norm,
    convert_group_norm,
    convert_instance_norm,
    convert_layer_norm,
    convert_lp_norm,
    convert_lrn,
    convert_mean_variance_norm,
    convert_rms_norm,
)
from .pad import convert_pad
from .pooling import convert_lp_pool, convert_max_unpool, convert_pool
from .prelu import convert_prelu
from .quantize_linear import (
    convert_dequantize_linear,
    convert_dynamic_quantize_linear,
    convert_quantize_linear,
)
from .quantized import (
    convert_conv_integer,
    convert_dynamic_quantize_matmul,
    convert_matmul_integer,
    convert_matmul_integer_to_float,
    convert_qgemm,
    convert_qlinear_conv,
    convert_qlinear_matmul,
)
from .quantized_attention import convert_qattention
from .quantized_recurrent import convert_dynamic_quantize_lstm
from .quantized_steps import QUANTIZED_STEPS, convert_qlinear_concat, convert_quantized_step
from .quantized_weights import convert_gather_block_quantized, convert_matmul_nbits
from .random_numbers import convert_bernoulli, convert_multinomial, convert_random
from .range_eye_like import convert_eye_like, convert_range
from .recurrent import convert_recurrent
from .reductions import REDUCED, convert_arg_reduction, convert_reduction
from .reshape import (
    convert_flatten,
    convert_reshape,
    convert_shape,
    convert_squeeze,
    convert_unsqueeze,
)
from .resize import convert_resize
from .sequences import SEQUENCES, convert_sequence_operator
from .slice import convert_slice, convert_split
from .small_floats import convert_small_cast
from .spectrum import convert_dft, convert_mel_weight_matrix, convert_stft
from .topk_onehot_cumsum import (
    convert_cumulative,
    convert_one_hot,
    convert_reverse_sequence,
    convert_top_k,
)
from .variadic import convert_concat, convert_variadic
from .windows import convert_col2im, convert_deform_conv

__all__ = [
    "convert_corrected",
    "corrected_operators",
    "correcting_fixes",
    "enabled_corrections",
    "operator_of",
]


def convert_corrected(node: Node, convert: Converter) -> relax.Expr:
    """Convert a node with the corrections of its operator, then with `convert`."""
    for correction in reversed(enabled_corrections(node.operator)):
        convert = partial(correction, convert=convert)
    return convert(node)


def _with_corrections(correction: Correction) -> Correction:
    """`correction`, whose next converter corrects the ONNX operators that it is called with."""

    def corrected(node: Node, convert: Converter) -> relax.Expr:
        switches.note(MICROSOFT)
        return correction(node, partial(convert_corrected, convert=convert))

    return corrected


_CORRECTIONS: dict[str, list[tuple[str, Correction]]] = {
    "ArgMax": [(REDUCTIONS, convert_arg_reduction)],
    "ArgMin": [(REDUCTIONS, convert_arg_reduction)],
    "AveragePool": [(POOLING, convert_pool)],
    "BatchNormalization": [(NORMS, convert_batch_norm)],
    "BitShift": [(ELEMENTWISE, convert_bit_shift)],
    "Cast": [
        (QUANTIZED, convert_narrow_cast),
        (OPERATORS, convert_small_cast),
        (ELEMENTWISE, convert_cast),
    ],
    "CastLike": [
        (QUANTIZED, convert_narrow_cast),
        (OPERATORS, convert_small_cast),
        (ELEMENTWISE, convert_cast),
    ],
    "Celu": [(ACTIVATIONS, convert_elu)],
    "Clip": [(ACTIVATIONS, convert_clip)],
    "Concat": [(ELEMENTWISE, convert_concat)],
    "ConstantOfShape": [(EXPAND, convert_constant_of_shape)],
    "Conv": [
        (EXPAND, check_convolution),
        (CONV_AUTO_PAD, pad_conv),
        (DTYPE, sum_convolution),
    ],
    "ConvInteger": [(QUANTIZED, convert_conv_integer)],
    "ConvTranspose": [
        (EXPAND, check_convolution),
        (CONV_TRANSPOSE_OUTPUT_SHAPE, pad_conv_transpose),
        (DTYPE, sum_convolution),
    ],
    "CumProd": [(OPERATORS, convert_cumulative)],
    "CumSum": [(PARAMETERS, convert_cumulative)],
    "DequantizeLinear": [(QUANTIZED, convert_dequantize_linear)],
    "Dropout": [(ELEMENTWISE, convert_dropout)],
    "DynamicQuantizeLinear": [(QUANTIZED, convert_dynamic_quantize_linear)],
    "Einsum": [(EXPAND, check_einsum)],
    "Elu": [(ACTIVATIONS, convert_elu)],
    "Expand": [(EXPAND, convert_expand)],
    "EyeLike": [(PARAMETERS, convert_eye_like)],
    "Flatten": [(RESHAPE, convert_flatten)],
    "Gemm": [(EXPAND, check_gemm), (DTYPE, sum_gemm)],
    "GroupNormalization": [(NORMS, convert_group_norm)],
    "Hardmax": [(ACTIVATIONS, convert_hardmax)],
    "IsInf": [(ELEMENTWISE, convert_is_inf)],
    "InstanceNormalization": [(NORMS, convert_instance_norm)],
    "LRN": [(NORMS, convert_lrn)],
    "LayerNormalization": [(NORMS, convert_layer_norm)],
    "LogSoftmax": [(ACTIVATIONS, convert_softmax)],
    "LpNormalization": [(NORMS, convert_lp_norm)],
    "LpPool": [(POOLING, convert_lp_pool)],
    "MatMul": [(EXPAND, check_matmul), (EXPAND, broadcast_batches), (DTYPE, sum_matmul)],
    "MatMulInteger": [(QUANTIZED, convert_matmul_integer)],
    "Max": [(ELEMENTWISE, convert_variadic)],
    "MaxPool": [(POOLING, convert_pool)],
    "MaxUnpool": [(POOLING, convert_max_unpool)],
    "Mean": [(ELEMENTWISE, convert_variadic)],
    "MeanVarianceNormalization": [(NORMS, convert_mean_variance_norm)],
    "Min": [(ELEMENTWISE, convert_variadic)],
    "Mish": [(ELEMENTWISE, convert_mish)],
    "Mod": [(ELEMENTWISE, convert_mod)],
    "NonMaxSuppression": [(BOXES, convert_nms)],
    "OneHot": [(PARAMETERS, convert_one_hot)],
    "Pad": [(PAD, convert_pad)],
    "Pow": [(ELEMENTWISE, convert_pow)],
    "PRelu": [(PRELU, convert_prelu)],
    "QLinearConv": [(QUANTIZED, convert_qlinear_conv)],
    "QLinearMatMul": [(QUANTIZED, convert_qlinear_matmul)],
    "QuantizeLinear": [(QUANTIZED, convert_quantize_linear)],
    "RMSNormalization": [(NORMS, convert_rms_norm)],
    "Range": [(PARAMETERS, convert_range)],
    "Reshape": [(RESHAPE, convert_reshape)],
    "GRU": [(RECURRENT, convert_recurrent)],
    "LSTM": [(RECURRENT, convert_recurrent)],
    "RNN": [(RECURRENT, convert_recurrent)],
    "Resize": [(RESIZE, convert_resize)],
    "ReverseSequence": [(PARAMETERS, convert_reverse_sequence)],
    "RoiAlign": [(BOXES, convert_roi_align)],
    "Selu": [(ACTIVATIONS, convert_elu)],
    "Shape": [(RESHAPE, convert_shape)],
    "Shrink": [(ACTIVATIONS, convert_shrink)],
    "Softmax": [(ACTIVATIONS, convert_softmax)],
    "Sign": [(ACTIVATIONS, convert_sign)],
    "Slice": [(SLICE, convert_slice)],
    "Softplus": [(ELEMENTWISE, convert_softplus)],
    "SpaceToDepth": [(ELEMENTWISE, convert_space_to_depth)],
    "Split": [(SLICE, convert_split)],
    "Squeeze": [(RESHAPE, convert_squeeze)],
    "Sum": [(ELEMENTWISE, convert_variadic)],
    "ThresholdedRelu": [(ACTIVATIONS, convert_thresholded_relu)],
    "Tile": [(EXPAND, convert_tile)],
    "TopK": [(PARAMETERS, convert_top_k)],
    "Unsqueeze": [(RESHAPE, convert_unsqueeze)],
    "Upsample": [(RESIZE, convert_resize)],
    "AffineGrid": [(OPERATORS, convert_affine_grid)],
    "BitCast": [(OPERATORS, convert_bit_cast)],
    "Col2Im": [(OPERATORS, convert_col2im)],
    "DFT": [(OPERATORS, convert_dft)],
    "DeformConv": [(OPERATORS, convert_deform_conv)],
    "Det": [(OPERATORS, convert_det)],
    "MelWeightMatrix": [(OPERATORS, convert_mel_weight_matrix)],
    "STFT": [(OPERATORS, convert_stft)],
    "TensorScatter": [(OPERATORS, convert_tensor_scatter)],
    "Bernoulli": [(OPERATORS, convert_bernoulli)],
    "Multinomial": [(OPERATORS, convert_multinomial)],
    "RandomNormal": [(OPERATORS, convert_random)],
    "RandomNormalLike": [(OPERATORS, convert_random)],
    "RandomUniform": [(OPERATORS, convert_random)],
    "RandomUniformLike": [(OPERATORS, convert_random)],
    "com.microsoft.DequantizeLinear": [(QUANTIZED, convert_dequantize_linear)],
    "com.microsoft.DynamicQuantizeLSTM": [(QUANTIZED, convert_dynamic_quantize_lstm)],
    "com.microsoft.DynamicQuantizeMatMul": [(QUANTIZED, convert_dynamic_quantize_matmul)],
    "com.microsoft.GatherBlockQuantized": [(QUANTIZED, convert_gather_block_quantized)],
    "com.microsoft.MatMulIntegerToFloat": [(QUANTIZED, convert_matmul_integer_to_float)],
    "com.microsoft.MatMulNBits": [(QUANTIZED, convert_matmul_nbits)],
    "com.microsoft.QAttention": [(QUANTIZED, convert_qattention)],
    "com.microsoft.QGemm": [(QUANTIZED, convert_qgemm)],
    "com.microsoft.QLinearConcat": [(QUANTIZED, convert_qlinear_concat)],
    "com.microsoft.QLinearConv": [(QUANTIZED, convert_qlinear_conv)],
    "com.microsoft.QuantizeLinear": [(QUANTIZED, convert_quantize_linear)],
    **{operator: [(ML, correction)] for operator, correction in ML_CORRECTIONS.items()},
    "SimplifiedLayerNormalization": [(MICROSOFT, _with_corrections(convert_simplified_layer_norm))],
    **{name: [(MICROSOFT, _with_corrections(c))] for name, c in MICROSOFT_CONVERTERS.items()},
    **{operator: [(INDEX_LEGALIZE, convert_indexed)] for operator in INDEXED},
    **{operator: [(QUANTIZED, convert_quantized_step)] for operator in QUANTIZED_STEPS},
    **{operator: [(REDUCTIONS, convert_reduction)] for operator in REDUCED},
    **{operator: [(OPERATORS, convert_sequence_operator)] for operator in SEQUENCES},
}
"""For each operator, pairs of a fix id and a correction, in the order in which they apply.

The name of an operator outside ONNX's own domain begins with its domain.
"""


def operator_of(node: onnx.NodeProto) -> str:
    """The operator of a node, with its domain if the operator of that domain has a correction.

    Others are converted by operator type, as in TVM.
    """
    name = f"{node.domain}.{node.op_type}"
    return name if node.domain and enabled_corrections(name) else node.op_type


def corrected_operators() -> frozenset[str]:
    """The operators with a correction, except loops."""
    return frozenset(_CORRECTIONS)


def correcting_fixes() -> frozenset[str]:
    """The ids of the fixes that the corrections belong to."""
    return frozenset(fix for entries in _CORRECTIONS.values() for fix, _ in entries)


def enabled_corrections(operator: str) -> list[Correction]:
    """The corrections of an operator whose fixes are enabled, in the order in which they apply."""
    entries = list(_CORRECTIONS.get(operator, []))
    if operator in BROADCASTING:
        entries.insert(0, (EXPAND, convert_broadcasting))
    return [correction for fix, correction in entries if switches.enabled(fix)]
