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
"""Probes of the PyTorch importers."""

import inspect
import re
from collections.abc import Callable
from types import ModuleType

import numpy as np
import tvm
from tvm import relax

from ..fixes.torch_importer import (
    ACTIVATIONS,
    ATTENTION,
    BATCH_NORM,
    CONV_TRANSPOSE,
    CREATION,
    DECOMPOSITIONS,
    DTYPE,
    DYNAMIC_SHAPES,
    FX,
    GRID_SAMPLE,
    INDEXING,
    INSTANCE_NORM,
    INTERPOLATE,
    LINEAR,
    LOOPS,
    MUTATIONS,
    POOLING,
    PRELU,
    PROMOTION,
    QUANTIZED,
    RANDOM,
    REDUCTIONS,
    TILE,
)
from ._run import run
from .probe import Probe, register


def _register(fix_id: str, program: Callable[[ModuleType], None], symptom: str) -> None:
    """Register a probe that runs `program` with TVM's importers and with ours."""

    def stock() -> None:
        from tvm.relax.frontend import torch as importers

        program(importers)

    def fixed() -> None:
        from ..frontend import torch as importers

        program(importers)

    pattern = re.compile(symptom, re.DOTALL)
    register(fix_id, Probe(stock, fixed, pattern, modules=("torch",)))


def _import_half_linear(importers: ModuleType) -> None:
    import torch

    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(shape, "float32") for shape in ((2, 3), (4, 3), (4,)))
    layer = torch.nn.Linear(3, 4).half().eval()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    x = x.astype("float16")
    program = torch.export.export(layer, (torch.from_numpy(x),))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    expected = x.astype("float32") @ weight.astype("float16").T.astype("float32") + bias
    assert got.dtype == np.float16, f"expected a float16 result, got {got.dtype}"
    np.testing.assert_allclose(got, expected, rtol=5e-3, atol=5e-3)


def _import_conv_transpose3d(importers: ModuleType) -> None:
    import torch

    layer = torch.nn.ConvTranspose3d(2, 3, kernel_size=2, stride=2, bias=False).eval()
    x = torch.ones(1, 2, 2, 2, 2)
    program = torch.export.export(layer, (x,))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x.numpy())
    # The kernel is as large as the stride: the blocks of the elements do not overlap.
    expected = np.tile(layer.weight.detach().numpy().sum(axis=0), (1, 1, 2, 2, 2))
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def _import_eval_batch_norm(importers: ModuleType) -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.BatchNorm2d(2)).eval()
    module[0].running_mean.copy_(torch.tensor([1.0, -2.0]))
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 3), "float32")
    program = torch.export.export(module, (torch.from_numpy(x),))
    options = {"run_ep_decomposition": False, "unwrap_unit_return_tuple": True}
    got = run(importers.from_exported_program(program, **options), x)
    # The running variance is 1.
    expected = (x - np.array([1, -2], "float32").reshape(2, 1, 1)) / np.sqrt(np.float32(1 + 1e-5))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def _import_nearest(importers: ModuleType) -> None:
    import torch

    class Resize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, size=(11, 11))

    x = np.arange(64, dtype="float32").reshape(1, 1, 8, 8)
    program = torch.export.export(Resize(), (torch.from_numpy(x),))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    nearest = np.arange(11) * 8 // 11
    np.testing.assert_array_equal(got[0, 0], x[0, 0][np.ix_(nearest, nearest)])


def _import_reflection_pad(importers: ModuleType) -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.ReflectionPad2d(1))
    x = np.arange(9, dtype="float32").reshape(1, 1, 3, 3)
    got = run(importers.from_fx(torch.fx.symbolic_trace(module), [(x.shape, "float32")]), x)
    np.testing.assert_array_equal(got[0, 0], np.pad(x[0, 0], 1, mode="reflect"))


def _import_symbolic_repeat(importers: ModuleType) -> None:
    import torch

    class Repeat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat(1, x.shape[0])

    x = np.arange(6, dtype="float32").reshape(3, 2)
    rows = {0: torch.export.Dim("rows", min=2)}
    program = torch.export.export(Repeat(), (torch.from_numpy(x),), dynamic_shapes=(rows,))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    np.testing.assert_array_equal(got, np.tile(x, (1, 3)))


def _import_write_to_input(importers: ModuleType) -> None:
    import torch

    class Write(torch.nn.Module):
        def forward(self, cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            cache[1] = x
            return x + 1

    program = torch.export.export(Write(), (torch.zeros(3, 2), torch.ones(2)))
    import_program = importers.from_exported_program
    known = inspect.signature(import_program).parameters
    mod = import_program(program, **({"return_updates": True} if "return_updates" in known else {}))
    count = len(mod["main"].ret_ty.fields)
    assert count == 2, f"what the program writes to its input is lost: {count} result"


def _import_instance_norm(importers: ModuleType) -> None:
    import torch

    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5), "float32")
    dims = ({0: torch.export.Dim("n", max=8)},)
    program = torch.export.export(
        torch.nn.InstanceNorm2d(3).eval(), (torch.from_numpy(x),), dynamic_shapes=dims
    )
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    centered = x - x.mean((2, 3), keepdims=True)
    expected = centered / np.sqrt((centered**2).mean((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def _import_dropout_in_training_mode(importers: ModuleType) -> None:
    import torch

    x = torch.ones(8, 8)
    program = torch.export.export(torch.nn.Dropout(0.5).train(), (x,))
    out = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x.numpy())
    assert (out == 0).any(), "nothing is dropped"
    assert (out == 2).any(), "everything is dropped"


def _import_statistics_of_a_norm(importers: ModuleType) -> None:
    import torch

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.native_layer_norm(x, (4,), None, None, 1e-5)[1]

    x = np.arange(8, dtype="float32").reshape(2, 4)
    program = torch.export.export(Mean(), (torch.from_numpy(x),))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    np.testing.assert_array_equal(got, x.mean(1, keepdims=True))


def _import_prelu(importers: ModuleType) -> None:
    import torch

    program = torch.export.export(torch.nn.PReLU(2).eval(), (torch.zeros(1, 2, 3, 3),))
    mod = importers.from_exported_program(program)
    operators: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            operators.append(expr.op.name)

    relax.analysis.post_order_visit(mod["main"], visit)
    assert operators == ["relax.nn.prelu"], f"a PReLU is imported as {operators}"


def _import_linear_of_transposed(importers: ModuleType) -> None:
    import torch

    class Mix(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.transpose(1, 2))

    program = torch.export.export(Mix().eval(), (torch.zeros(2, 3, 4),))
    mod = importers.from_exported_program(program)
    assert "broadcast_to" not in mod.script(show_meta=False), "the weight is broadcast"


def _import_integers_times_half(importers: ModuleType) -> None:
    import torch

    class Halve(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0.5

    x = np.arange(4)
    program = torch.export.export(Halve(), (torch.from_numpy(x),))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    np.testing.assert_array_equal(got, x.astype("float32") / 2)


def _import_maximum_of_sizes(importers: ModuleType) -> None:
    import torch

    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_zeros(max(x.shape[0], 5), 2) + x[0]

    x = np.arange(6, dtype="float32").reshape(3, 2)
    rows = {0: torch.export.Dim("rows", min=2, max=9)}
    program = torch.export.export(Rows(), (torch.from_numpy(x),), dynamic_shapes=(rows,))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    np.testing.assert_array_equal(got, np.tile(x[0], (5, 1)))


def _import_attention_and_view(importers: ModuleType) -> None:
    import torch

    class Attend(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.view(2, 3, 2, 4).transpose(1, 2)
            out = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return out.transpose(1, 2).reshape(2, 3, 8).view(-1, 8)

    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 8), "float32"))
    program = torch.export.export(Attend(), (x,))
    mod = importers.from_exported_program(program, unwrap_unit_return_tuple=True)
    np.testing.assert_allclose(run(mod, x.numpy()), Attend()(x), rtol=1e-5, atol=1e-6)


def _export_and_run(importers: ModuleType, module: object, *inputs: np.ndarray) -> np.ndarray:
    """Export and import `module`, and run it on `inputs`."""
    import torch

    program = torch.export.export(module, tuple(map(torch.from_numpy, inputs)))
    return run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), *inputs)


def _import_diagonal(importers: ModuleType) -> None:
    import torch

    class Diagonal(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            both = torch.tensor([0, 1])
            return x[:, both, both]

    x = np.arange(8, dtype="float32").reshape(2, 2, 2)
    np.testing.assert_array_equal(_export_and_run(importers, Diagonal(), x), x[:, [0, 1], [0, 1]])


def _import_selu(importers: ModuleType) -> None:
    import torch

    x = np.array([-2, -0.5, 0, 1, 30], "float32")
    got = _export_and_run(importers, torch.nn.SELU(), x)
    expected = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def _import_divisor(importers: ModuleType) -> None:
    import torch

    x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    got = _export_and_run(importers, torch.nn.AvgPool2d(2, divisor_override=3), x)
    expected = x.reshape(2, 2, 2, 2).sum((1, 3)) / 3
    np.testing.assert_allclose(got[0, 0], expected, rtol=1e-6)


def _import_grid_sample(importers: ModuleType) -> None:
    import torch

    class Sample(torch.nn.Module):
        def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.grid_sample(x, grid, align_corners=True)

    x = np.arange(6, dtype="float32").reshape(1, 1, 2, 3)
    # The three elements of the upper row, and the middle of the lower one.
    grid = np.array([[[[-1, -1], [0, -1], [1, -1], [0, 1]]]], "float32")
    np.testing.assert_allclose(_export_and_run(importers, Sample(), x, grid)[0, 0], [[0, 1, 2, 4]])


def _import_maximum_of_nan(importers: ModuleType) -> None:
    import torch

    class Largest(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.max(1)[0]

    x = np.array([[1, np.nan, 3], [5, 4, 3]], "float32")
    np.testing.assert_array_equal(_export_and_run(importers, Largest(), x), [np.nan, 5])


def _import_descending_arange(importers: ModuleType) -> None:
    import torch

    class Fall(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.arange(2, -1, -1)

    got = _export_and_run(importers, Fall(), np.ones(3, "float32"))
    np.testing.assert_array_equal(got, [2, 1, 0])


def _import_quantized(importers: ModuleType) -> None:
    import torch
    import torch.ao.quantization.fx._decomposed

    class Quantize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            operators = torch.ops.quantized_decomposed
            return operators.quantize_per_tensor(x, 0.5, 3, 0, 255, torch.uint8)

    x = np.array([-9, -0.25, 0.25, 0.75, 1, 200], "float32")
    np.testing.assert_array_equal(_export_and_run(importers, Quantize(), x), [0, 3, 3, 5, 5, 255])


def _import_while_loop(importers: ModuleType) -> None:
    import torch
    from torch._higher_order_ops import while_loop

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            start = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, x: i < 9, lambda i, x: (i + 1, x * 2), (start, x))[1]

    x = np.arange(4, dtype="float32")
    program = torch.export.export(Doubled(), (torch.from_numpy(x),))
    got = run(importers.from_exported_program(program, unwrap_unit_return_tuple=True), x)
    np.testing.assert_array_equal(got, x * 512)


_register(DTYPE, _import_half_linear, r"TypeError: .*same datatype")

_register(
    CONV_TRANSPOSE,
    _import_conv_transpose3d,
    r"ValueError: Unsupported transposed convolution dimensionality: 5",
)

_register(BATCH_NORM, _import_eval_batch_norm, r"AssertionError: .*Not equal to tolerance")

_register(INTERPOLATE, _import_nearest, r"AssertionError: .*Arrays are not equal")

_register(FX, _import_reflection_pad, r"Unsupported module type .*ReflectionPad")

_register(TILE, _import_symbolic_repeat, r"TypeError: Mismatched type .*relax\.op\.tile")

_register(INSTANCE_NORM, _import_instance_norm, r"TypeError: int\(\) argument must be")

_register(MUTATIONS, _import_write_to_input, r"AssertionError: what the program writes")

_register(PRELU, _import_prelu, r"AssertionError: a PReLU is imported as")

_register(LINEAR, _import_linear_of_transposed, r"AssertionError: the weight is broadcast")

_register(PROMOTION, _import_integers_times_half, r"AssertionError: .*Arrays are not equal")

_register(
    DYNAMIC_SHAPES,
    _import_maximum_of_sizes,
    r"Unsupported function types .*sym_max"
    r"|OpNotImplemented: unsupported operator sym_max",
)

_register(ATTENTION, _import_attention_and_view, r"ValueError: Cannot view a tensor")

_register(
    INDEXING,
    _import_diagonal,
    r"AssertionError: .*Arrays are not equal"
    r"|OpNotImplemented: aten.index.Tensor .*imported as float32",
)

_register(ACTIVATIONS, _import_selu, r"AssertionError: .*Not equal to tolerance")

_register(POOLING, _import_divisor, r"AssertionError: .*Not equal to tolerance")

_register(
    GRID_SAMPLE,
    _import_grid_sample,
    r"AssertionError: .*Not equal to tolerance"
    r"|OpNotImplemented: aten.grid_sampler_2d.* imported as float32",
)

_register(REDUCTIONS, _import_maximum_of_nan, r"AssertionError: .*Arrays are not equal")

_register(
    CREATION,
    _import_descending_arange,
    r"ValueError: .*relax.multiply"
    r"|OpNotImplemented: aten.arange.* imported as int64",
)

_register(
    DECOMPOSITIONS,
    _import_statistics_of_a_norm,
    r"AssertionError: .*Arrays are not equal"
    r"|OpNotImplemented: .*'getitem_1': imported as float32",
)

_register(RANDOM, _import_dropout_in_training_mode, r"AssertionError: nothing is dropped")

_register(
    LOOPS,
    _import_while_loop,
    r"Unsupported function types .*while_loop"
    r"|OpNotImplemented: unsupported operator while_loop",
)

_register(
    QUANTIZED,
    _import_quantized,
    r"Unsupported function types .*quantize_per_tensor"
    r"|OpNotImplemented: unsupported operator quantized_decomposed.quantize_per_tensor",
)
