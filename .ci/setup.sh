#!/usr/bin/env bash
# Makes the virtual environment with everything the build, the tests and the demo need. usage: setup.sh PYTHON VENV
set -euo pipefail
python=$1 venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "gpuferry needs Python 3.10 or newer; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3." >&2
    exit 1
}
# What some tests need and PyPI does not have: from Debian, if that can be; else those tests say what they miss.
debian_package() { # COMMAND PACKAGE
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Installing $2"
        { [ -n "$(find /var/lib/apt/lists -name '*_Packages*' -mtime -1 -print -quit)" ] || apt-get update -qq; } &&
            RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" \
                >build/apt.log 2>&1 || echo "$2 could not be installed (build/apt.log)" >&2
    else
        echo "Tests that need $1 will be skipped: apt-get install $2" >&2
    fi
}
debian_package etcd etcd-server

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
quiet="-q"
[ -t 1 ] && quiet=""
echo "Setting up $venv (one download of about 300 MB)"
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --upgrade "pip>=25.1"
# The group and the extras in one resolution, so that all pins agree.
"$venv/bin/python" .ci/requirements.py >build/requirements.txt
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --group dev -r build/requirements.txt
