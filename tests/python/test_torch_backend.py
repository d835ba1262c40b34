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
"""``torch.compile(model, backend="tvm_fixes")`` against PyTorch."""

import copy
import importlib.metadata
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
import tvm.testing
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from helpers.grids import few, from_tier
from tvm_fixes.errors import UnsupportedOperatorError, UsageError
from tvm_fixes.frontend.torch.call import known_operators
from tvm_fixes.frontend.torch.functional_graph import rules_of_graphs
from tvm_fixes.runtime import after_fork
from tvm_fixes.torch import Explanation, backend, explain
from tvm_fixes.torch.backend import Backend
from tvm_fixes.torch.explanation import Graph
from tvm_fixes.torch.options import Options
from tvm_fixes.torch.partition import Partition


class Net(nn.Module):
    """Layers, attention, an operator that only PyTorch has, and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 32)
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: torch.Tensor, picture: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = self.linear(x)[None, None]
        y = F.scaled_dot_product_attention(q, q, q)
        self.calls.add_(1)
        kept = x.clone()
        x.mul_(2)
        only_eager = torch.special.bessel_j0(y).sin()
        return (
            y @ y.mT,
            F.relu(self.norm(self.conv(picture))).transpose(1, 2),
            x[1:],
            self.calls,
            only_eager,
            y.reshape(-1),
            torch.rand(3) + x[0, 0],
            kept,
            torch.zeros(4) + 1,
        )


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiled(model: object, **options: object) -> tuple[object, list[Graph]]:
    """The compiled model, and the list of its graphs, which grows."""
    graphs: list[Graph] = []
    return torch.compile(model, backend=Backend(Options(), graphs.append), **options), graphs


def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 16), torch.randn(1, 3, 8 + rows, 8)


def check_equal(got: object, expected: object) -> None:
    pairs = zip(got, expected, strict=True)
    for value, wanted in pairs:
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-5)
        assert value.stride() == wanted.stride()


def test_pip_tells_pytorch_of_the_backend() -> None:
    points = importlib.metadata.entry_points(group="torch_dynamo_backends")
    assert [point.value for point in points if point.name == "tvm_fixes"] == [
        "tvm_fixes.torch:backend"
    ]


def test_a_model_with_all_kinds_of_nodes_equals_pytorch_for_several_sizes(net: Net) -> None:
    reference = copy.deepcopy(net)
    fast, graphs = compiled(net)
    for rows in (5, 7, 9):
        given = inputs(rows)
        same = copy.deepcopy(given)
        torch.manual_seed(rows)
        results = fast(*given)
        torch.manual_seed(rows)
        check_equal(results, reference(*same))
        check_equal(given, same)
        # Neither a constant of the library nor an input.
        results[-1].fill_(7)
        results[-2].fill_(3)
    # One graph for the first size, one for all others.
    assert len(graphs) == 2
    for graph in graphs:
        assert len(graph.partitions) == 2
        assert sorted(graph.eager.values()) == [
            "aten.rand.default: PyTorch draws the random numbers",
            "aten.special_bessel_j0.default: no converter",
        ]


def test_explain_lists_partitions_and_what_pytorch_runs(net: Net) -> None:
    explanation = explain(copy.deepcopy(net), *inputs(5))
    lines = str(explanation).splitlines()
    assert lines[0].endswith("operators compiled in 2 partitions; PyTorch runs 2")
    assert lines[0].startswith("graph 0: ")
    assert "  aten.special_bessel_j0.default: no converter" in lines


def test_explain_lists_graph_breaks() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    explanation = explain(broken, torch.ones(3))
    assert len(explanation.graphs) == 2
    assert len(explanation.breaks) == 1
    assert str(Explanation()) == "no graph: PyTorch runs the whole model"


@pytest.mark.parametrize(
    "model",
    [
        torch.mm,
        lambda x, w: torch.mv(x, w[0]),
        lambda x, w: torch.addmm(x, x, w),
        torch.nn.functional.linear,
        lambda x, w: torch.layer_norm(x, (4,), w[0]),
        lambda x, w: torch.group_norm(x, 2, w[0]),
        lambda x, w: x.index_add(0, torch.tensor([1]), w[:1]),
        lambda x, w: x.index_copy(0, torch.tensor([1]), w[:1]),
        lambda x, w: x.index_put((torch.tensor([1]),), w[:1]),
    ],
    ids=[
        "mm",
        "mv",
        "addmm",
        "linear",
        "layer_norm",
        "group_norm",
        "index_add",
        "index_copy",
        "index_put",
    ],
)
def test_operands_of_several_dtypes(model: Callable[..., torch.Tensor]) -> None:
    """PyTorch's kernels reject them, its meta functions do not."""
    wide = torch.randn(4, 4, dtype=torch.float64)
    fast, _ = compiled(model)
    for x in (torch.randn(4, 4), torch.randn(4, 4).bfloat16()):
        for function in (model, fast):
            with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
                function(x, wide)


@pytest.mark.parametrize(
    "model",
    [
        lambda x, values: x.index_add(0, torch.tensor([1, 0]), values),
        lambda x, values: x.index_put((torch.tensor([1, 0]),), values),
    ],
    ids=["index_add", "index_put"],
)
def test_sizes_that_only_a_call_shows_to_differ(model: Callable[..., torch.Tensor]) -> None:
    fast, graphs = compiled(model)
    for columns in (3, 4, 5):
        x, values = torch.randn(6, columns), torch.randn(2, columns)
        check_equal([fast(x, values)], [model(x, values)])
    assert graphs[-1].partitions and not graphs[-1].eager
    for function in (model, fast):
        with pytest.raises(RuntimeError, match="shape"):
            function(torch.randn(6, 7), torch.randn(2, 2))


def test_elements_that_pytorch_checks() -> None:
    fast, graphs = compiled(lambda x: F.one_hot(x, 4) * 2)
    x = torch.tensor([1, 3])
    check_equal([fast(x)], [F.one_hot(x, 4) * 2])
    assert {*graphs[0].eager.values()} == {"aten._assert_async.msg: a check of elements"}
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        fast(x + 2)


def test_parameters_are_read_in_each_call() -> None:
    layer = nn.Linear(8, 4)
    fast, graphs = compiled(layer)
    x = torch.randn(2, 8)
    check_equal([fast(x)], [layer(x)])
    layer.weight.data.mul_(3)
    check_equal([fast(x)], [layer(x)])
    layer.load_state_dict({"weight": torch.randn(4, 8), "bias": torch.randn(4)})
    check_equal([fast(x)], [layer(x)])
    layer.bias.add_(1)
    check_equal([fast(x)], [layer(x)])
    assert len(graphs) == 1


def test_tensors_that_come_again_are_read_again() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.where(mask, x * 2, x), k + 1

    fast, graphs = compiled(program)
    x, mask, k = torch.randn(4, 4, dtype=torch.bfloat16), torch.ones(4, 4) > 0, torch.arange(4)
    for turn in range(8):
        check_equal(fast(x, mask, k), program(x, mask, k))
        if turn % 2:
            x.add_(1)
            mask[0].logical_not_()
        if turn == 4:
            x.data = torch.randn(4, 4, dtype=torch.bfloat16)
            k = k * 3
    assert len(graphs) == 1


def test_gradients_stay_with_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    layer = nn.Linear(8, 4)
    fast, graphs = compiled(layer)
    with torch.enable_grad(), caplog.at_level(logging.WARNING):
        fast(torch.randn(2, 8)).sum().backward()
    assert layer.bias.grad is not None and layer.bias.grad.eq(2).all()
    assert "gradients" in graphs[0].skipped
    with torch.inference_mode():
        x = torch.randn(2, 8)
        check_equal([fast(x)], [layer(x)])
    assert graphs[1].partitions == (1,)


def test_results_that_share_memory_in_the_library_are_tensors_of_their_own() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y.clone(), y.view(2, 2).clone(), x.clone()

    fast, _ = compiled(twice)
    x = torch.zeros(4)
    results = fast(x)
    for index, value in enumerate(results):
        value.fill_(index + 5)
    assert [int(value.flatten()[0]) for value in results] == [5, 6, 7, 8]
    assert x.eq(0).all()
    check_equal(fast(x), twice(x))


def test_results_have_the_strides_of_pytorch() -> None:
    conv = nn.Conv2d(3, 4, 3)
    fast, graphs = compiled(conv)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    check_equal([fast(x)], [conv(x)])
    assert not conv(x).is_contiguous()
    assert graphs[0].partitions and not graphs[0].eager


def test_views_that_are_returned_share_memory_as_in_pytorch() -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        rows = y.view(2, -1)
        return y, y[0], rows, rows * 2, *y.chunk(3, dim=1), x[1:, ::2], x.sum().expand(3)

    fast, graphs = compiled(views)
    x = torch.randn(4, 6)
    for model in (fast, views):
        results = model(x)
        check_equal(results, views(x))
        results[0].fill_(7)
        assert results[1].eq(7).all() and results[2].eq(7).all() and results[5].eq(7).all()
        assert not results[3].eq(14).any()
        assert results[7].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    # The product is of a view that is not the one returned.
    assert graphs[0].partitions == (4,) and not graphs[0].eager


def test_results_of_a_decomposition_are_as_dense_as_those_of_the_operator() -> None:
    fast, graphs = compiled(lambda x: x.kthvalue(2, 1), dynamic=True)
    x = torch.randn(5, 4, 3)
    values = fast(x)
    check_equal(values, x.kthvalue(2, 1))
    assert graphs[0].partitions and not graphs[0].eager
    values[0].fill_(0)
    assert not x.eq(0).any()
    # As in PyTorch, these are views.
    part = compiled(lambda x: x.unsafe_chunk(2))[0](x)[1]
    assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_views_and_unaligned_inputs_are_read() -> None:
    fast, _ = compiled(lambda x, y: (x @ y, x.sum()))
    base, other = torch.randn(40), torch.randn(5, 4)
    x = base[1:21].view(4, 5)
    check_equal(fast(x, other), (x @ other, x.sum()))
    check_equal(fast(x.mT.contiguous().mT, other), (x @ other, x.sum()))
    for empty, factor in ((torch.randn(0, 5), other), (torch.randn(4, 5), torch.randn(5, 0))):
        check_equal(fast(empty, factor), (empty @ factor, empty.sum()))


def test_numbers_from_tensors_are_computed() -> None:
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor / x.shape[0]

    fast, graphs = compiled(scaled, dynamic=True)
    for rows, factor in ((3, 0.5), (4, 1.5), (6, 2.5)):
        x = torch.randn(rows, 2)
        check_equal([fast(x, factor)], [scaled(x, factor)])
    assert not graphs[-1].eager


def test_the_sign_of_a_number_is_copied() -> None:
    x = torch.tensor([1.5, -2.0, 0.0])

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.copysign(x, -2.0), torch.copysign(x, 0.0), torch.copysign(x.int(), -0.0)

    function, graphs = compiled(model)
    got = function(x)
    check_equal(got, model(x))
    assert [y.signbit().tolist() for y in got] == [[True] * 3, [False] * 3, [True] * 3]
    assert not graphs[-1].eager


def test_integers_that_change_are_inputs_and_may_be_negative() -> None:
    def scaled(x: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
        return x * k, x + k // 2, x + k % 3, x + k * k, x.clamp(min=k), x + k / 2

    fast, graphs = compiled(scaled)
    x = torch.randn(3)
    for k in (2, 3, -1, -5, 2**30):
        check_equal(fast(x, k), scaled(x, k))
    # Only what reads k / 2 is not compiled.
    assert list(graphs[-1].eager.values()) == ["aten.add.Tensor: a number that is not an integer"]


def test_an_instance_norm_updates_its_running_statistics() -> None:
    norm = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
    reference = copy.deepcopy(norm)
    fast, _ = compiled(norm)
    for _ in range(2):
        x = torch.randn(2, 3, 5)
        check_equal([fast(x)], [reference(x)])
    check_equal(norm.buffers(), reference.buffers())
    assert not norm.running_var.eq(1).any()


@few(1)
@pytest.mark.parametrize("layer", [nn.LSTM(4, 5, dropout=0.5, num_layers=2), nn.GRU(4, 5)])
def test_recurrent_layers_are_random_only_with_dropout(layer: nn.Module) -> None:
    x = torch.randn(3, 1, 4)
    with torch._dynamo.config.patch(allow_rnn=True):
        fast, graphs = compiled(layer.eval())
        check_equal([fast(x)[0]], [layer(x)[0]])
        fast, graphs_of_training = compiled(layer.train())
        fast(x)
    assert graphs[0].partitions and not graphs[0].eager
    assert bool(graphs_of_training[0].eager) is isinstance(layer, nn.LSTM)


def test_numbers_that_follow_from_sizes_are_computed() -> None:
    def fold(x: torch.Tensor) -> torch.Tensor:
        half, rest = x.shape[1] // 2, x.shape[1] % 2
        y = torch.special.bessel_j0(x)[:, : half * 2]
        z = y.reshape(x.shape[0], half, 2).sum(1)
        return z * (half * 3 + rest) + torch.full((x.shape[0], 2), half + 1)

    fast, graphs = compiled(fold, dynamic=True)
    for shape in ((3, 8), (4, 10), (2, 16)):
        x = torch.randn(shape)
        check_equal([fast(x)], [fold(x)])
    assert graphs[-1].partitions
    assert list(graphs[-1].eager.values()) == ["aten.special_bessel_j0.default: no converter"]


def test_the_decompositions_of_pytorch_are_listed_once_for_the_enabled_fixes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = rules_of_graphs(known_operators())
    monkeypatch.setattr(torch.export, "default_decompositions", None)
    rules, whole = rules_of_graphs(known_operators())
    assert (rules, whole) == expected
    assert torch.ops.aten.linear.default in whole and torch.ops.aten.linear.default not in rules
    monkeypatch.undo()
    monkeypatch.setenv("TVM_FIXES_DISABLE", "torch-linear")
    assert torch.ops.aten.linear.default in rules_of_graphs(known_operators())[0]


def test_sizes_that_a_guard_makes_equal_are_equal() -> None:
    def pairs(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = (x.shape[0] - 1) // 2 + 1
        y = torch.stack([x[:half], x[-half:]], 1).flatten(0, 1)
        # PyTorch knows from here on that `n` is even.
        return y + x, y @ x, torch.cat([y, x], 1), y.view(half * 2 * 9) * 2 + x.flatten()

    fast, graphs = compiled(pairs, dynamic=True)
    for rows in (8, 10, 14):
        x = torch.randn(rows, 3, 3)
        check_equal(fast(x), pairs(x))
    assert len(graphs) == 1 and len(graphs[0].partitions) == 1 and not graphs[0].eager


@from_tier("ci")
def test_sizes_that_are_rounded_floats_are_computed() -> None:
    def padded(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[0]
        rows = math.ceil(n / 4) * 4
        coordinates = torch.arange(0.5, n) / 8
        enlarged = F.interpolate(x[None, None], scale_factor=1.7)
        return x + coordinates[:, None], F.pad(x, (0, 0, 0, rows - n)).view(-1, 4, 3), enlarged * 2

    fast, graphs = compiled(padded, dynamic=True)
    for rows in (9, 12, 15):
        x = torch.randn(rows, 3)
        check_equal(fast(x), padded(x))
    assert len(graphs[-1].partitions) == 1 and not graphs[-1].eager


def test_constants_are_computed_while_pytorch_traces() -> None:
    def rounded(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.clamp(0, 3), torch.div(x, 2, rounding_mode="floor"), x // 3

    fast, graphs = compiled(rounded)
    x = torch.arange(-4, 5)
    check_equal(fast(x), rounded(x))
    assert graphs[0].partitions and not graphs[0].eager


def test_sizes_that_depend_on_data_stay_with_pytorch() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        fast, graphs = compiled(lambda x: (x[x > 0] * 2, x + 1))
        x = torch.tensor([-1.0, 2.0, 3.0])
        check_equal(fast(x), (x[x > 0] * 2, x + 1))
    assert any("sizes that depend on data" in reason for reason in graphs[0].eager.values())


def test_autocast_computes_in_bfloat16() -> None:
    # The parameters of the norm are float32, its data is not.
    layer = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4))
    fast, graphs = compiled(layer)
    x = torch.randn(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        value, expected = fast(x), layer(x)
    assert value.dtype is torch.bfloat16
    torch.testing.assert_close(value, expected, rtol=1e-2, atol=1e-2)
    assert graphs[0].partitions and not graphs[0].eager


def test_a_partition_that_fails_is_run_by_pytorch_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def fail(self: Partition, *arguments: object) -> None:
        calls.append(arguments)
        raise RuntimeError("a broken kernel")

    monkeypatch.setattr(Partition, "_results", fail)
    fast, _ = compiled(lambda x: x + 1)
    x = torch.ones(3)
    with caplog.at_level(logging.WARNING):
        assert fast(x).eq(2).all() and fast(x).eq(2).all()
    assert len(calls) == 1
    assert [r.message for r in caplog.records if "a broken kernel" in r.message] == [
        "a compiled partition failed, and PyTorch runs it from now on: a broken kernel"
    ]


def test_an_index_out_of_range_is_the_error_of_pytorch() -> None:
    fast, graphs = compiled(lambda x, i: x[i] + 1)
    x = torch.arange(4.0)
    assert fast(x, torch.tensor([3])).eq(4).all()
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        fast(x, torch.tensor([9]))
    # The kernel is not at fault.
    assert fast(x, torch.tensor([1])).eq(2).all()
    assert graphs[0].partitions


def test_a_node_that_cannot_be_imported_is_left_to_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tvm_fixes.frontend.torch.call import Context

    convert = Context.convert_node

    def reject(self: Context, node: torch.fx.Node) -> object:
        if node.target is torch.ops.aten.sin.default:
            raise ValueError("no sine today")
        return convert(self, node)

    monkeypatch.setattr(Context, "convert_node", reject)
    fast, graphs = compiled(lambda x: (x + 1).sin() * 2)
    x = torch.randn(3)
    check_equal([fast(x)], [(x + 1).sin() * 2])
    assert graphs[0].partitions == (1, 1)
    assert list(graphs[0].eager.values()) == ["aten.sin.default: no sine today"]


def test_without_fallback_what_is_not_compiled_is_an_error() -> None:
    fast = torch.compile(torch.special.bessel_j0, backend=backend, options={"fallback": False})
    with pytest.raises(BackendCompilerFailed, match=r"bessel_j0\.default: no converter") as caught:
        fast(torch.ones(3))
    assert isinstance(caught.value.inner_exception, UnsupportedOperatorError)


@pytest.mark.parametrize(
    ("options", "mode", "message"),
    [
        ({"colour": 1}, None, "unknown option 'colour'; options: target, layout, fallback"),
        ({"layout": "NCWH"}, None, "unknown layout 'NCWH'"),
        ({"fallback": "no"}, None, "fallback: expected a bool, got 'no'"),
        ({"target": "cuda"}, None, "cuda"),
        ({}, "max-autotune", "mode: expected 'default' or 'reduce-overhead', got 'max-autotune'"),
    ],
)
def test_invalid_options_are_named(
    options: dict[str, object], mode: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Options.read(options, mode)


def test_threads_and_children_run_a_compiled_model() -> None:
    layer = nn.Linear(64, 64)
    fast, _ = compiled(layer)
    x = torch.randn(32, 64)
    expected = layer(x)
    check_equal([fast(x)], [expected])
    results: list[torch.Tensor] = []

    def run() -> None:
        with torch.no_grad():
            results.extend(fast(x) for _ in range(5))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 15
    check_equal(results, [expected] * 15)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os._exit(0 if torch.allclose(fast(x), expected, atol=1e-5) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_waits_for_calls_but_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = Partition.build
    monkeypatch.setattr(Partition, "build", lambda self: (made.append(self), build(self)))
    fast, _ = compiled(lambda x: x + 1)
    x = torch.ones(3)
    assert fast(x).eq(2).all()
    is_held, is_forked = threading.Event(), threading.Event()

    def call(seconds: float) -> None:
        with made[0].lock:
            is_held.set()
            is_forked.wait(seconds)

    for patience, is_run in ((60, True), (0.1, False)):
        monkeypatch.setattr(after_fork, "_PATIENCE", patience)
        is_held.clear()
        thread = threading.Thread(target=call, args=(0.3 if is_run else 60,))
        thread.start()
        assert is_held.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            # PyTorch runs the partition if compiled code cannot.
            is_right = bool(fast(x).eq(2).all()) and (made[0]._kernels is not None) == is_run
            os._exit(0 if is_right else 1)
        is_forked.set()
        thread.join()
        is_forked.clear()
        assert os.waitpid(child, 0)[1] == 0
    assert fast(x).eq(2).all() and made[0]._kernels is not None


if __name__ == "__main__":
    tvm.testing.main()
