#!/usr/bin/env bash
# Generates, compiles (build/native) and installs the package in editable form. usage: build.sh VENV
set -euo pipefail
venv=$1
export PATH="$PWD/$venv/bin:$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(nproc)
log=build/build.log
if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e . >"$log" 2>&1; then
    grep -nE 'error|Error|FAILED|\^' "$log" | head -40 >&2 || true
    echo "The build failed; all of its output is in $log." >&2
    exit 1
fi
# Tests start many processes of ours: where Python may write no bytecode itself, each would compile them again.
"$venv/bin/python" -m compileall -q -j 0 apiserver codegen guest migration monitor native specs
