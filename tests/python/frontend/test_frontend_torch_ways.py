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
"""Everyday functions of PyTorch through each way in: exported, not decomposed, and traced."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import fx, nn
from tvm import relax

from helpers.grids import few, share
from helpers.relax_modules import calls, cpu
from helpers.torch_programs import Call, export, name_of, random
from tvm_fixes.frontend.torch import from_exported_program, from_fx

pytestmark = pytest.mark.filterwarnings("ignore")

Tensors = torch.Tensor | tuple[torch.Tensor, ...]

SHAPE = (2, 3, 10, 10)

INDICES = torch.tensor([[2, 0, 1], [1, 1, 2]])
KERNEL = random(4, 3, 3, 3, dtype=torch.float32, seed=1)
TRANSPOSED = random(3, 4, 3, 3, dtype=torch.float32, seed=2)
MATRIX = random(5, 10, dtype=torch.float32, seed=3)
VECTOR = random(10, dtype=torch.float32, seed=4)
CHANNELS = random(3, dtype=torch.float32, seed=5)
LIKE = random(*SHAPE, dtype=torch.float32, seed=6)
GRID = random(2, 4, 5, 2, dtype=torch.float32, seed=7) / 2
CLASSES = torch.randint(0, 3, (2, 10, 10), generator=torch.Generator().manual_seed(8))

ELEMENTWISE: dict[str, Callable[[torch.Tensor], Tensors]] = {
    name: getattr(torch, name)
    for name in (
        *("abs", "atan", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "frac", "isnan"),
        *("neg", "round", "sigmoid", "sign", "sin", "sinh", "square", "tan", "tanh", "trunc"),
    )
} | {
    "log": lambda x: torch.log(x.abs() + 1),
    "log1p": lambda x: torch.log1p(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "reciprocal": lambda x: torch.reciprocal(x.abs() + 1),
    "pow": lambda x: torch.pow(x, 2) + x.abs() ** 1.5,
    "atan2": lambda x: torch.atan2(x, LIKE),
    "clamp": lambda x: torch.clamp(x, -0.5, max=0.7),
    "clamp min": lambda x: x.clamp(min=0.1),
    "where": lambda x: torch.where(x > 0, x, LIKE),
    "where a number": lambda x: torch.where(x > 0, x, 0.5),
    "lerp": lambda x: torch.lerp(x, LIKE, 0.3),
    "lerp of weights": lambda x: torch.lerp(x, LIKE, LIKE),
    "add alpha": lambda x: torch.add(x, LIKE, alpha=0.5),
    "rsub": lambda x: torch.rsub(x, LIKE, alpha=2),
    "addcmul": lambda x: torch.addcmul(x, LIKE, LIKE, value=0.5),
    "fmod": lambda x: torch.fmod(x, 0.3),
    "remainder": lambda x: torch.remainder(x, 0.3),
    "floor_divide": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "maximum": lambda x: torch.maximum(x, LIKE),
    "hypot": lambda x: torch.hypot(x, LIKE),
    "logaddexp": lambda x: torch.logaddexp(x, LIKE),
    "logical_and": lambda x: torch.logical_and(x > 0, LIKE > 0),
    "round decimals": lambda x: torch.round(x, decimals=1),
    "masked_fill": lambda x: x.masked_fill(x < 0, -1.0),
    "to int": lambda x: (x * 10).to(torch.int32),
    "nan_to_num": torch.nan_to_num,
}

ACTIVATIONS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    name: getattr(F, name)
    for name in (
        *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish"),
        *("relu", "relu6", "selu", "silu", "softplus", "softsign", "tanhshrink", "hardshrink"),
        *("logsigmoid", "softshrink"),
    )
} | {
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(x, -1),
    "prelu": lambda x: F.prelu(x, CHANNELS),
    "threshold": lambda x: F.threshold(x, 0.1, 2.0),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
}

REDUCTIONS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean((1, 3), keepdim=True),
    "std": lambda x: torch.std(x),
    "std correction": lambda x: torch.std(x, dim=2, correction=0, keepdim=True),
    "var": lambda x: torch.var(x, (2, 3)),
    "var correction": lambda x: x.var(1, correction=2),
    "var_mean": lambda x: torch.var_mean(x, 2),
    "norm": lambda x: torch.norm(x),
    "norm of dims": lambda x: torch.norm(x, p=1, dim=(2, 3), keepdim=True),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    "max": lambda x: x.max(),
    "max of a dim": lambda x: tuple(x.max(1)[i] for i in (0, 1)),
    "min of a dim": lambda x: x.min(2, keepdim=True)[0],
    "amax": lambda x: torch.amax(x, (1, 2)),
    "argmax": lambda x: torch.argmax(x, 1),
    "argmin": lambda x: x.argmin(),
    "prod": lambda x: torch.prod(x, 3),
    "cumsum": lambda x: torch.cumsum(x, 1),
    "cumprod": lambda x: torch.cumprod(x, 3),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "any": lambda x: (x > 1).any(2),
    "topk": lambda x: tuple(torch.topk(x, 2)[i] for i in (0, 1)),
    "sort": lambda x: torch.sort(x, 3, descending=True)[0],
    "argsort": lambda x: torch.argsort(x, 1),
    "cross_entropy": lambda x: F.cross_entropy(x, CLASSES),
    "cross_entropy smooth": lambda x: F.cross_entropy(
        x, CLASSES, weight=CHANNELS.abs(), label_smoothing=0.1, reduction="none"
    ),
    "nll_loss": lambda x: F.nll_loss(x, CLASSES, ignore_index=1),
    "mse_loss": lambda x: F.mse_loss(x, LIKE),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, LIKE, beta=0.5),
    "kl_div": lambda x: F.kl_div(x, LIKE.abs(), reduction="sum"),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, LIKE),
    "cosine_similarity": lambda x: F.cosine_similarity(x, LIKE, 1),
    "cdist": lambda x: torch.cdist(x, LIKE),
}

MOVES: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "flip": lambda x: torch.flip(x, (1, 3)),
    "roll": lambda x: torch.roll(x, (1, -2), (2, 3)),
    "rot90": lambda x: torch.rot90(x, 1, (2, 3)),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "transpose": lambda x: x.transpose(1, -1),
    "reshape": lambda x: x.reshape(6, -1),
    "flatten": lambda x: torch.flatten(x, 1),
    "unflatten": lambda x: x.unflatten(3, (2, 5)),
    "squeeze": lambda x: x[:1].squeeze(0).unsqueeze(-1),
    "slices": lambda x: x[0, 1::2],
    "new axes": lambda x: x[:, None, 0, ..., -1],
    "negative slices": lambda x: x[..., -4:-1, :],
    "an index": lambda x: x[:, [2, 0]],
    "a mask": lambda x: x * (x > 0),
    "narrow": lambda x: x.narrow(2, 3, 4),
    "select": lambda x: torch.select(x, 3, -2),
    "chunk": lambda x: torch.chunk(x, 3, 2)[2],
    "split": lambda x: torch.split(x, [3, 7], 3)[1],
    "unbind": lambda x: torch.unbind(x, 1)[2],
    "stack": lambda x: torch.stack((x, LIKE), -1),
    "cat": lambda x: torch.cat((x, LIKE, x), 1),
    "tile": lambda x: torch.tile(x, (2, 1, 1, 2)),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, 2, 1),
    "expand": lambda x: x[:, :1].expand(2, 4, 10, 10),
    "gather": lambda x: torch.gather(x[0, 0], 1, INDICES),
    "index_select": lambda x: torch.index_select(x, 1, INDICES[0]),
    "take_along_dim": lambda x: torch.take_along_dim(x[0, 0, :2], INDICES, 1),
    "scatter": lambda x: x[0, 0].scatter(1, INDICES, 0.5),
    "masked_select": lambda x: torch.take(x, INDICES),
    "embedding": lambda x: F.embedding(INDICES, x[0, 0]),
    "one_hot": lambda x: F.one_hot(INDICES, 4) + x[0, 0, 0, :4].long(),
    "tril": lambda x: torch.tril(x, 1),
    "diagonal": lambda x: torch.diagonal(x, 1, 2, 3),
    "unfold": lambda x: x.unfold(3, 4, 2),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
    "pad reflect": lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
    "pad circular": lambda x: F.pad(x, (1, 2, 0, 3), mode="circular"),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0, 0], VECTOR, indexing="xy")[1],
    "in place": lambda x: x.clone().mul_(2).add_(LIKE),
    "a view in place": lambda x: _written(x.clone()),
    "zeros_like": lambda x: torch.zeros_like(x) + torch.ones_like(LIKE),
    "full": lambda x: torch.full((2, 3), 0.5) + x[0, 0, :2, :3],
    "arange": lambda x: torch.arange(10) + x,
}

LAYERS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "linear": lambda x: F.linear(x, MATRIX, MATRIX[:, 0]),
    "matmul": lambda x: torch.matmul(x, LIKE),
    "bmm": lambda x: torch.bmm(x[0], LIKE[1]),
    "addmm": lambda x: torch.addmm(x[0, 0, :2, :5], x[0, 1, :2], MATRIX.T, beta=0.5, alpha=2),
    "baddbmm": lambda x: torch.baddbmm(x[0], x[1], LIKE[0], alpha=0.5),
    "einsum": lambda x: torch.einsum("bchw,kw->bkc", x, MATRIX),
    "outer": lambda x: torch.outer(x[0, 0, 0], VECTOR),
    "conv2d": lambda x: F.conv2d(x, KERNEL, CHANNELS.new_ones(4), stride=2, padding=1),
    "conv2d same": lambda x: F.conv2d(x, KERNEL, padding="same", dilation=2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, TRANSPOSED, stride=2, output_padding=1),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True),
    "max_pool1d": lambda x: F.max_pool1d(x[0], 3, 2, dilation=2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "lp_pool2d": lambda x: F.lp_pool2d(x.abs(), 2.0, 3),
    "batch_norm": lambda x: F.batch_norm(x, CHANNELS, CHANNELS.abs() + 1, CHANNELS),
    "instance_norm": lambda x: F.instance_norm(x, weight=CHANNELS),
    "layer_norm": lambda x: F.layer_norm(x, (10,)),
    "layer_norm of dims": lambda x: F.layer_norm(x, (10, 10), LIKE[0, 0], eps=1e-3),
    "group_norm": lambda x: F.group_norm(x, 3),
    "group_norm scaled": lambda x: F.group_norm(x, 1, CHANNELS, CHANNELS),
    "rms_norm": lambda x: F.rms_norm(x, (10,), VECTOR),
    "local_response_norm": lambda x: F.local_response_norm(x, 2),
    "normalize": lambda x: F.normalize(x, dim=1),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "interpolate": lambda x: F.interpolate(x, scale_factor=1.5),
    "interpolate bilinear": lambda x: F.interpolate(x, (7, 13), mode="bilinear"),
    "grid_sample": lambda x: F.grid_sample(x, GRID, align_corners=False),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(2, 12, 5, 5), 2),
    "im2col": lambda x: F.unfold(x, 3, stride=2),
    "attention": lambda x: F.scaled_dot_product_attention(x, LIKE, LIKE, scale=0.2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.reshape(2, 6, 5, 10), 2),
}

FUNCTIONS = ELEMENTWISE | ACTIVATIONS | REDUCTIONS | MOVES | LAYERS


def _written(x: torch.Tensor) -> torch.Tensor:
    row = x[:, 1]
    row.add_(1)
    x[..., 2].fill_(0.5)
    return x


def through_exported(functions: Call, x: torch.Tensor) -> tvm.IRModule:
    return from_exported_program(export(functions, (x,)))


def through_undecomposed(functions: Call, x: torch.Tensor) -> tvm.IRModule:
    return from_exported_program(export(functions, (x,)), run_ep_decomposition=False)


def through_traced(functions: Call, x: torch.Tensor) -> tvm.IRModule:
    traced = fx.symbolic_trace(functions.function)
    return from_fx(traced, [(tuple(x.shape), name_of(x.dtype))])


WAYS = {"exported": through_exported, "whole": through_undecomposed, "traced": through_traced}


def flat(results: object) -> list[torch.Tensor]:
    if isinstance(results, tuple):
        return [each for result in results for each in flat(result)]
    tensor = results if isinstance(results, torch.Tensor) else torch.from_dlpack(results)
    return [tensor]


def outputs_of(mod: tvm.IRModule, *inputs: torch.Tensor) -> list[torch.Tensor]:
    executable = relax.build(mod, cpu(), relax_pipeline="tvm_fixes")
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    return flat(_as_tuple(main(*map(tvm.runtime.from_dlpack, inputs))))


def _as_tuple(results: object) -> object:
    if isinstance(results, tvm.runtime.Tensor):
        return results
    return tuple(map(_as_tuple, results))


@few(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "functions", (ELEMENTWISE, ACTIVATIONS, REDUCTIONS, MOVES, LAYERS), ids=lambda f: next(iter(f))
)
def test_everyday_functions(way: str, functions: dict[str, Callable]) -> None:
    """All functions are one program, since each import and build takes a while."""
    # Each function by one importer, below the full tier every other one.
    functions = share(functions, list(WAYS).index(way), 2 * len(WAYS))
    x = random(*SHAPE, dtype=torch.float32, seed=0)
    mod = WAYS[way](Call(lambda x: tuple(f(x) for f in functions.values())), x)
    results = iter(outputs_of(mod, x))
    for name, function in functions.items():
        for expected in flat(function(x)):
            got = next(results)
            torch.testing.assert_close(
                got, expected, rtol=2e-5, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
            )
    assert next(results, None) is None


def test_number_of_functions() -> None:
    assert len(FUNCTIONS) >= 150


def test_whole_operators_stay_whole() -> None:
    """A program whose operators all have a right converter is imported as it is."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.Softmax(1))
    x = random(*SHAPE, dtype=torch.float32, seed=0)
    mod = through_undecomposed(module.eval(), x)
    names = [call.op.name.removeprefix("relax.nn.") for call in calls(mod)]
    assert "softmax" in names
    assert "batch_norm" in names
    torch.testing.assert_close(outputs_of(mod, x), [module(x)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_writes_to_views(way: str) -> None:
    x = random(*SHAPE, dtype=torch.float32, seed=0)
    torch.testing.assert_close(
        outputs_of(WAYS[way](Call(lambda x: _written(x.clone())), x), x), [_written(x.clone())]
    )


if __name__ == "__main__":
    tvm.testing.main()
