"""cuLink*: the inputs so far looked at together, and the ELF file at the end."""

from __future__ import annotations

from functools import lru_cache

from gpuferry.native.simdevice import ptx

from . import cubin, images
from .errors import INVALID_PTX, ImageError

KEPT_TEXTS = 64  # each new input is looked at with all earlier ones


def check(image: bytes, cc: int, runs: bool = True) -> bytes:
    """Raises what is wrong with a linked image that may not be complete yet; yields nothing. `runs`: its
    kernels will be run."""
    sources = [each for each in images.sources(image, cc) if not each.optional]
    modules = [_parsed(each) for each in sources]
    ptx.check(modules)
    for source, module in zip(sources, modules, strict=True):
        try:
            if runs:
                ptx.check_instructions(module)
            _check_bodies(source)
        except ptx.PtxError as error:
            raise _at(source, error) from None
    return b""


def complete(image: bytes, cc: int) -> bytes:
    """The ELF file of a linked image; raises NotDefined for a name that no input defines."""
    module = ptx.link([_parse(each) for each in joined(images.sources(image, cc))])
    ptx.check_complete(module)
    return cubin.build(module, image, cc)


def joined(sources: list[images.Source]) -> list[images.Source]:
    """Those that make the module: of libraries only what defines a name that is missing otherwise."""
    chosen = [each for each in sources if not each.optional]
    offered = [each for each in dict.fromkeys(sources) if each.optional]
    while offered:
        missing = ptx.missing([_parsed(each) for each in chosen])
        taken = [each for each in offered if ptx.definitions(_parsed(each)) & missing]
        if not taken:
            break
        chosen += taken
        offered = [each for each in offered if each not in taken]
    return chosen


@lru_cache(KEPT_TEXTS)
def _parsed(source: images.Source) -> ptx.Module:
    return _parse(source)


@lru_cache(KEPT_TEXTS)
def _check_bodies(source: images.Source) -> None:
    ptx.check_bodies(_parsed(source))


def _parse(source: images.Source) -> ptx.Module:
    try:
        return ptx.parse(source.text.decode("utf-8", "surrogateescape"), source.name)
    except ptx.PtxError as error:
        raise _at(source, error) from None


def _at(source: images.Source, error: ptx.PtxError) -> ImageError:
    return ImageError(INVALID_PTX, f"{source.name}, {error}")
