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
"""Models as lists of operators, so that some of them make up a smaller model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from .literals import Drawn
from .minimize import improve, minimize


@dataclass(frozen=True)
class Text:
    """The program text of a candidate.

    Attributes
    ----------
    name : str
        The name of the reference.
    imports, reference_imports, stock_imports : tuple of str
        Modules, such as ``"numpy as np"``, or whole ``from`` statements.
    model : list of str
        The lines that define ``model``, given ``constants``.
    stock : list of str
        The lines that define ``mod``, TVM's import of ``model``.
    reference : list of str
        The lines that define a function ``reference`` and its results ``expected``, given ``model``
        and ``inputs``.
    inputs, constants : dict of str to numpy.ndarray
    drawn : dict of str to Drawn
        Those of them with random values.
    wrap : list of str
        More lines that define ``model``, given ``inputs``.
    """

    name: str
    imports: tuple[str, ...]
    reference_imports: tuple[str, ...]
    stock_imports: tuple[str, ...]
    model: list[str]
    stock: list[str]
    reference: list[str]
    inputs: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    drawn: dict[str, Drawn]
    wrap: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Candidate(ABC):
    """A part of a model, with values for its inputs.

    Attributes
    ----------
    label : str
        What it consists of; no two candidates of one model have the same label.
    inputs : mapping of str to numpy.ndarray
        The values of its inputs, in order.
    drawn : mapping of str to Drawn
        The inputs and constants with random values.
    """

    label: str
    inputs: Mapping[str, np.ndarray]
    drawn: Mapping[str, Drawn] = field(default_factory=dict, kw_only=True)

    @property
    @abstractmethod
    def operators(self) -> list[str]:
        """The names of its operators, in order."""

    @abstractmethod
    def model(self) -> Any:
        """The model, in a form that :func:`tvm_fixes.compile` accepts."""

    @abstractmethod
    def save(self, folder: Path) -> Path:
        """Write the model to a new file in a folder, and return its path."""

    @abstractmethod
    def text(self) -> Text:
        """The candidate as lines of a Python program."""

    @property
    def symbolic(self) -> Mapping[str, Sequence[int]]:
        """The axes of inputs that must be symbolic as in the model, so that it proves anything."""
        return {}

    def simpler(self) -> "Iterator[Candidate]":
        """Simpler candidates, such as some with fewer outputs, the most promising first."""
        return iter(())

    def constants(self) -> dict[str, np.ndarray]:
        """The constants by name."""
        return {}

    def values(self) -> list[str]:
        """The names of the inputs and constants whose values may be replaced."""
        arrays = {**self.inputs, **self.constants()}
        return [name for name, array in arrays.items() if array.dtype.kind != "O"]

    def with_drawn(self, kept: Collection[str]) -> Self:
        """The candidate with random values, except for the inputs and constants `kept`."""
        arrays = {**self.inputs, **self.constants()}
        names = [name for name in self.values() if name not in kept]
        drawn = {name: Drawn.like(arrays[name], seed) for seed, name in enumerate(names)}
        label = f"{self.label}; random values{' except of ' if kept else ''}{', '.join(kept)}"
        new = {name: one.array() for name, one in drawn.items()}
        inputs = {name: new.get(name, array) for name, array in self.inputs.items()}
        return replace(self._with_constants(new), label=label, inputs=inputs, drawn=drawn)

    def _with_constants(self, new: Mapping[str, np.ndarray]) -> Self:
        """The candidate with other values of constants; other names are not constants."""
        return self


class Parts(ABC):
    """A model as a list of operators in topological order.

    Attributes
    ----------
    operators : list of str
        The names of the operators.
    """

    operators: list[str]

    @abstractmethod
    def cut(self, kept: Sequence[int]) -> Candidate | None:
        """The model of some operators.

        What they read of other operators becomes inputs or constants, with the values of a run of
        the whole model.

        Returns
        -------
        candidate : Candidate or None
            None if they are not a model of their own, for example because a value is no tensor.
        """


def smallest(parts: Parts, shows: Callable[[Candidate], bool]) -> Candidate | None:
    """A small candidate of a model that shows a fault; None if even all operators do not.

    It drops operators first, and then outputs and extents.
    """

    def is_enough(kept: Sequence[int]) -> bool:
        candidate = parts.cut(kept) if kept else None
        return candidate is not None and shows(candidate)

    everything = range(len(parts.operators))
    if not is_enough(everything):
        return None
    candidate = parts.cut(minimize(everything, is_enough))
    assert candidate is not None
    return improve(candidate, lambda one: one.simpler(), shows)


def describe(kept: Sequence[int]) -> str:
    """Describe places, in ascending order, such as ``"0-3,7"``."""
    runs: list[list[int]] = []
    for place in kept:
        if runs and runs[-1][-1] + 1 == place:
            runs[-1][1:] = [place]
        else:
            runs.append([place])
    return ",".join("-".join(map(str, run)) for run in runs) or "none"
