"""Replicas that are killed while functions are invoked: each invocation is answered once, rightly, or with an
error that says whether it ran. Whoever is hit when, this holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path

from .serving import Got, Server

FUNCTIONS, CALLERS, EACH, KILLS = 3, 4, 15, 10
MARKS = """
def handle(request):
    path, mark = request.text().split()
    with open(path, "a") as marks: marks.write(mark + "\\n")
    return mark
"""


def test_killed_replicas(server: Server) -> None:
    marks = server.folder / "marks"
    for number in range(FUNCTIONS):
        server.deploy(f"hit-{number}", MARKS, most=2)
    answers: dict[str, Got] = {}
    over = threading.Event()

    def call(caller: int) -> None:
        for number in range(EACH):
            mark = f"{caller}-{number}"
            answers[mark] = server.invoke(f"hit-{number % FUNCTIONS}", body=f"{marks} {mark}")

    def kill() -> None:
        kills = 0
        while kills < KILLS and not over.is_set():
            for replica in server.show(f"hit-{kills % FUNCTIONS}")["replicas"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(replica["pid"], signal.SIGKILL) if replica["pid"] else None
            kills += 1

    callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    killer = threading.Thread(target=kill)
    for thread in (*callers, killer):
        thread.start()
    for thread in callers:
        thread.join()
    over.set()
    killer.join()
    assert len(answers) == CALLERS * EACH
    holds(answers, marks)
    # And all goes on as before.
    for number in range(FUNCTIONS):
        assert server.invoke(f"hit-{number}", body=f"{marks} after").body == b"after"


def holds(answers: dict[str, Got], marks: Path) -> None:
    ran = Counter(marks.read_text().split())
    for mark, got in answers.items():
        if got.status == 200:
            assert (got.body.decode(), ran[mark]) == (mark, 1)
        else:
            said = json.loads(got.body)["ran"]
            assert said == got.ran
            assert ran[mark] <= {"no": 0, "yes": 1, "unknown": 1}[said], (mark, got)
