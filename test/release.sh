#!/bin/bash
# release.sh - what a release needs in addition to .ci/run; by `make
# release-check`
#
#   SHORT=1         a little of each step, to try this script
#   ONLY='NAME …'   only these steps; curator, which takes 40 minutes, runs only
#                   if it is named
#
# It takes hours.  test/steps.sh describes how steps run; logs are in
# build/release-check.
logs=build/release-check limit=14400
. test/steps.sh
export RUN_LIMIT=$limit # of each program, too (test/run.sh)

# so SHORT [LONG]: prints SHORT or LONG, depending on SHORT=1
so() { if [[ ${SHORT-} ]]; then echo "$1"; else echo "${2-}"; fi; }

step packages sh test/deps.sh -y sqlite check shell jansson libedit python3 \
  node npm tmux c++ clang clang-format clang-tidy cppcheck valgrind libfuzzer \
  pkg-config ctags gcovr musl cmake meson ninja mandoc zookeeper \
  zookeeper-client kazoo python-objgraph cppunit dpkg-dev javac zookeeper-java \
  curator junit5 go go-zookeeper mmdebstrap qemu-system-x86_64 mkfs.ext4 xz \
  qemu-arm-static i686-linux-gnu-gcc arm-linux-gnueabihf-gcc \
  aarch64-linux-gnu-gcc s390x-linux-gnu-gcc
full=$(so '' FULL=1)
step build make -j2 $full programs mutate-programs fuzz-programs sqlite-sources

# All tests in full size, by clang, for threads, and their coverage.
step test-full make $full test
step test-clang env TMPDIR=/tmp make CC=clang test # on a disk
step test-tsan make test-tsan
step coverage make coverage
step test-ensemble make test-ensemble

# Would the tests notice a mistake?  The longest begins first.
beside sim-mutants make SEEDS=$(so 1 5) ONLY=$(so gate_open) sim-mutants
beside mutate make LINES=$(so 3 50) mutate
beside sim-calibrate-mutants make ONLY=$(so timer_past) \
  sim-calibrate-mutants
beside lab-mutants make SEEDS=$(so 1 11) lab-mutants
beside lab-bugs env SEEDS=$(so 1 11) SECONDS=20 build/test/test_lab_bugs
beside torture-host-mistakes make torture-host-mistakes

# Other SQLites, C libraries, systems, clients and tools.
beside lint nice env JOBS=2 LINT_NODES=$(so 1000 225000) make lint
beside fresh make fresh
beside deb make deb
beside release make release
beside foreign make foreign
beside platforms make platforms
beside other-machines make SHORT=$(so 1) other-machines
beside sqlite-newest make sqlite-newest
beside sqlite-oldest make sqlite-oldest
beside valgrind make $(so VALGRIND_TESTS=multi) valgrind
beside bench make QUICK=1 bench # its figures mean nothing
if [[ $only = *curator* ]]; then step curator make SUITE=curator foreign; fi

# As much as was enough to find everything found so far.
beside fuzz make SECONDS=$(so 3 120) fuzz
beside lab make SECONDS=$(so 1 12) lab
beside powerloss make $(so 'CUTS=5 EVERY=200') powerloss
beside powerloss-machine make CUTS=$(so 2 20) powerloss-machine
beside sim-calibrate make SECONDS=$(so 3 300) sim-calibrate
beside fault make $full $(so '' FAULT_ALIKE=0) test-fault
beside flipped-bytes env FLIP_STRIDE=$(so 50 1) build/test/test_corpus
beside scale env SCALE=$(so 5 100) make test-scale
beside conformance make OPS=$(so 5000 1000000) conformance
beside conformance-wire make WIRE=1 OPS=$(so 5000 1000000) conformance
beside conformance-zk make ENGINE=zookeeper OPS=$(so 5000 100000) conformance
beside model make OPS=$(so 10000 1000000) model
beside order-ensemble make PROGRAMS=$(so 10 400) order-ensemble
beside torture-recipes make KILLS=$(so 50 10000) torture-recipes
beside torture-serve make KILLS=$(so 10 200) torture-serve
beside torture-host make KILLS=$(so 20 600) torture-host
beside torture-ensemble make KILLS=$(so 10 400) torture-ensemble
kills=KILLS=$(so 5 120)
beside torture-zookeeper make SERVER=zookeeper $kills torture-ensemble
beside torture-three make SERVERS=3 $kills torture-ensemble
beside demo make demo
finish
