"""`python -m codegen`: generates code from specs/; `--check`, `show NAME`, `coverage`, `release NAME`,
`next-id`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from . import compare, coverage, family, frames, generate, header, local_library, protos, released, show
from .load import load
from .model import SpecError
from .validate import next_id


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="codegen", description="Generates code from specs/. Without a command: writes what changed."
    )
    parser.add_argument(
        "--check", action="store_true", help="compare the spec with cuda.h, and generated files with the spec"
    )
    parser.add_argument("--cuda-include", type=Path, help="folder of cuda.h (default: the toolkit's wheel)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    one = commands.add_parser("show", help="everything that one function or one type yields")
    one.add_argument("function", help="symbol, base name or type")
    table = commands.add_parser("coverage", help="which functions are carried, and how")
    form = table.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="as a table for the documentation")
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument(
        "--functions",
        nargs="+",
        metavar="NAME",
        help="lines in the spec and by hand; of a group, or as cuLink*",
    )
    parser.add_argument("--release", metavar="NAME", help="speak only the operations of a release")
    parser.add_argument("--into", type=Path, metavar="DIR", help="write what is generated there")
    made = commands.add_parser("release", help="keep what the spec says now as a release, for ever")
    made.add_argument("name", help="0.2, say")
    free = commands.add_parser("next-id", help="the next free wire id")
    free.add_argument("library", nargs="?", default="cuda", help="name of a library (default: cuda)")
    return parser.parse_args(arguments)


def check(arguments: argparse.Namespace) -> int:
    spec = load()
    problems = compare.check(spec, header.find(arguments.cuda_include))
    for library in local_library.load_all():
        problems += local_library.check(library, arguments.cuda_include)
    stale = generate.stale(generate.outputs(spec)) + [str(path) for path in protos.check(generate.ROOT)]
    problems += released.changes(spec, frames.load(), released.load())
    problems += [f"{path}: not what the spec yields\n    Run python -m codegen" for path in stale]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"The spec agrees with cuda.h {spec.driver.version}; generated files are up to date.")
    return 1 if problems else 0


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        if options.check:
            return check(options)
        spec = load()
        if options.command == "show":
            print(show.show(spec, options.function))
        elif options.command == "coverage":
            if options.functions:
                print(family.as_markdown(spec, options.functions), end="")
            elif options.markdown:
                print(generate.outputs(spec)[coverage.TABLE], end="")
            else:
                print(coverage.as_json(spec) if options.json else coverage.as_text(spec))
        elif options.command == "next-id":
            print(next_id(spec.library(options.library)))
        elif options.command == "release":
            print(released.write(spec, frames.load(), options.name))
        else:
            if options.release:
                spec = released.restricted(spec, released.by_name(options.release))
            into = options.into or generate.ROOT
            generate.write(generate.outputs(spec), into)
            if into == generate.ROOT:
                protos.generate(into)
    except (SpecError, header.HeaderError, LookupError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `coverage | head -1` is no error
    sys.exit(main())
