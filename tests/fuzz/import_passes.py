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
"""The campaign ``import-passes``: what plain TVM does right, after ``import tvm_fixes``.

A random module goes through TVM's pipeline in a process without tvm_fixes, and in this one. Where
plain TVM is right, importing must change nothing, and passes of ``tvm_fixes.transform`` between
TVM's are right, or rejected in one sentence.
"""

import functools
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_fixes import transform
from tvm_fixes.errors import UnsupportedOperatorError, UsageError, summarize
from tvm_fixes.support.tensors import arrays_of
from tvm_fixes.testing import _call_after, _to_tvm

from .passes import _TAKES_WEIGHTS
from .relax_oracle import Undefined, expected
from .relax_programs import Program, make_program
from .stock_server import pipeline

_SERVER = "TVM_FIXES_STOCK_SERVER"
"""The environment variable with the path of the server's socket, for forked cases."""

_SIZES = 3
_START_SECONDS = 120.0

TVM_PASSES = (
    "CanonicalizeBindings",
    "ConvertToDataflow",
    "DeadCodeElimination",
    "EliminateCommonSubexpr",
    "FoldConstant",
    "Normalize",
    "RemoveUnusedOutputs",
    "ToNonDataflow",
)
"""Passes of TVM's that may run anywhere before its memory is planned."""

_MAX_PLACE = len(pipeline([]).passes)
_LAST_OF_TVM = [step.info.name for step in pipeline([]).passes].index("ToNonDataflow")

_WITH_ARGUMENTS: dict[str, Callable[[], tvm.transform.Pass]] = {
    "ConstantsToParams": lambda: transform.ConstantsToParams(1 << 30, {}),
}

Steps = list[tuple[int, str]]


def make_pass(name: str) -> tvm.transform.Pass:
    """The pass of tvm_fixes with a name."""
    return _WITH_ARGUMENTS.get(name, getattr(transform, name))()


@functools.cache
def start_server() -> str:
    """Start the server without tvm_fixes, and return the path of its socket."""
    path = str(Path(tempfile.mkdtemp(prefix="tvm-fixes-")) / "socket")
    script = Path(__file__).with_name("stock_server.py")
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.Popen([sys.executable, str(script), path], env=environment)
    end = time.monotonic() + _START_SECONDS
    while not Path(path).exists():
        assert time.monotonic() < end, "the server with plain TVM does not start"
        time.sleep(0.1)
    os.environ[_SERVER] = path
    return path


def prepare() -> None:
    """Start the server before the cases are forked."""
    start_server()


def run_stock(mod: tvm.IRModule, steps: Steps, calls: list[list[np.ndarray]]) -> Any:
    """The outputs of each call with plain TVM, or the text of an error."""
    path = os.environ.get(_SERVER) or start_server()
    with Client(path, family="AF_UNIX") as connection:
        connection.send_bytes(pickle.dumps((tvm.ir.save_json(mod), steps, calls)))
        try:
            return pickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionError):
            return "plain TVM crashes"


def run_case(seed: int) -> str | None:
    """Check the module of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    rng = np.random.default_rng([17, seed])
    program = make_program(np.random.default_rng(seed))
    calls, wanted = _calls(program, seed)
    if not calls:
        return None
    steps = random_steps(rng, TVM_PASSES, _LAST_OF_TVM, 2)
    stock = run_stock(program.mod, steps, calls)
    if isinstance(stock, str):
        return f"plain TVM: {summarize(stock)}"
    faults = [want.difference(got) for want, got in zip(wanted, stock, strict=True)]
    if any(faults):
        return f"plain TVM is wrong: {next(filter(None, faults))}"
    has_weights = "num_input" in (program.mod["main"].attrs or {})
    names = [name for name in transform.__all__ if has_weights or name not in _TAKES_WEIGHTS]
    own = random_steps(rng, names, _MAX_PLACE, 3) if seed % 3 else []
    return check(program.mod, steps, own, calls, wanted)


def random_steps(rng: np.random.Generator, names: Any, places: int, most: int) -> Steps:
    """Up to `most` passes, and the numbers of the passes of TVM's pipeline that they precede."""
    chosen = rng.choice(names, int(rng.integers(most + 1)))
    return [(int(rng.integers(places + 1)), str(name)) for name in chosen]


def _calls(program: Program, seed: int) -> tuple[list[list[np.ndarray]], list[Any]]:
    """Inputs at several sizes, and what the interpreter computes from them."""
    rng = np.random.default_rng([seed, 1])
    calls, wanted = [], []
    for sizes in program.sizes(rng, _SIZES):
        try:
            inputs = program.inputs(rng, sizes)
            wanted.append(expected(program.mod, inputs, seed))
        except Undefined:
            continue
        calls.append(inputs)
    return calls, wanted


def check(
    mod: tvm.IRModule, steps: Steps, own: Steps, calls: list[list[np.ndarray]], wanted: list[Any]
) -> str | None:
    """Build with passes between those of TVM's pipeline, run, and compare.

    Parameters
    ----------
    mod : tvm.IRModule
        A module that plain TVM builds right with `steps`.
    steps, own : list of (int, str)
        Passes of TVM's and of tvm_fixes, each with the number of the pass that it precedes.
    calls : list of list of numpy.ndarray
        Arguments of ``main``.
    wanted : list of Expectation
        What `calls` return.

    Returns
    -------
    str or None
        Why a pass rejects the module; None if all results are right.

    Raises
    ------
    AssertionError
        If a result differs, or a pass or the build fails.
    """
    described = f"{steps} and {own}"
    after: list[tvm.IRModule] = []

    def keep(last: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        after.append(last)
        return last

    passes = [(place, getattr(relax.transform, name)()) for place, name in steps]
    passes += [(place, make_pass(name)) for place, name in own]
    passes.append((_MAX_PLACE, tvm.transform.module_pass(keep, opt_level=0, name="keep")))
    try:
        executable = relax.build(mod, "llvm", relax_pipeline=pipeline(passes))
    except (UnsupportedOperatorError, UsageError) as error:
        assert "\n" not in str(error).strip(), f"not one sentence: {error}"
        return f"{described}: {summarize(error)}"
    except Exception as error:
        text = f"{type(error).__name__}: {summarize(error)}"
        raise AssertionError(f"{text}; with {described}") from error
    machine = relax.VirtualMachine(executable, tvm.cpu())
    for inputs, want in zip(calls, wanted, strict=True):
        try:
            values = list(map(_to_tvm, inputs))
            got = arrays_of(_call_after(machine, mod, after[-1], "main", values))
        except Exception as error:
            text = f"fails: {type(error).__name__}: {summarize(error)}"
            raise AssertionError(f"{text}; with {described}") from error
        difference = want.difference(got)
        assert not difference, f"{difference}; with {described}"
    return None
