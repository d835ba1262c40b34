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
"""Batch norm, padding, PReLU and tile of PyTorch, by both importers."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import nn
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import few, is_full, share
from helpers.relax_modules import count
from helpers.torch_programs import (
    IMPORTERS,
    Call,
    check,
    check_all,
    import_exported,
    import_fx,
    name_of,
    random,
    randomize,
    run,
)
from tvm_fixes.support import switches

Modules = dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]

# An importer and its options.
WAYS: dict[str, tuple[Callable[..., tvm.IRModule], dict[str, bool]]] = {
    "decomposed": (import_exported, {"decompose": True}),
    "exported": (import_exported, {"decompose": False}),
    "traced": (import_fx, {}),
}


def share_of(cases: Modules, way: str) -> Modules:
    return share(cases, list(WAYS).index(way), len(WAYS))


def check_each(cases: Modules, way: str) -> tvm.IRModule:
    importer, options = WAYS[way]
    return check_all(cases, importer, **options)


def batch_norm(rank: int, dtype: torch.dtype, *, training: bool = False, **options) -> nn.Module:
    module = getattr(nn, f"BatchNorm{rank}d")(3, **options)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
            if tensor is not None:
                tensor.uniform_(0.5, 2, generator=generator)
    return module.to(dtype).train(training)


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float32)
BATCH_NORM_SHAPES = {1: ((6, 3), (4, 3, 5)), 2: ((2, 3, 4, 5),), 3: ((2, 3, 2, 4, 3),)}


@few(1)
@pytest.mark.parametrize("way", WAYS)
def test_batch_norm_in_eval_mode(way: str) -> None:
    cases: Modules = {}
    for rank, shapes in BATCH_NORM_SHAPES.items():
        for shape, options in itertools.product(shapes, ({}, {"eps": 0.1}, {"affine": False})):
            dtype = DTYPES[len(cases) % len(DTYPES)]
            cases[f"{rank}-{shape}-{options}-{name_of(dtype)}"] = (
                batch_norm(rank, dtype, **options),
                (random(*shape, dtype=dtype, seed=0),),
            )
    check_each(share_of(cases, way), way)


@few(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    ({"training": True}, {"track_running_stats": False}),
    ids=str,
)
def test_batch_norm_of_the_batch(way: str, options: dict) -> None:
    """Batch norm in training mode, and without running statistics."""
    cases: Modules = {}
    for rank, shapes in BATCH_NORM_SHAPES.items():
        for shape in shapes:
            module = batch_norm(rank, torch.float32, **options)
            cases[f"{rank}-{shape}"] = module, (random(*shape, dtype=torch.float32, seed=0),)
    check_each(share_of(cases, way), way)


def test_eval_batch_norm_is_one_operator() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 2, 4, 4), "float32"),
            bias: R.Tensor((2,), "float32"),
            weight: R.Tensor((2,), "float32"),
        ) -> R.Tensor((2, 2, 4, 4), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                normalized = R.nn.batch_norm(
                    x,
                    weight,
                    bias,
                    R.const([0.0, 0.0], "float32"),
                    R.const([1.0, 1.0], "float32"),
                    axis=1,
                    epsilon=1e-05,
                    training=False,
                )
                first = normalized[0]
                out: R.Tensor((2, 2, 4, 4), "float32") = first
                R.output(out)
            return out

    mod = import_fx(nn.BatchNorm2d(2).eval(), (torch.zeros(2, 2, 4, 4),), keep_params_as_input=True)
    mod["main"] = mod["main"].without_attr("params")
    tvm.ir.assert_structural_equal(mod, Expected)


def test_batch_norm_of_float32_parameters_and_16_bit_data() -> None:
    module = batch_norm(2, torch.float32)
    x = random(2, 3, 4, 5, dtype=torch.float16, seed=0)
    got = run(import_fx(module, (x,)), x)
    expected = module(x).detach()
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("way", ("decomposed", "exported"))
def test_instance_norm_is_one_operator(way: str) -> None:
    # TVM does not lower the operator in float64.
    floats = itertools.cycle((torch.float16, torch.float32, torch.bfloat16))
    cases: Modules = {}
    for rank, affine, batched in itertools.product((1, 2, 3), (False, True), (True, False)):
        dtype = next(floats)
        module = randomize(getattr(nn, f"InstanceNorm{rank}d")(3, affine=affine), dtype)
        shape = ((2, 3) if batched else (3,)) + (4, 3, 5)[:rank]
        cases[f"{rank}-{affine}-{name_of(dtype)}"] = module, (random(*shape, dtype=dtype, seed=0),)
    mod = check_each(cases, way)
    assert count(mod, "relax.nn.instance_norm") == len(cases)


@pytest.mark.parametrize("way", ("decomposed", "exported"))
def test_instance_norm_with_running_statistics(way: str) -> None:
    """In eval mode it is a batch norm."""
    module = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    module = randomize(module, torch.float32)
    module.running_mean.copy_(torch.tensor([1.0, -2.0, 0.5]))
    module.running_var.copy_(torch.tensor([0.5, 2.0, 1.5]))
    x = random(2, 3, 4, 5, dtype=torch.float32, seed=0)
    mod = check_each({"tracked": (module, (x,))}, way)
    assert count(mod, "relax.nn.instance_norm") == 0


@pytest.mark.parametrize("dynamic", ((0,), (0, 2)), ids=str)
def test_instance_norm_of_a_symbolic_batch(dynamic: tuple[int, ...]) -> None:
    module = randomize(nn.InstanceNorm2d(3, affine=True), torch.float32)
    check(module, random(2, 3, 4, 5, dtype=torch.float32, seed=0), dynamic=dynamic)


PADS: dict[str, Callable[[int], nn.Module]] = {
    "ReflectionPad": lambda rank: getattr(nn, f"ReflectionPad{rank}d")(sides(rank)),
    "ReplicationPad": lambda rank: getattr(nn, f"ReplicationPad{rank}d")(sides(rank)),
    "CircularPad": lambda rank: getattr(nn, f"CircularPad{rank}d")(sides(rank)),
    "ZeroPad": lambda rank: getattr(nn, f"ZeroPad{rank}d")(sides(rank)),
    "ConstantPad": lambda rank: getattr(nn, f"ConstantPad{rank}d")(sides(rank), -1.5),
}


def sides(rank: int) -> tuple[int, ...]:
    return (1, 2, 0, 1, 2, 2)[: 2 * rank]


def test_from_fx_padding() -> None:
    cases: Modules = {}
    # Every seventh is one of each kind, of each rank, and with and without a batch.
    kinds = list(itertools.product(PADS, (1, 2, 3), (True, False)))
    for name, rank, batched in kinds if is_full() else kinds[::7]:
        x = random(*((2, 3) if batched else (3,)), *(3, 4, 5)[:rank], dtype=torch.float32, seed=0)
        cases[f"{name}{rank}d-{x.ndim}"] = PADS[name](rank), (x,)
    check_each(cases, "traced")


def test_from_fx_negative_padding() -> None:
    x = random(1, 1, 4, 4, dtype=torch.float32, seed=0)
    check(nn.ZeroPad2d((1, -1, 0, 0)), x, importer=import_fx)


@few(1)
@pytest.mark.parametrize("way", WAYS)
def test_prelu_is_one_operator(way: str) -> None:
    """One slope per channel or for all; in PyTorch the channels are axis 1 even without a batch."""
    shapes = ((4,), (2, 4), (2, 4, 3), (2, 4, 3, 5), (2, 4, 2, 3, 2))
    floats = itertools.cycle((torch.float16, torch.float32, torch.float64))
    cases: Modules = {}
    for shape, slopes in itertools.product(shapes, (1, 4)):
        if slopes == 1 or len(shape) > 1:
            dtype = next(floats)
            module = randomize(nn.PReLU(slopes), dtype)
            cases[f"{shape}-{slopes}"] = module, (random(*shape, dtype=dtype, seed=0),)
    cases = share_of(cases, way)
    mod = check_each(cases, way)
    assert count(mod, "relax.nn.prelu") == len(cases)
    assert count(mod, "relax.where") == 0


@few(1)
@pytest.mark.parametrize("way", WAYS)
def test_prelu_that_tvm_has_no_operator_for(way: str) -> None:
    """PReLU in bfloat16, of a scalar, and along a symbolic axis."""
    cases = {
        "bfloat16": (
            randomize(nn.PReLU(3), torch.bfloat16),
            (random(2, 3, 4, dtype=torch.bfloat16, seed=0),),
        ),
        "scalar": (randomize(nn.PReLU(), torch.float32), (torch.tensor(-2.0),)),
    }
    check_each(cases, way)
    x = random(2, 5, dtype=torch.float32, seed=0)
    module = randomize(nn.PReLU(), torch.float32)
    importer, options = WAYS[way]
    if way != "traced":
        check(Call(F.prelu), x[0], torch.tensor(0.5), importer=importer, **options)
    check(module, x, importer=importer, dynamic=(1,), **options)


TILES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "repeat": lambda x: x.repeat(1, x.shape[0]),
    "repeat, another axis": lambda x: x.repeat(x.shape[0], 2, 1),
    "tile": lambda x: torch.tile(x, (x.shape[0], 3)),
    "tile of fewer axes": lambda x: torch.tile(x, (x.shape[0],)),
    "tile by an expression": lambda x: torch.tile(x, (x.shape[0] + 1, 1)),
}


class Tile(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return TILES[self.name](x)


@few(2)
@pytest.mark.parametrize(
    ("tile", "name"),
    list(itertools.product(TILES, IMPORTERS))
    if is_full()
    else list(zip(TILES, itertools.cycle(IMPORTERS))),
)
def test_tile_by_symbols(tile: str, name: str) -> None:
    x = random(3, 2, dtype=torch.float32, seed=0)
    check(Tile(tile), x, importer=IMPORTERS[name], dynamic=(0,))


@pytest.mark.parametrize("way", WAYS)
def test_tile_by_numbers(way: str) -> None:
    x = random(3, 2, dtype=torch.float32, seed=0)
    check_each(share_of({tile: (Tile(tile), (x,)) for tile in TILES}, way), way)


@pytest.mark.parametrize(
    "fix_id, importer, module, x",
    (
        ("torch-tile", import_exported, Tile("tile"), torch.zeros(3, 2)),
        ("torch-fx", import_fx, nn.ZeroPad2d(1), torch.zeros(1, 1, 4, 4)),
        (
            "torch-conv-transpose",
            import_exported,
            nn.ConvTranspose3d(2, 3, 2),
            torch.zeros(1, 2, 2, 2, 2),
        ),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_disabled_fix_is_rejected(
    fix_id: str,
    importer: Callable[..., tvm.IRModule],
    module: nn.Module,
    x: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dynamic = (0,) if fix_id == "torch-tile" else ()
    with switches.collect() as acted:
        importer(module, (x,), dynamic)
    assert fix_id in acted
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, fix_id)
    with pytest.raises((AssertionError, TypeError, tvm.error.OpNotImplemented)):
        importer(module, (x,), dynamic)


if __name__ == "__main__":
    tvm.testing.main()
