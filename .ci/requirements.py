"""Prints the run-time requirements in pyproject.toml, the extras' included, one per line."""

import pathlib
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

pyproject = pathlib.Path(__file__).parent.parent / "pyproject.toml"
project = tomllib.loads(pyproject.read_text())["project"]
extras = [line for group in project["optional-dependencies"].values() for line in group]
print("\n".join(line for line in project["dependencies"] + extras if not line.startswith(project["name"])))
