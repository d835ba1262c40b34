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
"""The target that a model is compiled for: a CPU, or a GPU with CUDA."""

import json
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.target import codegen

from ..errors import UsageError, summarize
from ..support.suggestions import did_you_mean
from . import cuda
from .cuda_libraries import LIBRARIES

# Prefixes of LLVM's names of instruction sets that crash on a CPU without them (illegal
# instruction). LLVM also lists tuning, modes and privileged instructions, which do not matter.
_INSTRUCTION_SETS = (
    *("sse", "ssse", "avx", "fma", "f16c", "bmi", "adx", "popcnt", "lzcnt", "movbe"),
    *("gfni", "aes", "vaes", "pclmul", "vpclmulqdq", "sha", "xop", "tbm", "amx"),
)

# Linux's names, if they differ from LLVM's by more than punctuation.
_LINUX_NAMES = {
    "sse3": "pni",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "sha": "shani",
}


_NO_GATHER = "+prefer-no-gather"
"""LLVM's tuning for CPUs with slow gathers, since LLVM 17."""

# The spellings of architectures in the triples of LLVM and GCC.
_ARCHITECTURES = {
    "x86_64": "x86_64|amd64",
    "x86": "i[3-9]86",
    "aarch64": "aarch64|arm64",
    "arm": "(arm|thumb)(v.*)?",
    "riscv64": "riscv64.*",
    "powerpc64le": "(powerpc|ppc)64le",
    "s390x": "s390x",
    "sparc64": "sparc(64|v9)",
    "wasm32": "wasm32",
}

KINDS = {"llvm": "a CPU", "cuda": "a GPU with CUDA"}
"""The supported kinds of targets, by TVM's names."""


def is_supported(target: tvm.target.Target | None) -> bool:
    """Whether a target is of one of :data:`KINDS`, or unknown."""
    return target is None or target.kind.name in KINDS


@tvm_ffi.register_global_func("tvm_fixes.target.supports_current", override=True)
def supports_current() -> bool:
    """Whether the target of the current scope is supported; the native library asks this."""
    return is_supported(tvm.target.Target.current(allow_none=True))


# The lowest compute capability that CUDA 13 supports.
_MIN_CAPABILITY = (7, 5)


def resolve(
    target: "str | Mapping[str, object] | tvm.target.Target", kinds: Sequence[str] = tuple(KINDS)
) -> tvm.target.Target:
    """Make a target from its name or configuration.

    Parameters
    ----------
    target : str, mapping or tvm.target.Target
        ``"native"`` for this machine's CPU with its features, a TVM tag such as
        ``"aws/cpu/c5.large"``, a kind such as ``"llvm"``, or a configuration as a mapping or as
        JSON.  ``"aarch64/cortex-a76"`` is a CPU by LLVM's name, for Linux with glibc.
        ``"cuda/sm_90"`` is a GPU of that architecture, ``"cuda"`` the GPU of this machine, and
        ``"cuda/sm_90+cublas+cudnn"`` a GPU with these libraries of :data:`LIBRARIES`.
    kinds : sequence of str
        The accepted kinds, a subset of :data:`KINDS`.

    Returns
    -------
    target : tvm.target.Target
        A target of one of `kinds`; a GPU target has a CPU as its host.

    Raises
    ------
    UsageError
        If TVM does not know the target, its kind is not accepted, LLVM does not know its CPU, or
        CUDA 13 does not support its GPU; also for ``"cuda"`` on a machine without a GPU.
    """
    if isinstance(target, str) and target == "native":
        return native()
    config = _configuration(target)
    if isinstance(config, dict) and config.get("kind") == "cuda" and "arch" not in config:
        # Without a device, TVM falls back to sm_50.
        if not cuda.has_device():
            raise UsageError(
                f"target {_show(target)}: no CUDA device found; name the architecture, e.g. "
                "'cuda/sm_90'"
            )
    try:
        resolved = tvm.target.Target(config)
    except (ValueError, TypeError, KeyError) as error:
        known = [*KINDS, "native", *map(str, tvm.target.list_tags() or ())]
        is_name = isinstance(target, str) and "is not defined" in str(error)
        hint = did_you_mean(str(target), known) if is_name else None
        raise UsageError(f"target {_show(target)}: {hint or summarize(error)}") from error
    kind = resolved.kind.name
    if kind not in kinds:
        expected = " or ".join(f"{KINDS[name]} (kind {name})" for name in kinds)
        raise UsageError(f"target {_show(target)}: expected {expected}, got kind {kind}")
    return _with_host(resolved, target) if kind == "cuda" else _with_known_cpu(resolved, target)


def _configuration(target: Any) -> Any:
    """Return the argument for ``tvm.target.Target``: a dict, unless `target` is a tag or kind."""
    if isinstance(target, Mapping):
        return dict(target)
    if isinstance(target, str):
        name, *libraries = target.split("+")
        kind, slash, arch = name.partition("/")
        if kind == "cuda":
            named = {"kind": "cuda"} | ({"arch": arch} if slash else {})
            return named | ({"libs": libraries} if libraries else {})
        cpu = target.removeprefix(f"{kind}/")
        if kind in _ARCHITECTURES and slash and cpu:
            return {"kind": "llvm", "mtriple": f"{kind}-linux-gnu", "mcpu": cpu}
        with suppress(ValueError):
            if isinstance(parsed := json.loads(target), dict):
                return parsed
    return target


def _with_host(resolved: tvm.target.Target, target: object) -> tvm.target.Target:
    arch = str(resolved.attrs["arch"])
    if not re.fullmatch(r"sm_\d{2,3}[a-z]?", arch) or cuda.capability(arch) < _MIN_CAPABILITY:
        raise UsageError(
            f"target {_show(target)}: expected an architecture of CUDA 13 (sm_75 or later), got "
            f"{arch}"
        )
    unknown = [str(name) for name in resolved.attrs.get("libs", ()) if name not in LIBRARIES]
    if unknown:
        raise UsageError(
            f"target {_show(target)}: unknown library {unknown[0]!r}; expected "
            f"{' or '.join(LIBRARIES)}"
        )
    if resolved.host is not None:
        _check_host(resolved, target)
        return resolved
    # The host's code does little but call kernels, so it needs no special instruction sets.
    host = {"kind": "llvm", "mtriple": codegen.llvm_get_system_triple()}
    return tvm.target.Target(resolved, host=tvm.target.Target(host))


def _check_host(resolved: tvm.target.Target, target: object) -> None:
    """Check that the calls of NVIDIA's libraries, which are compiled for this machine, fit."""
    host, machine = architecture(triple_of(resolved)), architecture(platform.machine())
    if resolved.attrs.get("libs", ()) and host != machine:
        raise UsageError(
            f"target {_show(target)}: libraries are only called from a host like this machine "
            f"({machine}), got {host}"
        )


def _with_known_cpu(resolved: tvm.target.Target, target: object) -> tvm.target.Target:
    cpu = str(resolved.attrs.get("mcpu", ""))
    triple = triple_of(resolved)
    if not codegen.llvm_is_valid_cpu(cpu or "generic", triple):
        # Other queries about an unknown triple crash LLVM.
        unknown = f"mcpu {cpu!r} for {triple}" if cpu else f"mtriple {triple!r}"
        raise UsageError(f"target {_show(target)}: LLVM does not know {unknown}")
    return resolved


def native() -> tvm.target.Target:
    """Make the target of this machine's CPU.

    The CPU's model implies its instruction sets.  Some of them may be missing, as in a virtual
    machine; the target disables these.  Loops that read scattered elements load them one by one on
    AMD's CPUs, whose gather instructions are slower.
    """
    config: dict[str, object] = {
        "kind": "llvm",
        "mtriple": codegen.llvm_get_system_triple(),
        "mcpu": codegen.llvm_get_system_cpu(),
    }
    missing = missing_features(instruction_sets(tvm.target.Target(config)))
    changes = [f"-{feature}" for feature in missing]
    if str(config["mcpu"]).startswith("znver"):
        tuned = tvm.target.Target(config | {"mattr": [*changes, _NO_GATHER]})
        if _NO_GATHER.removeprefix("+") in map(str, codegen.llvm_get_cpu_features(tuned)):
            changes.append(_NO_GATHER)
    if changes:
        config["mattr"] = changes
    return tvm.target.Target(config)


def cpu_of(target: tvm.target.Target) -> tvm.target.Target:
    """Return `target` itself if it is a CPU, or its host if it is a GPU."""
    return target if target.host is None else target.host


def triple_of(target: tvm.target.Target) -> str:
    """Return the LLVM triple of the CPU of `target`; by default, this machine's."""
    target = cpu_of(target)
    return str(target.attrs.get("mtriple", "")) or codegen.llvm_get_system_triple()


def architecture(triple: str) -> str | None:
    """Return the CPU architecture of a triple, with one spelling, or None if it is unknown."""
    name = triple.partition("-")[0]
    return next((known for known, form in _ARCHITECTURES.items() if re.fullmatch(form, name)), None)


def instruction_sets(target: tvm.target.Target) -> list[str]:
    """Return the instruction sets, by LLVM's names, that code for the CPU of `target` may use.

    The list is empty except for x86-64.
    """
    if not triple_of(target).startswith("x86_64"):
        return []
    features = codegen.llvm_get_cpu_features(cpu_of(target))
    return sorted(str(name) for name in features if str(name).startswith(_INSTRUCTION_SETS))


def missing_features(features: list[str]) -> list[str]:
    """Return those of `features` (LLVM's names) that this machine's CPU does not have.

    The list is empty on systems other than Linux, where the CPU's features are unknown.
    """
    present = _linux_cpu_flags()
    if not present:
        return []
    return [name for name in features if _LINUX_NAMES.get(name, _bare(name)) not in present]


def why_not_here(target: Mapping[str, object], triple: str, features: list[str]) -> str | None:
    """Return why code for a target cannot run on this machine, or None if it can.

    Parameters
    ----------
    target : mapping
        The configuration of the target, as :func:`to_json` returns it.
    triple : str
        The LLVM triple of its CPU.
    features : list of str
        The instruction sets that the code may use on this CPU.
    """
    machine = platform.machine()
    architecture = triple.split("-")[0]
    if architecture != machine:
        return f"it is for {architecture}, but this machine is {machine}"
    missing = missing_features(features)
    if missing:
        return f"it uses {', '.join(missing)}, which this CPU does not have"
    if target["kind"] != "cuda":
        return None
    libraries = target.get("libs", ())
    assert isinstance(libraries, list | tuple)
    return cuda.why_not_here(str(target["arch"]), map(str, libraries))


def to_json(target: tvm.target.Target) -> dict[str, object]:
    """Return the configuration of `target` as plain JSON values, without empty ones."""
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
