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
"""The reference in its own process, so that a crash or a hang of it does not affect this one."""

import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np

from ..errors import CompileError, summarize
from ..source import Reference
from ..support.isolate import ForkedChild, Outcome, start_forked
from ..support.signals import interrupts_deferred
from ..support.tensors import nbytes_of, numpy_dtype
from .comparison import median_seconds

__all__ = ["ReferenceProcess"]

_ALIGNMENT = 64

_Place = tuple[str, tuple[int, ...], int]
"""The dtype, the shape and the byte offset of an output."""


class ReferenceProcess:
    """Builds and runs the reference in a forked child, always with the same inputs.

    The child starts with a copy of this process's memory, which holds the model and the inputs.
    Outputs return through shared memory.

    Parameters
    ----------
    make : callable
        Builds the reference: :meth:`tvm_fixes.source.Source.reference`.
    inputs : sequence of numpy.ndarray
        The inputs of every run.

    Raises
    ------
    CompileError
        If `make` raises one.
    RuntimeError
        If `make` raises another exception or crashes.
    """

    def __init__(self, make: Callable[[], tuple[str, Reference]], inputs: Sequence[np.ndarray]):
        with ExitStack() as undo:
            self._memory = os.memfd_create("outputs")
            undo.callback(os.close, self._memory)
            self._pipe, theirs = Pipe()
            undo.callback(self._pipe.close)
            with theirs:
                self._child: ForkedChild | None = start_forked(
                    partial(_serve, make, inputs, self._pipe, theirs, self._memory)
                )
            undo.pop_all()
        try:
            self.name: str = self._receive()
        except BaseException:
            self.close()
            raise

    def outputs(self) -> list[np.ndarray]:
        """Run the reference once; return copies of its outputs."""
        size, places = self._ask("run")
        if not size:
            return [np.empty(shape, numpy_dtype(dtype)) for dtype, shape, _ in places]
        # Copy: the next run overwrites the memory.
        with mmap.mmap(self._memory, size) as memory:
            data = np.frombuffer(memory[:], "uint8")
        return [
            data[begin : begin + nbytes_of(shape, dtype)].view(numpy_dtype(dtype)).reshape(shape)
            for dtype, shape, begin in places
        ]

    def median_seconds(self, runs: int, budget: float) -> float:
        """Time the reference in the child: see :func:`.comparison.median_seconds`."""
        seconds: float = self._ask("time", runs, budget)
        return seconds

    def close(self) -> None:
        """Kill the child."""
        if self._child is None:
            return
        self._end(timed_out=True)
        self._pipe.close()
        os.close(self._memory)

    def _end(self, *, timed_out: bool) -> Outcome:
        child, self._child = self._child, None
        assert child is not None
        with interrupts_deferred():
            return child.finish(timed_out=timed_out)

    def _ask(self, *request: Any) -> Any:
        if self._child is None:
            raise RuntimeError("its process has already ended")
        try:
            self._pipe.send(request)
        except OSError:
            pass  # the child has ended; _receive reports how
        return self._receive()

    def _receive(self) -> Any:
        try:
            is_error, value = self._pipe.recv()
        except (EOFError, OSError):
            outcome = self._end(timed_out=False)
            self._pipe.close()
            os.close(self._memory)
            raise RuntimeError(f"its process ended: {outcome}") from None
        if is_error:
            raise value
        return value


def _serve(
    make: Callable[[], tuple[str, Reference]],
    inputs: Sequence[np.ndarray],
    theirs: Connection,
    pipe: Connection,
    memory: int,
) -> None:
    """Run in the child: answer requests until the other end closes."""
    theirs.close()
    run: Callable[[], list[np.ndarray]] | None = None
    while True:
        try:
            if run is None:
                name, reference = make()
                run = partial(reference, list(inputs))
                answer: object = name
            else:
                request = pipe.recv()
                answer = (
                    _store(run(), memory)
                    if request[0] == "run"
                    else median_seconds(run, *request[1:])
                )
        except EOFError:
            return
        except CompileError as error:
            pipe.send((True, error))
        except Exception as error:
            pipe.send((True, RuntimeError(summarize(error))))
        else:
            pipe.send((False, answer))
            continue
        if run is None:
            return


def _store(outputs: Sequence[object], memory: int) -> tuple[int, list[_Place]]:
    """Write the outputs to `memory`; return its size and their places."""
    places: list[_Place] = []
    end = 0
    with open(memory, "wb", closefd=False) as file:
        for index, output in enumerate(outputs):
            if not isinstance(output, np.ndarray) or output.dtype.kind == "O":
                kind = getattr(output, "dtype", type(output).__name__)
                raise TypeError(f"output {index}: expected a tensor of numbers, got {kind}")
            begin = -(-end // _ALIGNMENT) * _ALIGNMENT
            file.seek(begin)
            file.write(np.ascontiguousarray(output).reshape(-1).view("uint8").data)
            places.append((output.dtype.name, output.shape, begin))
            end = begin + output.nbytes
    return end, places
