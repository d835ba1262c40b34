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
"""The schema of TFLite files: facts of LiteRT's ``schema.fbs``, as data.

A table is written as its fields in the order of their numbers, each as ``name:kind`` with
``=default``.  A kind is a scalar, ``string``, an enum, a table, a vector of these in brackets, or
``|`` and a union, which takes two numbers: the type and the value.  ``_`` is a number without use.
Tables and enums that no reader needs are left out, and so are fields after the last that is read.
"""

__all__ = ["BUILTINS", "ENUMS", "FIRST_RESERVED", "TABLES", "UNIONS"]

BUILTINS: tuple[str, ...] = tuple(
    """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
    EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
    LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1
    RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM
    CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
    SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
    CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE
    SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
    ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
    REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
    LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
    WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
    BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
    REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
    CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
    BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
    UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
    RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY
    STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL
    STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
    STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER
    STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
    STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE
    DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT
    STABLEHLO_CBRT STABLEHLO_CASE
    """.split()
)
"""The builtin operators by their codes."""

FIRST_RESERVED = 127
"""From this code on, the old field of 8 bits holds only this number."""

ENUMS: dict[str, tuple[str, ...]] = {
    name: tuple(members.split())
    for name, members in {
        "TensorType": "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 "
        "complex128 uint64 resource variant uint32 uint16 int4 bfloat16 int2 uint4 float8_e4m3fn "
        "float8_e5m2",
        "DimensionType": "DENSE SPARSE_CSR",
        "Padding": "SAME VALID",
        "Activation": "NONE RELU RELU_N1_TO_1 RELU6 TANH SIGN_BIT",
        "WeightsFormat": "DEFAULT SHUFFLED4x16INT8",
        "LSTMKernelType": "FULL BASIC",
        "CombinerType": "SUM MEAN SQRTN",
        "MirrorPadMode": "REFLECT SYMMETRIC",
    }.items()
}
"""The names of the members of enums, by number; of tensor types, the dtypes."""

UNIONS: dict[str, tuple[str, ...]] = {
    "QuantizationDetails": (
        "CustomQuantization",
        "BlockwiseQuantization",
        "MultiAxisQuantization",
    ),
    "SparseIndexVector": ("Int32Vector", "Uint16Vector", "Uint8Vector"),
    "BuiltinOptions": tuple(
        f"{name}Options"
        for name in """
        Conv2D DepthwiseConv2D ConcatEmbeddings LSHProjection Pool2D SVDF RNN FullyConnected Softmax
        Concatenation Add L2Norm LocalResponseNormalization LSTM ResizeBilinear Call Reshape
        SkipGram SpaceToDepth EmbeddingLookupSparse Mul Pad Gather BatchToSpaceND SpaceToBatchND
        Transpose Reducer Sub Div Squeeze SequenceRNN StridedSlice Exp TopKV2 Split LogSoftmax Cast
        Dequantize MaximumMinimum ArgMax Less Neg PadV2 Greater GreaterEqual LessEqual Select Slice
        TransposeConv SparseToDense Tile ExpandDims Equal NotEqual Shape Pow ArgMin FakeQuant Pack
        LogicalOr OneHot LogicalAnd LogicalNot Unpack FloorDiv Square ZerosLike Fill
        BidirectionalSequenceLSTM BidirectionalSequenceRNN UnidirectionalSequenceLSTM FloorMod Range
        ResizeNearestNeighbor LeakyRelu SquaredDifference MirrorPad Abs SplitV Unique ReverseV2 AddN
        GatherNd Cos Where Rank ReverseSequence MatrixDiag Quantize MatrixSetDiag HardSwish If While
        DepthToSpace NonMaxSuppressionV4 NonMaxSuppressionV5 ScatterNd SelectV2 Densify SegmentSum
        BatchMatMul Cumsum CallOnce BroadcastTo Rfft2d Conv3D Hashtable HashtableFind
        HashtableImport HashtableSize VarHandle ReadVariable AssignVariable Random Bucketize Gelu
        DynamicUpdateSlice UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin
        UnsortedSegmentSum ATan2 Sign Bitcast BitwiseXor RightShift
        """.split()
    ),
}
"""The tables of unions: the first has the type 1."""

_POOL = "padding:Padding stride_w:int stride_h:int filter_width:int filter_height:int"
_ACTIVATION = "fused_activation_function:Activation"

TABLES: dict[str, str] = {
    "Model": "version:uint operator_codes:[OperatorCode] subgraphs:[SubGraph] description:string "
    "buffers:[Buffer] metadata_buffer:[int] metadata:[Metadata] signature_defs:[SignatureDef] "
    "external_buffer_groups:[ExternalBufferGroup] external_buffers:[ExternalBuffer]",
    "OperatorCode": "deprecated_builtin_code:byte custom_code:string version:int=1 "
    "builtin_code:int",
    "SubGraph": "tensors:[Tensor] inputs:[int] outputs:[int] operators:[Operator] name:string",
    "Operator": "opcode_index:uint inputs:[int] outputs:[int] builtin_options:|BuiltinOptions "
    "custom_options:[ubyte] custom_options_format:byte mutating_variable_inputs:[bool] "
    "intermediates:[int] large_custom_options_offset:ulong large_custom_options_size:ulong",
    "Tensor": "shape:[int] type:TensorType buffer:uint name:string "
    "quantization:QuantizationParameters is_variable:bool sparsity:SparsityParameters "
    "shape_signature:[int] has_rank:bool variant_tensors:[VariantSubType] external_buffer:uint",
    "VariantSubType": "shape:[int] type:TensorType has_rank:bool",
    "QuantizationParameters": "min:[float] max:[float] scale:[float] zero_point:[long] "
    "details:|QuantizationDetails quantized_dimension:int",
    "CustomQuantization": "custom:[ubyte]",
    "BlockwiseQuantization": "scales:int zero_points:int block_size:int",
    "MultiAxisQuantization": "scales:int zero_points:int block_size:int quantized_dimensions:[int]",
    "SparsityParameters": "traversal_order:[int] block_map:[int] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": "format:DimensionType dense_size:int array_segments:|SparseIndexVector "
    "array_indices:|SparseIndexVector",
    "Int32Vector": "values:[int]",
    "Uint16Vector": "values:[ushort]",
    "Uint8Vector": "values:[ubyte]",
    "Buffer": "data:[ubyte] offset:ulong size:ulong",
    "ExternalBufferGroup": "name:string",
    "ExternalBuffer": "id:uint group:uint offset:ulong length:ulong packing:string",
    "Metadata": "name:string buffer:uint",
    "TensorMap": "name:string tensor_index:uint",
    "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:string _ "
    "subgraph_index:uint",
    # The options of operators
    "Conv2DOptions": f"padding:Padding stride_w:int stride_h:int {_ACTIVATION} "
    "dilation_w_factor:int=1 dilation_h_factor:int=1 quantized_bias_type:TensorType",
    "Conv3DOptions": "padding:Padding stride_d:int stride_w:int stride_h:int "
    f"{_ACTIVATION} dilation_d_factor:int=1 dilation_w_factor:int=1 dilation_h_factor:int=1",
    "Pool2DOptions": f"{_POOL} {_ACTIVATION}",
    "DepthwiseConv2DOptions": "padding:Padding stride_w:int stride_h:int depth_multiplier:int "
    f"{_ACTIVATION} dilation_w_factor:int=1 dilation_h_factor:int=1",
    "TransposeConvOptions": f"padding:Padding stride_w:int stride_h:int {_ACTIVATION} "
    "quantized_bias_type:TensorType",
    "SVDFOptions": f"rank:int {_ACTIVATION} asymmetric_quantize_inputs:bool",
    "RNNOptions": f"{_ACTIVATION} asymmetric_quantize_inputs:bool",
    "SequenceRNNOptions": f"time_major:bool {_ACTIVATION} asymmetric_quantize_inputs:bool",
    "BidirectionalSequenceRNNOptions": f"time_major:bool {_ACTIVATION} merge_outputs:bool "
    "asymmetric_quantize_inputs:bool",
    "LSTMOptions": f"{_ACTIVATION} cell_clip:float proj_clip:float kernel_type:LSTMKernelType "
    "asymmetric_quantize_inputs:bool",
    "UnidirectionalSequenceLSTMOptions": f"{_ACTIVATION} cell_clip:float proj_clip:float "
    "time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool",
    "BidirectionalSequenceLSTMOptions": f"{_ACTIVATION} cell_clip:float proj_clip:float "
    "merge_outputs:bool time_major:bool=1 asymmetric_quantize_inputs:bool",
    "FullyConnectedOptions": f"{_ACTIVATION} weights_format:WeightsFormat keep_num_dims:bool "
    "asymmetric_quantize_inputs:bool quantized_bias_type:TensorType",
    "SoftmaxOptions": "beta:float",
    "ConcatenationOptions": f"axis:int {_ACTIVATION}",
    "AddOptions": f"{_ACTIVATION} pot_scale_int16:bool=1",
    "SubOptions": f"{_ACTIVATION} pot_scale_int16:bool=1",
    "MulOptions": _ACTIVATION,
    "DivOptions": _ACTIVATION,
    "L2NormOptions": _ACTIVATION,
    "LocalResponseNormalizationOptions": "radius:int bias:float alpha:float beta:float",
    "ResizeBilinearOptions": "_ _ align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
    "CallOptions": "subgraph:uint",
    "ReshapeOptions": "new_shape:[int]",
    "SkipGramOptions": "ngram_size:int max_skip_size:int include_all_ngrams:bool",
    "SpaceToDepthOptions": "block_size:int",
    "DepthToSpaceOptions": "block_size:int",
    "EmbeddingLookupSparseOptions": "combiner:CombinerType",
    "GatherOptions": "axis:int batch_dims:int",
    "ReducerOptions": "keep_dims:bool",
    "SqueezeOptions": "squeeze_dims:[int]",
    "SplitOptions": "num_splits:int",
    "SplitVOptions": "num_splits:int",
    "StridedSliceOptions": "begin_mask:int end_mask:int ellipsis_mask:int new_axis_mask:int "
    "shrink_axis_mask:int offset:bool",
    "CastOptions": "in_data_type:TensorType out_data_type:TensorType",
    "ArgMaxOptions": "output_type:TensorType",
    "ArgMinOptions": "output_type:TensorType",
    "ShapeOptions": "out_type:TensorType",
    "FakeQuantOptions": "min:float max:float num_bits:int narrow_range:bool",
    "PackOptions": "values_count:int axis:int",
    "OneHotOptions": "axis:int",
    "UnpackOptions": "num:int axis:int",
    "LeakyReluOptions": "alpha:float",
    "MirrorPadOptions": "mode:MirrorPadMode",
    "UniqueOptions": "idx_out_type:TensorType=2",
    "ReverseSequenceOptions": "seq_dim:int batch_dim:int",
    "IfOptions": "then_subgraph_index:int else_subgraph_index:int",
    "WhileOptions": "cond_subgraph_index:int body_subgraph_index:int",
    "CallOnceOptions": "init_subgraph_index:int",
    "BatchMatMulOptions": "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool",
    "CumsumOptions": "exclusive:bool reverse:bool",
    "HashtableOptions": "table_id:int key_dtype:TensorType value_dtype:TensorType",
    "VarHandleOptions": "container:string shared_name:string",
    "RandomOptions": "seed:long seed2:long",
    "BucketizeOptions": "boundaries:[float]",
    "GeluOptions": "approximate:bool",
}
