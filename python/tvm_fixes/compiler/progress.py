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
"""The steps of a compilation that callers see: names, times and failures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import CompileError, summarize


@dataclass(frozen=True)
class Step:
    """One step of a compilation.

    Attributes
    ----------
    name : str
        A readable name: ``load``, ``import``, ``verify``, ``cache``, ``reference``, a stage of
        :func:`tvm_fixes.lowering.stages`, ``verify kernels`` after ``Legalize``, ``build``,
        ``export``, ``compare`` or ``save``.
    seconds : float or None
        The time that the step took; None while it runs.
    """

    name: str
    seconds: float | None = None


Progress = Callable[[Step], None]

OUT_OF_MEMORY = "out of memory; smaller extents (--shape, --size), or --static, need less"


class Run:
    """One compilation: times its steps, and names the step in errors.

    Parameters
    ----------
    progress : callable, optional
        Called with a :class:`Step` when a step begins and when it ends.

    Attributes
    ----------
    seconds : dict of str to float
        The time that each step took, in order.
    """

    def __init__(self, progress: Progress | None):
        self.seconds: dict[str, float] = {}
        self._progress = progress or (lambda step: None)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run the ``with`` block as a step; turn its exceptions into a CompileError."""
        self._progress(Step(name))
        start = time.perf_counter()
        try:
            yield
        except CompileError as error:
            error.stage = error.stage or name
            raise
        except MemoryError as error:
            raise CompileError(OUT_OF_MEMORY, stage=name) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Not only Exception: a model's own code may raise SystemExit.
            text = OUT_OF_MEMORY if "std::bad_alloc" in str(error) else summarize(error)
            raise CompileError(text, stage=name) from error
        seconds = round(time.perf_counter() - start, 3)
        self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 3)
        self._progress(Step(name, seconds))
