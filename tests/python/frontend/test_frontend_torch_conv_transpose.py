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
"""Transposed convolutions of PyTorch, in every form, by both importers."""

import itertools
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import nn
from tvm.relax.frontend import torch as tvm_importers

from helpers.coverage_tables import CoverageTables
from helpers.grids import few, is_full, sample, share
from helpers.relax_modules import calls
from helpers.torch_layers import LAYERS, Layer
from helpers.torch_programs import (
    IMPORTERS,
    Call,
    Reference,
    check,
    check_all,
    import_exported,
    import_fx,
    name_of,
    random,
    randomize,
    run_functions,
)
from tvm_fixes.frontend import torch as importers
from tvm_fixes.support import switches

LAYERS_PER_BUILD = 32
EVERY_FIX_OFF = {switches.ENVIRONMENT_VARIABLE: ",".join(switches.FIX_IDS)}


def run_layers(
    layers: Sequence[Layer], importer: Callable[[Layer], tvm.IRModule]
) -> list[torch.Tensor | Exception]:
    """The output or the exception of each layer."""
    results: dict[str, torch.Tensor | Exception] = {}
    mods = {}
    for layer in layers:
        try:
            mods[str(layer)] = importer(layer)
        except Exception as error:
            results[str(layer)] = error
    numbers = {name: f"layer{number}" for number, name in enumerate(mods)}
    inputs = {numbers[str(layer)]: layer.inputs() for layer in layers if str(layer) in mods}
    outputs = run_functions({numbers[name]: mod for name, mod in mods.items()}, inputs)
    results |= {name: outputs[number] for name, number in numbers.items()}
    return [results[str(layer)] for layer in layers]


def verdict(output: torch.Tensor | Exception, reference: Reference) -> str:
    if isinstance(output, Exception):
        return "refused"
    try:
        reference.check(output)
    except AssertionError:
        return "silently wrong"
    return "right"


def chunks(layers: Sequence[Layer]) -> list[list[Layer]]:
    return [layers[i : i + LAYERS_PER_BUILD] for i in range(0, len(layers), LAYERS_PER_BUILD)]


@pytest.mark.parametrize("name", IMPORTERS)
@pytest.mark.parametrize("layers", chunks(sample(LAYERS, 2)), ids=lambda layers: str(layers[0]))
def test_layers(name: str, layers: list[Layer], coverage_table: CoverageTables) -> None:
    """The table also has the results of TVM's own importer and operators."""

    def imported(of: ModuleType) -> Callable[[Layer], tvm.IRModule]:
        def from_exported(layer: Layer) -> tvm.IRModule:
            return import_exported(
                layer.module(), layer.inputs(), layer.dynamic, of=of, decompose=layer.decompose
            )

        def from_traced(layer: Layer) -> tvm.IRModule:
            return import_fx(layer.module(), layer.inputs(), layer.dynamic, of=of)

        return from_traced if name == "from_fx" else from_exported

    with mock.patch.dict(os.environ, EVERY_FIX_OFF):
        stock = run_layers(layers, imported(tvm_importers))
    ours = run_layers(layers, imported(importers))
    faults = []
    for layer, output, stock_output in zip(layers, ours, stock, strict=True):
        reference = Reference.of(layer.module(), layer.inputs())
        kind = {
            "importer": name,
            "rank": f"{layer.rank}-D",
            "dtype": name_of(layer.dtype),
            "TVM": verdict(stock_output, reference),
        }
        try:
            with coverage_table("torch_conv_transpose_layers").case(**kind):
                if isinstance(output, Exception):
                    raise output
                reference.check(output)
        except Exception as fault:
            faults.append(f"{layer}: {type(fault).__name__}: {fault}")
    assert not faults, "\n".join(faults)


@few(1)
@pytest.mark.parametrize("rank", (1, 2, 3))
def test_conv_transpose_of_rank(rank: int) -> None:
    layer = getattr(nn, f"ConvTranspose{rank}d")(4, 3, 3, stride=2, padding=1, output_padding=1)
    x = torch.zeros(2, 4, *(5, 6, 7)[:rank])
    [call] = [
        call
        for call in calls(import_fx(layer.eval(), (x,)))
        if call.op.name == f"relax.nn.conv{rank}d_transpose"
    ]
    assert list(call.attrs.strides) == [2] * rank
    assert list(call.attrs.output_padding) == [1] * rank
    assert call.attrs.out_dtype == "float32"


class OutputSize(nn.Module):
    """A transposed convolution of stride 2 with an output_size."""

    def __init__(self, size: Sequence[int]) -> None:
        super().__init__()
        self.layer = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1)
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, output_size=self.size)


@pytest.mark.parametrize(
    "size, expected",
    (
        (
            (8, 10),
            r"layer at node 'layer': requested an output size of \(8, 10\)",
        ),
        ((10, 13), r"layer at node 'layer': .*\(10, 13\)"),
        ((1, 2, 3), r"layer at node 'layer': .*must have 2 or 4 elements"),
    ),
)
def test_from_fx_rejects_an_output_size(size: Sequence[int], expected: str) -> None:
    """As PyTorch does when it runs."""
    module, x = OutputSize(size), torch.zeros(1, 4, 5, 6)
    with pytest.raises(ValueError, match="output"):
        module(x)
    with pytest.raises(tvm.error.OpAttributeInvalid, match=expected):
        import_fx(module, (x,))


def test_from_fx_rejects_an_output_size_that_depends_on_a_symbol() -> None:
    module, x = OutputSize((10, 12)), torch.zeros(1, 4, 5, 6)
    with pytest.raises(tvm.error.OpAttributeInvalid, match="layer at node 'layer'"):
        import_fx(module, (x,), dynamic=(2,))


class Skip(nn.Module):
    """An output_size that depends on the size of another feature map."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x), output_size=x.shape[2:]) + x


@few(2)
@pytest.mark.parametrize("name", IMPORTERS)
@pytest.mark.parametrize("extent", (8, 9))
def test_output_size_of_a_skip_connection(name: str, extent: int) -> None:
    x = random(2, 3, extent, 7, dtype=torch.float32, seed=0)
    check(randomize(Skip(), torch.float32), x, importer=IMPORTERS[name])


CONVOLUTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "positional": lambda x, w, b: F.conv2d(x, w, b, 2, 1, 2),
    "keywords": lambda x, w, b: F.conv2d(x, w, bias=b, stride=(2, 1), padding=(0, 2)),
    "input by name": lambda x, w, b: F.conv2d(input=x, weight=w, bias=b, dilation=2),
    "same": lambda x, w, b: F.conv2d(x, w, b, padding="same", dilation=(1, 2)),
    "valid": lambda x, w, b: F.conv2d(x, w, padding="valid"),
}


DTYPES = (torch.float32, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_from_fx_convolution_functions(dtype: torch.dtype) -> None:
    shapes = ((2, 3, 8, 7), (4, 3, 3, 2), (4,))
    inputs = tuple(random(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    cases = {name: (Call(function), inputs) for name, function in CONVOLUTIONS.items()}
    cases = share(cases, DTYPES.index(dtype), len(DTYPES))
    check_all(cases, import_fx)


def test_from_fx_convolution_padding() -> None:
    cases = {}
    modes = ("zeros", "reflect", "replicate", "circular")
    kinds = list(itertools.product(modes, (1, "same", "valid", (0, 2))))
    for mode, padding in kinds if is_full() else kinds[::7]:
        layer = nn.Conv2d(3, 4, (3, 4), padding=padding, padding_mode=mode)
        x = random(2, 3, 7, 8, dtype=torch.float32, seed=0)
        cases[f"{mode} {padding}"] = randomize(layer, torch.float32), (x,)
    check_all(cases, import_fx)


TBC = (torch.float32, torch.float64, torch.float16)


@pytest.mark.parametrize("dtype", TBC if is_full() else TBC[::2], ids=name_of)
def test_conv_tbc(dtype: torch.dtype) -> None:
    """A convolution along the first axis, as speech and translation models use it."""
    shapes = ((9, 2, 3), (4, 3, 5), (5,))
    inputs = tuple(random(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    functions = {
        f"pad {pad}": lambda x, w, b, pad=pad: torch.conv_tbc(x, w, b, pad) for pad in (0, 2)
    }
    check_all({n: (Call(f), inputs) for n, f in functions.items()}, import_exported)


if __name__ == "__main__":
    tvm.testing.main()
