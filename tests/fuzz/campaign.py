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
"""Campaigns, and the results of their cases."""

import importlib
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tvm_fixes.support.isolate import Outcome, OutcomeKind


class Verdict(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    REFUSED = "refused"
    """The input was rejected with a message that names the place and the reason."""
    WRONG = "wrong"
    """A result differs from the oracle's, or a message names neither operator nor node."""
    CRASHED = "crashed"
    HUNG = "hung"
    ERROR = "error"
    """An internal exception of the product or of the generator."""


FAULTS = (Verdict.WRONG, Verdict.CRASHED, Verdict.HUNG, Verdict.ERROR)


@dataclass(frozen=True)
class Result:
    """The result of one case.

    Attributes
    ----------
    seed : int
    verdict : Verdict
    message : str
        Empty if the case passed.
    seconds : float
        Wall-clock time.
    """

    seed: int
    verdict: Verdict
    message: str
    seconds: float

    @property
    def cause(self) -> str:
        """The message without names and numbers, which differ between cases with the same cause."""
        lines = self.message.splitlines() or [""]
        bare = re.sub(r"'[^']*'|\[.*?\]|\(.*?\)|\{.*?\}", "…", lines[0])
        return re.sub(r"\b(lv|node|v|x)?\d+\b|-?\d+(\.\d+)?(e[+-]?\d+)?", "#", bare)[:120]


@dataclass(frozen=True)
class Campaign:
    """Cases of one kind, each generated from a seed.

    Attributes
    ----------
    name : str
    module : str
        The module of this package with ``run_case(seed) -> str | None``: None for a pass, a message
        for a rejected input; an ``AssertionError`` is a fault.  Optional: ``reproduce(seed) ->
        str``, a small test of the fault.
    summary : str
        One line for the help text.
    timeout : float
        Seconds per case.
    gigabytes : float
        Memory limit of a case.
    preparation : str
        The module whose ``prepare()`` loads what every case needs; empty if there is none.
    """

    name: str
    module: str
    summary: str
    timeout: float = 60.0
    gigabytes: float = 6.0
    preparation: str = ""

    def function(self, name: str) -> Callable[..., Any] | None:
        """The function `name` of the module; None if it has none."""
        module = importlib.import_module(f"{__package__}.{self.module}")
        return getattr(module, name, None)

    def prepare(self) -> None:
        """Load in this process what its forked cases need."""
        if self.preparation:
            importlib.import_module(f"{__package__}.{self.preparation}").prepare()

    def case(self, seed: int) -> Callable[[], str | None]:
        """The case of `seed`; call it in its own process."""
        run_case = self.function("run_case")
        assert run_case is not None, f"{self.module} has no run_case"
        limit = int(self.gigabytes * (1 << 30))

        def run() -> str | None:
            # The limit includes memory that is already mapped.
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            return run_case(seed)

        return run


def judge(seed: int, outcome: Outcome) -> Result:
    """The result of the case of `seed`, from the `outcome` of its process."""
    verdict, message = Verdict.PASSED, ""
    if outcome.kind is OutcomeKind.VALUE:
        if outcome.value is not None:
            verdict, message = Verdict.REFUSED, str(outcome.value)
    elif outcome.kind is OutcomeKind.TIMEOUT:
        verdict, message = Verdict.HUNG, str(outcome)
    elif outcome.kind is OutcomeKind.EXCEPTION:
        wrong = outcome.name == "AssertionError"
        verdict = Verdict.WRONG if wrong else Verdict.ERROR
        message = outcome.message if wrong else f"{outcome}\n{outcome.output}"
    else:
        verdict, message = Verdict.CRASHED, f"{outcome}\n{outcome.output}"
    return Result(seed, verdict, message, outcome.seconds)


_TORCH: dict[str, Any] = {"timeout": 120.0, "preparation": "torch_prepare"}

CAMPAIGNS = (
    Campaign("onnx", "onnx_models", "ONNX graphs against ONNX Runtime and onnx's reference"),
    Campaign("recurrent", "onnx_recurrent", "RNN, GRU and LSTM of symbolic length"),
    Campaign("onnx-old", "onnx_old_opsets", "ONNX graphs of opsets 7 to 12"),
    Campaign("dims", "onnx_dims", "ONNX inputs with unnamed, shared and misleading dims"),
    Campaign("unsorted", "onnx_unsorted", "ONNX graphs whose nodes have a random order"),
    Campaign("slices", "onnx_slices", "slices that end far out of range", **_TORCH),
    Campaign("torch", "torch_programs", "PyTorch programs through torch.export", **_TORCH),
    Campaign(
        "torch-compile",
        "torch_compile",
        "PyTorch programs through torch.compile, with failures",
        timeout=240.0,
        preparation="torch_compile",
    ),
    Campaign("loops", "torch_recurrent", "PyTorch's recurrent layers and loops", **_TORCH),
    Campaign("opinfo", "opinfo", "PyTorch's own sample inputs of its operators", **_TORCH),
    Campaign(
        "opinfo-compile",
        "opinfo_compile",
        "PyTorch's sample inputs through torch.compile",
        timeout=240.0,
        preparation="torch_compile",
    ),
    Campaign("signatures", "torch_signatures", "PyTorch programs of nested arguments", **_TORCH),
    Campaign("casts", "casts", "casts of floats to integers out of range, in chains", **_TORCH),
    Campaign("import-options", "import_options", "options of importers, two pipelines", **_TORCH),
    Campaign("passes", "passes", "Relax modules through every pass"),
    Campaign(
        "import-passes",
        "import_passes",
        "what plain TVM does right, with passes between TVM's",
        preparation="import_passes",
    ),
    Campaign("verifier", "verifier_modules", "valid Relax modules, and mutations of them"),
    Campaign("relay", "relay_models", "Relay programs against their evaluation in NumPy"),
    Campaign("files", "files", "hostile files of each input format", preparation="files"),
    Campaign("save", "save", "concurrent writers, killed while they save"),
    Campaign("cache-keys", "cache_keys", "keys of modules that differ in one place"),
    Campaign("cache-kill", "cache_kill", "a process that uses the cache, killed"),
    Campaign("cache-concurrent", "cache_concurrent", "processes that use one cache"),
    Campaign("cache-corrupt", "cache_corrupt", "damaged files of the cache"),
)
