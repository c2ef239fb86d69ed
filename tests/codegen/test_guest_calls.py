"""What the guest does for a function comes from its entry; nothing that the entry says is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen import written
from codegen.emit import guest_calls
from codegen.guest_use import check_use
from codegen.load import SPECS, load
from codegen.model import By, Spec, SpecError
from tests.helpers.spec_text import entry

from .spec_edits import edited

DRIVER = "cuda/driver"
GRANULARITY = "        answer: {granularity: session.granularity}\n"


def body(spec: Spec, symbol: str) -> str:
    return "\n".join(guest_calls.Body(spec, spec.by_symbol[symbol]).lines())


def emitted(folder: Path, symbol: str, old: str, new: str) -> str:
    """What the guest does for a function if the spec said something else of it."""
    specs, _ = edited(folder, DRIVER, old, new)
    spec = load(specs)
    for variant in spec.driver.variants:
        check_use(variant)
    return body(spec, symbol)


# Text in the spec of the driver, its replacement; the cause that is told, and the remedy.
MISTAKES = {
    "an answer for what is no result": (
        "answer: {priority: hStream.priority}",
        "answer: {priority: hStream.priority, hStream: 1}",
        "'hStream' brings nothing back",
        "Known: priority",
    ),
    "an answer from a member that is not there": (
        "answer: {priority: hStream.priority}",
        "answer: {priority: hStream.prority}",
        "hStream.prority: a stream has no 'prority'",
        "Known: owner, flags, priority, settings, idle_at, used, id, captured, green",
    ),
    "an answer from nowhere": (
        "answer: {priority: hStream.priority}",
        "answer: {priority: weather.today}",
        "'weather.today' means nothing",
        "Known: hStream, priority, device, session, context, and constants of cuda.h",
    ),
    "a result that nobody gives": (
        "        answer: {priority: hStream.priority}\n",
        "",
        "nobody says what 'priority' becomes",
        "Add it to 'answer'",
    ),
    "an expression that says too much": (
        "answer: {priority: hStream.priority}",
        'answer: {priority: "[hStream.priority]"}',
        "'[hStream.priority]' is no expression of the spec",
        "specs/README.md tells what an expression may say",
    ),
    "a pointer that is dropped": (
        "calls: gf_memory_free_async(dptr, hStream)",
        "calls: gf_memory_free_async(0, hStream)",
        "'dptr' is not passed on",
        "Pass it on, or say 'kind: ignored'",
    ),
    "an effect where all is by hand": (
        "args:\n          mode: {kind: inout}\n",
        "effect: {context.flags: 1}\n        args:\n          mode: {kind: inout}\n",
        "'effect' is given, but the guest's side is not generated",
        "Remove 'effect'",
    ),
    "a call and an answer": (
        "calls: cuStreamCreateWithPriority(phStream, Flags, 0)",
        "calls: cuStreamCreateWithPriority(phStream, Flags, 0)\n        result: CUDA_SUCCESS",
        "it calls another function and does something besides",
        "Let 'calls' be all",
    ),
    "a result of the guest's where the server answers": (
        "effect: {phEvent.flags: Flags}",
        "effect: {phEvent.flags: Flags}\n        result: CUDA_SUCCESS",
        "'result' is given, but the server answers",
        "Remove 'result'",
    ),
}


def test_an_effect_is_an_expression_or_counts(tmp_path: Path) -> None:
    text = body(load(), "cuEventRecordWithFlags")
    assert "hEvent_object->recorded = 1;" in text
    assert "hEvent_object->records += 1;" in text
    specs, _ = edited(tmp_path, DRIVER, "hEvent.records: {add: 1}", "hEvent.records: {subtract: 1}")
    with pytest.raises(SpecError, match="missing key 'add'"):
        load(specs)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told(mistake: str, tmp_path: Path) -> None:
    old, new, cause, remedy = MISTAKES[mistake]
    specs, _ = edited(tmp_path, DRIVER, old, new)
    spec = load(specs)
    with pytest.raises(SpecError) as error:
        guest_calls.outputs(spec)
    text = str(error.value)
    assert cause in text
    assert text.endswith(f"\n    {remedy}")
    assert text.startswith("specs/cuda/driver/")


def test_a_struct_that_is_sent_goes_through_its_codec(tmp_path: Path) -> None:
    """Generated on both sides, this function once sent zeros: what was behind a pointer was ignored."""
    local = "        class: local\n        needs: driver\n        guest: generated\n        early:\n"
    sent = "        class: sync\n        guest: generated\n        server: generated\n        replay: none\n"
    old, new = local + early() + GRANULARITY, sent
    text = emitted(tmp_path, "cuMemGetAllocationGranularity", old, new)
    assert "gf_encode_CUmemAllocationProp(prop, NULL, request.prop)" in text
    assert ".option = option" in text
    assert "*granularity = reply.granularity;" in text


def early() -> str:
    """The lines of `early` in that function's entry."""
    symbol = "      - symbol: cuMemGetAllocationGranularity\n"
    _, _, said = entry(SPECS, DRIVER, symbol).read_text(encoding="utf-8").partition(symbol)
    _, _, lines = said.partition("        early:\n")
    return lines[: lines.index(GRANULARITY)]


def test_null_is_looked_for_unless_it_may_be() -> None:
    spec = load()
    text = body(spec, "cuKernelGetParamInfo")
    assert "if (paramOffset == NULL)\n    return CUDA_ERROR_INVALID_VALUE;" in text
    assert "if (paramSize != NULL)\n    *paramSize" in text


def test_an_object_that_could_not_be_sent_is_given_back() -> None:
    """Publishing comes last: no other thread finds what the server never heard of."""
    text = body(load(), "cuEventCreate")
    sent, discarded, published = (
        text.index(part) for part in ("gf_send_struct(", "gf_object_discard(", "gf_object_publish(")
    )
    assert sent < discarded < published


def test_a_handle_ends_before_the_server_hears_of_it_and_its_slot_after() -> None:
    text = body(load(), "cuStreamDestroy_v2")
    ended, sent, released = (
        text.index(part) for part in ("gf_object_end(", "gf_send_struct(", "gf_objects_release(")
    )
    assert ended < sent < released


def test_threads_that_count_at_once_both_count() -> None:
    """An event that two threads record has two records more: a wait for one must not stand for both."""
    assert "hEvent_object->records += 1;" in body(load(), "cuEventRecordWithFlags")


def test_lines_by_hand_are_found() -> None:
    """Every function that the spec says is written by hand is there; every generated one is not."""
    spec = load()
    lines = written.functions()
    for variant in spec.driver.variants:
        if variant.guest is By.CUSTOM:
            assert lines.get(f"gf_{variant.symbol}", 0) > 2, variant.symbol
        else:
            assert f"gf_{variant.symbol}" not in lines


def test_at_most_sixty_functions_are_by_hand() -> None:
    """Of those that were carried when 171 of 178 were by hand, in 1,494 lines."""
    spec = load()
    first = set((Path(__file__).parent / "carried_first.txt").read_text(encoding="utf-8").split())
    before = [v for v in spec.driver.variants if v.symbol in first]
    assert len(before) == 178
    by_hand = written.of_guest(spec)
    assert sum(v.guest is By.CUSTOM for v in before) <= 60
    assert sum(by_hand[v.symbol] for v in before) <= 747


def test_early_results_are_asked_behind_a_check_by_hand() -> None:
    asked = body(load(), "cuEventElapsedTime_v2")
    assert asked.index("_check(") < asked.index("hEnd_object->recorded") < asked.index("GF_OP_")
