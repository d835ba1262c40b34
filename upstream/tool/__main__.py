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
"""``python -m upstream.tool``: the command line of the staging area."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import PullRequest, StagingError, default_staging, read_pull_request, read_series
from .branches import stage
from .recording import record

DONE, FAILED = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The command-line arguments (default: ``sys.argv[1:]``).

    Returns
    -------
    status : int
        0: done.  1: the staging area is invalid, or does not fit the checkout.  A usage error
        exits with 2.
    """
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
    except StagingError as error:
        return _report_error(error)
    return status


def _report_error(error: StagingError) -> int:
    print(f"upstream.tool: error: {error}", file=sys.stderr)
    return FAILED


def _check(arguments: argparse.Namespace) -> int:
    status = DONE
    names = read_series(arguments.staging)
    for name in names:
        try:
            read_pull_request(arguments.staging, name)
        except StagingError as error:
            status = _report_error(error)
    if status == DONE:
        print(f"{len(names)} pull requests, all valid")
    return status


def _list(arguments: argparse.Namespace) -> int:
    for name in read_series(arguments.staging):
        request = read_pull_request(arguments.staging, name)
        print(f"{name}: {request.title}")
        changed = dict.fromkeys([*(edit.path for edit in request.edits), *request.files])
        print("".join(f"    {path}\n" for path in changed), end="")
        for field in ("Fix", "Base", "Forwarded", "Applied-Upstream"):
            print(f"    {field}: {request.fields[field]}")
    return DONE


def _stage(arguments: argparse.Namespace) -> int:
    requests: list[PullRequest] = []
    for name in read_series(arguments.staging):
        # Do not read the others: they may be incomplete.
        if arguments.only in (None, name):
            requests.append(read_pull_request(arguments.staging, name))
    if arguments.only is None:
        for request in requests:
            if request.is_applied:
                print(f"{request.name}: applied upstream, not staged")
        requests = [request for request in requests if not request.is_applied]
    elif not requests:
        raise StagingError(f"{arguments.staging}: folder {arguments.only} is missing")
    for branch in stage(arguments.tvm, requests, base=arguments.base, force=arguments.force):
        print(f"{branch.name}: {branch.commit[:12]} on {branch.base[:12]}")
    return DONE


def _record(arguments: argparse.Namespace) -> int:
    record(arguments.staging, arguments.tvm, arguments.branch, arguments.name, base=arguments.base)
    print(f"{arguments.staging / arguments.name}: written")
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m upstream.tool",
        description="Manage the pull requests for apache/tvm in this project's repository.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument(
            "--staging",
            type=Path,
            metavar="DIR",
            default=default_staging(),
            help="the staging area (default: the folder 'upstream' of the repository)",
        )
        return command

    add("list", "Print the pull requests.").set_defaults(command=_list)
    add("check", "Check every description and record.").set_defaults(command=_check)
    staged = add("stage", "Make each pull request a branch tvm-fixes/NAME of a checkout of TVM.")
    staged.add_argument("--only", metavar="NAME", help="stage only this pull request")
    staged.add_argument(
        "--base", metavar="REF", help="stage on this commit instead of the recorded one"
    )
    staged.add_argument("--force", action="store_true", help="replace existing branches")
    staged.set_defaults(command=_stage)
    recorded = add("record", "Write a branch of a checkout of TVM as the pull request NAME.")
    recorded.add_argument(
        "--branch", required=True, help="the branch to record, or another revision"
    )
    recorded.add_argument(
        "--base", metavar="REF", help="the commit that the branch builds on (default: BRANCH~1)"
    )
    recorded.add_argument("name", metavar="NAME")
    recorded.set_defaults(command=_record)
    for command in (staged, recorded):
        command.add_argument(
            "--tvm", type=Path, required=True, metavar="CHECKOUT", help="a git checkout of TVM"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
