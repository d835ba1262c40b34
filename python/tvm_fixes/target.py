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
"""The CPU target that a model is compiled for."""

import json
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import tvm
from tvm.target import codegen

from .errors import UsageError, summarize

# Instruction sets whose use on a CPU without them ends in an illegal instruction, by the beginning
# of LLVM's names; what else LLVM lists (tuning, modes, privileged instructions) is never emitted.
_INSTRUCTION_SETS = (
    *("sse", "ssse", "avx", "fma", "f16c", "bmi", "adx", "popcnt", "lzcnt", "movbe"),
    *("gfni", "aes", "vaes", "pclmul", "vpclmulqdq", "sha", "xop", "tbm", "amx"),
)

# Linux's names where they differ from LLVM's by more than punctuation.
_LINUX_NAMES = {
    "sse3": "pni",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "sha": "shani",
}


def resolve(target: "str | Mapping[str, object] | tvm.target.Target") -> tvm.target.Target:
    """Make the target from what a person wrote.

    Parameters
    ----------
    target : str, mapping or tvm.target.Target
        ``"native"`` for this machine's CPU with its features, a TVM tag such as
        ``"aws/cpu/c5.large"``, a kind such as ``"llvm"``, or a configuration as a mapping or as
        JSON.

    Returns
    -------
    target : tvm.target.Target
        A target of kind ``llvm``.

    Raises
    ------
    UsageError
        If TVM knows no such target, if it is not one for a CPU, or if LLVM does not know its CPU.
    """
    if isinstance(target, str) and target == "native":
        return native()
    try:
        resolved = tvm.target.Target(dict(target) if isinstance(target, Mapping) else target)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"target {_show(target)}: {summarize(error)}") from error
    if resolved.kind.name != "llvm":
        raise UsageError(
            f"target {_show(target)}: expected a CPU target (kind llvm), got kind "
            f"{resolved.kind.name}"
        )
    cpu = str(resolved.attrs.get("mcpu", ""))
    if cpu and not codegen.llvm_is_valid_cpu(cpu, triple_of(resolved)):
        raise UsageError(
            f"target {_show(target)}: LLVM knows no mcpu {cpu!r} for {triple_of(resolved)}"
        )
    return resolved


def native() -> tvm.target.Target:
    """Make the target of this machine's CPU.

    The CPU's model stands for its instruction sets; one that the machine withholds all the same,
    as virtual machines do, is switched off.
    """
    config: dict[str, object] = {
        "kind": "llvm",
        "mtriple": codegen.llvm_get_system_triple(),
        "mcpu": codegen.llvm_get_system_cpu(),
    }
    missing = missing_features(instruction_sets(tvm.target.Target(config)))
    if missing:
        config["mattr"] = [f"-{feature}" for feature in missing]
    return tvm.target.Target(config)


def triple_of(target: tvm.target.Target) -> str:
    """The LLVM triple of `target`, this machine's where it names none."""
    return str(target.attrs.get("mtriple", "")) or codegen.llvm_get_system_triple()


def instruction_sets(target: tvm.target.Target) -> list[str]:
    """The instruction sets, by LLVM's names, that code for `target` may use; empty but for x86."""
    if not triple_of(target).startswith("x86_64"):
        return []
    features = codegen.llvm_get_cpu_features(target)
    return sorted(str(name) for name in features if str(name).startswith(_INSTRUCTION_SETS))


def missing_features(features: list[str]) -> list[str]:
    """Those of `features` (LLVM's names) that this machine's CPU does not have.

    Empty where it cannot be told: Linux alone lists what its CPU has.
    """
    present = _linux_cpu_flags()
    if not present:
        return []
    return [name for name in features if _LINUX_NAMES.get(name, _bare(name)) not in present]


def why_not_here(triple: str, features: list[str]) -> str | None:
    """Why code for `triple` that uses `features` cannot run on this machine; None if it can."""
    machine = platform.machine()
    architecture = triple.split("-")[0]
    if architecture != machine:
        return f"it is for {architecture}, this machine is {machine}"
    missing = missing_features(features)
    if missing:
        return f"it uses {', '.join(missing)}, which this CPU does not have"
    return None


def to_json(target: tvm.target.Target) -> dict[str, object]:
    """The configuration of `target` as plain JSON values, without what is empty."""
    config: dict[str, object] = json.loads(str(target))
    return {key: value for key, value in config.items() if value not in ("", [])}


@cache
def _linux_cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(map(_bare, flags.split()))


def _bare(name: str) -> str:
    return name.translate(str.maketrans("", "", "._-"))


def _show(target: object) -> str:
    return repr(target) if isinstance(target, str) else repr(str(target))
