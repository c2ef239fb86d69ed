#!/usr/bin/env bash
# Every test can be collected. usage: collect.sh VENV
# What pytest makes of a test file to show its assertions is kept, so that no worker makes it again.
set -uo pipefail
mkdir -p build
"$1/bin/python" -m pytest --collect-only -q >build/collect.log 2>&1 || {
    tail -n 40 build/collect.log
    exit 1
}
