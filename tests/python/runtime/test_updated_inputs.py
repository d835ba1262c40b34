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
"""Inputs that a run overwrites."""

import numpy as np
import pytest
import torch
import tvm.testing
from onnx import helper

from helpers.models import FLOAT, INT64, onnx_model
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import ArtifactError, InputError, UsageError
from tvm_fixes.runtime import CompiledModel
from tvm_fixes.runtime.manifest import Manifest


class Cache(torch.nn.Module):
    def forward(self, x, position, cache):
        cache.index_copy_(1, position + torch.arange(x.shape[1]), x)
        return cache.sum(1)


class Scaled(torch.nn.Module):
    """The new value does not depend on a scatter."""

    def forward(self, x, cache):
        y = cache + x
        cache.mul_(2)
        return y, cache + 1


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    inputs = (torch.randn(2, 1, 3), torch.tensor([4]), torch.randn(2, 6, 3))
    return compile_model(torch.export.export(Cache(), inputs))


@pytest.fixture(scope="module")
def scaled() -> CompiledModel:
    return compile_model((Scaled().eval(), (torch.randn(3), torch.randn(3))))


def step():
    return torch.randn(2, 1, 3), torch.tensor([4]), torch.randn(2, 6, 3)


def test_report_and_manifest(model, scaled, tmp_path):
    assert model.report.equal
    assert [output.name for output in model.report.outputs] == ["output", "cache"]
    assert {"torch-mutations", "update-in-place"} <= set(model.report.fixes)
    assert model.manifest.updates == {"cache": 1}
    assert len(model.outputs) == 1
    assert scaled.report.equal
    assert "update-in-place" not in scaled.report.fixes
    model.save(tmp_path)
    inputs = step()
    expected = [value.clone() for value in inputs]
    torch.testing.assert_close(CompiledModel.load(tmp_path).run(*inputs), Cache()(*expected))
    torch.testing.assert_close(inputs[2], expected[2])


def test_a_tensor_is_updated_where_it_is(model):
    x, position, cache = step()
    expected = cache.clone()
    place = cache.data_ptr()
    for row in (0, 5):
        position.fill_(row)
        out = model.run(x, position, cache)
        torch.testing.assert_close(out, Cache()(x, position, expected))
        torch.testing.assert_close(cache, expected, rtol=0, atol=0)
    assert cache.data_ptr() == place


@pytest.mark.parametrize("kind", ["numpy", "strided numpy", "strided", "unaligned", "gradient"])
def test_other_arrays_are_written_back(model, kind):
    x, position, cache = step()
    expected = cache.clone()
    total = Cache()(x, position, expected)
    if kind == "strided":
        cache = cache.mT.contiguous().mT
    elif kind == "unaligned":
        cache = torch.empty(37)[1:].reshape(2, 6, 3).copy_(cache)
    elif kind == "gradient":
        cache.requires_grad_()
    elif kind == "numpy":
        x, position, cache = x.numpy(), position.numpy(), cache.numpy()
    elif kind == "strided numpy":
        x, position, cache = x.numpy(), position.numpy(), np.asfortranarray(cache.numpy())
    got = model.run(x, position, cache)
    np.testing.assert_allclose(got, total, rtol=1e-5, atol=1e-6)
    values = cache.detach() if isinstance(cache, torch.Tensor) else cache
    np.testing.assert_array_equal(values, expected)


def test_a_value_that_is_computed_is_copied(scaled):
    x, cache = torch.randn(3), torch.randn(3)
    old = cache.clone()
    y, z = scaled.run(x, cache)
    torch.testing.assert_close(y, old + x)
    torch.testing.assert_close(cache, old * 2)
    torch.testing.assert_close(z, old * 2 + 1)


def test_inputs_that_cannot_be_updated(model, scaled):
    x, position, cache = step()
    frozen = cache.numpy().copy()
    frozen.flags.writeable = False
    with pytest.raises(InputError, match=r"input 'cache': the model updates it; .* writable"):
        model.run(x, position, frozen)
    both = torch.randn(5)
    with pytest.raises(InputError, match=r"input 'cache': .* got memory of input 'x'"):
        scaled.run(both[:3], both[2:])
    with pytest.raises(InputError, match=r"input 'cache': .* got memory of input 'x'"):
        scaled.run(both.numpy()[2:], both.numpy()[:3])
    scaled.run(both[:2].repeat(2)[:3], both[2:])


SHAPES = {"ScatterND": [2, 1], "ScatterElements": [2, 4], "TensorScatter": [6]}


def onnx_cache(kind):
    """A model that writes rows of a cache of shape (6, 4), or of (6, 5, 4) for TensorScatter."""
    shapes = {"cache": [6, 4], "rows": [2, 4]}
    operands = ["cache", "at", "rows"]
    if kind == "TensorScatter":
        shapes, operands = {"cache": [6, 5, 4], "rows": [6, 2, 4]}, ["cache", "rows", "at"]
    return onnx_model(
        [
            helper.make_node(kind, operands, ["new"]),
            helper.make_node("ReduceSum", ["new"], ["sum"], keepdims=0),
        ],
        [
            ("cache", FLOAT, shapes["cache"]),
            ("at", INT64, SHAPES[kind]),
            ("rows", FLOAT, shapes["rows"]),
        ],
        [
            ("sum", FLOAT, []),
            ("new", FLOAT, shapes["cache"]),
        ],
        opset=24,
    )


@pytest.mark.parametrize("kind", SHAPES)
def test_an_output_is_the_updated_input(kind):
    model = compile_model(onnx_cache(kind), compare=False, updated_inputs={"cache": "new"})
    assert "update-in-place" in model.report.fixes
    cache, at, rows = (torch.zeros(spec.shape) for spec in model.inputs)
    at = torch.tensor([1, 0, 3, 2, 0, 1]) if kind == "TensorScatter" else torch.tensor([[1], [4]])
    at, rows = at.expand(SHAPES[kind]).contiguous(), rows + 1
    expected = cache.clone()
    if kind == "TensorScatter":
        for row, start in enumerate(at.tolist()):
            expected[row, start : start + 2] = 1
    else:
        expected[[1, 4]] = 1
    total, new = model.run(cache=cache, at=at, rows=rows)
    assert new is cache
    torch.testing.assert_close(cache, expected)
    assert total == expected.sum()


@pytest.mark.parametrize(
    "updates, message",
    [
        ({"x": "new"}, "unknown input 'x'; inputs of .*: cache, at, rows"),
        ({"cache": "y"}, "unknown output 'y'; outputs of .*: sum, new"),
        ({"cache": "sum"}, r"with the type of its input, got cache: .* and sum: float32 \(\)"),
    ],
)
def test_updates_that_do_not_fit(updates, message):
    with pytest.raises(UsageError, match=message):
        compile_model(onnx_cache("ScatterND"), compare=False, updated_inputs=updates)


def test_an_output_is_the_new_value_of_one_input():
    node = helper.make_node("Add", ["a", "b"], ["y"])
    graph = onnx_model([node], [("a", FLOAT, [3]), ("b", FLOAT, [3])], [("y", FLOAT, [3])])
    with pytest.raises(UsageError, match="an output for each input, got 'y' for several"):
        compile_model(graph, compare=False, updated_inputs={"a": "y", "b": "y"})


@pytest.mark.parametrize(
    "updates",
    ['{"other": 0}', '{"cache": -1}', '{"cache": 2}', '{"cache": "x"}', '{"cache": 0, "x": 0}'],
)
def test_a_manifest_with_wrong_updates(model, updates):
    text = model.manifest.to_json().replace(
        '"updates": {\n    "cache": 1\n  }', f'"updates": {updates}'
    )
    assert updates in text
    with pytest.raises(ArtifactError, match="updates"):
        Manifest.from_json(text)


if __name__ == "__main__":
    tvm.testing.main()
