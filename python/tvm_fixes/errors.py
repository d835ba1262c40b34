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
"""The errors of importing, compiling, saving, loading and running a model."""

import tvm
import tvm_ffi


class CompileError(RuntimeError):
    """A model cannot be compiled, or its compiled form cannot be saved, loaded or run.

    Parameters
    ----------
    message : str
        The problem in one line, with the expected and the actual value.  Unprintable characters
        are escaped.
    stage : str, optional
        The step that failed, such as ``"import"`` or ``"Legalize"``.

    Attributes
    ----------
    message : str
        As given.
    stage : str or None
        As given; :func:`tvm_fixes.compile` fills it in if it is missing.
    """

    _separators = "\n"

    def __init__(self, message: str, *, stage: str | None = None):
        # A name from a model file may hold control characters that move a terminal's cursor.
        message = "".join(
            c if c.isprintable() or c in self._separators else repr(c)[1:-1] for c in message
        )
        super().__init__(message)
        self.message = message
        self.stage = stage


@tvm_ffi.register_error("tvm_fixes.UsageError")
class UsageError(CompileError, ValueError):
    """The request itself is wrong: a missing file, an unknown layout, a shape that does not fit."""


@tvm_ffi.register_error("tvm_fixes.UnsupportedOperatorError")
class UnsupportedOperatorError(CompileError, ValueError):
    """An operator of the model cannot be imported or lowered; the message names its node."""


@tvm_ffi.register_error("tvm_fixes.OpAttributeInvalid")
class OpAttributeInvalid(tvm.error.OpAttributeInvalid, ValueError):
    """An attribute or operand of a node has a value that cannot be imported.

    TVM's importers raise a ``ValueError`` or an ``OpAttributeInvalid``.
    """


@tvm_ffi.register_error("tvm_fixes.OpNotImplemented")
class OpNotImplemented(tvm.error.OpNotImplemented, ValueError):
    """An operator of the source model has no converter, or none for this use.

    TVM's importers raise an ``OpNotImplemented``, a ``NotImplementedError`` or a ``ValueError``.
    """


@tvm_ffi.register_error("tvm_fixes.PassError")
class PassError(CompileError):
    """A user's pass raised an exception; the message names the pass and the line of its code."""


@tvm_ffi.register_error("tvm_fixes.VerifyError")
class VerifyError(CompileError, ValueError):
    """A module violates a rule; the message lists all findings, over several lines."""


@tvm_ffi.register_error("tvm_fixes.RelayError")
class RelayError(CompileError, ValueError):
    """A Relay program is malformed or ill-typed; the message names the place and the problem."""


@tvm_ffi.register_error("tvm_fixes.TfliteError")
class TfliteError(CompileError, ValueError):
    """A TFLite file is malformed, or has a part that is not supported; the message names it."""


class UntrustedError(CompileError):
    """An untrusted file may run code, so it is not read."""


class ArtifactError(CompileError):
    """A directory is not a complete artifact, does not fit this machine, or is not writable."""

    _separators = ""


class InputError(CompileError, ValueError):
    """The inputs of a run do not fit the model.

    The message names the input, the expected value and the actual one.
    """


# An exception that crosses TVM's C++ (a pass calls a pass written in Python) keeps only its message
# and the registered name of its class. An unregistered class arrives as a RuntimeError, and so
# would Ctrl-C.
tvm_ffi.register_error("tvm_fixes.CompileError", CompileError)
tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)


def summarize(error: BaseException, limit: int = 600) -> str:
    """Summarize an exception of another library in one line.

    Parameters
    ----------
    error : BaseException
        The exception.
    limit : int
        The maximum length of the line, in characters.

    Returns
    -------
    line : str
        The message. The type precedes it for an exception other than a ``RuntimeError``,
        ``ValueError`` or ``OSError``. Without a message, the type and the function that raised it.
    """
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if not text:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f" in {frame.tb_frame.f_code.co_name}" if frame is not None else ""
        text = f"{type(error).__name__}{where}"
    elif not isinstance(error, RuntimeError | ValueError | OSError):
        # "KeyError: 'x'" names the problem; "'x'" does not.
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 1] + "…"
