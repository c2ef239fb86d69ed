#!/usr/bin/env bash
# `make gpu`: demo and differential programs on a machine that has a GPU and, possibly, no internet.
# Python packages come from the machine itself and, for what it lacks, from the wheels in $GPUFERRY_WHEELS (default .whl);
# nvcc from the wheels or the machine's PATH. Results go to build/gpu/ and, with $OUT set, to $OUT.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} wheels=${GPUFERRY_WHEELS:-.whl} out=build/gpu venv=${GPUFERRY_VENV:-.venv}
mkdir -p "$out" build
report=$out/report.txt
: >"$report"
failed=0

say() {
    echo "gpu: $*" | tee -a "$report"
}
step() {
    local name=$1
    shift
    say "$name: $*"
    if "$@" >"$out/$name.log" 2>&1; then
        say "$name: ok"
    else
        say "$name: FAILED (exit $?), the end of $out/$name.log:"
        tail -n 25 "$out/$name.log" | tee -a "$report"
        failed=1
        return 1
    fi
}
install_packages() {
    "$python" -m venv --system-site-packages "$venv" || return
    if [ -d "$wheels" ]; then
        "$venv/bin/python" -m pip install --no-index --no-deps --no-compile "$wheels"/*.whl
    else
        .ci/setup.sh "$python" "$venv"
    fi
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 | tee -a "$report"
[ "${PIPESTATUS[0]}" = 0 ] || { say "no NVIDIA driver answers here: run this on a machine with a GPU"; exit 1; }

export GPUFERRY_DEVICE=gpu
if [ ! -x "$venv/bin/gpuferry" ]; then
    step packages install_packages || exit 1
fi
step build .ci/build.sh "$venv" || exit 1
step doctor "$venv/bin/gpuferry" doctor --json
step demo "$venv/bin/python" -m bench.demo
step differential "$venv/bin/python" -m pytest -q -x --maxfail=50 tests/differential -m "not slow" -p no:cacheprovider
step bench "$venv/bin/python" -m bench
for f in build/demo/result.json build/bench/results.json; do
    [ -f "$f" ] && cp "$f" "$out/$(basename "$(dirname "$f")")-$(basename "$f")"
done
[ -z "${OUT:-}" ] || cp "$out"/* "$OUT"/
[ $failed = 0 ] && say "everything passed" || say "something failed; see above and $out/*.log"
exit $failed
