#!/usr/bin/env bash
# Makes the virtual environment with everything the build, the tests and the demo need. usage: setup.sh PYTHON VENV
set -euo pipefail
python=$1 venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "gpuferry needs Python 3.10 or newer; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3." >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
quiet="-q"
[ -t 1 ] && quiet=""
echo "Setting up $venv (one download of about 300 MB)"
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --upgrade "pip>=25.1"
# All of it, at the versions of the lock (.ci/lock.sh). Pip would compile it on one core.
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --no-compile -r .ci/lock.txt
# A few files are for other Pythons, or templates: they do not compile, and nobody imports them.
"$venv/bin/python" -m compileall -qq -j 0 "$venv"/lib/python*/site-packages || true
