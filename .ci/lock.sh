#!/usr/bin/env bash
# Writes .ci/lock.txt: the exact version of every package that build, tests and demo use, for each Python that
# pyproject.toml allows. What is in the lock stays unless pyproject.toml asks for another, or with --upgrade, or
# --upgrade-package NAME. usage: lock.sh PYTHON [options of `uv pip compile`]
set -euo pipefail
python=$1
shift
venv=build/lock
[ -x "$venv/bin/uv" ] || {
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "uv>=0.9"
}
"$venv/bin/uv" pip compile -q pyproject.toml --all-extras --group dev --universal --python-version 3.10 \
    --no-python-downloads --no-annotate --no-header -o .ci/lock.txt "$@"
