"""Tensor maps on the server: what its arrays are too short for never reaches the driver."""

from __future__ import annotations

import pytest

from tests.apiserver.guest import Guest
from tests.apiserver.refusals import TENSOR_MAP

INVALID_VALUE = 1
FORM, RANK = 8, 10  # where a struct gf_tensor_map has them
TILED, IM2COL, IM2COL_WIDE = 1, 2, 3


def changed(form: int, rank: int) -> bytes:
    line = bytearray(TENSOR_MAP)
    line[FORM], line[RANK] = form, rank
    return bytes(line)


def test_one_that_is_right(guest: Guest) -> None:
    reply = guest.call("sessionTensorMap", map=TENSOR_MAP)
    assert (reply.status, len(reply.payload)) == (0, len(TENSOR_MAP))
    guest.close()


@pytest.mark.parametrize(
    ("form", "rank"),
    [
        *((form, rank) for form in (TILED, IM2COL, IM2COL_WIDE) for rank in (0, 6, 255)),
        *((form, rank) for form in (IM2COL, IM2COL_WIDE) for rank in (1, 2)),
        *((form, 3) for form in (0, 4, 255)),
    ],
)
def test_wrong_forms_and_ranks(guest: Guest, form: int, rank: int) -> None:
    assert guest.call("sessionTensorMap", map=changed(form, rank)).status == INVALID_VALUE
    assert guest.call("sessionTensorMap", map=TENSOR_MAP).status == 0
    guest.close()
