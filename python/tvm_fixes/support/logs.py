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
"""Log messages of the passes, through Python's ``logging``.

The logger of a pass is ``tvm_fixes.`` and its name; most messages have level ``DEBUG``::

    logging.basicConfig()
    logging.getLogger("tvm_fixes.DynamicToStatic").setLevel(logging.DEBUG)
"""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager


def enabled(name: str) -> bool:
    """Whether debug messages of the pass `name` are enabled."""
    return logging.getLogger(f"tvm_fixes.{name}").isEnabledFor(logging.DEBUG)


def debug(name: str, message: str) -> None:
    """Log a debug message of the pass `name`."""
    logging.getLogger(f"tvm_fixes.{name}").debug("%s", message)


def warning(name: str, message: str) -> None:
    """Log a warning of the pass `name`."""
    logging.getLogger(f"tvm_fixes.{name}").warning("%s", message)


class _Handler(logging.StreamHandler[io.StringIO]):
    """Drops a message that does not fit its arguments, where logging would print a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def captured(package: str) -> Iterator[io.StringIO]:
    """Capture the output of the loggers of `package`."""
    text = io.StringIO()
    names = [
        n for n in logging.root.manager.loggerDict if n == package or n.startswith(f"{package}.")
    ]
    loggers = [logging.getLogger(name) for name in names]
    kept = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    handler = _Handler(text)
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield text
    finally:
        for logger, handlers, propagate in kept:
            logger.handlers, logger.propagate = handlers, propagate
