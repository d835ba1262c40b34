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
"""Memory of inputs and outputs: large ones are not copied, and belong to the caller."""

import gc
import sys
import threading
from functools import partial

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import tvm.testing
import tvm_ffi
from tvm import relax

from helpers.lifting import function, module
from helpers.models import onnx_sum_and_product
from helpers.onnx_graphs import branches, normal, program
from helpers.relax_modules import tensor
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.compiler.lifting import lift
from tvm_fixes.errors import ArtifactError
from tvm_fixes.observe.latency import block, measure
from tvm_fixes.runtime import CompiledModel, results
from tvm_fixes.runtime.input_buffers import MAX_BYTES
from tvm_fixes.runtime.manifest import Manifest
from tvm_fixes.support.isolate import run_forked
from tvm_fixes.support.memory import give_back_memory
from tvm_fixes.support.tensors import MALLOC_ALIGNMENT, array_view

LARGE = MAX_BYTES // 4 + 4
"""The number of float32 elements of an array that is just large enough not to be copied."""


def compiled(nodes, constants=None, dtype="float32", **options) -> CompiledModel:
    """A model of one input of any length."""
    return compile_model(
        program(nodes, {"x": (dtype, ("n",))}, constants, **options), compare=False
    )


@pytest.fixture(scope="module")
def negated() -> CompiledModel:
    return compiled({"y": ("Neg", ["x"])})


@pytest.fixture(scope="module")
def two() -> CompiledModel:
    """Inputs a and b, outputs sum and mul, all (n, 4)."""
    return compile_model(onnx_sum_and_product(), compare=False)


def at_alignment(array: np.ndarray, nbytes: int) -> np.ndarray:
    """A contiguous copy whose address is a multiple of `nbytes`, but of no larger power of two."""
    memory = np.empty(array.nbytes + 256, "uint8")
    first = -memory.ctypes.data % 128 + nbytes
    copy = np.ndarray(array.shape, array.dtype, memory, first)
    copy[...] = array
    return copy


def place_of(array: np.ndarray | torch.Tensor) -> int:
    return array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data


class Seen:
    """The tensors that a model's function takes and returns."""

    def __init__(self, model: CompiledModel, patch: pytest.MonkeyPatch):
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        function = model._function

        def watched(*tensors):
            self.inputs = [tensor.data_ptr() for tensor in tensors]
            result = function(*tensors)
            fields = [result] if isinstance(result, tvm.runtime.Tensor) else result
            self.outputs = [tensor.data_ptr() for tensor in fields]
            return result

        patch.setitem(vars(model), "_function", watched)


@pytest.mark.parametrize("size", [LARGE, 4 * LARGE, 16 * LARGE])
def test_nothing_is_copied_at_any_size(two, monkeypatch, size):
    """The cost of a call does not grow with the size of its inputs and outputs."""
    a, b = (at_alignment(normal(size // 4, 4, seed=seed), MALLOC_ALIGNMENT) for seed in (1, 2))
    b.flags.writeable = False
    seen = Seen(two, monkeypatch)
    for _ in range(2):
        outputs = two.run(a, b)
        assert seen.inputs == [a.ctypes.data, b.ctypes.data]
        assert seen.outputs == [output.ctypes.data for output in outputs]
        for output, expected in zip(outputs, (a + b, a * b), strict=True):
            np.testing.assert_array_equal(output, expected)
            assert output.flags.c_contiguous
            assert output.flags.writeable


def test_small_outputs_do_not_hold_pages_of_the_pool(negated):
    y = negated.run(normal(MAX_BYTES // 4))
    assert y.flags.owndata


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "bool", "bfloat16"])
def test_dtypes(dtype, monkeypatch):
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    nodes = {"y": ("Not" if dtype == "bool" else "Abs", ["x"])}
    if dtype == "bfloat16":
        nodes = {"f": ("Cast", ["x"], {"to": onnx.TensorProto.FLOAT})}
        nodes |= {"n": ("Neg", ["f"]), "y": ("Cast", ["n"], {"to": element})}
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    model = compiled(nodes, dtype=dtype, outputs={"y": dtype})
    x = at_alignment((normal(4 * LARGE) * 3).astype(dtype), MALLOC_ALIGNMENT)
    expected = {"bool": np.logical_not, "bfloat16": np.negative}.get(dtype.name, np.abs)(x)
    seen = Seen(model, monkeypatch)
    y = model.run(x)
    assert (seen.inputs, seen.outputs) == ([x.ctypes.data], [y.ctypes.data])
    assert y.dtype == dtype
    assert y.flags.writeable
    np.testing.assert_array_equal(y, expected)


INPUTS = {
    "aligned to 4 bytes": lambda x: at_alignment(x, 4),
    "aligned to 1 byte": lambda x: at_alignment(x, 1),
    "aligned to 64 bytes": lambda x: at_alignment(x, 64),
    "strided": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(np.float32(3), x.shape),
    "bytes": lambda x: np.frombuffer(x.tobytes(), "float32"),
    "torch": torch.from_numpy,
    "unaligned torch": lambda x: torch.from_numpy(at_alignment(x, 4)),
    "gradient": lambda x: torch.from_numpy(x).requires_grad_(),
    "strided torch": lambda x: torch.from_numpy(np.repeat(x, 2))[::2],
}


@pytest.mark.parametrize("size", [5, 3 * LARGE])
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_of_all_kinds(negated, kind, size):
    x = INPUTS[kind](normal(size))
    values = x.detach().numpy() if isinstance(x, torch.Tensor) else x
    before = values.copy()
    for _ in range(2):
        y = negated.run(x)
        assert type(y) is (torch.Tensor if isinstance(x, torch.Tensor) else np.ndarray)
        np.testing.assert_array_equal(y, -before)
    np.testing.assert_array_equal(values, before)


def test_a_file_that_is_mapped(negated, tmp_path):
    x = normal(3 * LARGE)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(negated.run(np.load(tmp_path / "x.npy", mmap_mode="r")), -x)


def test_rows_of_a_matrix_of_one_row(two):
    """NumPy calls an array contiguous if its only wrong stride is that of an axis of extent 1."""
    wide = normal(1, 8 * LARGE)
    row = wide[:, : 4 * LARGE]
    assert row.flags.c_contiguous
    model = compile_model(
        program({"y": ("Neg", ["x"])}, {"x": ("float32", ("n", 4 * LARGE))}), compare=False
    )
    np.testing.assert_array_equal(model.run(row), -row)


def test_no_elements(two):
    empty = np.zeros((0, 4), "float32")
    for _ in range(2):
        total, product = two.run(empty, empty)
        assert total.shape == product.shape == (0, 4)


def test_an_input_that_is_not_aligned_is_copied(monkeypatch, negated):
    x = at_alignment(normal(LARGE), 4)
    seen = Seen(negated, monkeypatch)
    negated.run(x)
    assert seen.inputs != [x.ctypes.data]
    assert seen.inputs[0] % MALLOC_ALIGNMENT == 0


def test_elements_of_less_than_a_byte_have_no_view():
    assert array_view(tvm.runtime.empty((16,), "int4"), as_torch=False) is None


class TestOutputs:
    def test_they_stay_as_they_are(self, negated):
        inputs = [normal(LARGE, seed=seed) for seed in range(5)]
        outputs = [negated.run(x) for x in inputs]
        for x, y in zip(inputs, outputs, strict=True):
            np.testing.assert_array_equal(y, -x)
        assert len({y.ctypes.data for y in outputs}) == len(outputs)

    def test_they_outlive_the_model(self):
        model = compiled({"y": ("Neg", ["x"])})
        x = normal(LARGE)
        y, t = model.run(x), model.run(torch.from_numpy(x))
        view = y[10:]
        del model, y
        gc.collect()
        compiled({"y": ("Abs", ["x"])}).run(np.ones_like(x))
        np.testing.assert_array_equal(view, -x[10:])
        np.testing.assert_array_equal(t, -x)

    @pytest.mark.parametrize("as_torch", [False, True])
    def test_a_constant_cannot_be_changed(self, as_torch):
        constant = normal(LARGE)
        model = compiled(
            {"y": ("Identity", ["c"]), "z": ("Neg", ["x"])},
            {"c": constant},
            outputs=("y", "z"),
        )
        assert model.manifest.owned_outputs == (1,)
        x = np.ones(3, "float32")
        for _ in range(2):
            y, _ = model.run(torch.from_numpy(x) if as_torch else x)
            np.testing.assert_array_equal(y, constant)
            y[:] = 0

    def test_an_input_cannot_be_changed(self):
        model = compiled({"y": ("Identity", ["x"])})
        assert model.manifest.owned_outputs == ()
        for x in (normal(LARGE), torch.from_numpy(normal(LARGE))):
            before = x + 0
            y = model.run(x)
            y[:] = 0
            np.testing.assert_array_equal(x, before)

    def test_two_names_of_one_result(self):
        model = compiled(
            {"h": ("Neg", ["x"]), "y": ("Identity", ["h"]), "z": ("Reshape", ["h", "shape"])},
            {"shape": np.array([-1, 2])},
            outputs=("h", "y", "z"),
        )
        x = normal(LARGE)
        h, y, z = model.run(x)
        h[:] = 0
        y[:] = 1
        np.testing.assert_array_equal(z, -x.reshape(-1, 2))
        assert not h.any()

    def test_a_result_of_a_branch(self):
        model = compile_model(branches(), compare=False)
        x = normal(64)
        np.testing.assert_allclose(model.run(x, np.array([False])), -np.exp(x), rtol=1e-5)

    def test_torch_tensors_have_the_memory_of_the_result(self, two, monkeypatch):
        a = torch.from_numpy(normal(LARGE, 4))
        seen = Seen(two, monkeypatch)
        outputs = two.run(a, a)
        assert seen.outputs == [output.data_ptr() for output in outputs]

    @pytest.mark.parametrize("as_torch", [False, True])
    def test_of_a_model_that_updates_an_input(self, monkeypatch, as_torch):
        nodes = {"new": ("Add", ["cache", "x"]), "y": ("Neg", ["x"]), "z": ("Neg", ["cache"])}
        inputs = {name: ("float32", ("n",)) for name in ("x", "cache")}
        graph = program(nodes, inputs, outputs=("y", "new", "z"))
        model = compile_model(graph, compare=False, updated_inputs={"cache": "new"})
        x, cache = (at_alignment(normal(LARGE, seed=seed), 64) for seed in (1, 2))
        old = cache.copy()
        seen = Seen(model, monkeypatch)
        if as_torch:
            x, cache = map(torch.from_numpy, (x, cache))
        for _ in range(2):
            y, new, z = model.run(x, cache)
            assert new is cache
            assert {place_of(y), place_of(z)} <= set(seen.outputs)
            assert seen.inputs[0] == place_of(x)
            np.testing.assert_array_equal(y, -np.asarray(x))
            np.testing.assert_array_equal(z, -old)
            old += np.asarray(x)
            np.testing.assert_array_equal(cache, old)

    def test_a_lifted_module(self, monkeypatch):
        types = {"x": tensor(LARGE, 4)}, {"w": tensor(4, 4)}
        main = function(*types, lambda builder, x, w: relax.op.matmul(x, relax.op.exp(w)))
        weight = normal(4, 4)
        lifted = lift(module(main=main), {"w": weight})
        x = at_alignment(normal(LARGE, 4), MALLOC_ALIGNMENT)
        seen = Seen(lifted, monkeypatch)
        y = lifted.run(x)
        assert seen.inputs[0] == x.ctypes.data
        assert seen.outputs == [y.ctypes.data]
        np.testing.assert_allclose(y, x @ np.exp(weight), rtol=1e-4, atol=1e-5)


def test_calls_from_several_threads(negated):
    right = []

    def work(seed):
        x = normal(LARGE, seed=seed)
        right.append(all(np.array_equal(negated.run(x), -x) for _ in range(50)))

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * len(threads)


def calls_of(run, *values):
    """The names of the functions that a run calls, after the first ones, which check inputs."""
    found = []

    def note(frame, event, argument):
        if event in ("call", "c_call"):
            found.append(getattr(argument, "__name__", frame.f_code.co_name))

    for _ in range(3):
        run(*values)
    sys.setprofile(note)
    try:
        run(*values)
    finally:
        sys.setprofile(None)
    return found[:-1]  # the last one is that of setprofile


class TestCost:
    """Python's part of a run, which costs a few microseconds, is a few calls at any size."""

    @pytest.mark.parametrize("limit, size", [(15, 5), (10, LARGE), (10, 64 * LARGE)])
    def test_calls_of_one_output(self, negated, limit, size):
        x = normal(size)
        calls = calls_of(negated.run, x)
        assert calls[0] == "run"
        assert len(calls) <= limit, calls
        assert calls_of(negated.run, x) == calls

    def test_calls_of_a_further_output(self, negated, two):
        a, b = normal(LARGE, 4), normal(LARGE, 4)
        one, of_two = calls_of(negated.run, a.ravel()), calls_of(two.run, a, b)
        assert len(of_two) <= len(one) + 12, of_two

    def test_time(self, negated):
        """The least times of runs in turns, which the load of the machine does not change."""
        for size in (LARGE, 16 * LARGE):
            x = at_alignment(normal(size), MALLOC_ALIGNMENT)
            function = negated._library.machine["main"]
            operand = tvm_ffi.from_dlpack(x)
            timers = [partial(negated.run, x), partial(function, operand)]
            taken = measure([partial(block, run) for run in timers], runs=200, budget=0.4)
            ours, machine = (min(map(min, each.blocks)) for each in taken)
            assert ours < machine + 10e-6


class TestPool:
    @pytest.fixture
    def cleared(self, monkeypatch) -> list[int]:
        """An entry for each time that the pool is cleared."""
        calls: list[int] = []
        clear = results._clear
        noted = tvm_ffi.convert(lambda: (calls.append(1), clear())[0])
        monkeypatch.setattr(results, "_clear", noted)
        clear()
        return calls

    @pytest.fixture
    def negated(self, negated, cleared) -> CompiledModel:
        """The model, loaded again, so that it clears the pool as `cleared` notes."""
        return CompiledModel(negated._library.directory, negated.manifest)

    def resident(self) -> int:
        """The memory of this process that is in use, in bytes."""
        give_back_memory()
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    def test_many_outputs_are_given_back(self, negated, cleared):
        x = normal(1 << 20)
        negated.run(x)
        before = self.resident()
        outputs = [negated.run(x) for _ in range(64)]
        assert self.resident() > before + 60 * x.nbytes
        del outputs
        assert cleared
        # Plus the last ones, the result that the virtual machine holds, and noise.
        assert self.resident() < before + results.MAX_IDLE_BYTES + 8 * x.nbytes

    def test_sizes_that_vary_are_given_back(self, negated, cleared):
        for size in range(1 << 20, (1 << 20) + 40 * 4096, 4096):
            negated.run(np.ones(size, "float32"))
        assert 1 <= len(cleared) <= 4

    def test_tuples_are_given_back(self, two, cleared):
        model = CompiledModel(two._library.directory, two.manifest)
        x = np.ones((1 << 16, 4), "float32")
        outputs = [model.run(x, x) for _ in range(40)]
        assert not cleared
        del outputs
        assert 1 <= len(cleared) <= 2

    def test_a_loop_keeps_its_memory(self, negated, cleared, monkeypatch):
        monkeypatch.setattr(results, "MAX_IDLE_BYTES", 0)
        x = normal(LARGE)
        negated.run(x)  # and drop it: results of other tests may be idle, too
        cleared.clear()
        places = set()
        for _ in range(20):
            y = negated.run(x)
            places.add(y.ctypes.data)
        assert not cleared
        assert len(places) <= 3

    def test_drops_on_other_threads_and_in_a_child(self, negated):
        x = normal(LARGE)
        outputs = [negated.run(x) for _ in range(200)]
        dropper = threading.Thread(target=outputs.clear)

        def drop():
            kept = [negated.run(x) for _ in range(20)]
            return all(np.array_equal(y, -x) for y in kept)

        dropper.start()
        found = [run_forked(drop, timeout=60) for _ in range(3)]
        dropper.join()
        assert [outcome.value for outcome in found] == [True] * 3, found


class TestManifest:
    def test_an_artifact_without_the_fields(self, negated, monkeypatch):
        """Its kernels may need more alignment, and its outputs may be constants."""
        text = negated.manifest.to_json()
        assert '"alignment": 16' in text
        assert '"owned_outputs": [\n    0\n  ]' in text
        older = text.replace('"alignment"', '"was"').replace('"owned_outputs"', '"were"')
        manifest = Manifest.from_json(older)
        model = CompiledModel(negated._library.directory, manifest)
        x = at_alignment(normal(LARGE), MALLOC_ALIGNMENT)
        seen = Seen(model, monkeypatch)
        y = model.run(x)
        assert seen.inputs[0] % 64 == 0
        assert seen.outputs != [y.ctypes.data]
        np.testing.assert_array_equal(y, -x)

    @pytest.mark.parametrize("alignment", [0, 3, 128])
    def test_alignment(self, negated, alignment):
        text = negated.manifest.to_json()
        text = text.replace('"alignment": 16', f'"alignment": {alignment}')
        with pytest.raises(ArtifactError, match="alignment: expected a power of two"):
            Manifest.from_json(text)

    @pytest.mark.parametrize("owned", [[1], [-1], [0, 0]])
    def test_owned_outputs(self, negated, owned):
        text = negated.manifest.to_json()
        text = text.replace('"owned_outputs": [\n    0\n  ]', f'"owned_outputs": {owned}')
        with pytest.raises(ArtifactError, match="owned_outputs: expected indices"):
            Manifest.from_json(text)


if __name__ == "__main__":
    tvm.testing.main()
