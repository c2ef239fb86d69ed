#!/usr/bin/env bash
# Makes the virtual environment with everything the build, the tests and the demo need. usage: setup.sh PYTHON VENV
set -euo pipefail
python=$1 venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "gpuferry needs Python 3.10 or newer; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3." >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv --without-pip "$venv"
quiet="-q"
[ -t 1 ] && quiet=""
echo "Setting up $venv (one download of about 300 MB)"
# All of it, at the versions of the lock (.ci/lock.sh).
packages=(-r .ci/lock.txt "pip>=25.1")
uv() {
    "$python" -m pip --python "$venv/bin/python" install -q --disable-pip-version-check --no-compile "uv==0.9.30" &&
        # shellcheck disable=SC2086
        "$venv/bin/uv" pip install $quiet --python "$venv/bin/python" "${packages[@]}"
}
pip() {
    "$venv/bin/python" -m ensurepip &&
        # shellcheck disable=SC2086
        "$venv/bin/python" -m pip install $quiet --disable-pip-version-check --no-compile "${packages[@]}"
}
# uv takes a third of pip's time, but knows none of pip's settings: where it finds nothing, pip does it.
uv 2>build/uv.log || pip
# mypy and Cython do not see through the editable install's import hook: they use this tree of links.
mkdir -p build/tree/gpuferry
for folder in apiserver guest migration monitor native specs; do
    ln -sfn "../../../$folder" "build/tree/gpuferry/$folder"
done
# On all cores, what API servers import: in a jail they cannot keep what they compile. All others keep it when they
# first import it (Makefile). A few files are for other Pythons, or templates: they do not compile.
others="tests?|testing|f2py|mypyc?|setuptools|fontTools|pip|matplotlib|mpl_toolkits|selenium|pygments|PIL|mpmath"
others+="|trio|hypothesis"
"$venv/bin/python" -m compileall -qq -j 0 \
    -x "/($others)/" \
    "$venv"/lib/python*/site-packages || true
