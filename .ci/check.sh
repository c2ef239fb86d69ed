#!/usr/bin/env bash
# Lint, types, formatting, layering and the generator's own check. usage: check.sh VENV
set -uo pipefail
bin=$1/bin
failed=0
step() {
    local said="$*"
    echo "check: ${said:0:100}"
    "$@" || failed=1
}
# It takes one core for as long as all the others together take another: beside them.
types=("$bin/mypy" codegen apiserver migration monitor native guest bench tests)
echo "check: ${types[*]}"
mkdir -p build
"${types[@]}" >build/types.log 2>&1 &
step "$bin/ruff" check -q .
step "$bin/ruff" format -q --check .
step "$bin/python" -m codegen --check
step "$bin/clang-format" --dry-run -Werror $(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
step "$bin/python" -m bench.readme --check
wait $! || failed=1
cat build/types.log
exit $failed
