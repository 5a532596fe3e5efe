# h2okv: a thin front to CMake. Each target works alone on a fresh clone.
#
#   make             build/h2okv and the libraries
#   make run         the main job: a real text through a KV cache of 512 tokens (TEXT=file for your own)
#   make test        build and run every test
#   make soak        one session of 200,000 tokens, everything checked all the time (TOKENS=n for another length), and
#                    500 requests to h2okv serve: half an hour
#   make bench       build and run the benchmarks: a quarter of an hour (BENCH=--quick: some minutes); with LLAMA=source
#                    beside llama.cpp's own server too, which is built first
#   make eval        what a budget costs in quality: an hour or two (EVAL=ppl: ten minutes; TEXT=file for your own)
#   make model       fetch the default model
#   make install     into PREFIX (default /usr/local), below DESTDIR
#   make clean       remove build/; what was fetched stays in the cache folder
#   make distclean   remove build/ and what was fetched
#
# LLAMA=prebuilt (default), source, system, auto or off; LLAMA_DIR=folder for your own llama.cpp: docs/install.md.
LLAMA  ?= prebuilt
PREFIX ?= /usr/local
export LLAMA LLAMA_DIR
MAKEFLAGS += --no-print-directory

JOBS  := $(shell n=$$(nproc); [ $$n -le 8 ] && echo $$n || echo 8)
CACHE := $(or $(H2OKV_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/h2okv)

CONFIGURE = cmake -S . -B build -DH2OKV_CACHE='$(CACHE)' -DH2OKV_LLAMA=$(LLAMA) -DLLAMA_DIR='$(LLAMA_DIR)' \
            -DCMAKE_INSTALL_PREFIX='$(PREFIX)' $(CMAKE_FLAGS)
BUILD     = cmake --build build --parallel $(JOBS)

.PHONY: build run test soak bench eval model install clean distclean help

build:
	@scripts/setup.sh
	$(CONFIGURE)
	$(BUILD) --target product

OWN_TEXT := $(TEXT)
ifndef TEXT
TEXT := build/licences.txt
run: $(TEXT)
endif
run:
	@scripts/setup.sh model
	$(CONFIGURE)
	$(BUILD) --target product
	build/h2okv run -f '$(TEXT)' --budget 512 -n 64

test:
	@scripts/setup.sh test model
	$(CONFIGURE) -DH2OKV_TESTS=ON -DH2OKV_CHECKS=ON -DH2OKV_WERROR=ON
	$(BUILD)
	cd build && ctest --output-on-failure --no-label-summary --parallel $(JOBS)

TOKENS ?= 200000
soak:
	@scripts/setup.sh test model
	$(CONFIGURE) -DH2OKV_TESTS=ON
	$(BUILD) --target soak test_llama_soak
	build/tests/test_llama_soak $(TOKENS) $$(nproc)

BENCH ?= --minutes 10
bench:
	@scripts/setup.sh model
	@[ '$(LLAMA)' != source ] || scripts/build-llama.sh server
	$(CONFIGURE)
	$(BUILD) --target product
	cmake --build build --target bench
	build/h2okv bench $(BENCH) $(if $(filter off,$(LLAMA)),--systems none) --csv build/bench.csv --svg build/bench.svg

# The parts are in scripts/eval.mk; two run at once, each with one thread.
EVAL_JOBS ?= 2
eval:
	@scripts/setup.sh model $(if $(OWN_TEXT),,texts)
	$(CONFIGURE)
	$(BUILD) --target product
	@$(MAKE) -f scripts/eval.mk --jobs=$(EVAL_JOBS) TEXTS='$(CACHE)/texts' TEXT='$(OWN_TEXT)'

model:
	@scripts/fetch.sh model

install: # of what is built already, so that root need not build
	@[ -x build/h2okv ] || $(MAKE) build
	cmake --install build --prefix '$(PREFIX)'

clean:
	rm -rf build

distclean: clean
	scripts/fetch.sh forget

.DELETE_ON_ERROR:
build/licences.txt: scripts/licences.sh
	@mkdir -p build
	@scripts/licences.sh >$@

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile | sed '/^LLAMA  /d'
