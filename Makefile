# Makefile - the commands of this project, thin over Meson. `make help` lists them.
#
# Each sets up what it needs: packages that are missing (.ci/setup) and a build directory of its own.

BUILD  ?= build
PREFIX ?= /usr/local
# below PREFIX; the loader and pkg-config look there without being told
LIBDIR ?= lib
# for `make bench`: a part of a bench's name; empty: all (--quick: fewer runs); ARGS: its options
BENCH  ?=
# for `make sim`: how many seeds
SEEDS  ?= 200
# for `make sim` and `make explore`: the first seed; each run takes new ones, from the clock
FIRST  ?= $(shell date +%s%3N)
FIRST  := $(FIRST)
# for `make explore`: how many schedules, from seed FIRST
SCHEDULES ?= 1000000
# for `make crash`: how many moments of each test; FIRST is their seed
MOMENTS ?= 200
# for `make chaos`: how long, on which store (postgres, redis, etcd, sqlite), the lease in ms; SEED: again
MINUTES ?= 3
ENGINE  ?= postgres
LEASE   ?= 2000
# for `make mutants`: how many are drawn, and by which seed; empty: 66, and one from the clock
N    ?=
SEED ?=
# for `make fuzz`: one of tests/fuzz/fuzz_*.c; empty: each in turn
TARGET ?=
SECONDS ?= 60
# for `make test` and its kin: more for meson test, such as --suite unit or -v; for `make sim`: options
ARGS   ?=

.DEFAULT_GOAL := help

# $(call configured,DIRECTORY,PRESET[,MORE])
configured = test -f $(1)/build.ninja || meson setup $(1) --native-file tests/presets/$(2).ini $(3)

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z]*\):.* ## /\1\t/p' Makefile | while IFS='	' read -r name text; do \
	    printf '  make %-9s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: ## three silos count the words of real texts; the result is compared with coreutils
	@.ci/setup core
	@$(call configured,$(BUILD),release)
	@ninja -C $(BUILD) samples/03-wordcount/words-silo samples/03-wordcount/count
	@samples/03-wordcount/demo.sh "$(abspath $(BUILD))"

.PHONY: build
build: ## compile everything
	@.ci/setup core
	@$(call configured,$(BUILD),release)
	@ninja -C $(BUILD)

.PHONY: test
test: build ## all tests, with cmocka's closing lines
	@.ci/test $(BUILD) $(ARGS)

.PHONY: asan
asan: ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer (gcc)
	@.ci/setup core
	@$(call configured,build-asan,asan)
	@ninja -C build-asan
	@.ci/test build-asan $(ARGS)

.PHONY: tsan
tsan: ## all tests under ThreadSanitizer (clang)
	@.ci/setup full
	@$(call configured,build-tsan,tsan)
	@ninja -C build-tsan
	@.ci/test build-tsan $(ARGS)

.PHONY: clang
clang: ## all tests, compiled by clang
	@.ci/setup full
	@$(call configured,build-clang,clang)
	@ninja -C build-clang
	@.ci/test build-clang $(ARGS)

.PHONY: sim
sim: ## SEEDS=n seeds from FIRST: a cluster in one thread, each seed run twice
	@.ci/setup core
	@$(call configured,$(BUILD),release)
	@ninja -C $(BUILD) tests/sim/sim
	@echo "again: make sim SEEDS=$(SEEDS) FIRST=$(FIRST)"
	@$(BUILD)/tests/sim/sim --seeds $(SEEDS) --first $(FIRST) --regressions tests/sim/seeds.txt $(ARGS)

.PHONY: crash
crash: ## MOMENTS=n: kill -9, or no memory, while a silo joins, saves, transfers, reminds, leaves
	@.ci/setup full
	@$(call configured,$(BUILD),release)
	@ninja -C $(BUILD) tests/crash/crash tests/crash/crash_silo tests/crash/crash_silo_scarce
	@for engine in sqlite postgres redis etcd; do \
	    $(BUILD)/tests/crash/crash $(BUILD)/tests/crash/crash_silo $$engine $(MOMENTS) $(FIRST) || exit 1; \
	done
	@CRASH_SCARCE=$(BUILD)/tests/crash/crash_silo_scarce $(BUILD)/tests/crash/crash \
	    $(BUILD)/tests/crash/crash_silo sqlite $(MOMENTS) $(FIRST)

.PHONY: chaos
chaos: ## MINUTES=n on ENGINE=e: silo processes under faults; are histories linearizable?
	@.ci/setup full
	@$(call configured,$(BUILD),release)
	@ninja -C $(BUILD) tests/chaos/chaos_silo tests/chaos/chaos_client
	@python3 -B tests/chaos/chaos.py $(BUILD) --engine $(ENGINE) --minutes $(MINUTES) --lease $(LEASE) \
	    $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: explore
explore: ## SCHEDULES=n schedules of the scheduler's own code, from seed FIRST
	@.ci/setup core
	@$(call configured,$(BUILD),release)
	@ninja -C $(BUILD) tests/explore/explore
	@echo "again: make explore SCHEDULES=$(SCHEDULES) FIRST=$(FIRST)"
	@$(BUILD)/tests/explore/explore --schedules $(SCHEDULES) --first $(FIRST)

.PHONY: model
model: ## Spin checks the models of the scheduler; their mutants must fail
	@.ci/setup full
	@tests/model/run.sh

.PHONY: mutants
mutants: ## bugs planted in a copy of the tree, N=n of them drawn by SEED=s: do tests find each?
	@.ci/setup core
	@python3 -B tests/mutants/mutants.py $(if $(N),--count $(N)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: fuzz
fuzz: ## TARGET=t for SECONDS=n: libFuzzer on a target; without TARGET each in turn
	@.ci/setup full
	@$(call configured,build-fuzz,fuzz)
	@.ci/fuzz build-fuzz $(SECONDS) $(TARGET)

.PHONY: bench
bench: ## what calls cost, as JSON lines; BENCH=pattern chooses
	@.ci/setup core >&2
	@($(call configured,$(BUILD),release)) >&2
	@ninja -C $(BUILD) benches >&2
	@$(BUILD)/tests/bench/bench $(BENCH) $(ARGS)

.PHONY: lint
lint: ## layers, seams, style, format, clang-tidy
	@.ci/setup full
	@$(call configured,build-clang,clang)
	@tests/lint/run build-clang

.PHONY: clean
clean: ## remove the build directories
	rm -rf $(BUILD) build-asan build-tsan build-clang build-fuzz

.PHONY: install
install: ## the libraries, the headers and the plugin, under PREFIX (DESTDIR is honoured)
	@case "$(PREFIX)" in /*[[:space:]]*) \
	    echo 'install: PREFIX="$(PREFIX)" holds a space, which $$(pkg-config --cflags teff) cannot quote' >&2; \
	    exit 2;; /*) ;; *) \
	    echo 'install: PREFIX="$(PREFIX)": expected an absolute path' >&2; exit 2;; esac
	@.ci/setup core
	@$(call configured,$(BUILD),release)
	@meson configure $(BUILD) -Dprefix=$(PREFIX) -Dlibdir=$(LIBDIR)
	@ninja -C $(BUILD) libteff.a $$(cd $(BUILD) && ninja -t targets all | \
	    sed -n 's/^\(libteff\.so[0-9.]*\|grains\/testing\/libteff-testing\.so[0-9.]*\):.*/\1/p') codegen/protoc-gen-teff
	@DESTDIR="$(DESTDIR)" meson install -C $(BUILD) --no-rebuild
	@test -z "$$SUDO_UID" || chown -R "$$SUDO_UID:$$SUDO_GID" $(BUILD)
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig

.PHONY: uninstall
uninstall: ## take away what install put under PREFIX
	@cd "$(DESTDIR)$(PREFIX)" && rm -rf include/teff && rm -f bin/protoc-gen-teff \
	    $(LIBDIR)/libteff.a $(LIBDIR)/libteff.so $(LIBDIR)/libteff.so.[0-9]* $(LIBDIR)/pkgconfig/teff.pc \
	    $(LIBDIR)/libteff-testing.so $(LIBDIR)/libteff-testing.so.[0-9]* $(LIBDIR)/pkgconfig/teff-testing.pc
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig
