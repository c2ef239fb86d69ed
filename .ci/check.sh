#!/usr/bin/env bash
# Lint, types, formatting, layering and the generator's own check. usage: check.sh VENV
set -uo pipefail
bin=$1/bin
failed=0
step() {
    echo "check: $*"
    "$@" || failed=1
}
step "$bin/ruff" check -q .
step "$bin/ruff" format -q --check .
step "$bin/mypy" codegen apiserver migration monitor native guest bench tests
step "$bin/python" -m codegen --check
step "$bin/clang-format" --dry-run -Werror $(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
step "$bin/python" -m bench.readme --check
exit $failed
