# `make` alone lists the targets. Everything they need is prepared by them.

PROFILE ?= release
export PROFILE

.PHONY: help prepare dist demo test test-c test-swift parity bench check-abi lint ci

help:
	@echo 'make demo        ask a small model: PROMPT="..." MODEL=folder'
	@echo 'make dist        the library, its header and pkg-config file in target/dist'
	@echo 'make test        the tests in Rust and C; the last line counts them'
	@echo 'make test-c      the tests of the C ABI: plain, sanitized, under valgrind'
	@echo 'make test-swift  the tests of the Swift package; prepares Swift where there is none'
	@echo 'make parity      the comparison with mlx-lm'
	@echo 'make bench       the speed comparisons with mlx-lm, Jinja2 and huggingface_hub'
	@echo 'make check-abi   the header and the exported symbols'
	@echo 'make lint        formatting, clippy, documentation, licences'

prepare:
	@tools/prepare-system
	@cargo xtask mlx

dist: prepare
	@cargo xtask dist $(PROFILE)

demo: dist
	@mkdir -p target/demo
	@PKG_CONFIG_PATH=target/dist/lib/pkgconfig; export PKG_CONFIG_PATH; \
	cc -std=c99 -Wall -Wextra -O2 examples/c/generate.c -o target/demo/generate \
	    $$(pkg-config --cflags --libs mlxb) -Wl,-rpath,$(CURDIR)/target/dist/lib
	@target/demo/generate "$${MODEL:-$$(tools/test-model f32)}" \
	    "$${PROMPT:-What is the capital of Japan?}"

test: dist
	@tools/test rust c

test-c: dist
	@tools/test c

test-swift: dist
	@tools/test swift

parity: prepare
	@cargo test --locked --profile $(PROFILE) --test parity

bench: prepare
	@cargo bench --locked --bench against_mlx_lm
	@cargo bench --locked --bench cache
	@cargo bench --locked --bench chat
	@cargo bench --locked --bench quantize
	@cargo bench --locked --bench registry

check-abi: dist
	@tools/check-abi

lint: prepare
	@tools/lint

# All of it, in the order in which it fails soonest.
ci: dist
	@tools/test lint abi rust c swift demo
