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
"""Linking an executable into a library in a temporary directory."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import tvm
from tvm import relax

from .. import target as targets
from ..errors import CompileError
from ..relax.constants.provenance import ConstantRecord, Weight
from ..relax.kernel_calls import KernelCalls
from ..relax.owned_results import owned_results
from ..runtime.compiled_model import CompiledModel
from ..runtime.manifest import (
    LIBRARY,
    WEIGHTS,
    Manifest,
    Signature,
    WeightsRecord,
    hash_file,
    package_versions,
)
from ..runtime.weights import write_weights
from ..support.isolate import OutcomeKind, forked
from ..support.temporary import TemporaryDirectory
from ..support.tensors import ALIGNMENT
from ..target import cuda_libraries
from ..target.code_parts import write_objects
from ..target.linker import linker_for
from ..tirx.transform.lower_alignment import alignment_of
from .options import FULL_DISK


class Linked(NamedTuple):
    """A library in a temporary directory.

    Attributes
    ----------
    directory : Path
    manifest : Manifest
        The manifest of the library.
    owner : TemporaryDirectory
        Removes `directory` when it is garbage-collected.
    """

    directory: Path
    manifest: Manifest
    owner: TemporaryDirectory


class Memory(NamedTuple):
    """The assumptions of a function about the memory of its inputs, and the rights to its outputs.

    Attributes
    ----------
    alignment, owned_outputs
        As for :class:`~tvm_fixes.runtime.Manifest`.
    """

    alignment: int
    owned_outputs: tuple[int, ...]

    @classmethod
    def of(cls, mod: tvm.IRModule, name: str, outputs: int) -> "Memory":
        """The memory of a function of a lowered module, with the first `outputs` of its results."""
        owned = (index for index in owned_results(mod, name) if index < outputs)
        return cls(alignment_of(mod), tuple(owned))


NOTHING_KNOWN = Memory(ALIGNMENT, ())


def export(
    executable: relax.VMExecutable,
    target: tvm.target.Target,
    signature: Signature,
    constants: tuple[ConstantRecord, ...],
    weights: Mapping[str, Weight],
    kernels: KernelCalls | None = None,
    memory: Memory = NOTHING_KNOWN,
    *,
    strip: bool = False,
) -> CompiledModel:
    """Link the library with :func:`link`, and load it if it runs on this machine."""
    linked = link(executable, target, signature, constants, weights, kernels, memory, strip=strip)
    return CompiledModel(linked.directory, linked.manifest, owner=linked.owner)


def link(
    executable: relax.VMExecutable,
    target: tvm.target.Target,
    signature: Signature,
    constants: tuple[ConstantRecord, ...],
    weights: Mapping[str, Weight] | None = None,
    kernels: KernelCalls | None = None,
    memory: Memory = NOTHING_KNOWN,
    *,
    strip: bool = False,
) -> Linked:
    """Link the library in a temporary directory, and write the weights next to it.

    Parameters
    ----------
    executable : relax.VMExecutable
    target : tvm.target.Target
        The target that `executable` was built for.
    signature : Signature
        The model's inputs and outputs.
    constants : tuple of ConstantRecord
        The provenance of the constants in the library.
    weights : mapping of str to Weight, optional
        The weights to store outside the library.
    kernels : KernelCalls, optional
        The kernels that the library calls.
    memory : Memory
        The assumptions about the memory of inputs, and the rights to that of outputs.
    strip : bool
        Leave out debug information and the names of local symbols.

    Raises
    ------
    CompileError
        If the library cannot be linked, or the files cannot be written.
    """
    owner = TemporaryDirectory()
    try:
        directory = Path(owner.name)
        with (
            tempfile.TemporaryDirectory(dir=directory) as workspace,
            _linking(executable, directory / LIBRARY, workspace, target, strip),
        ):
            written = _write_weights(directory / WEIGHTS, weights) if weights else None
        manifest = Manifest(
            **signature._asdict(),
            target=targets.to_json(target),
            triple=targets.triple_of(target),
            cpu_features=targets.instruction_sets(target),
            versions=package_versions(),
            sha256=hash_file(directory / LIBRARY),
            size=(directory / LIBRARY).stat().st_size,
            constants=constants,
            weights=written,
            kernels=kernels or KernelCalls(),
            **memory._asdict(),
        )
        return Linked(directory, manifest, owner)
    except BaseException:
        owner.cleanup()
        raise


def _write_weights(path: Path, weights: Mapping[str, Weight]) -> WeightsRecord:
    try:
        return write_weights(path, weights)
    except OSError as error:
        raise CompileError(
            f"cannot write the weights to {path.parent}: {error.strerror}"
        ) from error


@contextmanager
def _linking(
    executable: relax.VMExecutable,
    library: Path,
    workspace: str,
    target: tvm.target.Target,
    strip: bool,
) -> Iterator[None]:
    """Link the library while the ``with`` block runs."""
    arguments = cuda_libraries.link_arguments(target)
    if strip:
        arguments["options"] = [*arguments.get("options", []), "-s"]
    linker = linker_for(target)

    def write() -> None:
        objects = write_objects(executable, workspace)
        if objects:
            objects += arguments.get("addons", [])
            linker(str(library), objects, arguments.get("options", ()))
        else:
            executable.export_library(
                str(library), fcompile=linker, workspace_dir=workspace, **arguments
            )

    # In a child: LLVM calls exit() if it cannot write an object file.
    with forked(write) as outcomes:
        yield
    [outcome] = outcomes
    if outcome.kind is OutcomeKind.VALUE:
        return
    said = [line for line in outcome.output.splitlines() if line.startswith("LLVM ERROR:")]
    reason = [*said, *str(outcome).splitlines()][0]
    if outcome.name == CompileError.__name__:
        triple = targets.triple_of(target)
        reason = (
            f"{linker} cannot link for {triple}: {outcome.message}; set CXX to another compiler"
        )
    if shutil.disk_usage(library.parent).free < FULL_DISK:
        reason = f"{reason} (no space left in {library.parent})"
    raise CompileError(f"cannot write the library: {reason}")
