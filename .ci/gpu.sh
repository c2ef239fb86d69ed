#!/usr/bin/env bash
# `make gpu`: acceptance on a machine that has a GPU and, possibly, no internet.
# Python packages come from the machine itself and, for what it lacks, from the wheels in $GPUFERRY_WHEELS (default .whl);
# nvcc from the machine's PATH, so that it fits the driver. Results go to build/gpu and, with $OUT set, to $OUT as one archive.
# STEPS names those to take, LIMIT the seconds that each may have, NAME the folder of the results and their archive: several of
# these may run at once if BUILT says that all is built. Programs that this machine lacks may lie in $GPUFERRY_WHEELS/bin,
# their libraries in lib beside it.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} wheels=${GPUFERRY_WHEELS:-.whl} name=${NAME:-gpu} venv=${GPUFERRY_VENV:-.venv}
out=$PWD/build/$name
steps=${STEPS:-doctor recording demo programs facts frameworks unrest models bench} limit=${LIMIT:-600}
mkdir -p "$out" build
report=$out/report.txt
: >"$report"
failed=0

say() {
    echo "gpu: $(date +%T) $*" | tee -a "$report"
}
step() {
    local step=$1
    shift
    if timeout --kill-after=5 "$limit" "$@" >"$out/$step.log" 2>&1; then
        say "$step: ok"
    else
        say "$step: FAILED (exit $?), the end of $out/$step.log:"
        tail -n "${TAIL:-25}" "$out/$step.log" | cut -c1-400 | tee -a "$report"
        failed=1
        return 1
    fi
}
install_packages() {
    if [ ! -d "$wheels" ]; then
        .ci/setup.sh "$python" "$venv"
        return
    fi
    "$python" -m venv --without-pip "$venv" &&
        "$python" -m pip --python "$venv/bin/python" install --no-index --no-deps --no-compile "$wheels"/*.whl || return
    # What else the machine's Python has, if need be, behind what was installed.
    "$python" - "$venv"/lib/python*/site-packages <<'END'
import pathlib, sys
found = [path for path in sys.path if path.endswith("-packages")]
pathlib.Path(sys.argv[1], "machine.pth").write_text("".join(path + "\n" for path in found))
END
}
programs() {
    # Not what else the machine's Python has for pytest.
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "$venv/bin/python" -m pytest -p xdist -p pytest_timeout -p no:cacheprovider \
        -q -n "${WORKERS:-8}" -m "not slow" --tb=short "$@"
}
machine() {
    nvidia-smi
    uname -a
    "$python" --version
    gcc --version
    nvcc --version
    nproc
    ls -l /dev/nvidia*
    "$python" -m pip list
    ldconfig -p | grep -E 'libcuda|libnvidia|libcap'
    echo "$LD_LIBRARY_PATH"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 | tee -a "$report"
[ "${PIPESTATUS[0]}" = 0 ] || { say "no NVIDIA driver answers here: run this on a machine with a GPU"; exit 1; }
machine >"$out/machine.log" 2>&1
export GPUFERRY_DEVICE=gpu
[ -d "$wheels/bin" ] && export PATH="$PWD/$wheels/bin:$PATH" LD_LIBRARY_PATH="$PWD/$wheels/lib:${LD_LIBRARY_PATH:-}"
nvcc=$(command -v nvcc) && export GPUFERRY_NVCC=${GPUFERRY_NVCC:-$(readlink -f "$nvcc")}

export -f install_packages programs
export python wheels venv
if [ ! -x "$venv/bin/python" ]; then
    step packages bash -c install_packages || exit 1
fi
[ -n "${BUILT:-}" ] || step build .ci/build.sh "$venv" || failed=1
# The driver's own answers need no build of ours: they are there even if nothing else works.
case " $steps " in *" recording "*)
    PYTHONPATH=build/tree step recording "$venv/bin/python" -m tests.facts.recording "$out/driver.json" &
    ;;
esac
for each in $steps; do
    case $each in
    doctor) "$venv/bin/gpuferry" doctor >"$out/doctor.log" 2>&1 ;;  # no monitor is there yet, and it says so
    demo) step demo "$venv/bin/python" -m bench.demo ;;
    programs) step programs bash -c "programs tests/differential" ;;
    facts) step facts bash -c "programs tests/facts" ;;
    smoke)
        step smoke "$venv/bin/python" -m tests.clients.installed "$python" "$out/smoke.json" --only torch_tensors || exit 1
        ;;
    unrest) step unrest "$venv/bin/python" -m tests.gpu "$python" "$out/unrest.json" ${PARTS:-} ;;
    models) step models "$venv/bin/python" -m bench.frameworks "$python" "$out/models.json" ;;
    bench) step bench "$venv/bin/python" -m bench ${SECTIONS:-} ;;
    frameworks) step frameworks "$venv/bin/python" -m tests.clients.installed "$python" "$out/frameworks.json" ;;
    none | recording) ;;
    *) say "there is no step $each" ;;
    esac
done
wait
for f in build/demo/result.json build/bench/results.json; do
    [ -f "$f" ] && cp "$f" "$out/$(basename "$(dirname "$f")")-$(basename "$f")"
done
[ -z "${OUT:-}" ] || tar -czf "$OUT/$name.tar.gz" -C build "$name"
[ $failed = 0 ] && say "everything passed" || say "something failed; see above and $out/*.log"
exit $failed
