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
"""Inputs that partitions of ``torch.compile`` update in place, against PyTorch."""

import copy
import logging
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo
import tvm.testing

from helpers.grids import from_tier
from helpers.torch_partitions import made
from tvm_fixes.torch.backend import Backend
from tvm_fixes.torch.options import Options
from tvm_fixes.torch.partition import Partition

__all__ = ["made"]

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiled(program: Callable[..., object]) -> Callable[..., object]:
    return torch.compile(program, backend=Backend(Options()))


def check_calls(
    program: Callable[..., object], fast: Callable[..., object], calls: list[tuple[Tensor, ...]]
) -> None:
    """Compare results and all arguments, which keep their aliases, with those of PyTorch."""
    for arguments in calls:
        same = copy.deepcopy(arguments)
        torch.testing.assert_close(fast(*arguments), program(*same))
        torch.testing.assert_close(arguments, same, rtol=1e-5, atol=1e-6)


def step(x: Tensor, position: Tensor, second: Tensor, *cache: Tensor) -> Tensor:
    """Two layers of attention, whose keys and values are written to a cache."""
    for place, keys, values in zip((position, second), cache[::2], cache[1::2], strict=True):
        keys.index_copy_(1, place, x)
        values[:, place] = x * 2
        x = torch.softmax(x @ keys.mT, -1) @ values
    return x


def step_inputs(position: int, second: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    places = (position, position if second is None else second)
    return torch.randn(2, 1, 4), *(torch.tensor([place]) for place in places)


def new_cache() -> list[Tensor]:
    return [torch.randn(2, 8, 4) for _ in range(4)]


def test_a_cache_is_updated_in_place_and_cannot_be_where_memory_does_not_allow_it(
    made: list[Partition],
) -> None:
    fast, cache = compiled(step), new_cache()
    check_calls(step, fast, [(*step_inputs(place), *cache) for place in (0, 3, 3, 1)])
    assert len(made) == 1
    assert sorted(made[0]._updates.values()) == sorted(made[0]._inputs._updated)
    assert len(made[0]._updates) == 4

    updated: list[int] = []
    ready = made[0]._inputs.ready

    def watched(tensors: list[Tensor], others: tuple[Tensor, ...]) -> object:
        given = list(tensors)
        values = ready(tensors, others)
        updated.append(sum(tensors[i] is given[i] for i in made[0]._inputs._updated))
        return values

    made[0]._inputs.ready = watched
    misaligned = torch.zeros(2 * 8 * 4 + 1)[1:].view(2, 8, 4)
    buffer, overlapping = torch.zeros(4, 8, 4), torch.zeros(3, 8, 4)
    layers = torch.zeros(4, 2, 8, 4)
    for other, count in (
        (cache, 4),
        (new_cache(), 4),
        ([misaligned, *cache[1:]], 3),
        # A slice, but no overlap.
        ([buffer[:2], buffer[2:], *cache[:2]], 4),
        ([*cache[:2], overlapping[:2], overlapping[1:]], 0),
        (list(layers), 4),
    ):
        # Where they overlap, the graph that was traced computes all results from the old values.
        arguments = (*step_inputs(2), *other)
        separate = [tensor.clone() for tensor in arguments]
        torch.testing.assert_close(fast(*arguments), step(*separate))
        if count:
            torch.testing.assert_close(arguments, tuple(separate))
        assert updated.pop() == count
    assert len(made) == 1


@from_tier("ci")
def test_a_transposed_cache_and_one_of_another_graph(made: list[Partition]) -> None:
    fast = compiled(step)
    cache = [torch.zeros(2, 4, 8).mT for _ in range(4)]
    check_calls(step, fast, [(*step_inputs(place), *cache) for place in (0, 1)])
    prompt = torch.randn(2, 3, 4), torch.arange(3), torch.arange(3)
    cache = new_cache()
    check_calls(step, fast, [(*prompt, *cache), (*step_inputs(3), *cache)])


def test_a_wrong_index_after_a_write_is_the_error_of_pytorch(made: list[Partition]) -> None:
    fast, cache = compiled(step), new_cache()
    same = copy.deepcopy(cache)
    for place, second in ((0, 0), (1, 8), (1, 1), (2, 2)):
        x, *places = step_inputs(place, second)
        if second < 8:
            torch.testing.assert_close(fast(x, *places, *cache), step(x, *places, *same))
            torch.testing.assert_close(cache, same)
            continue
        for model, own in ((fast, cache), (step, same)):
            with pytest.raises(IndexError):
                model(x, *places, *own)
        # The cache of the second layer is as before; that of the first one is rewritten later.
        torch.testing.assert_close(cache[2:], same[2:])
    assert made[0]._updates and made[0]._kernels is not None


def test_a_partition_that_fails_after_its_writes_is_run_again(
    made: list[Partition], caplog: pytest.LogCaptureFixture
) -> None:
    fast, cache = compiled(step), new_cache()
    check_calls(step, fast, [(*step_inputs(0), *cache)])
    kernels = made[0]._kernels
    assert kernels is not None

    def fail(*arguments: object) -> None:
        kernels.function(*arguments)
        raise RuntimeError("a broken kernel")

    made[0]._kernels = kernels._replace(function=fail)
    with caplog.at_level(logging.WARNING):
        check_calls(step, fast, [(*step_inputs(place), *cache) for place in (1, 2)])
    assert sum("a broken kernel" in record.message for record in caplog.records) == 1


def test_inference_tensors(made: list[Partition]) -> None:
    def write(cache: Tensor, position: Tensor, row: Tensor) -> Tensor:
        cache.index_copy_(0, position, row)
        return cache.sum(0)

    fast = compiled(write)
    with torch.inference_mode():
        cache = torch.zeros(8, 4)
        calls = [(cache, torch.tensor([i]), torch.randn(1, 4)) for i in (0, 5)]
        check_calls(write, fast, calls)
    assert made[0]._updates
    with pytest.raises(RuntimeError, match="inference tensor"):
        fast(cache, torch.tensor([1]), torch.randn(1, 4))


def write_chain(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    a[i] = row
    a.scatter_(0, i[:, None].expand(-1, 4) + 1, row + 1)
    return a * 2


def read_first(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    total = a.sum()
    a[i] = row
    return total + a.sum()


def write_what_is_read(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    a[i] = a[i + 1] + row
    return a * 2


def accumulate(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    a.index_put_((i,), row, accumulate=True)
    return a * 2


def add(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    a[i] = row
    a.add_(1)
    return a * 2


def return_a_copy(a: Tensor, i: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    new = a.index_copy(0, i, row)
    a.copy_(new)
    return new, new * 2


def return_a_view(a: Tensor, i: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    a[i] = row
    return a, a[1:]


def read_by_pytorch(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    old = torch.special.bessel_j0(a)
    a[i] = row
    return old + a


def read_new_by_pytorch(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    a[i] = row
    return torch.special.bessel_j0(a) + a


def copy_to_another(a: Tensor, i: Tensor, row: Tensor) -> Tensor:
    a[i] = row
    row.copy_(a[:1])
    return a * 2


@pytest.mark.parametrize(
    ("program", "is_in_place"),
    [
        (write_chain, True),
        (read_first, False),
        (write_what_is_read, False),
        (accumulate, False),
        (add, False),
        (return_a_copy, False),
        (return_a_view, False),
        (read_by_pytorch, False),
        (read_new_by_pytorch, False),
        (copy_to_another, True),
    ],
)
def test_only_writes_that_may_run_again_are_in_place(
    program: Callable[..., object], is_in_place: bool, made: list[Partition]
) -> None:
    a = torch.randn(8, 4)
    calls = [(a, torch.tensor([place]), torch.randn(1, 4)) for place in (0, 5, 6, 0)]
    fast = compiled(program)
    check_calls(program, fast, calls)
    assert any(partition._updates for partition in made) == is_in_place


def test_an_input_that_another_part_of_the_graph_reads(made: list[Partition]) -> None:
    def program(a: Tensor, b: Tensor, i: Tensor, row: Tensor) -> Tensor:
        a[i] = row
        return torch.special.bessel_j0(b) + a.sum()

    fast, a, row = compiled(program), torch.zeros(8, 4), torch.randn(1, 4)
    check_calls(program, fast, [(a, torch.zeros(3, 4), torch.tensor([1]), row)])
    assert made[0]._updates
    separate = program(a.clone(), a[:3].clone(), torch.tensor([2]), row)
    # The graph that was traced reads `b` before it writes to `a`.
    torch.testing.assert_close(fast(a, a[:3], torch.tensor([2]), row), separate)


def test_threads_with_caches_of_their_own(made: list[Partition]) -> None:
    fast = compiled(step)
    fast(*step_inputs(0), *new_cache())
    failures: list[Exception] = []

    def run() -> None:
        cache = new_cache()
        try:
            with torch.no_grad():
                check_calls(step, fast, [(*step_inputs(i % 8), *cache) for i in range(20)])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(made) == 1


if __name__ == "__main__":
    tvm.testing.main()
