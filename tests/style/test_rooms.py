"""The rooms of the engine: who may change each, who may read it, and what it offers to the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "apiserver"
KEYS = ("Room", "Holds", "Lock", "Home", "Changed by", "Read by", "Offers")

KEY = re.compile(r"# ([A-Z][a-z]+(?: by| no room)?): (.*)")
STRUCT = re.compile(r"^cdef struct (\w+):")
MEMBER = re.compile(r"^    (.*?)\s*\*?(\w+)(?:\[\w+\])?$")
FUNCTION = re.compile(r"^cdef (?:inline )?[\w.]+ \**(\w+)\(")
MENTION = re.compile(r"(?<![\w.])(?:(?:self\.)?s|\(<Session \*>[\w.]+\))((?:\.\w+|\[[^\]]*\])+)")
CALL = re.compile(r"(?<![\w.])(\w+)\(")
DOCSTRING = re.compile(r'""".*?"""', re.S)
LOCKS = re.compile(r"(?:pthread_(?:mutex|cond)_\w+|wait_briefly)\((?:[^()]|\([^()]*\))*\)")
ADDRESS = re.compile(r"(const \w+ \*.*)?&$")
ASSIGNED = re.compile(r"\s*(?:[-+*/|&^]|<<|>>)?=(?!=)")
STEP = re.compile(r"on_\w+|\w+_call")  # of an operation, for the table of operations alone
CHANGING = re.compile(r"\.(?:push_back|pop_back|clear|erase|resize|shrink_to_fit)$")


@dataclass
class Room:
    """What core/rooms/NAME.pxi declares."""

    file: Path
    struct: str
    members: dict[str, str]  # name and type
    said: dict[str, str]
    lines: dict[str, int]
    path: str = ""  # from the session to the room

    @property
    def name(self) -> str:
        return self.file.stem

    def words(self, key: str) -> set[str]:
        return set(self.said.get(key, "").split()) - {"-"}


@dataclass
class Use:
    """Where it is seen first that a file does something with a room."""

    changes: dict[tuple[str, str], str] = field(default_factory=dict)
    reads: dict[tuple[str, str], str] = field(default_factory=dict)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)  # file and function


def members(lines: list[str], struct: str) -> dict[str, str]:
    """Of a struct: name and type of each."""
    found: dict[str, str] = {}
    inside = False
    for line in lines:
        text = line.split("#")[0].rstrip()
        if match := STRUCT.match(text):
            inside = match[1] == struct
        elif text and not text.startswith(" "):
            inside = False
        elif inside and (match := MEMBER.match(text)):
            found[match[2]] = match[1]
    return found


def read_room(file: Path) -> Room:
    said: dict[str, str] = {}
    at: dict[str, int] = {}
    key = ""
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if match := KEY.fullmatch(line):
            key = match[1]
            said[key], at[key] = match[2], number
        elif line.startswith("#   ") and key:
            said[key] += " " + line[1:].strip()
        else:
            key = ""
    struct = [match[1] for line in lines if (match := STRUCT.match(line))][-1]
    return Room(file, struct, members(lines, struct), said, at)


def read_rooms(engine: Path) -> dict[str, Room]:
    """Those of the session, and those within them, with the way to each."""
    rooms = {file.stem: read_room(file) for file in sorted((engine / "core" / "rooms").glob("*.pxi"))}
    by_struct = {room.struct: room for room in rooms.values()}
    found: dict[str, Room] = {}

    def enter(prefix: str, inside: dict[str, str]) -> None:
        for name, kind in inside.items():
            room = by_struct.get(kind)
            if room is not None and room.name == name and not room.path:
                room.path = f"{prefix}.{name}"
                found[name] = room
                enter(room.path, room.members)

    session = (engine / "core" / "session.pxi").read_text().splitlines()
    enter("s", members(session, "Session"))
    assert found.keys() == rooms.keys(), found.keys() ^ rooms.keys()
    return found


def files(engine: Path) -> list[Path]:
    return [
        *sorted((engine / "core").glob("*.pxi")),
        *sorted((engine / "faces").glob("*.pxi")),
        *sorted((engine / "_generated").glob("*.pxi")),
        *sorted(engine.glob("*.pyx")),
    ]


def look(engine: Path, rooms: dict[str, Room]) -> dict[str, Use]:
    """What each file does with each room."""
    uses = {name: Use() for name in rooms}
    homes = {home: room.name for room in rooms.values() for home in room.words("Home")}
    texts = {path: DOCSTRING.sub(blank, path.read_text()).splitlines() for path in files(engine)}
    owners = {
        match[1]: homes[path.stem]
        for path, lines in texts.items()
        for line in lines
        if path.stem in homes and (match := FUNCTION.match(line))
    }
    nested = {room.path for room in rooms.values()}
    for path, lines in texts.items():
        for number, line in enumerate(lines, 1):
            text = LOCKS.sub("", line.split("#")[0])
            where = f"{path.relative_to(engine)}:{number}"
            for match in MENTION.finditer(text):
                way, member, rest = split("s" + match[1], nested)
                if way != "s":
                    taken = ADDRESS.search(text[: match.start()])
                    written = ASSIGNED.match(text, match.end()) or (taken and not taken[1])
                    use = uses[way.rpartition(".")[2]]
                    told = use.changes if written or CHANGING.search(rest) else use.reads
                    told.setdefault((path.stem, member), where)
            for match in CALL.finditer(text):
                owner = owners.get(match[1])
                step = path.parent.name == "_generated" and STEP.fullmatch(match[1])
                if owner is not None and owner != homes.get(path.stem) and not step:
                    uses[owner].calls.setdefault((path.stem, match[1]), where)
    return uses


def blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def split(mention: str, rooms: set[str]) -> tuple[str, str, str]:
    """The way to a room, its member (nothing: the room itself is meant), and what follows that."""
    parts = re.findall(r"\w+|\[[^\]]*\]", mention)
    depth = 1
    while depth < len(parts) and ".".join(parts[: depth + 1]) in rooms:
        depth += 1
    way = ".".join(parts[:depth])
    return (
        way,
        "".join(f".{part}" for part in parts[depth : depth + 1]),
        "".join(f".{part}" for part in parts[depth + 1 :]),
    )


def wrong(engine: Path) -> list[str]:
    """Everything in which the declarations and the code differ, with file and line."""
    rooms = read_rooms(engine)
    found = []
    for name, use in look(engine, rooms).items():
        room = rooms[name]
        declared = room.file.relative_to(engine)
        home, may_change = room.words("Home"), room.words("Changed by")
        for (file, member), where in use.changes.items():
            if file not in home | may_change:
                found.append(f"{where}: {file} changes {room.path}{member}; {declared} does not name it")
        for (file, member), where in use.reads.items():
            if file not in home | may_change | room.words("Read by"):
                found.append(f"{where}: {file} reads {room.path}{member}; {declared} does not name it")
        for (file, function), where in use.calls.items():
            if function not in room.words("Offers"):
                found.append(f"{where}: {file} calls {function}, which {declared} does not offer")
        needless = {
            "Changed by": may_change - {file for file, _ in use.changes},
            "Read by": room.words("Read by") - {file for file, _ in use.reads},
            "Offers": room.words("Offers") - {function for _, function in use.calls},
        }
        for key, words in needless.items():
            for word in sorted(words):
                found.append(
                    f"{declared}:{room.lines[key]}: {key}: {word} does not, or no other file needs it"
                )
    return sorted(found)


def test_only_the_files_that_a_room_names_touch_it() -> None:
    found = wrong(ENGINE)
    assert not found, "\n".join(found)


def test_every_room_says_what_it_holds_its_lock_and_its_home() -> None:
    rooms = read_rooms(ENGINE)
    locks = {"lock", "none"} | {
        f"{room.path[2:]}.{member}"
        for room in rooms.values()
        for member, kind in room.members.items()
        if kind == "pthread_mutex_t"
    }
    for room in rooms.values():
        assert set(room.said) == set(KEYS), f"{room.file}: {set(KEYS) ^ set(room.said)}"
        assert room.said["Lock"].split(";")[0] in locks, f"{room.file}:{room.lines['Lock']}: no such lock"


def test_every_file_is_at_home_in_one_room() -> None:
    homes = [home for room in read_rooms(ENGINE).values() for home in room.words("Home")]
    session = read_room(ENGINE / "core" / "session.pxi")
    here = {path.stem for path in (ENGINE / "core").glob("*.pxi")}
    assert sorted([*homes, *session.words("Of no room")]) == sorted(here)


def test_only_the_tables_follow_objects_from_one_to_the_next() -> None:
    """Who goes from object to object is counted (`steps`), so that a test sees what a teardown costs."""
    found = [
        f"{path.relative_to(ENGINE)}:{number}: {line.strip()}"
        for path in files(ENGINE)
        if path.stem != "handles"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\.(?:owned|elder|younger)\b", line)
    ]
    assert not found, "\n".join(found)


DOOR = """
# Room: door
# Holds: a door.
# Lock: lock
# Home: door
# Changed by: -
# Read by: shell
# Offers: open_door
cdef struct Door:
    int open
    Lamp lamp
"""
LAMP = """
# Home: lamp
# Changed by: -
# Read by: -
# Offers: -
cdef struct Lamp:
    vector[int] *bulbs
"""
HOME = """
cdef void open_door(Session *s) noexcept nogil:
    pthread_mutex_lock(&s.lock)
    s.door.open = 1
"""


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("shell.pyx", "    print(self.s.door.open)", ""),
        (
            "shell.pyx",
            "    self.s.door.open += 1",
            "shell.pyx:2: shell changes s.door.open; core/rooms/door.pxi does not name it",
        ),
        (
            "core/other.pxi",
            "    x = s.door.open == 1",
            "core/other.pxi:2: other reads s.door.open; core/rooms/door.pxi does not name it",
        ),
        (
            "core/other.pxi",
            "    cdef const Door *door = &s.door",
            "core/other.pxi:2: other reads s.door; core/rooms/door.pxi does not name it",
        ),
        (
            "core/other.pxi",
            "    cdef Door *door = &s.door",
            "core/other.pxi:2: other changes s.door; core/rooms/door.pxi does not name it",
        ),
        (
            "core/other.pxi",
            "    look(&s.door.open)",
            "core/other.pxi:2: other changes s.door.open; core/rooms/door.pxi does not name it",
        ),
        (
            "core/other.pxi",
            "    s.door.lamp.bulbs.clear()",
            "core/other.pxi:2: other changes s.door.lamp.bulbs; core/rooms/lamp.pxi does not name it",
        ),
        (
            "core/door.pxi",
            "    s.door.lamp.bulbs[0][1] = 2",
            "core/door.pxi:2: door changes s.door.lamp.bulbs; core/rooms/lamp.pxi does not name it",
        ),
        (
            "core/other.pxi",
            "    swing(s)",
            "core/other.pxi:2: other calls swing, which core/rooms/door.pxi does not offer",
        ),
    ],
)
def test_what_no_room_allows_is_found(tmp_path: Path, file: str, line: str, complaint: str) -> None:
    texts = {
        "core/session.pxi": "cdef struct Session:\n    pthread_mutex_t lock\n    Door door\n",
        "core/rooms/door.pxi": DOOR,
        "core/rooms/lamp.pxi": LAMP,
        "core/door.pxi": HOME + "\n\ncdef inline int swing(Session *s) noexcept nogil:\n    return 1\n",
        "core/lamp.pxi": "",
        "shell.pyx": "open_door(s)  # a reader, too: \nx = s.door.open\n",
    }
    texts[file] = (
        f"x = s.door.open\n{line}\nopen_door(s)\n"
        if file == "shell.pyx"
        else f"\n{line}\n{texts.get(file, '')}"
    )
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert wrong(tmp_path) == ([complaint] if complaint else [])


def test_what_a_room_allows_in_vain_is_found(tmp_path: Path) -> None:
    core = tmp_path / "core"
    (core / "rooms").mkdir(parents=True)
    (core / "session.pxi").write_text("cdef struct Session:\n    Lamp lamp\n")
    (core / "rooms" / "lamp.pxi").write_text(LAMP.replace("Read by: -", "Read by: door"))
    assert wrong(tmp_path) == ["core/rooms/lamp.pxi:4: Read by: door does not, or no other file needs it"]
