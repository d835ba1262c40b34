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
"""All passes by name, ours and TVM's, as ``tvm-fixes opt`` runs them."""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import tvm
import tvm.s_tir.transform

from . import transform
from .errors import UsageError, summarize
from .lowering import pipeline, stages
from .pipeline import steps
from .support.suggestions import did_you_mean
from .user_passes import Given

_OWN = "tvm_fixes"

# Where TVM's passes are, by the prefix of their full names.
_STOCK = {
    "relax": tvm.relax.transform,
    "tirx": tvm.tirx.transform,
    "s_tir": tvm.s_tir.transform,
}


@dataclass(frozen=True)
class KnownPass:
    """A pass that has a name.

    Attributes
    ----------
    package : str
        ``"tvm_fixes"``, or ``"relax"``, ``"tirx"`` or ``"s_tir"`` for one of TVM's.
    name : str
        Its name in the package.
    make : callable
        Makes the pass.
    is_plain : bool
        Whether no other package has a pass of this name, or it is ours.
    """

    package: str
    name: str
    make: Callable[..., tvm.transform.Pass]
    is_plain: bool

    @property
    def full_name(self) -> str:
        """The name with its package."""
        return f"{self.package}.{self.name}"

    def __str__(self) -> str:
        return self.name if self.is_plain else self.full_name

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        paragraph = (inspect.getdoc(self.make) or "").partition("\n\n")[0]
        text = " ".join(paragraph.split())
        sentence = re.match(r".*?[.:](?= [A-Z]|$)", text)
        return (sentence[0] if sentence else text).rstrip(".:")

    @property
    def required(self) -> list[str]:
        """The names of its required arguments, except for the target."""
        return [
            one.name
            for one in inspect.signature(self.make).parameters.values()
            if one.default is one.empty
            and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
            and one.name != "target"
        ]


def _stage(name: str) -> Callable[..., Any]:
    def make(**options: Any) -> tvm.transform.Pass:
        return stages(**options)[name]

    make.__doc__ = f"The stage {name} of the pipeline."
    return make


def _own() -> dict[str, Callable[..., Any]]:
    named = {name: make for name, make in vars(transform).items() if name[0].isupper()}
    groups = {stage.name: _stage(stage.name) for stage, _ in steps() if len(stage.steps) > 1}
    return named | groups | {"pipeline": pipeline}


def _stock(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(module).items():
        if name[0].isupper() and callable(value) and _makes_pass(value):
            yield name, value


def _makes_pass(value: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return False
    if "pass_info" in signature.parameters:  # the base of a class of passes
        return False
    if inspect.isclass(value):
        return issubclass(value, tvm.transform.Pass)
    # Most of TVM's functions for TIR have no annotation.
    returned = signature.return_annotation
    text = returned if isinstance(returned, str) else getattr(returned, "__name__", "")
    return returned is signature.empty or text.rpartition(".")[2].endswith("Pass")


@cache
def known_passes() -> tuple[KnownPass, ...]:
    """All passes, ours first, in alphabetical order.

    Passes of TVM with required arguments other than a target are among them.
    """
    packages = {_OWN: _own()} | {name: dict(_stock(module)) for name, module in _STOCK.items()}
    found = []
    for package, named in packages.items():
        for name in sorted(named, key=str.lower):
            holders = [other for other, theirs in packages.items() if name in theirs]
            is_plain = package == _OWN or holders == [package]
            found.append(KnownPass(package, name, named[name], is_plain))
    return tuple(found)


def split(text: str) -> list[str]:
    """Split ``A,B(x=1,y=2)`` at the commas outside of parentheses and brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for raw in parts if (part := raw.strip())]


def make(
    text: str,
    target: tvm.target.Target | None = None,
    passes: Iterable[Given] = (),
) -> tvm.transform.Pass:
    """Make a pass from its name, with arguments in parentheses if it has any.

    Parameters
    ----------
    text : str
        Such as ``"LegalizeOps"``, ``"pipeline(layout=NHWC)"`` or ``"relax.FoldConstant"``.  Values
        are Python literals, or words, which are strings.
    target : Target, optional
        The argument `target` of a pass that has one, such as ``BindTarget``.
    passes : iterable
        The argument `passes` of ``pipeline``.

    Raises
    ------
    UsageError
        If there is no such pass, or its arguments do not fit.
    """
    name, parenthesis, _ = text.partition("(")
    known = _find(name.strip())
    positional, named = _arguments(text) if parenthesis else ([], {})
    try:
        signature = inspect.signature(known.make)
        if "target" in signature.parameters and target is not None:
            named.setdefault("target", target)
        if "passes" in signature.parameters:
            named.setdefault("passes", tuple(passes))
        signature.bind(*positional, **named)
        made = known.make(*positional, **named)
    except UsageError as error:
        raise UsageError(f"pass {text!r}: {error.message}") from error
    except Exception as error:
        raise UsageError(f"pass {text!r}: {summarize(error)}") from error
    if not isinstance(made, tvm.transform.Pass):
        raise UsageError(f"pass {text!r}: expected a pass, got {type(made).__name__}")
    return made


def _find(name: str) -> KnownPass:
    by_name = {one.full_name: one for one in known_passes()}
    by_name |= {one.name: one for one in known_passes() if one.is_plain}
    if name in by_name:
        return by_name[name]
    holders = [one.full_name for one in known_passes() if one.name == name]
    if holders:
        raise UsageError(f"pass {name!r}: expected one of {', '.join(holders)}")
    hint = did_you_mean(name, by_name) or "`tvm-fixes opt --list` shows all"
    raise UsageError(f"unknown pass {name!r}; {hint}")


def _arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        return (
            [_value(one) for one in call.args],
            {one.arg: _value(one.value) for one in call.keywords if one.arg is not None},
        )
    except (SyntaxError, ValueError, AssertionError) as error:
        raise UsageError(f"pass {text!r}: expected NAME(argument=value, …)") from error


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
