#!/usr/bin/env bash
# The native parts under ASan+UBSan, then the same under TSan; no times are asked of either. usage: sanitize.sh VENV [address|thread …]
set -uo pipefail
venv=$1
shift
[ $# -gt 0 ] || set -- address thread
export PATH="$PWD/$venv/bin:$PATH"
failed=0
export GPUFERRY_MONITOR_JAIL=off # a sanitizer wants to see and do what a jail hides and forbids
for kind in "$@"; do
    build=build/$kind
    runtime=$(gcc -print-file-name="lib${kind:0:1}san.so")
    targets=(simcuda simcuda_front guestcuda)
    [ "$kind" = thread ] || targets+=(apiserver_core)
    echo "sanitize: building $build"
    cmake -G Ninja -S native -B "$build" -DGPUFERRY_SANITIZE="$kind" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DPython_EXECUTABLE="$PWD/$venv/bin/python" >"$build.log" 2>&1 &&
        cmake --build "$build" -j2 --target "${targets[@]}" >>"$build.log" 2>&1 || {
        tail -n 30 "$build.log"
        exit 1
    }
    echo "sanitize: running the tests marked sanitize with $kind"
    # Python itself leaks by design at exit, so leaks are looked for by the programs' own checks.
    export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:abort_on_error=1:use_sigaltstack=0
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$PWD/.ci/thread.suppressions
    export GPUFERRY_SIM_LIBRARY=$PWD/$build/sim/libcuda.so.1
    GPUFERRY_SANITIZER=$kind GPUFERRY_SANITIZER_RUNTIME=$runtime GPUFERRY_GUEST_LIBRARY=$PWD/$build/guest/libcuda.so.1 \
        "$venv/bin/python" -m pytest -q -m "sanitize and not slow" --timeout 600 || failed=1
    # The engine, in API servers of its own tests. Not under TSan: its threads look at each other's plain flags.
    if [ "$kind" = address ]; then
        echo "sanitize: running the engine's tests with $kind"
        LD_PRELOAD=$runtime PYTHONPATH=$PWD/tests/helpers/sanitized GPUFERRY_CORE=$(ls "$PWD/$build"/apiserver/_core*.so) \
            "$venv/bin/python" -m pytest -q tests/apiserver tests/migration/test_local.py tests/migration/test_link.py \
            tests/migration/test_suspend.py tests/migration/test_remote.py tests/fuzz/test_engine.py --timeout 600 \
            --deselect tests/migration/test_suspend.py::test_a_suspended_session_costs_next_to_nothing || failed=1
    fi
done
exit $failed
