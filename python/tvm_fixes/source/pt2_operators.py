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
"""The ATen operators that an untrusted program may use.

The list has the operators that the importer converts, those that PyTorch decomposes to them, and
similar ones.  It excludes operators that may access foreign memory: unchecked views and sparse
tensors, setting or resizing of storage, packed and quantized weights, gradients, and kernels that
do not check the indices or sizes in their operands.
"""

__all__ = ["is_safe"]

# Operators with an in-place variant, whose name ends with "_".
_ALSO_IN_PLACE = frozenset(
    """
    abs absolute acos acosh add addcdiv addcmul addmm addr arccos arccosh arcsin arcsinh arctan
    arctan2 arctanh asin asinh atan atan2 atanh baddbmm bernoulli bitwise_and bitwise_not
    bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clip copy cos cosh cumprod cumsum
    deg2rad detach div divide dropout elu eq erf exp expm1 exponential fill fix float_power
    floor floor_divide fmod frac ge gelu greater greater_equal gt hardsigmoid hardswish hardtanh
    heaviside index_add index_copy index_fill index_put le leaky_relu lerp less less_equal log
    log10 log1p log2 logical_and logical_not logical_or logical_xor logit lt masked_fill
    masked_scatter mish mul multiply mvlgamma nan_to_num ne neg negative normal not_equal pow
    rad2deg random reciprocal relu relu6 remainder renorm round rrelu rsqrt scatter scatter_add
    scatter_reduce selu sgn sigmoid sign silu sin sinc sinh sqrt square sub subtract tan tanh
    threshold tril triu true_divide trunc uniform xlogy zero
    """.split()
)
_OTHERS = frozenset(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d addbmm addmv adjoint affine_grid_generator alias
    alias_copy all alpha_dropout amax amin aminmax angle any arange argmax argmin argsort
    argwhere as_strided atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d
    bartlett_window batch_norm bilinear binary_cross_entropy binary_cross_entropy_with_logits
    bincount bitwise_left_shift bitwise_right_shift blackman_window block_diag bmm
    broadcast_tensors broadcast_to bucketize cartesian_prod cat cdist chain_matmul chalf
    channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clone col2im column_stack
    combinations complex concat concatenate conj conj_physical constant_pad_nd contiguous conv1d
    conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution
    copysign corrcoef cosine_embedding_loss cosine_similarity count_nonzero cov cross
    cross_entropy_loss cummax cummin cumulative_trapezoid det detach_copy diag diag_embed
    diagflat diagonal diagonal_copy diagonal_scatter diff digamma dim dist dot dsplit dstack
    einsum embedding empty empty_like empty_permuted empty_strided erfc erfinv exp2 expand
    expand_as expand_copy eye feature_dropout fft_fft fft_fft2 fft_fftn fft_fftshift fft_hfft
    fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2
    fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn flatten flip fliplr
    flipud fmax fmin frexp frobenius_norm full full_like gather gcd ger get_device glu gradient
    grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru gru_cell hamming_window
    hann_window hardshrink hinge_embedding_loss histc hsplit hstack huber_loss hypot i0 igamma
    igammac im2col imag index index_select inner instance_norm inverse is_complex is_conj
    is_floating_point is_neg is_nonzero is_signed isclose isfinite isin isinf isnan isneginf
    isposinf isreal istft item kaiser_window kl_div kron kthvalue l1_loss layer_norm lcm ldexp
    lgamma lift lift_fresh lift_fresh_copy linalg_cholesky linalg_cholesky_ex linalg_cross
    linalg_det linalg_diagonal linalg_inv linalg_inv_ex linalg_lu linalg_lu_factor
    linalg_lu_factor_ex linalg_matmul linalg_matrix_exp linalg_matrix_norm linalg_matrix_power
    linalg_multi_dot linalg_norm linalg_qr linalg_slogdet linalg_solve linalg_solve_triangular
    linalg_vecdot linalg_vector_norm linear linspace log_sigmoid log_sigmoid_forward log_softmax
    logaddexp logaddexp2 logcumsumexp logdet logspace logsumexp lstm lstm_cell mH mT
    margin_ranking_loss masked_select matmul matrix_H matrix_exp matrix_power max max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices maximum mean median meshgrid min minimum mm mode moveaxis movedim
    mse_loss msort multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward mv
    nanmean nanmedian nanquantile nansum narrow native_channel_shuffle native_dropout
    native_group_norm native_layer_norm new_empty new_empty_strided new_full new_ones new_zeros
    nextafter nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd nonzero
    nonzero_static norm norm_except_dim nuclear_norm numel numpy_T one_hot ones ones_like outer
    pad pad_sequence pairwise_distance pdist permute permute_copy pixel_shuffle pixel_unshuffle
    poisson_nll_loss polar polygamma prelu prod quantile rand rand_like randint randint_like
    randn randn_like randperm ravel real reflection_pad1d reflection_pad2d reflection_pad3d
    repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape
    reshape_as resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
    roll rot90 row_stack rrelu_with_noise rsub scalar_tensor scaled_dot_product_attention
    searchsorted select select_copy select_scatter signbit size slice slice_copy slice_scatter
    slogdet smooth_l1_loss soft_margin_loss softmax softplus softshrink sort special_digamma
    special_entr special_erf special_erfc special_erfinv special_exp2 special_expit
    special_expm1 special_gammainc special_gammaincc special_gammaln special_i0 special_i0e
    special_i1 special_i1e special_log1p special_log_ndtr special_log_softmax special_logit
    special_logsumexp special_multigammaln special_ndtr special_ndtri special_polygamma
    special_psi special_round special_sinc special_softmax special_xlog1py special_xlogy
    special_zeta split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy
    stack std std_mean stft stride sum sum_to_size swapaxes swapdims sym_constrain_range
    sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size sym_storage_offset
    sym_stride t t_copy take take_along_dim tensor_split tensordot tile to topk trace transpose
    transpose_copy trapezoid trapz tril_indices triplet_margin_loss triu_indices type_as unbind
    unbind_copy unflatten unfold unfold_copy unique_consecutive unique_dim unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_copy upsample_bicubic2d upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d vander var var_mean vdot view view_as view_as_complex view_as_real
    view_copy vsplit vstack where zeros zeros_like
    """.split()
)
# A leading "_" marks internal operators; these check their operands like public ones.
_INTERNAL = frozenset(
    """
    __and__ __iand__ __ior__ __ixor__ __lshift__ __or__ __rshift__ __xor__ _adaptive_avg_pool2d
    _adaptive_avg_pool3d _assert_async _assert_scalar _assert_tensor_metadata _cast_Byte
    _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short
    _cdist_forward _conj _convolution _convolution_mode _dim_arange _euclidean_dist
    _fused_rms_norm _local_scalar_dense _log_softmax _native_batch_norm_legit
    _native_batch_norm_legit_no_training _pad_circular
    _pad_enum _prelu_kernel _reshape_copy _safe_softmax _scaled_dot_product_attention_math
    _shape_as_tensor _softmax _to_copy _trilinear _unique2 _unsafe_index _unsafe_view
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
    _weight_norm_interface
    """.split()
)


def is_safe(name: str, overload: str) -> bool:
    """Whether an ATen operator is known to check all of its memory accesses."""
    import torch

    is_listed = (
        name in _ALSO_IN_PLACE
        or name in _OTHERS
        or name in _INTERNAL
        or (name.endswith("_") and name[:-1] in _ALSO_IN_PLACE)
    )
    # Packed sequences of recurrent layers, and statistics that are written unchecked.
    is_unchecked = overload == "data" or (name, overload) == ("_native_batch_norm_legit", "default")
    if not is_listed or is_unchecked:
        return False
    operator = getattr(getattr(torch.ops.aten, name, None), overload, None)
    # An "out" variant resizes its operand.
    return isinstance(operator, torch._ops.OpOverload) and not any(
        argument.is_out for argument in operator._schema.arguments
    )
