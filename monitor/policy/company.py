"""Who may be on a GPU together: the labels of those who are there, and whether one more may come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .gpu import Gpu
from .interface import Request
from .portion import Marks, Portion, count, shown_time

# -- the books


def sit(request: Request, gpu: Gpu) -> None:
    """The session takes memory and time of the GPU, and its labels hold there."""
    portion = request.portion
    gpu.free -= request.memory
    gpu.time -= portion.request
    marks = gpu.marks.get(portion.scope)
    if marks is None:
        marks = gpu.marks[portion.scope] = Marks()
    marks.add(portion, 1)


def leave(request: Request, gpu: Gpu) -> None:
    """What the session had of the GPU is free."""
    portion = request.portion
    gpu.free += request.memory
    gpu.time += portion.request
    marks = gpu.marks[portion.scope]
    marks.add(portion, -1)
    if not marks.sessions:
        del gpu.marks[portion.scope]


def set_out(request: Request, gpu: Gpu, by: int = 1) -> None:
    """The session begins to move elsewhere, or does so no more (-1): until then its group is in two."""
    if request.portion.affinity:
        count(gpu.marks[request.portion.scope].leaving, request.portion.affinity, by)


# -- the rules


def spares(portion: Portion, gpu: Gpu) -> bool:
    """Whether the GPU has so much of its time to promise. Who is promised none shares what is left."""
    return not portion.request or gpu.time >= portion.request


def allows(portion: Portion, gpu: Gpu) -> bool:
    """Whether the labels of those who are there and of this one let them be together. Affinity asks where
    others are, and not here.
    """
    marks = gpu.marks.get(portion.scope)
    if marks is None:
        return True
    if len(marks.exclusion) > 1 or portion.exclusion not in marks.exclusion:
        return False
    return not portion.anti_affinity or portion.anti_affinity not in marks.anti_affinity


def homes(portion: Portion, gpus: Iterable[Gpu]) -> list[Gpu] | None:
    """The GPU where its affinity has it, in a list that is empty while that is on its way elsewhere. None: it
    is the first that says so, or says nothing.
    """
    affinity, scope = portion.affinity, portion.scope
    if not affinity:
        return None
    found = [gpu for gpu in gpus if scope in gpu.marks and affinity in gpu.marks[scope].affinity]
    if not found:
        return None
    return [] if any(affinity in gpu.marks[scope].leaving for gpu in found) else found


def rooted(request: Request, gpus: Sequence[Gpu]) -> bool:
    """Whether its affinity holds the session where it is, on these: others who say the same are there too."""
    portion = request.portion
    if not portion.affinity or not gpus:
        return False
    return gpus[0].marks[portion.scope].affinity.get(portion.affinity, 0) > 1


def takes(request: Request, gpu: Gpu) -> bool:
    """Whether the GPU has a worker, memory and time for the request, and its labels let it be there. Where
    its affinity has it is not asked.
    """
    portion = request.portion
    return gpu.takes(request.memory, request.labels) and spares(portion, gpu) and allows(portion, gpu)


def why_not_here(portion: Portion, gpu: Gpu) -> str:
    """Why time or labels keep such a session from this GPU; empty: they do not."""
    if not spares(portion, gpu):
        return f"{shown_time(portion.request)} of a GPU's time is more than it has to promise"
    marks = gpu.marks.get(portion.scope)
    if marks is None or allows(portion, gpu):
        return ""
    if marks.exclusion.keys() != {portion.exclusion}:
        if not portion.exclusion:
            return "sessions there are exclusive, and this one is not"
        return f"it is exclusive {portion.exclusion}, and there are sessions that are not"
    return f"anti-affinity {portion.anti_affinity}: a session there says the same"


def why_rooted(request: Request, gpus: Sequence[Gpu]) -> str:
    """Why its affinity lets the session not move, for whoever wants that."""
    affinity, there = request.portion.affinity, gpus[0].index
    return f"affinity {affinity}: others who say so are on GPU {there} too, and stay; end them first"


def why_no_home(portion: Portion, gpu: Gpu, gpus: Iterable[Gpu]) -> str:
    """Why the session's affinity wants it on another GPU than this; empty: it does not."""
    found = homes(portion, gpus)
    if found is None or gpu in found:
        return ""
    if not found:
        return f"affinity {portion.affinity}: those who say so are just moving"
    return f"affinity {portion.affinity}: those who say so are on GPU {found[0].index}"


def obstacle(request: Request, gpus: Iterable[Gpu], apart: bool, alone: bool) -> str:
    """Why no GPU takes the request now, in a few words; empty: enough of them do. Figures of others' sessions
    are not in it. `apart`, `alone`: as a fit has them.
    """
    portion, all_of = request.portion, list(gpus)
    wanted = homes(portion, all_of)
    if wanted == []:
        return f"affinity {portion.affinity}: those who say so are just moving"
    reasons: dict[str, None] = {}
    able = 0
    for gpu in all_of if wanted is None else wanted:
        if not request.labels <= gpu.labels:
            reasons[f"no GPU is free with {', '.join(sorted(request.labels))}"] = None
        elif why := why_not_here(portion, gpu):
            reasons[f"GPU {gpu.index}: {why}"] = None
        elif apart and portion.affinity and wanted is None and portion.scope in gpu.marks:
            reasons[f"affinity {portion.affinity}: the first of them needs a GPU without others"] = None
        elif gpu.free < request.memory:
            reasons["not enough device memory is free"] = None
        elif alone and gpu.busy:
            reasons["no GPU is without a session"] = None
        elif not gpu.idle:
            reasons["no API server is idle"] = None
        else:
            able += 1
    if able >= request.devices:
        return ""
    there = f"affinity {portion.affinity} is on GPU {wanted[0].index}: " if wanted else ""
    return there + "; ".join(reasons)
