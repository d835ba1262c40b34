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
"""Compilations from the cache: the keys of models, and what their entries contain.

A model in an ONNX file has two entries, which share their files.  One is found by the bytes of the
file, without an import; the other by the imported module, which equal models in other files share.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tvm

from ..errors import ArtifactError
from ..relax.constants.provenance import Origins
from ..runtime.compiled_model import CompiledModel
from ..runtime.manifest import LIBRARY, WEIGHTS, Manifest, Signature, hash_file
from ..runtime.report import Report
from ..support.ambient import Facts
from ..support.switches import Applied
from .cache import Found, Store, key_of, opened, surroundings
from .cache.files import SETTLED_SECONDS, log
from .cache.installed import is_unchanged
from .cache.module_text import module_text
from .options import Options

# Of a compilation whose options ask for what only a compilation shows.
_NOT_CACHED = ("passes", "verify_each", "dump_ir", "explain", "time_passes")

_ONNX = ".onnx"


@dataclass
class Cached:
    """The cache for one compilation.

    Attributes
    ----------
    store : Store
    parts : dict
        What its keys contain besides the model.
    file : Path or None
        The model's ONNX file.
    started : float
        When the compilation began.
    missing : dict of str to str
        The keys without an entry, and whether each is that of a file or of a module.
    """

    store: Store
    parts: dict[str, Any]
    file: Path | None
    started: float = field(default_factory=time.time)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options, target: tvm.target.Target, source: Any) -> "Cached | None":
        """The cache, if the options ask for it and it can be used."""
        if not options.cache:
            return None
        asked = [name for name in _NOT_CACHED if getattr(options, name)]
        if asked:
            log.info("not cached, because of the option %s", asked[0])
            return None
        store = opened()
        around = None if store is None else surroundings(store, target)
        if store is None or around is None:
            return None
        is_file = isinstance(source, str | os.PathLike) and os.path.isfile(source)
        file = Path(source) if is_file and os.fspath(source).endswith(_ONNX) else None
        parts = {**around, "options": options.keyed()}
        return cls(store, parts, file if options.params is None else None)

    def find_file(self) -> CompiledModel | None:
        """The model, if its file is known."""
        if self.file is None:
            return None
        try:
            return self._find("file", self.file.name, sha256=hash_file(self.file))
        except OSError:
            return None

    def find_module(
        self,
        mod: tvm.IRModule,
        name: str,
        signature: Signature,
        origins: Origins,
        facts: Facts,
        warnings: Sequence[str],
    ) -> CompiledModel | None:
        """The model, if its module is known.

        Parameters
        ----------
        mod : tvm.IRModule
            The imported module.
        name, signature, origins, facts, warnings
            The name of the model, and what its report and its manifest contain.
        """
        try:
            text = module_text(mod)
        except Exception as error:  # an attribute that TVM cannot write
            log.info("not cached: %s", error)
            self.missing.clear()
            return None
        return self._find(
            "module",
            name,
            module=text,
            signature=repr(signature),
            origins=origins.described(),
            warnings=list(warnings),
            fixes=sorted(Applied(facts)),
        )

    def _find(self, kind: str, name: str, **parts: Any) -> CompiledModel | None:
        """The model for a key of these parts, with the name of the source."""
        key = key_of({**self.parts, "kind": kind, **parts})
        found = self.store.find(key)
        model = None
        if found is not None and self._have_same_weights(found):
            try:
                model = _model_of(found, name)
            except ArtifactError as error:
                log.warning("an entry of the cache is not used, and compiled again: %s", error)
        if model is None:
            self.missing[key] = kind
        return model

    def _have_same_weights(self, found: Found) -> bool:
        """Whether the files beside an ONNX file are those of the entry."""
        files = found.data["files"]
        if self.file is None or not files:
            return True
        try:
            return all(hash_file(self.file.parent / name) == files[name] for name in files)
        except OSError:
            return False

    def keep(self, model: CompiledModel, files: Sequence[str]) -> None:
        """Store a model under the keys that had no entry.

        Parameters
        ----------
        model : CompiledModel
            With its report before a comparison.
        files : sequence of str
            The files beside its ONNX file that have its large weights.
        """
        beside = [] if self.file is None else [self.file.parent / name for name in files]
        used = [*beside, *filter(None, [self.file])]
        if not self.missing or not is_unchanged() or not all(map(self._is_settled, used)):
            return
        manifest = replace(model.manifest, report=_unmeasured(model.report))
        data = {
            "manifest": manifest.to_json(),
            "files": {name: hash_file(path) for name, path in zip(files, beside, strict=False)},
        }
        report = manifest.report
        made = {
            "source": "" if report is None else report.source,
            "by": "compile",
            "target": str(manifest.target.get("mcpu", manifest.target["kind"])),
        }
        names = [LIBRARY] if manifest.weights is None else [LIBRARY, WEIGHTS]
        blobs = {name: model.directory / name for name in names}
        for key, kind in self.missing.items():
            self.store.put(key, {**made, "kind": kind}, data, blobs)

    def _is_settled(self, path: Path) -> bool:
        """Whether a file has not changed since the compilation began."""
        try:
            status = path.stat()
        except OSError:
            return False
        return max(status.st_mtime, status.st_ctime) < self.started - SETTLED_SECONDS


def _model_of(found: Found, name: str) -> CompiledModel:
    """The model of an entry, with the name of the source in its report."""
    manifest = Manifest.from_json(found.data["manifest"])
    report = manifest.report
    if report is not None:
        manifest = replace(manifest, report=replace(report, source=name, cached=True))
    return CompiledModel(found.directory, manifest, owner=found.owner)


def _unmeasured(report: Report | None) -> Report | None:
    return None if report is None else replace(report, seconds={}, cached=False)
