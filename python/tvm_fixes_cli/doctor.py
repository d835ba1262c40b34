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
"""The command ``doctor``."""

import argparse

from . import early, terminal
from .arguments import Commands, Result
from .package import import_doctor
from .terminal import EQUAL, FAILED, WRONG_USE, Failure


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="check this installation: versions, and each fix on and off",
        description="Check this installation: print its versions, and test each fix on and off. "
        "The exit status is 1 if something needs fixing.",
    )
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument(
        "fixes", metavar="FIX", nargs="*", help="the id of a fix to test (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run no tests: check only versions and the library"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def _run(arguments: argparse.Namespace) -> Result:
    early.check_fixes(arguments.fixes)
    with terminal.stdout_to_stderr():
        with terminal.loading():
            doctor = import_doctor()
        try:
            report = doctor.run(arguments.fixes or None, quick=arguments.quick)
        except ValueError as error:
            raise Failure(str(error), WRONG_USE) from error
        except OSError as error:
            raise Failure(f"the installation cannot be examined: {error}") from error

    def write() -> None:
        if arguments.json:
            print(report.to_json())
        else:
            doctor.render(report, terminal.console())

    return EQUAL if report.ok else FAILED, write
