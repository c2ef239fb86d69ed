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
# The group and the extras in one resolution, so that all pins agree.
"$venv/bin/python" .ci/requirements.py >build/requirements.txt
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install $quiet --disable-pip-version-check --group dev -r build/requirements.txt

# Programs that the tests drive: debian PROGRAM=PACKAGE … installs what is missing, where that is possible.
debian() {
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Installing Debian's ${missing[*]}"
        if apt-get update -qq >build/debian.log 2>&1 &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >>build/debian.log 2>&1
        then
            return 0
        fi
        tail -n 3 build/debian.log >&2
    fi
    echo "Some tests will fail: they need the Debian packages ${missing[*]}, which could not be installed here." >&2
}
debian chromium=chromium chromedriver=chromium-driver
