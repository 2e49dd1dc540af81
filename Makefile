# `make demo` and `make test` are all that a newcomer has to run. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# libtorch (CPU parts) and tools live in .deps; nothing outside this folder is touched.
TORCH_ENV := eval "$$(scripts/libtorch.sh --env)"
DENY := .deps/bin/cargo-deny

.PHONY: help build demo test lint check-docs deny generated bench prerequisites clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

prerequisites: ## Install or name what a bare machine lacks
	@scripts/prerequisites.sh

build: prerequisites ## Build both release binaries into target/release
	@scripts/libtorch.sh
	$(TORCH_ENV); cargo build --release --features torch --bins

demo: build ## Carry a real capture all the way to a trained checkpoint
	@scripts/demo.sh

lint: prerequisites
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	@scripts/libtorch.sh
	$(TORCH_ENV); cargo clippy --all-targets --features torch -- -D warnings

check-docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --lib

deny: $(DENY)
	$(DENY) --log-level error check bans licenses sources

$(DENY):
	cargo install cargo-deny --version 0.20.2 --locked --root .deps

test: lint check-docs deny ## Prove everything: format, lints, tests with and without torch, docs, licenses
	@scripts/python.sh
	@scripts/browser.sh || echo "make test: no browser; what needs one is skipped" >&2
	cargo test
	$(TORCH_ENV); cargo test --features torch
	@echo "make test: everything passed"

generated: ## Write man pages, completions, schemas, and the reference of codes again
	cargo run --quiet -- generated .

bench: prerequisites ## Measure against the published package, then growth; half an hour, 15 GB of scratch
	@benches/peer.sh
	@.deps/peer/bin/python benches/compare.py
	@.deps/peer/bin/python benches/growth.py

clean: ## Remove what was built, the demo's results and .deps included
	cargo clean
	rm -rf .deps demo
