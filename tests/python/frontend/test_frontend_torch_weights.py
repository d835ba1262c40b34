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
"""Weights of PyTorch programs do not grow in the library, and results are unchanged."""

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import nn
from tvm import relax

import tvm_fixes
from helpers.grids import is_full, sample
from helpers.relax_modules import call, calls, count, cpu, merge
from helpers.torch_programs import FLOATS, check_all, import_exported, name_of, random, randomize
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.constants.fold_plan import bytes_of
from tvm_fixes.relax.ir import tensor_of
from tvm_fixes.support import switches

pytestmark = pytest.mark.native


class Call(nn.Module):
    """A function of itself and of tensors, with these modules and buffers."""

    def __init__(self, function: Callable[..., torch.Tensor], **parts: nn.Module | torch.Tensor):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self, *inputs)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(48)
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm(x))


class AttentionBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.project(x).chunk(3, -1)]
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class LanguageModel(nn.Module):
    """The embedding is tied to the output head."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embedding(tokens)))


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return random(*shape, dtype=torch.float32, seed=seed)


def models() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """Layers with weights that grow in TVM, and others, each with inputs."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 96)
    encoder = nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True)
    small = torch.randint(-9, 9, (96, 64)).to(torch.int8)
    square = nn.Linear(64, 64)
    return {
        "linear of 2 axes": (linear, (values(4, 64),)),
        "linear of 4 axes": (linear, (values(2, 4, 5, 64),)),
        "addmm": (
            Call(lambda s, x: torch.addmm(s.b, x, s.w), b=values(96), w=values(64, 96)),
            (values(4, 64),),
        ),
        "baddbmm": (
            Call(lambda s, x: torch.baddbmm(s.b, x, s.w), b=values(4, 1, 96), w=values(4, 64, 96)),
            (values(4, 5, 64),),
        ),
        "einsum": (
            Call(lambda s, x: torch.einsum("bik,kn->bin", x, s.w), w=values(64, 96)),
            (values(4, 5, 64),),
        ),
        "shared linear": (Call(lambda s, x: s.f(s.f(x)), f=square), (values(4, 64),)),
        "linear on a transposed input": (
            Call(lambda s, x: s.f(x.transpose(1, 2)), f=linear),
            (values(16, 64, 7),),
        ),
        "buffer on the left": (
            Call(lambda s, x: s.b @ x, b=values(64, 96)),
            (values(16, 96, 5),),
        ),
        "permuted MLP": (
            Call(
                lambda s, x: s.g(F.gelu(s.f(x.permute(0, 2, 3, 1)))).permute(0, 3, 1, 2),
                f=nn.Linear(64, 96),
                g=nn.Linear(96, 64),
            ),
            (values(4, 64, 6, 5),),
        ),
        "attention, batch first": (
            Call(lambda s, x: s.f(x, x, x)[0], f=nn.MultiheadAttention(64, 4, batch_first=True)),
            (values(4, 32, 64),),
        ),
        "attention, sequence first": (
            Call(lambda s, x: s.f(x, x, x)[0], f=nn.MultiheadAttention(64, 4)),
            (values(32, 4, 64),),
        ),
        "ViT": (
            nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False),
            (values(4, 17, 64),),
        ),
        "LSTM": (
            Call(lambda s, x: s.f(x)[0], f=nn.LSTM(32, 48, batch_first=True)),
            (values(3, 8, 32),),
        ),
        "GRU": (
            Call(lambda s, x: s.f(x)[0], f=nn.GRU(32, 48, batch_first=True)),
            (values(3, 8, 32),),
        ),
        "SDPA block": (AttentionBlock(), (values(4, 16, 64),)),
        "Mixer": (Mixer(), (values(4, 16, 48),)),
        "adapter": (
            Call(lambda s, x: x @ (s.a @ s.b), a=values(256, 8), b=values(8, 256)),
            (values(3, 256),),
        ),
        "tied embedding": (LanguageModel(300, 32), (torch.arange(10).reshape(2, 5),)),
        "baddbmm in 16 bits": (
            Call(
                lambda s, x: torch.baddbmm(s.b, x, s.w),
                b=values(4, 1, 64).half(),
                w=values(4, 32, 64).half(),
            ),
            (values(4, 5, 32).half(),),
        ),
        "expanded weight of a bmm": (
            Call(lambda s, x: torch.bmm(x, s.w.expand(256, 64, 64)), w=values(64, 64)),
            (values(256, 3, 64),),
        ),
        "repeated row": (
            Call(lambda s, x: x + s.w.repeat(1024, 1), w=values(1, 64)),
            (values(1024, 64),),
        ),
        "expanded addend": (
            Call(lambda s, x: x + s.w.expand(64, 64, 64), w=values(64, 64)),
            (values(64, 64, 64),),
        ),
        "dequantized weight": (
            Call(lambda s, x: x @ (s.w.float() * s.k), w=small, k=values(64)),
            (values(3, 96),),
        ),
        "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(64, 96)), (values(4, 64),)),
        "bilinear": (nn.Bilinear(32, 16, 24), (values(4, 32), values(4, 16))),
    }


def parameter_bytes(module: nn.Module) -> int:
    tensors = [*module.parameters(), *module.buffers()]
    return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())


def constant_bytes(function: relax.Function) -> int:
    sizes: dict[tvm.runtime.Tensor, int] = {}

    def visit(expr: relax.Expr) -> None:
        value = tensor_of(expr)
        if value is not None:
            sizes[value] = bytes_of(value)

    relax.analysis.post_order_visit(function, visit)
    return sum(sizes.values())


# Weights that hardly grow with TVM's import.
_STAY_SMALL = {
    "linear of 2 axes",
    "linear of 4 axes",
    "addmm",
    "baddbmm",
    "einsum",
    "shared linear",
    "attention, sequence first",
    "weight norm",
}

# Room for the constants of a kernel, which may exceed a row.
_SLACK = 256


@torch.no_grad()
def test_no_weight_grows_and_all_numbers_are_right() -> None:
    chosen = models()
    growing = sorted(set(chosen) - _STAY_SMALL)
    names_now = sample(growing, 4) + sample(sorted(_STAY_SMALL), 1)
    chosen = {name: chosen[name] for name in chosen if name in names_now}
    cases = {f"case{i}": case for i, case in enumerate(chosen.values())}
    names = dict(zip(cases, chosen, strict=True))
    mods = {}
    for name, (module, inputs) in cases.items():
        mods[name] = import_exported(module.eval(), inputs)
        matmuls = calls(mods[name], "relax.matmul")
        assert matmuls or names[name] in ("repeated row", "expanded addend")
        # The importer adds no broadcasts to those of the model.
        if "expanded" not in names[name]:
            assert count(mods[name], "relax.broadcast_to") == 0, names[name]
    with cpu():
        lowered = pipeline()(merge(mods))
    vm = relax.VirtualMachine(relax.build(lowered, cpu(), relax_pipeline=None), tvm.cpu())
    for name, (module, inputs) in cases.items():
        size, given = constant_bytes(lowered[name]), parameter_bytes(module)
        assert size <= 1.2 * given + _SLACK, f"{names[name]}: {size} bytes, of {given}"
        got = call(vm, name, *(x.numpy() for x in inputs))
        expected = module(*inputs).numpy()
        tolerance = 2e-3 if expected.dtype == np.float16 else 1e-4
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(
            got, expected, rtol=0, atol=tolerance * scale, err_msg=names[name]
        )


@pytest.mark.parametrize(
    "module, inputs",
    [
        (models()["linear on a transposed input"][0], (values(16, 64, 7),)),
        (models()["LSTM"][0], (values(3, 8, 32),)),
    ],
    ids=["linear", "LSTM"],
)
def test_tvm_folds_what_is_imported_to_the_size_of_the_weights(module, inputs) -> None:
    """This needs no pass of this project."""
    mod = import_exported(module.eval(), inputs)
    folded = relax.transform.FoldConstant()(mod)
    assert constant_bytes(folded["main"]) <= 1.1 * parameter_bytes(module)


class TestLibrary:
    """The size of the library, for models large enough to neglect the code."""

    def test_linear_on_a_transposed_input(self) -> None:
        module = Call(lambda s, x: s.f(x.transpose(1, 2)), f=nn.Linear(512, 1024))
        report = tvm_fixes.compile((module.eval(), (values(8, 512, 3),))).report
        assert report.equal and report.size_ratio < 1.1
        assert report.unfolded == []

    def test_tied_embedding(self) -> None:
        module = LanguageModel(8000, 64).eval()
        report = tvm_fixes.compile((module, (torch.arange(6).reshape(2, 3),))).report
        assert report.equal and report.size_ratio < 1.1
        assert "fold-constant" in report.fixes


FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "2 axes": lambda x: x[0, 0],
    "3 axes": lambda x: x[0],
    "4 axes": lambda x: x,
    "1 axis": lambda x: x[0, 0, 0],
    "transposed": lambda x: x.transpose(0, 1),
    "swapped": lambda x: x.transpose(1, 2)[0],
    "strided": lambda x: x[:, :, ::2],
    "expanded": lambda x: x[:, :1].expand(2, 3, 4, 8),
}


@pytest.mark.parametrize("dtype", sample(FLOATS, 1), ids=name_of)
def test_linear_in_every_form(dtype: torch.dtype) -> None:
    x = random(2, 3, 4, 8, dtype=dtype, seed=0)
    cases = {}
    names = FORMS if is_full() else ("1 axis", "4 axes", "transposed", "expanded")
    for name, form in ((name, FORMS[name]) for name in names):
        for bias in (True, False):
            layer = randomize(nn.Linear(8, 5, bias=bias), dtype)
            cases[f"{name}, bias {bias}"] = (Call(lambda s, x, f=form: s.f(f(x)), f=layer), (x,))
        weight = random(8, 5, dtype=dtype, seed=1)
        cases[f"{name}, matmul"] = (Call(lambda s, x, f=form: f(x) @ s.w, w=weight), (x,))
        left = random(6, 8, dtype=dtype, seed=2)
        if name != "1 axis":
            cases[f"{name}, buffer on the left"] = (
                Call(lambda s, x, f=form: s.w @ f(x).mT, w=left),
                (x,),
            )
    mod = check_all(cases, import_exported)
    assert count(mod, "relax.broadcast_to") == 2 * 2


@pytest.mark.parametrize("dtype", sample(FLOATS, 1, seed=1), ids=name_of)
def test_scaled_sums(dtype: torch.dtype) -> None:
    """``addmm`` and ``baddbmm`` with factors of 0, where a term has the smaller shape."""
    a, b, c = (random(*s, dtype=dtype, seed=i) for i, s in enumerate([(2, 4), (4, 3), (3,)]))
    cases = {}
    for alpha in (0, 1, 2):
        for beta in (0, 1, 3):
            cases[f"{alpha} {beta}"] = (
                Call(
                    lambda s, a, b, c, f=(alpha, beta): torch.addmm(c, a, b, alpha=f[0], beta=f[1])
                ),
                (a, b, c),
            )
            cases[f"{alpha} {beta} batched"] = (
                Call(
                    lambda s, a, b, c, f=(alpha, beta): torch.baddbmm(
                        c, a.expand(2, 2, 4), b.expand(2, 4, 3), alpha=f[0], beta=f[1]
                    )
                ),
                (a, b, c),
            )
    check_all(cases, import_exported)


@pytest.mark.parametrize("dtype", sample(FLOATS, 1, seed=4), ids=name_of)
def test_bilinear(dtype: torch.dtype) -> None:
    cases = {
        f"{batch} {bias}": (
            randomize(nn.Bilinear(3, 4, 5, bias=bias), dtype),
            tuple(random(*batch, k, dtype=dtype, seed=k) for k in (3, 4)),
        )
        for batch in ((), (2,), (2, 3))
        for bias in (True, False)
    }
    check_all(cases, import_exported)


def test_bilinear_of_a_dynamic_batch() -> None:
    x, y = values(4, 3), values(4, 4)
    module = nn.Bilinear(3, 4, 5).eval()
    batch = torch.export.Dim("batch", min=2, max=99)
    program = torch.export.export(module, (x, y), dynamic_shapes=({0: batch}, {0: batch}))
    mod = tvm_fixes.frontend.torch.from_exported_program(program, unwrap_unit_return_tuple=True)
    vm = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
    x, y = values(7, 3, seed=5), values(7, 4, seed=6)
    with torch.no_grad():
        expected = module(x, y).numpy()
    np.testing.assert_allclose(call(vm, "main", x.numpy(), y.numpy()), expected, atol=1e-5)


def test_dynamic_batch_of_a_transposed_input() -> None:
    module = Call(lambda s, x: s.f(x.transpose(1, 2)), f=nn.Linear(6, 5)).eval()
    batch, length = (torch.export.Dim(name, min=2, max=99) for name in ("batch", "length"))
    program = torch.export.export(
        module, (values(4, 6, 3),), dynamic_shapes=(({0: batch, 2: length},),)
    )
    mod = tvm_fixes.frontend.torch.from_exported_program(program, unwrap_unit_return_tuple=True)
    assert count(mod, "relax.broadcast_to") == 0
    x = values(7, 6, 5, seed=1)
    with torch.no_grad():
        expected = module(x).numpy()
    vm = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
    np.testing.assert_allclose(call(vm, "main", x.numpy()), expected, atol=1e-5)


def test_steps_of_a_recurrent_layer_share_a_transposed_weight() -> None:
    mod = import_exported(nn.LSTM(4, 6, batch_first=True).eval(), (values(2, 5, 4),))
    shapes = [tuple(map(int, c.args[0].ty.shape)) for c in calls(mod, "relax.permute_dims")]
    # The kernel of the layer reads the other weight, of shape (24, 6), as it is.
    assert [shape for shape in shapes if prod(shape) > 2 * 6 * 5] == [(24, 4)]


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = models()["linear on a transposed input"]
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-linear")
    assert count(import_exported(module.eval(), inputs), "relax.broadcast_to") == 2


@pytest.mark.parametrize("start", [0, 3])
def test_bfloat16_that_is_not_aligned(start):
    """A tensor of a safetensors file may begin at any byte; NumPy has no bfloat16."""
    storage = torch.randn(64 + start).bfloat16()
    weight = storage[start:].reshape(8, 8)
    module = Call(lambda self, x: x @ self.weight, weight=weight)
    model = tvm_fixes.compile((module.eval(), (torch.randn(2, 8).bfloat16(),)))
    assert model.report.equal


if __name__ == "__main__":
    tvm.testing.main()
