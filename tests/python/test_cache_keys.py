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
"""The keys of the cache: all that code depends on is in them, and nothing that varies."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torch._functorch import config as functorch_config
from torch.nn import functional
from tvm import relax
from tvm.script import relax as R

from tvm_fixes.compiler import caching, options
from tvm_fixes.compiler.cache import Store, files, installed, key_of, surroundings
from tvm_fixes.compiler.cache.module_text import module_text
from tvm_fixes.compiler.options import Options
from tvm_fixes.target import resolve
from tvm_fixes.torch.dynamo_text import dynamo_text
from tvm_fixes.torch.graph_text import graph_text
from tvm_fixes.torch.options import Options as TorchOptions

# They say what to compare, or where to write; those of `_NOT_CACHED` turn the cache off.
_NOT_KEYED = {"inputs", "output", "compare", "rtol", "atol", "seed", "cache", "progress"}
# These are in the key with the imported module: a file may be read, and the values of parameters.
_IN_THE_MODULE = {"params", "trust"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 1 << 30)


def module(
    dtype: str = "float32",
    columns: int = 4,
    weight: float = 1.0,
    axis: int = -1,
    name: str = "main",
    dim: str = "n",
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    shape = (tvm.tirx.Var(dim, "int64"), columns)
    x = relax.Var("x", R.Tensor(shape, dtype))
    with builder.function(name, [x]):
        with builder.dataflow():
            constant = relax.const(np.full(columns, weight, dtype), dtype)
            total = builder.emit(relax.op.add(x, constant))
            y = builder.emit_output(relax.op.nn.softmax(total, axis=axis))
        builder.emit_func_output(y)
    return builder.get()


def test_equal_modules_have_one_text() -> None:
    assert module_text(module()) == module_text(module())


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float64"},
        {"columns": 5},
        {"weight": 1.0 + 2**-20},
        {"weight": -0.0},
        {"axis": 0},
        {"name": "other"},
        {"dim": "m"},
    ],
)
def test_each_part_of_a_module_changes_its_text(change: dict[str, object]) -> None:
    base = {"weight": 0.0} if change == {"weight": -0.0} else {}
    assert module_text(module(**base)) != module_text(module(**{**base, **change}))


def test_attributes_of_functions_and_modules_change_the_text() -> None:
    plain = module()
    texts = {
        module_text(plain),
        module_text(plain.with_attr("some", 1)),
        module_text(plain.with_attr("some", 2)),
        module_text(
            tvm.IRModule({"main": plain["main"].with_attr("tir_var_upper_bound", {"n": 9})})
        ),
    }
    assert len(texts) == 4


def test_two_tensors_of_equal_elements_are_not_one() -> None:
    def doubled(*, shared: bool) -> tvm.IRModule:
        one = tvm.runtime.tensor(np.ones(3, "float32"))
        other = one if shared else tvm.runtime.tensor(np.ones(3, "float32"))
        builder = relax.BlockBuilder()
        x = relax.Var("x", R.Tensor((3,), "float32"))
        with builder.function("main", [x]):
            constants = [relax.const(value) for value in (one, other)]
            y = builder.emit(relax.op.add(*constants))
            builder.emit_func_output(builder.emit(relax.op.add(x, y)))
        return builder.get()

    assert module_text(doubled(shared=True)) != module_text(doubled(shared=False))


def test_each_option_is_in_the_key_or_has_a_reason_not_to_be() -> None:
    keyed = options._SHAPING | options._ALSO_KEYED
    groups = [keyed - {"passes"}, {"target"}, set(caching._NOT_CACHED), _NOT_KEYED, _IN_THE_MODULE]
    assert sorted(name for group in groups for name in group) == sorted(
        option.name for option in fields(Options)
    )


_OTHER_VALUES = {
    "layout": "NHWC",
    "shapes": {"x": [1, 2]},
    "static": True,
    "runtime_checks": True,
    "max_growth": 3.0,
    "weights": "outside",
    "strip": True,
    "unsafe_indices": True,
    "updated_inputs": {"x": "y"},
    "max_size_ratio": 2.0,
    "verify": False,
    "sizes": {"n": 3},
    "magnitude": 2.0,
}


def test_each_keyed_option_changes_the_key() -> None:
    assert set(_OTHER_VALUES) == (options._SHAPING | options._ALSO_KEYED) - {"passes"}
    keys = [key_of(Options().keyed())]
    keys += [key_of(Options(**{name: value}).keyed()) for name, value in _OTHER_VALUES.items()]
    keys.append(key_of(Options(shapes={"x": [1, "2"]}).keyed()))
    assert len(set(keys)) == len(keys)


def test_each_option_of_the_backend_is_accounted_for() -> None:
    # The layout is in the key, the target in the surroundings; the others change no code.
    assert {option.name for option in fields(TorchOptions)} == {
        *("target", "layout", "fallback", "cache")
    }


def key(store: Store, target: object = "llvm") -> str | None:
    around = surroundings(store, resolve(target))
    return None if around is None else key_of(around)


def test_what_surrounds_a_model_changes_its_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key(store)]
    for target in (
        {"kind": "llvm", "mattr": ["+avx2"]},
        {"kind": "llvm", "mcpu": "znver4"},
        "aarch64/cortex-a76",
    ):
        keys.append(key(store, target))
    for name, value in (
        ("TVM_FIXES_DISABLE", "verifier"),
        ("TVM_FIXES_SOMETHING", "1"),
        ("TVM_LOG_DEBUG", "1"),
        ("CC", "gcc"),
        ("CXX", "clang++"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            keys.append(key(store))
    for changes in (
        {"opt_level": 1},
        {"disabled_pass": ["FoldConstant"]},
        {"required_pass": ["FoldConstant"]},
        {"config": {"tirx.disable_vectorize": True}},
    ):
        with tvm.transform.PassContext(**changes):
            keys.append(key(store))
    assert None not in keys and len(set(keys)) == len(keys)
    assert key(store) == keys[0]


def test_where_and_with_how_many_threads_does_not_change_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(store)
    for name in ("TVM_FIXES_CACHE", "TVM_FIXES_CACHE_SIZE", "TVM_NUM_THREADS", "HOME"):
        monkeypatch.setenv(name, "7")
    assert key(store) == before


def test_an_instrument_and_a_gpu_turn_the_cache_off(store: Store) -> None:
    with tvm.transform.PassContext(instruments=[tvm.ir.instrument.PassTimingInstrument()]):
        assert key(store) is None
    assert key(store, "cuda/sm_90") is None


def test_a_file_that_changed_since_the_start_turns_the_cache_off(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed.installed_digest(store) is not None
    listing = installed._listing()
    path, size, *_ = listing[0]
    monkeypatch.setattr(installed, "_listing", lambda: ((path, size, 2**62, 1, 1, 1), *listing[1:]))
    files.warn_once.cache_clear()
    assert installed.installed_digest(store) is None


def test_the_contents_of_files_decide_the_digest(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "code.py"

    def digest(text: str) -> str:
        path.write_text(text)
        status = path.stat()
        line = (str(path), len(text), status.st_mtime_ns, status.st_ctime_ns, 1, status.st_ino)
        return installed._digest(store, (line,))

    assert digest("a = 1") != digest("a = 2")
    # A file that is so new is hashed each time: the next change may keep its time.
    assert not (store.root / "installed").exists()


def test_the_digest_is_kept_and_a_damaged_file_of_it_ignored(store: Store) -> None:
    listing = installed._listing()
    digest = installed._digest(store, listing)
    memo = store.root / "installed"
    assert digest in memo.read_text()
    installed._digest.cache_clear()
    assert installed._digest(store, listing) == digest
    memo.write_text(memo.read_text().replace(digest, "0" * 64))
    assert installed._read_memo(store) == {}


def test_the_digest_covers_this_package_and_tvm() -> None:
    names = {Path(line[0]).name for line in installed._listing()}
    assert {"installed.py", "libtvm_fixes.so", "libtvm_compiler.so", "transform.py"} <= names
    assert "libtvm_runtime.so" in names and "libtvm_ffi.so" in names


_PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import test_cache_keys as tests
from tvm_fixes.compiler.cache import Store, key_of
from pathlib import Path
store = Store(Path({root!r}), 1 << 30)
print(tests.key(store), key_of({{"m": tests.module_text(tests.module())}}))
print(key_of({{"graph": tests.graph_text(tests.traced())}}))
"""


def test_keys_are_the_same_in_another_process(tmp_path: Path) -> None:
    program = _PROGRAM.format(tests=os.path.dirname(__file__), root=str(tmp_path / "cache"))
    # Sets and dicts have another order there.
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.split()
    store = Store(tmp_path / "cache", 1 << 30)
    keys = key(store), key_of({"m": module_text(module())}), key_of({"graph": graph_text(traced())})
    assert printed == [*keys]


class Net(nn.Module):
    """A constant, an integer and a number with a fraction."""

    def __init__(self, scale: float = 0.5, places: tuple[int, ...] = (0, 1)) -> None:
        super().__init__()
        self.scale = scale
        self.places = places

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * self.scale + y.permute(self.places)).sum(0)


def traced(
    net: nn.Module | None = None, *, dtype: torch.dtype = torch.float32, rows: int = 3
) -> torch.fx.GraphModule:
    """The functional graph of a net with a dynamic dim."""
    dims = torch.export.Dim("n", min=2, max=90)
    inputs = torch.ones(rows, 4, dtype=dtype), torch.ones(rows, 4, dtype=dtype)
    program = torch.export.export(
        net or Net(), inputs, dynamic_shapes={"x": {0: dims}, "y": {0: dims}}
    )
    return program.run_decompositions().graph_module


def test_each_part_of_a_graph_changes_its_text() -> None:
    graphs = [traced(), traced(Net(scale=0.25)), traced(dtype=torch.float64), traced(rows=5)]
    texts = [graph_text(graph) for graph in graphs]
    for change in ("target", "operand", "name", "value"):
        graph = traced()
        node = next(node for node in graph.graph.nodes if node.op == "call_function")
        if change == "target":
            node.target = torch.ops.aten.add.Tensor
        elif change == "operand":
            node.args = (*node.args[:-1], 0.75)
        elif change == "name":
            node.name = "another"
        else:
            node.meta["val"] = node.meta["val"].T
        texts.append(graph_text(graph))
    assert len({key_of({"graph": text}) for text in texts}) == len(texts)
    assert graph_text(traced()) == texts[0]


def test_what_is_known_of_symbols_changes_the_text() -> None:
    graph = traced()
    before = graph_text(graph)
    value = next(iter(graph.graph.nodes)).meta["val"]
    assert value.shape[0] > 2  # a guard
    assert graph_text(graph) != before


def test_the_state_of_pytorch_changes_the_text() -> None:
    graph = traced()
    before = graph_text(graph)
    torch.set_default_dtype(torch.float64)
    try:
        assert graph_text(graph) != before
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_graph_with_something_else_has_no_text() -> None:
    graph = traced()
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.target = lambda x, y: x
    with pytest.raises(TypeError, match="call_function of"):
        graph_text(graph)


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.softmax(x * 0.5, 0) + y[0]


def dynamo_key(
    function: Callable[..., torch.Tensor] = scaled, inputs: Sequence[torch.Tensor] | None = None
) -> str:
    """The key of the graph that Dynamo traces; why it has none."""
    texts: list[str] = []

    def record(module: torch.fx.GraphModule, inputs: Sequence[object]) -> object:
        try:
            texts.append(key_of({"graph": dynamo_text(module, inputs)}))
        except TypeError as error:
            texts.append(str(error))
        return module.forward

    torch._dynamo.reset()
    inputs = inputs or (torch.ones(3, 4), torch.ones(3, 4))
    torch.compile(function, backend=record, fullgraph=True)(*inputs)
    return texts[-1]


def test_each_part_of_a_traced_graph_changes_its_key() -> None:
    x, y = torch.ones(3, 4), torch.ones(3, 4)
    with torch.inference_mode():
        inference = torch.ones(3, 4)
    keys = [
        dynamo_key(),
        dynamo_key(lambda x, y: functional.softmax(x * 0.25, 0) + y[0]),
        dynamo_key(lambda x, y: functional.softmax(x * 0.5, 1) + y[0]),
        dynamo_key(lambda x, y: functional.log_softmax(x * 0.5, 0) + y[0]),
        dynamo_key(lambda x, y: (x * 0.5).softmax(0) + y[0]),
        dynamo_key(lambda x, y: functional.softmax(x * 0.5, 0) + x[0] + y[0] * 0),
        dynamo_key(inputs=(x.double(), y)),
        dynamo_key(inputs=(x[:2], y)),
        dynamo_key(inputs=(torch.ones(4, 3).T, y)),
        dynamo_key(inputs=(x, torch.ones(4, 4)[1:])),
        dynamo_key(inputs=(x, x[:2])),
        dynamo_key(inputs=(x, y[:2])),
        dynamo_key(inputs=(inference, y)),
        dynamo_key(inputs=(nn.Parameter(x), y)),
        dynamo_key(inputs=(torch.ones(3, 4, requires_grad=True), y)),
    ]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys) and len({*keys}) == len(keys)
    assert dynamo_key() == keys[0]


def test_the_state_of_pytorch_changes_the_key_of_a_traced_graph() -> None:
    with ExitStack() as contexts:
        keys = [dynamo_key()]
        for context in (
            torch.no_grad(),
            torch.autocast("cpu", torch.float16),
            torch.autocast("cpu", torch.bfloat16),
            torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
            torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]),
            torch.backends.mkldnn.flags(enabled=False),
            functorch_config.patch(functionalize_rng_ops=True),
            torch._dynamo.config.patch(capture_scalar_outputs=True),
            torch._inductor.config.patch(fallback_random=True),
            torch.fx.experimental._config.patch(use_duck_shape=False),
        ):
            contexts.enter_context(context)
            keys.append(dynamo_key())
        assert len({*keys}) == len(keys)


def test_the_dtype_of_an_autocast_in_a_graph_and_the_path_of_einsum_change_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu"):
            return x @ y.T

    keys = [dynamo_key(cast)]
    dtype = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        keys.append(dynamo_key(cast))
    finally:
        torch.set_autocast_dtype("cpu", dtype)
    monkeypatch.setattr(torch.backends.opt_einsum, "strategy", "optimal")
    keys.append(dynamo_key(cast))
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", not torch.backends.opt_einsum.enabled)
    keys.append(dynamo_key(cast))
    assert len({*keys}) == len(keys) == 4


def test_passes_that_only_inductor_runs_do_not_change_the_key() -> None:
    key = dynamo_key()
    with torch._inductor.config.patch(pre_grad_custom_pass=object()):
        assert dynamo_key() == key
    with torch._inductor.config.patch(custom_partitioner_fn=object()):
        assert "setting" in dynamo_key()


@torch._dynamo.allow_in_graph
def of_the_user(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_what_depends_on_anything_else_has_no_key() -> None:
    def branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) + y

    varying = torch.ones(3, 4)
    torch._dynamo.mark_dynamic(varying, 0)
    assert "of_the_user" in dynamo_key(lambda x, y: of_the_user(x) + y)
    assert "get_attr" in dynamo_key(branches)
    assert "SymInt" in dynamo_key(inputs=(varying, torch.ones(1, 4)))


def test_numbers_of_different_kinds_differ() -> None:
    texts = []
    for value in (1, 1.0, True, "1", None, 0.0, -0.0, float("nan"), [1], (1,), torch.float32):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(torch.ops.aten.add.Tensor, (x, value)))
        texts.append(key_of({"g": graph_text(torch.fx.GraphModule({}, graph))}))
    assert len(set(texts)) == len(texts)


if __name__ == "__main__":
    tvm.testing.main()
