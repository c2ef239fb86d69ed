#!/usr/bin/env bash
# The native parts under ASan+UBSan, then the same under TSan. usage: sanitize.sh VENV [address|thread …]
set -uo pipefail
venv=$1
shift
[ $# -gt 0 ] || set -- address thread
export PATH="$PWD/$venv/bin:$PATH"
failed=0
for kind in "$@"; do
    build=build/$kind
    runtime=$(gcc -print-file-name="lib${kind:0:1}san.so")
    echo "sanitize: building $build"
    cmake -G Ninja -S native -B "$build" -DGPUFERRY_SANITIZE="$kind" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DPython_EXECUTABLE="$PWD/$venv/bin/python" >"$build.log" 2>&1 &&
        cmake --build "$build" -j2 --target simcuda guestcuda >>"$build.log" 2>&1 || {
        tail -n 30 "$build.log"
        exit 1
    }
    echo "sanitize: running the tests marked sanitize with $kind"
    # Python itself leaks by design at exit, so leaks are looked for by the programs' own checks.
    GPUFERRY_SANITIZER=$kind GPUFERRY_SANITIZER_RUNTIME=$runtime \
        GPUFERRY_GUEST_LIBRARY=$PWD/$build/guest/libcuda.so.1 GPUFERRY_SIM_LIBRARY=$PWD/$build/sim/libcuda.so.1 \
        ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:abort_on_error=1:use_sigaltstack=0 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0 \
        "$venv/bin/python" -m pytest -q -m sanitize --timeout 600 || failed=1
done
exit $failed
