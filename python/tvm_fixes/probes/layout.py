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
"""Probes of layout conversion; most count the permutes that ConvertLayout leaves."""

# TVMScript uses calls as type annotations.
# mypy: disable-error-code="valid-type"

import re
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.layout import (
    CHOOSE_LAYOUT,
    DECOMPOSE_CHANNELWISE,
    FOLD_LAYOUT_INTO_CONV,
    FUSE_TRANSPOSE_MATMUL,
    LAYOUT_GUARDS,
    LAYOUT_TRANSFORM_LEGALIZE,
    OPERATORS_INFER_LAYOUT,
    PERMUTE_DIMS_INFER_LAYOUT,
    PREPARE_LAYOUT,
    RESHAPE_INFER_LAYOUT,
    REVERSE_SEQUENCE_INFER_LAYOUT,
    SQUEEZE_INFER_LAYOUT,
)
from ..relax.analysis import activation_transforms, operator_calls
from ..relax.transform import (
    DecomposeChannelwise,
    FoldLayoutIntoConv,
    FuseTransposeMatmul,
    PrepareLayout,
)
from ..relax.transform.choose_layout import ChooseLayout
from ._run import run
from .probe import Probe, register


def _draw() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, kernel, bias = (
        rng.standard_normal(shape, "float32") for shape in ((1, 4, 3, 5), (4, 4, 1, 1), (4,))
    )
    return x, kernel, bias


def _convolve_1x1(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return np.einsum("oi,nihw->nohw", kernel[:, :, 0, 0], x)


def _convert_to_nhwc(module: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(module)


def _check_in_nhwc(module: tvm.IRModule, x: np.ndarray, expected: np.ndarray) -> None:
    """Check the results, and that only the input and the output are permuted."""
    # With the fixes on, PrepareLayout also removes identity transforms.
    converted = PrepareLayout()(_convert_to_nhwc(module))
    count = len(activation_transforms(converted))
    assert count == 2, f"{count} permutes of activations, expected 2"
    np.testing.assert_allclose(run(converted, x), expected, rtol=1e-5, atol=1e-5)


def _convert_around_reshape() -> None:
    x, weight, _ = _draw()
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.reshape(lv, (1, 4, 15))
                lv2 = R.nn.relu(lv1)
                lv3 = R.reshape(lv2, (1, 4, 3, 5))
                out = R.nn.conv2d(lv3, kernel)
                R.output(out)
            return out

    expected = _convolve_1x1(np.maximum(_convolve_1x1(x, weight), 0), weight)
    _check_in_nhwc(Module, x, expected)


def _convert_around_reverse_sequence() -> None:
    x, weight, _ = _draw()
    kernel, lengths = relax.const(weight), relax.const([2, 0, 3, 1], "int64")

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.reverse_sequence(lv, lengths, seq_axis=2, batch_axis=1)
                out = R.nn.conv2d(lv1, kernel)
                R.output(out)
            return out

    reversed_ = _convolve_1x1(x, weight)
    for channel, length in enumerate([2, 0, 3, 1]):
        reversed_[:, channel, :length] = reversed_[:, channel, :length][:, ::-1].copy()
    _check_in_nhwc(Module, x, _convolve_1x1(reversed_, weight))


def _convert_around_permutes() -> None:
    x, weight, _ = _draw()
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.permute_dims(lv, [0, 2, 1, 3])
                lv2 = R.nn.relu(lv1)
                lv3 = R.permute_dims(lv2, [0, 2, 1, 3])
                out = R.nn.conv2d(lv3, kernel)
                R.output(out)
            return out

    expected = _convolve_1x1(np.maximum(_convolve_1x1(x, weight), 0), weight)
    _check_in_nhwc(Module, x, expected)


def _convert_around_squeeze() -> None:
    _, weight, _ = _draw()
    x = np.random.default_rng(1).standard_normal((1, 4, 3, 1), "float32")
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 1), "float32")) -> R.Tensor((1, 4, 3), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                out = R.squeeze(lv, [-1])
                R.output(out)
            return out

    expected = _convolve_1x1(x, weight).squeeze(-1)
    np.testing.assert_allclose(run(_convert_to_nhwc(Module), x), expected, rtol=1e-5, atol=1e-5)


def _convert_around_operators() -> None:
    x, weight, _ = _draw()
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 4, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.clip(lv, -1, 1)
                lv2 = R.nn.pad(lv1, (0, 0, 0, 0, 1, 0, 0, 0))
                lv3 = R.cumsum(lv2, axis=1)
                out = R.nn.conv2d(lv3, kernel)
                R.output(out)
            return out

    padded = np.pad(_convolve_1x1(x, weight).clip(-1, 1), ((0, 0), (0, 0), (1, 0), (0, 0)))
    _check_in_nhwc(Module, x, _convolve_1x1(padded.cumsum(1), weight))


def _transform_booleans() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4), "bool"))
    with builder.function("main", [x]):
        moved = relax.op.layout_transform(x, lambda i, j: (i, j // 2, j % 2))
        builder.emit_func_output(builder.emit(moved))
    data = np.random.default_rng(0).integers(0, 2, (2, 4)).astype("bool")
    np.testing.assert_array_equal(run(builder.get(), data), data.reshape(2, 2, 2))


def _after_convolution(emit: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x, kernel = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", (1, 4, 4, 4)), ("kernel", (4, 4, 1, 1)))
    )
    with builder.function("main", [x, kernel]):
        with builder.dataflow():
            convolved = builder.emit(relax.op.nn.conv2d(x, kernel))
            out = builder.emit_output(builder.emit(emit(convolved)))
        builder.emit_func_output(out)
    return builder.get()


def _keeps_results(emit: Callable[[relax.Expr], relax.Expr]) -> bool:
    module = _after_convolution(emit)
    rng = np.random.default_rng(0)
    x, kernel = (rng.standard_normal(shape, "float32") for shape in ((1, 4, 4, 4), (4, 4, 1, 1)))
    converted = run(_convert_to_nhwc(module), x, kernel)
    return np.allclose(converted, run(module, x, kernel), rtol=1e-4, atol=1e-4)


def _converts(emit: Callable[[relax.Expr], relax.Expr]) -> bool:
    layouts = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}
    try:
        relax.transform.ConvertLayout(layouts)(_after_convolution(emit))
    except (ValueError, RuntimeError):
        return False
    return True


def _convert_around_guarded() -> None:
    scale, offset = (
        relax.const(np.random.default_rng(seed).standard_normal((4, 4, 4), "float32"))
        for seed in (1, 2)
    )
    channels = relax.const(np.ones(4, "float32"))
    indices = relax.const(np.array([[[0, 1], [0, 3], [0, 0], [0, 2]]]), "int64")
    updates = relax.const(np.arange(64, dtype="float32").reshape(1, 4, 4, 4))
    op = relax.op
    in_nhwc = {
        "layer_norm": lambda x: op.nn.layer_norm(x, scale, offset, [1, 2, 3]),
        "repeat": lambda x: op.repeat(x, 2),
        "scatter_nd": lambda x: op.scatter_nd(x, indices, updates),
    }
    in_blocks = {
        "add": lambda x: op.add(x, op.mean(x, [1], keepdims=True)),
        "group_norm": lambda x: op.nn.group_norm(x, channels, channels, 2, 1, [2, 3]),
        "split": lambda x: op.split(x, 2, -1),
        "max_pool2d": lambda x: op.nn.max_pool2d(x, 2, layout="NHWC"),
        "dropout": lambda x: op.nn.dropout(x),
    }
    wrong = [name for name, emit in in_nhwc.items() if not _keeps_results(emit)]
    raising = [name for name, emit in in_blocks.items() if not _converts(emit)]
    assert not wrong + raising, (
        f"wrong results: {', '.join(wrong)}; ConvertLayout raises: {', '.join(raising)}"
    )


def _convert_bias_and_dead_code(prepare: Callable[[tvm.IRModule], tvm.IRModule]) -> None:
    x, weight, offsets = _draw()
    kernel, bias = relax.const(weight), relax.const(offsets)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.reshape(bias, (1, 4, 1, 1))
                lv2 = R.add(lv, lv1)
                unused = R.zeros_like(lv2)  # noqa: F841
                lv3 = R.permute_dims(lv2, [0, 2, 3, 1])
                lv4 = R.nn.relu(lv3)
                lv5 = R.permute_dims(lv4, [0, 3, 1, 2])
                out = R.nn.conv2d(lv5, kernel)
                R.output(out)
            return out

    biased = _convolve_1x1(x, weight) + offsets.reshape(4, 1, 1)
    expected = _convolve_1x1(np.maximum(biased, 0), weight)
    _check_in_nhwc(prepare(Module), x, expected)


def _convert_packed_norm(prepare: Callable[[tvm.IRModule], tvm.IRModule]) -> None:
    x, weight, _ = _draw()
    scale_and_offset = np.random.default_rng(1).standard_normal((2, 4), "float32")
    kernel, scale, offset = map(relax.const, (weight, *scale_and_offset))

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.nn.instance_norm(lv, scale, offset, channel_axis=1, axes=[2, 3])
                out = R.nn.conv2d(lv1, kernel)
                R.output(out)
            return out

    layouts = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}
    converted = relax.transform.ConvertLayout(layouts)(PrepareLayout()(prepare(Module)))
    count = len(activation_transforms(PrepareLayout()(converted)))
    assert count == 2, f"{count} transforms of activations, expected 2"
    convolved = _convolve_1x1(x, weight)
    centered = convolved - convolved.mean((2, 3), keepdims=True)
    deviation = np.sqrt((centered**2).mean((2, 3), keepdims=True) + 1e-5)
    scale, offset = scale_and_offset.reshape(2, 4, 1, 1)
    expected = _convolve_1x1(centered / deviation * scale + offset, weight)
    np.testing.assert_allclose(run(converted, x), expected, rtol=1e-4, atol=1e-5)


def _convert_ends(fold: Callable[[tvm.IRModule], tvm.IRModule]) -> None:
    x, weight, _ = _draw()
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.nn.relu(lv)
                out = R.nn.conv2d(lv1, kernel)
                R.output(out)
            return out

    folded = relax.transform.DeadCodeElimination()(fold(_convert_to_nhwc(Module)))
    count = len(activation_transforms(folded))
    assert count == 0, f"{count} transforms around convolutions, expected 0"
    expected = _convolve_1x1(np.maximum(_convolve_1x1(x, weight), 0), weight)
    np.testing.assert_allclose(run(folded, x), expected, rtol=1e-5, atol=1e-5)


def _multiply_by_own_transpose(fuse: tvm.transform.Pass) -> None:
    x, _, _ = _draw()

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 3), "float32"):
            with R.dataflow():
                transposed = R.permute_dims(x, [0, 1, 3, 2])
                out = R.matmul(x, transposed)
                R.output(out)
            return out

    np.testing.assert_allclose(run(fuse(Module), x), x @ x.swapaxes(2, 3), rtol=1e-5, atol=1e-5)


register(
    RESHAPE_INFER_LAYOUT,
    Probe(
        stock=_convert_around_reshape,
        fixed=_convert_around_reshape,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

register(
    REVERSE_SEQUENCE_INFER_LAYOUT,
    Probe(
        stock=_convert_around_reverse_sequence,
        fixed=_convert_around_reverse_sequence,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

register(
    PERMUTE_DIMS_INFER_LAYOUT,
    Probe(
        stock=_convert_around_permutes,
        fixed=_convert_around_permutes,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

register(
    SQUEEZE_INFER_LAYOUT,
    Probe(
        stock=_convert_around_squeeze,
        fixed=_convert_around_squeeze,
        # The effect of a write out of bounds varies.
        symptom=re.compile(r"bad_alloc|InternalError|SIG\w+: crashed"),
    ),
)

register(
    OPERATORS_INFER_LAYOUT,
    Probe(
        stock=_convert_around_operators,
        fixed=_convert_around_operators,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

register(
    LAYOUT_TRANSFORM_LEGALIZE,
    Probe(
        stock=_transform_booleans,
        fixed=_transform_booleans,
        symptom=re.compile(r"ScheduleError: .*T.bool", re.DOTALL),
    ),
)

register(
    LAYOUT_GUARDS,
    Probe(
        stock=_convert_around_guarded,
        fixed=_convert_around_guarded,
        # With norm-variance, layer_norm accepts its axes in any order.
        symptom=re.compile(
            r"AssertionError: wrong results: (layer_norm, )?repeat, scatter_nd; "
            r"ConvertLayout raises: add, group_norm, split, max_pool2d, dropout"
        ),
    ),
)

register(
    DECOMPOSE_CHANNELWISE,
    Probe(
        stock=lambda: _convert_packed_norm(lambda module: module),
        fixed=lambda: _convert_packed_norm(DecomposeChannelwise()),
        # With layout-guards, a norm goes back to the original layout instead of raising.
        symptom=re.compile(r"ValueError: .*instance_norm|AssertionError: \d transforms", re.DOTALL),
    ),
)


def _check_blocked(convert: tvm.transform.Pass) -> None:
    first, second = (relax.const(np.ones((16, n, 1, 1), "float32")) for n in (3, 16))

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 3, 5, 5), "float32")) -> R.Tensor((1, 16, 5, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, first)
                lv1 = R.nn.relu(lv)
                lv2 = R.nn.conv2d(lv1, second)
                R.output(lv2)
            return lv2

    with tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu"}):
        converted = convert(Module)
    layouts = [
        str(binding.value.attrs.data_layout)
        for _, binding in operator_calls(converted)
        if str(binding.value.op.name) == "relax.nn.conv2d"
    ]
    assert layouts[1] == "NCHW16c", f"the second convolution reads {layouts[1]}"


register(
    CHOOSE_LAYOUT,
    Probe(
        stock=lambda: _check_blocked(relax.transform.FoldConstant()),
        fixed=lambda: _check_blocked(ChooseLayout()),
        symptom=re.compile(r"AssertionError: the second convolution reads NCHW"),
    ),
)

register(
    PREPARE_LAYOUT,
    Probe(
        stock=lambda: _convert_bias_and_dead_code(lambda module: module),
        fixed=lambda: _convert_bias_and_dead_code(PrepareLayout()),
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

register(
    FOLD_LAYOUT_INTO_CONV,
    Probe(
        stock=lambda: _convert_ends(lambda module: module),
        fixed=lambda: _convert_ends(FoldLayoutIntoConv()),
        symptom=re.compile(r"AssertionError: \d transforms"),
    ),
)

register(
    FUSE_TRANSPOSE_MATMUL,
    Probe(
        stock=lambda: _multiply_by_own_transpose(relax.transform.FuseTransposeMatmul()),
        fixed=lambda: _multiply_by_own_transpose(FuseTransposeMatmul()),
        symptom=re.compile(r"IndexError: Index out of range"),
    ),
)
