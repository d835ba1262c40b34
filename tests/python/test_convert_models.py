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
"""Whole models in converted layouts: the remaining transforms, and the numbers.

A convolution reads and writes any layout, so no transform is needed next to one, neither at the
ends of a model nor between. A model may keep only the transforms that it needs elsewhere, or that
move its data in any layout: :attr:`Model.transforms`, :attr:`Model.packed_transforms`.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
import tvm_ffi
from torch import nn
from tvm import relax
from tvm.sym import Analyzer
from tvm.tirx.analysis import undefined_vars

from examples import autoencoder_kl, cyclegan, dcgan, fcn, hifigan, superres, unet
from examples._random import seeded, settle_batch_norm
from examples.export import to_onnx
from helpers.grids import few, is_full, sample
from helpers.relax_modules import cpu
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import pipeline, stages
from tvm_fixes.relax.analysis import activation_transforms, constant_transforms

Module = tuple[nn.Module, tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Model:
    """A model, and how many transforms it needs.

    Attributes
    ----------
    make : callable
        Makes the module in eval mode and its inputs.
    dims : callable
        Makes the dynamic dims of the input, by axis.
    transforms : int
        The transforms that it needs in channels-last.
    packed_transforms : int
        The same in a layout with blocks of channels.
    layouts : tuple of str
        The layouts that it is converted to.
    """

    make: Callable[[], Module]
    dims: Callable[[], dict[int, torch.export.Dim]]
    transforms: int = 0
    packed_transforms: int = 0
    layouts: tuple[str, ...] = ("NHWC", "NCHW4c")

    def most_transforms(self, layout: str) -> int:
        """The maximum number of transforms left in `layout`."""
        return self.transforms if layout == "NHWC" else self.packed_transforms


def network(make: Callable[[], nn.Module], *shape: int) -> Module:
    """A module with random weights and statistics, and an input of `shape`."""
    with seeded(0):
        module = make()
        for layer in module.modules():
            if isinstance(layer, nn.PReLU):
                nn.init.uniform_(layer.weight, 0.1, 0.5)
        settle_batch_norm(module, torch.randn(4, *shape[1:]))
        return module, (torch.randn(shape),)


def picture_dims(multiple: int = 1, least: int = 2) -> dict[int, torch.export.Dim]:
    """The batch, and height and width that are multiples of `multiple`."""
    height, width = (
        multiple * torch.export.Dim(name, min=least, max=64) for name in ("height", "width")
    )
    return {0: torch.export.Dim("batch", max=16), 2: height, 3: width}


leaky_relu = partial(nn.LeakyReLU, 0.1)

MODELS = {
    "dcgan": Model(
        lambda: network(lambda: dcgan.Generator(8, 4), 2, 8, 1, 1),
        lambda: {0: torch.export.Dim("batch", max=16)},
        transforms=1,
    ),
    "unet": Model(
        lambda: network(lambda: unet.UNet(width=16, depth=1), 2, 3, 8, 6),
        lambda: picture_dims(2),
        transforms=1,
        packed_transforms=1,
        layouts=("NHWC", "NCHW4c", "NCHW8c", "NCHW16c"),
    ),
    "unet_leaky": Model(
        lambda: network(lambda: unet.UNet(width=16, depth=2, activation=leaky_relu), 2, 3, 16, 12),
        lambda: picture_dims(4),
        transforms=1,
    ),
    "fcn": Model(lambda: network(fcn.FCN, 2, 3, 64, 64), lambda: picture_dims(32)),
    "cyclegan": Model(
        lambda: network(lambda: cyclegan.Generator(blocks=1), 2, 3, 16, 12),
        lambda: picture_dims(4, least=3),
        transforms=1,
    ),
    # Attention multiplies unpacked matrices: a transform before, one after, and one of the keys.
    "autoencoder_kl": Model(
        autoencoder_kl.factory,
        picture_dims,
        transforms=2,
        packed_transforms=3,
        layouts=("NHWC", "NCHW4c", "NCHW8c", "NCHW16c"),
    ),
    # The transform at the end is merged into the final pixel shuffle.
    "superres_at_the_end": Model(
        lambda: network(
            lambda: superres.SuperResolution(width=8, blocks=1, shuffles=0), 2, 3, 8, 6
        ),
        picture_dims,
        transforms=1,
        packed_transforms=1,
    ),
    # The shuffle unpacks the channels for the rest of the model.
    "superres": Model(
        lambda: network(
            lambda: superres.SuperResolution(width=8, blocks=1, shuffles=1), 2, 3, 8, 6
        ),
        picture_dims,
        transforms=2,
        packed_transforms=1,
    ),
    "hifigan": Model(
        hifigan.factory,
        lambda: {0: torch.export.Dim("batch", max=16), 1: torch.export.Dim("time", max=256)},
    ),
}
# Ignore warnings of PyTorch and its exporter about their internals.
pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

SHAPES = ("static", "dynamic")
CASES = [
    (name, "torch", shapes, layout)
    for name, shapes in itertools.product(MODELS, SHAPES)
    for layout in MODELS[name].layouts
] + [
    (name, "onnx", "static", layout)
    for name in ("dcgan", "unet_leaky", "fcn", "cyclegan", "superres_at_the_end", "superres")
    for layout in ("NHWC", "NCHW4c")
]

# Only the full tier has those that are like others.
IN_BLOCKS = ("dcgan", "unet", "autoencoder_kl", "superres_at_the_end", "superres", "hifigan")
QUICK = [
    ("superres", "torch", "dynamic", "NCHW4c"),
    ("hifigan", "torch", "static", "NHWC"),
    ("dcgan", "onnx", "static", "NCHW4c"),
]


@cache
def instance(name: str, shapes: str) -> Module:
    """The model, and inputs of a batch that is not 1 where the batch is dynamic."""
    module, (x,) = MODELS[name].make()
    if shapes == "dynamic" and len(x) == 1:
        x = torch.cat([x, x.flip(-1)])
    return module, (x,)


@cache
def program(name: str, shapes: str) -> torch.export.ExportedProgram:
    dims = (MODELS[name].dims(),) if shapes == "dynamic" else None
    return torch.export.export(*instance(name, shapes), dynamic_shapes=dims)


@cache
def imported(name: str, source: str, shapes: str) -> tvm.IRModule:
    if source == "onnx":
        return from_onnx(to_onnx(program(name, shapes)))
    return from_exported_program(program(name, shapes), unwrap_unit_return_tuple=True)


@cache
def converted(name: str, source: str, shapes: str, layout: str) -> tvm.IRModule:
    with tvm.target.Target("llvm"):
        return stages(layout=layout).operators[-1](imported(name, source, shapes))


def run(name: str, mod: tvm.IRModule, shapes: str) -> np.ndarray:
    """Build and run a converted model.

    The virtual machine cannot solve for ``h`` in an input of height ``4 * h``: such sizes become a
    second input.
    """
    function = mod["main"]
    _, inputs = instance(name, shapes)
    arguments = [tvm.runtime.tensor(x.numpy()) for x in inputs]
    sizes = list(relax.analysis.free_symbolic_vars(function))
    if sizes:
        extents = dict(zip(function.params[0].ty.shape.values, inputs[0].shape, strict=True))
        values = [
            extent // Analyzer().modular_set(dim).coeff
            for size, (dim, extent) in itertools.product(sizes, extents.items())
            if size in undefined_vars(dim)
        ]
        params = [*function.params, relax.Var("sizes", relax.ShapeType(sizes))]
        mod = mod.clone()
        mod["main"] = relax.Function(
            params, function.body, function.ret_ty, function.is_pure, function.attrs
        )
        arguments.append(tvm_ffi.Shape(values))
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    result = vm["main"](*arguments)
    return (result if hasattr(result, "numpy") else result[0]).numpy()


@few(2)
@pytest.mark.parametrize("name", MODELS if is_full() else IN_BLOCKS)
@pytest.mark.parametrize("shapes", sample(SHAPES, 1, seed=1))
def test_no_more_transforms_than_the_model_needs(name, shapes):
    # The tests of the examples convert to channels-last.
    for layout in MODELS[name].layouts if is_full() else MODELS[name].layouts[-1:]:
        mod = converted(name, "torch", shapes, layout)
        left = activation_transforms(mod)
        assert len(left) <= MODELS[name].most_transforms(layout), (layout, left)
        assert not constant_transforms(relax.transform.FoldConstant()(mod)), layout


@few(1)
@pytest.mark.parametrize("name, source, shapes, layout", CASES if is_full() else QUICK)
def test_result_is_that_of_pytorch(name, source, shapes, layout):
    mod = converted(name, source, shapes, layout)
    assert len(activation_transforms(mod)) <= MODELS[name].most_transforms(layout)
    module, inputs = instance(name, shapes)
    with torch.no_grad():
        expected = module(*inputs).numpy()
    # With a vanishing signal, every compiler would pass.
    assert expected.std() > 0.05
    np.testing.assert_allclose(run(name, mod, shapes), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
