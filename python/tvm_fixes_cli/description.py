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
"""The description of a model, and of files that are not models, without TVM and PyTorch."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from . import terminal
from .package import package_module
from .terminal import FAILED, WRONG_USE, Failure

Dim = int | str
Command = tuple[str, str]
"""A command line, and what it does."""

_kinds = package_module("support/file_kinds.py")
LIBRARY: str = _kinds.LIBRARY
"""The kind of a file that may be an artifact's library."""

_EXPECTED = {"onnx": "a readable ONNX file", ".pt2": "a file of torch.export.save"}
_MAX_OPERATORS = 8


@dataclass(frozen=True)
class Value:
    """An input or an output of a model; its shape is None if its rank is unknown."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None

    def __str__(self) -> str:
        dims = "unknown rank" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype} ({dims})"


@dataclass(frozen=True)
class Description:
    """The signature, the operators and the weights of a model.

    Attributes
    ----------
    name, format, producer : str
        The model, its format with versions, and what wrote it.
    inputs, outputs : list of Value
        Without initializers and constant arguments.
    operators : dict of str to int
        The number of nodes of each operator, the most frequent first, with those of nested graphs.
    weights : dict of str to int
        The bytes of the weights, by dtype.
    dims : dict of str to str
        The range of each symbolic dim that has one.
    external : dict of str to int
        The sizes of files with weights beside the model.
    missing : dict of str to str
        What is wrong with such files.
    unsupported : list of str
        Operators that certainly cannot be imported.
    trust : bool
        Whether other commands read it only with ``--trust``.
    imports : list of str
        The modules that they have to import.
    """

    name: str
    format: str
    producer: str
    inputs: list[Value]
    outputs: list[Value]
    operators: dict[str, int]
    weights: dict[str, int]
    dims: dict[str, str] = field(default_factory=dict)
    external: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unsupported: list[str] = field(default_factory=list)
    trust: bool = False
    imports: list[str] = field(default_factory=list)

    def next_commands(self, reference: str) -> list[tuple[str, str]]:
        """The names of the commands to use next, and what they do."""
        if self.unsupported:
            return [("check", "the operators that cannot be imported, with their nodes")]
        compiling = [
            ("compile", f"compile it, and compare it with {reference}"),
            ("compare", "if the outputs differ: the first node whose result does"),
        ]
        return [] if self.missing else compiling

    def to_json(self, commands: Iterable[Command]) -> str:
        """The description as one JSON object, indented."""
        computed = {"nodes": sum(self.operators.values()), "next": [line for line, _ in commands]}
        return json.dumps(asdict(self) | computed, indent=2)

    def rows(self, show_all: bool) -> Iterator[tuple[str, str]]:
        """The lines of a text for a person: labels and values."""
        yield "model", self.name
        yield "format", self.format
        if self.producer:
            yield "producer", self.producer
        for label, values in (("input", self.inputs), ("output", self.outputs)):
            yield from ((label, str(value)) for value in values)
        yield from (("dim", f"{name}: {limits}") for name, limits in self.dims.items())
        listed = list(self.operators.items())[: None if show_all else _MAX_OPERATORS]
        more = len(self.operators) - len(listed)
        text = ", ".join(f"{name} {count}" for name, count in listed)
        suffix = f", and {more} more operators (--all)" if more else ""
        yield "nodes", f"{sum(self.operators.values())}: {text}{suffix}"
        sizes = ", ".join(f"{k} {terminal.size_text(v)}" for k, v in self.weights.items())
        yield "weights", sizes or "none"
        yield from (("external", f"{k}, {terminal.size_text(v)}") for k, v in self.external.items())
        yield from (("missing", f"{name}: {why}") for name, why in self.missing.items())
        if self.unsupported:
            yield "unsupported", ", ".join(self.unsupported)


def most_first(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest numbers first."""
    return dict(Counter(counts).most_common())


def write(found: Description, commands: Iterable[Command], show_all: bool) -> None:
    """Print a description, and the commands to use next."""
    for label, text in found.rows(show_all):
        print(terminal.printable(f"{label:<12}{text}"))
    for command in commands:
        print(terminal.printable(terminal.command_text("next", *command)))


def check_kind(path: str) -> None:
    """Reject a file whose first bytes show that it is not the model that its name says.

    Raises
    ------
    Failure
        If it is another file, or cannot be read.
    """
    kind = kind_of(path)
    # An ONNX file may begin with text.
    if kind not in ("", _kinds.ZIP if path.endswith(".pt2") else _kinds.TEXT):
        raise Failure(f"{path}: not {_EXPECTED[path[-4:]]}: it is {kind}", FAILED)


def malformed(path: str, reason: object) -> Failure:
    """The failure for a file that a reader rejects."""
    text = " ".join(str(reason).split())[:200]
    what = (
        f"it is {_kinds.TEXT}"
        if kind_of(path) == _kinds.TEXT
        else f"truncated, or another format ({text})"
    )
    return Failure(f"{path}: not {_EXPECTED[path[-4:]]}: {what}", FAILED)


def kind_of(path: str) -> str:
    """The kind of a file by its first bytes; empty if they do not tell.

    Raises
    ------
    Failure
        If it cannot be read.
    """
    try:
        return str(_kinds.kind_of(path))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", WRONG_USE) from error
