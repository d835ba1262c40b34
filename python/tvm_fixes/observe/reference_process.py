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
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, cast

import numpy as np

from ..errors import CompileError, summarize
from ..source import Reference
from ..support import logs
from ..support.isolate import ForkedChild, Outcome, OutcomeKind, run_forked, start_forked
from ..support.signals import interrupts_deferred
from ..support.tensors import nbytes_of, numpy_dtype
from . import latency

__all__ = ["ReferenceProcess"]

_ALIGNMENT = 64

# Other processes may have the processors: runs go on until they have had the time limit on a
# processor, or until this multiple of it has passed.
_MAX_WAITING = 10

# A run that began in time may take this multiple of the time limit.
_TIMES_LONGER = 3

_Place = tuple[str, tuple[int, ...], int]
"""The dtype, the shape and the byte offset of an output."""


class ReferenceProcess:
    """Builds and runs the reference in a forked child, with the same inputs until others replace
    them.

    The child starts with a copy of this process's memory, which holds the model and the inputs.
    Outputs return through shared memory.

    Parameters
    ----------
    make : callable
        Builds the reference: :meth:`tvm_fixes.source.Source.reference`.
    inputs : sequence of numpy.ndarray
        The inputs of every run, up to a call of :meth:`use`.
    vary : callable, optional
        Builds the reference with other rounding errors for a seed:
        :meth:`tvm_fixes.source.Source.rounded_reference`.

    Raises
    ------
    CompileError
        If `make` raises one.
    RuntimeError
        If `make` raises another exception or crashes.
    """

    def __init__(
        self,
        make: Callable[[], tuple[str, Reference]],
        inputs: Sequence[np.ndarray],
        vary: Callable[[int], Reference] | None = None,
    ):
        with ExitStack() as undo:
            self._memory = os.memfd_create("outputs")
            undo.callback(os.close, self._memory)
            self._pipe, theirs = Pipe()
            undo.callback(self._pipe.close)
            with theirs:
                self._child: ForkedChild | None = start_forked(
                    partial(_serve, make, vary, inputs, self._pipe, theirs, self._memory)
                )
            undo.pop_all()
        try:
            self.name: str = self._receive()
        except BaseException:
            self.close()
            raise

    def outputs(self) -> list[np.ndarray]:
        """Run the reference once; return copies of its outputs."""
        return self._copies(*self._ask("run"))

    def use(self, inputs: Sequence[np.ndarray]) -> None:
        """Replace the inputs of every later run."""
        self._ask("use", list(inputs))

    def rounded_outputs(self, seeds: Sequence[int], seconds: float) -> list[list[np.ndarray]]:
        """Run the reference with other rounding errors, once for each seed.

        It does so in a child of its own process, whose crash has no consequences.

        Parameters
        ----------
        seeds : sequence of int
        seconds : float
            The time after which no run begins; later if other processes have the processors.

        Returns
        -------
        outputs : list of list of numpy.ndarray
            The outputs of each run; fewer than seeds if it fails or takes too long.
        """
        size, places = self._ask("vary", seeds, seconds)
        flat = self._copies(size, [place for run in places for place in run])
        return [[flat.pop(0) for _ in run] for run in places]

    def _copies(self, size: int, places: Sequence[_Place]) -> list[np.ndarray]:
        """The arrays in the shared memory."""
        if not size:
            return [np.empty(shape, numpy_dtype(dtype)) for dtype, shape, _ in places]
        # Copy: the next run overwrites the memory.
        with mmap.mmap(self._memory, size) as memory:
            data = np.frombuffer(memory[:], "uint8")
        return [
            data[begin : begin + nbytes_of(shape, dtype)].view(numpy_dtype(dtype)).reshape(shape)
            for dtype, shape, begin in places
        ]

    def block(self, runs: int, budget: float) -> list[float]:
        """Time the reference in the child: see :func:`.latency.block`."""
        seconds: list[float] = self._ask("time", runs, budget)
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
    vary: Callable[[int], Reference] | None,
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
                request, *arguments = pipe.recv()
                if request == "run":
                    answer = _store(run(), memory)
                elif request == "use":
                    [inputs] = arguments
                    run, answer = partial(reference, list(inputs)), None
                elif request == "time":
                    answer = latency.block(run, *arguments)
                else:
                    answer = _vary(vary, inputs, memory, *arguments)
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


def _vary(
    vary: Callable[[int], Reference] | None,
    inputs: Sequence[np.ndarray],
    memory: int,
    seeds: Sequence[int],
    seconds: float,
) -> tuple[int, list[list[_Place]]]:
    """Run the reference with other rounding errors in a child; its outputs are in `memory`."""
    if vary is None:
        return 0, []

    def run_all() -> tuple[int, list[list[_Place]]]:
        start, start_on_processor = time.monotonic(), time.process_time()
        runs: list[list[np.ndarray]] = []
        for seed in seeds:
            try:
                runs.append(vary(seed)(list(inputs)))
            except Exception as error:  # such as a kernel that only the optimizer replaces
                logs.debug("compare", f"a run of the reference fails: {summarize(error)}")
            passed = time.monotonic() - start
            is_used_up = time.process_time() - start_on_processor > seconds
            if passed > _MAX_WAITING * seconds or (passed > seconds and is_used_up):
                break
        size, places = _store([output for run in runs for output in run], memory)
        return size, [[places.pop(0) for _ in run] for run in runs]

    outcome = run_forked(run_all, timeout=(_MAX_WAITING + _TIMES_LONGER) * seconds)
    if outcome.kind is OutcomeKind.VALUE:
        return cast(tuple[int, list[list[_Place]]], outcome.value)
    logs.debug("compare", f"the reference with other rounding errors: {outcome}")
    return 0, []


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
