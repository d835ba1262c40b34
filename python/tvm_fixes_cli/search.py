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
"""The options and the progress of the commands ``reduce`` and ``bisect``."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from . import early, terminal
from .again import command_line
from .arguments import (
    add_building,
    add_layout,
    add_loading,
    add_magnitude,
    add_passes,
    add_quiet,
    add_seed,
    add_shape,
    add_sizes,
    add_tolerances,
    building,
    positive,
    shapes_of,
    sizes_of,
    user_passes,
)
from .package import loaded
from .terminal import Failure

if TYPE_CHECKING:
    from tvm_fixes.search.problem import Problem
    from tvm_fixes.search.trial import Settings, Trial


# The runs that show whether a value varies.
_RUNS = 10


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="an .onnx, .pt2 or .tflite file, a factory as for 'compile', or a Relax module or "
        "kernels: a .py file of TVMScript, which is executed, or a .json file (tvm.ir.save_json)",
    )


def add_problem(parser: argparse.ArgumentParser, path: str) -> None:
    group = parser.add_argument_group(
        "problem", "not equal to the reference, unless one of these is given"
    ).add_mutually_exclusive_group()
    group.add_argument(
        "--crashes", action="store_true", help="the compiler or the model crashes or hangs"
    )
    group.add_argument(
        "--fails", action="store_true", help="the same error is raised, up to names and numbers"
    )
    group.add_argument(
        "--slower-than",
        type=positive,
        metavar="TIMES",
        help="a run takes more than TIMES x the reference's time",
    )
    group.add_argument(
        "--larger-than", type=positive, metavar="BYTES", help="the artifact has more than BYTES"
    )
    group.add_argument(
        "--check", metavar="CMD", help=f"a command exits with 0, given the path of {path}"
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="native", help="as for compile (default: native)")
    add_layout(parser)
    add_passes(parser)
    add_shape(parser)
    add_sizes(parser)
    parser.add_argument(
        "--value",
        default="",
        metavar="NAME",
        help="an intermediate value, as 'compare' names it, that is compared instead of the "
        "outputs; default: the first that differs, if all outputs are equal",
    )
    add_loading(parser)
    add_tolerances(parser)
    add_seed(parser)
    add_magnitude(parser)
    parser.add_argument(
        "--inputs", metavar="FILE", help="an .npz file of inputs by name; default: random"
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        default=120.0,
        metavar="SECONDS",
        help="time limit of a trial (default: 120)",
    )
    parser.add_argument("--memory", type=positive, metavar="GIB", help="memory limit of a trial")
    add_building(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_quiet(parser)


def _problem(arguments: argparse.Namespace) -> "Problem":
    from tvm_fixes.search.problem import Kind, Problem

    if arguments.crashes:
        return Problem(Kind.CRASHES)
    if arguments.fails:
        return Problem(Kind.FAILS)
    if arguments.slower_than is not None:
        return Problem(Kind.SLOWER, arguments.slower_than)
    if arguments.larger_than is not None:
        return Problem(Kind.LARGER, arguments.larger_than)
    if arguments.check is not None:
        return Problem(Kind.CHECK, command=arguments.check)
    return Problem()


def _settings(
    arguments: argparse.Namespace,
    shapes: Mapping[str, Any] | None,
    sizes: Mapping[str, int],
    passes: tuple[Any, ...],
) -> "Settings":
    from tvm_fixes.search.trial import Settings
    from tvm_fixes.source.inputs import read_arrays

    return Settings(
        target=arguments.target,
        layout=arguments.layout,
        passes=passes,
        shapes=shapes,
        sizes=sizes,
        magnitude=arguments.magnitude,
        value=arguments.value,
        trust=arguments.trust,
        rtol=arguments.rtol,
        atol=arguments.atol,
        seed=arguments.seed,
        stock=getattr(arguments, "stock", False),
        inputs=read_arrays(arguments.inputs) if arguments.inputs else {},
        seconds=arguments.timeout,
        gigabytes=arguments.memory,
        options=building(arguments),
    )


def search(arguments: argparse.Namespace, run: Callable[..., Any]) -> Any:
    """Call :func:`reduce` or :func:`bisect`, and print each trial."""
    progress = None if arguments.quiet else partial(_print_trial, terminal.console(stderr=True))
    early.check(arguments, arguments.source)
    settings = partial(_settings, arguments, shapes_of(arguments) or None, sizes_of(arguments))
    with loaded(with_torch=early.needs_torch(arguments.source), imports=arguments.imports):
        try:
            with user_passes(arguments) as passes:
                return run(
                    arguments.source,
                    _problem(arguments),
                    settings=settings(passes),
                    progress=progress,
                )
        except OSError as error:
            place = error.filename or getattr(arguments, "output", None) or arguments.source
            raise Failure(f"{place}: {error.strerror}") from error


def show_unstable(console: Any, arguments: argparse.Namespace, sentence: str) -> None:
    """Print that runs disagree, and the command that looks further; nothing without a sentence."""
    if not sentence:
        return
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if arguments.slower_than is None:
        from .console import print_command

        line = command_line(arguments, "compare", repeat=_RUNS)
        print_command(console, "next", line, "finds the first value that varies")


def _print_trial(console: Any, trial: "Trial") -> None:
    observed = trial.observed
    mark = {True: "problem", False: "fine", None: "?"}[observed.shows]
    time = "known" if trial.known else f"{observed.seconds:.1f} s"
    console.print(
        f"{mark:<8}{time:>8}  {trial.label}: {observed.what}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
