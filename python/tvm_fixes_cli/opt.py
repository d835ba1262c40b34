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
"""The command ``opt``."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import early, terminal
from .arguments import (
    Commands,
    Result,
    add_command,
    add_loading,
    add_params,
    add_passes,
    add_shape,
    add_sizes,
    add_static,
    add_target,
    shapes_of,
    sizes_of,
    user_passes,
)
from .package import loaded
from .terminal import EQUAL, FAILED, WRONG_USE, Failure

if TYPE_CHECKING:
    from tvm_fixes.observe.changes import Change

_HELP = """\
Apply passes to a module in the given order, verify it after each, and print it as TVMScript.
Without passes, print it as it was imported.

A .py file is executed: read only files that you trust. So is TVMScript from standard input.

exit status: 0 done; 1 a pass failed or broke the module, or unreadable file; 2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes opt model.onnx
  tvm-fixes opt --passes LegalizeOps,FuseOps,FuseTIR module.py
  tvm-fixes opt --passes 'pipeline(layout=NHWC)' --print-changed model.onnx -o lowered.json
  tvm-fixes opt --passes relax.FoldConstant,ScheduleReductions - < module.json
  tvm-fixes opt --passes LegalizeOps,my_pass.py:MyPass module.py
  tvm-fixes opt --pass my_pass.py:MyPass@after=Legalize --print-changed model.onnx
  tvm-fixes opt --list
  tvm-fixes opt --print-pipeline --target cuda/sm_90
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "opt",
        _run,
        help="apply passes to a module and print it",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="FILE",
        nargs="?",
        help="a .py file of TVMScript, which is executed (FILE.py:NAME if it has several modules), "
        "a .json file (tvm.ir.save_json), a model as for 'compile', which is imported, or - for "
        "TVMScript or JSON from standard input",
    )
    parser.add_argument(
        "--passes",
        metavar="A,B,...",
        help="names of passes, with arguments in parentheses: 'pipeline(layout=NHWC)'; TVM's, if "
        "one of ours has the same name, as relax.NAME, tirx.NAME or s_tir.NAME; yours as "
        "package.module:NAME or FILE.py:NAME (default: none; with --pass: pipeline)",
    )
    add_passes(parser)
    parser.add_argument("--list", action="store_true", help="list the passes and exit")
    parser.add_argument(
        "--print-pipeline",
        action="store_true",
        help="list the passes of the pipeline for --target in order, each with the reason why it "
        "stands there, and exit",
    )
    parser.add_argument(
        "--print-changed",
        action="store_true",
        help="print a diff to standard error after each pass that changes something",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the module to FILE, with the values of constants, instead of printing it: as "
        "JSON, which can always be read again, if the name ends in .json; otherwise as TVMScript",
    )
    parser.add_argument(
        "--constants",
        action="store_true",
        help="print the values of constants too, which TVMScript elides",
    )
    add_target(parser)
    parser.add_argument("--no-verify", action="store_true", help="do not verify the module")
    add_params(parser)
    add_shape(parser)
    add_sizes(parser)
    add_static(parser)
    add_loading(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the passes and the module as one JSON object"
    )


def _run(arguments: argparse.Namespace) -> Result:
    if arguments.list:
        return _list(arguments)
    if arguments.print_pipeline:
        return _print_pipeline(arguments)
    passes = arguments.passes or ("pipeline" if arguments.user_passes else "")
    if arguments.source is None:
        raise Failure("opt needs a file, or --list or --print-pipeline", WRONG_USE)
    shapes, sizes = shapes_of(arguments), sizes_of(arguments)
    early.check(arguments, None if arguments.source == "-" else arguments.source)
    with loaded(with_torch=early.needs_torch(arguments.source), imports=arguments.imports):
        import tvm

        from tvm_fixes.compiler.optimizing import opt
        from tvm_fixes.passes import split
        from tvm_fixes.support.files import write_text

        names: list[Any] = split(passes)
        listed = [at for at, name in enumerate(names) if ":" in name.partition("(")[0]]
        more = [names[at] for at in listed]
        with _named(arguments.source) as source, user_passes(arguments, more) as own:
            for at, one in zip(listed, own[len(own) - len(more) :], strict=True):
                names[at] = one
            result = opt(
                source,
                names,
                target=arguments.target,
                verify=not arguments.no_verify,
                on_change=_print_change if arguments.print_changed else None,
                shapes=shapes,
                sizes=sizes,
                static=arguments.static,
                trust=arguments.trust,
                params=arguments.params,
                user_passes=own[: len(own) - len(more)],
            )
        has_values = arguments.constants or arguments.output is not None
        is_json = (arguments.output or "").endswith(".json")
        text = (
            tvm.ir.save_json(result.module)
            if is_json
            else result.module.script(show_meta=has_values)
        )
        if arguments.output is not None:
            try:
                write_text(Path(arguments.output), text)
            except OSError as error:
                raise Failure(f"{arguments.output}: {error.strerror}") from error

    def write() -> None:
        if arguments.json:
            print(json.dumps(result.to_dict() | {"output": arguments.output}, indent=2))
        elif arguments.output is None:
            print(terminal.printable(text))

    return EQUAL, write


def _print_pipeline(arguments: argparse.Namespace) -> Result:
    early.check(arguments, None)
    with loaded(with_torch=False):
        from tvm_fixes import target
        from tvm_fixes.lowering import places
        from tvm_fixes.user_passes import phases_with

        with user_passes(arguments) as own:
            phases = phases_with(own)
        rows = [
            {
                "pass": place.stage.path(place.step),
                "whose": place.step.owner,
                "runs": place.step.condition,
                "why": place.step.why,
            }
            for place in places(target.resolve(arguments.target), phases=phases)
        ]
    return EQUAL, lambda: _write_table(rows, arguments.json)


def _write_table(rows: list[dict[str, str]], as_json: bool) -> None:
    """Print rows with equal keys in columns, or as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    widths = {key: max(len(row[key]) for row in rows) for key in rows[0]}
    for row in rows:
        print("  ".join(f"{text:<{widths[key]}}" for key, text in row.items()).rstrip())


def _list(arguments: argparse.Namespace) -> Result:
    with loaded(with_torch=False):
        from tvm_fixes.passes import known_passes

        rows = [
            {"name": str(one), "summary": one.summary} for one in known_passes() if not one.required
        ]
    return EQUAL, lambda: _write_table(rows, arguments.json)


def _print_change(change: "Change") -> None:
    print(terminal.printable(f"# {change.name}\n{change.diff}"), file=sys.stderr, flush=True)


@contextmanager
def _named(source: str) -> Iterator[str]:
    """The name of a file; for ``-``, of one with what standard input has, until the block ends."""
    if source != "-":
        yield source
        return
    try:
        text = sys.stdin.read()
    except (OSError, ValueError) as error:
        raise Failure(f"standard input: {error}", FAILED) from error
    import tempfile

    from tvm_fixes.errors import CompileError

    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:
        path = Path(folder) / f"input.{'json' if text.lstrip().startswith('{') else 'py'}"
        path.write_text(text)
        try:
            yield str(path)
        except CompileError as error:
            error.message = error.message.replace(str(path), "standard input")
            raise
