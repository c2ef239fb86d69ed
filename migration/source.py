"""The source's side of a migration, phase by phase (DESIGN.md). Every step knows how it is undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuferry.specs._generated import migration_pb2
from gpuferry.specs._generated.frames import CHUNK
from gpuferry.specs._generated.wire import REQUESTS

from . import frames, mapped, variables, versions
from .abc import Movable, Observer
from .copy import Contents, Precopy, choose, hot_last
from .elsewhere import Elsewhere, Free, Sought, Variable, bound
from .errors import ARRIVING, Cancelled, LinkBroken, Lost, MigrationError, Refused
from .frames import ARRAY_IN, COPY_IN, HANDLE, IMAGE_DATA, LOCATE, PRIMARY, VARIABLE_FOUND, Kept
from .gate import Alone, Meeting, Stage
from .link import PAUSE_PATIENCE, REBUILD_PATIENCE, RUN_PATIENCE, SLOWEST, require
from .mapped import Mapped
from .report import Progress
from .sharing import OwnFrames, Shared
from .targets import Target

HOLD_SECONDS = 5.0  # for the dispatcher to come to the end of a frame
DRAIN_SECONDS = 10.0  # for the device, if nobody says otherwise
EVENT = REQUESTS["sessionRestoreEvent"]
BEGUN = REQUESTS["sessionRestoreOutput"]
INPUT_CHUNK = 64 << 10


@dataclass
class Order:
    """What the source is asked to do: the strategy, and how long draining may take."""

    strategy: migration_pb2.Strategy = migration_pb2.STRATEGY_AUTO
    drain_seconds: float = 0.0
    sessions: Mapping[int, int] = field(default_factory=dict)  # of the program's processes, by seat
    variables_stay: bool = False  # none may lie elsewhere


@dataclass
class Code:
    """The images of the session, and the modules and libraries that were made of them."""

    names: dict[bytes, set[str]] = field(default_factory=dict)  # by hash
    indirect: bool = False  # functions may be called by their addresses
    sent: set[bytes] = field(default_factory=set)


class Source:
    """One attempt to move one session."""

    def __init__(
        self,
        core: Movable,
        guest: int,
        target: Target,
        order: Order,
        observer: Observer,
        others: Meeting | None = None,
    ) -> None:
        """`others`: how to wait for the other processes of the program; None: there are none."""
        self._core = core
        self._guest = guest
        self._target = target
        self._order = order
        self._progress = Progress(observer)
        self._mapped = Mapped()
        self._contents = Contents(core, target.memory, self._progress, self._mapped.context_of)
        self._code = Code()
        self._own = OwnFrames()
        self._shared = Shared(core, target.wire, order.sessions, target.lacks)
        self._others = others or Alone()
        self._journal: list[Kept] = []
        self._opened_bytes = 0

    def run(self) -> migration_pb2.Report:
        """Move the session and return the report. Raises MigrationError: the session goes on here, unless
        it is Lost.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self._others.stay)
            undo.callback(self._target.undo)
            self._prepare()
            self._snapshot(undo)
            self._rebuild(undo)
            if self._progress.report.strategy == migration_pb2.STRATEGY_PRECOPY:
                self._precopy()
            self._others.meet(Stage.COPIED, REBUILD_PATIENCE)
            self._hold(undo)
            self._drain()
            self._others.meet(Stage.STILL, HOLD_SECONDS + self._drain_seconds)
            self._catch_up()
            self._verify()
            self._take_over(undo)
        self._leave()
        return self._progress.finish()

    def report(self) -> migration_pb2.Report:
        """The report as far as the attempt came."""
        return self._progress.finish()

    def _prepare(self) -> None:
        self._progress.enter(migration_pb2.PHASE_PREPARE)
        if self._core.broken:
            raise Refused("its device has failed, and what failed it cannot be moved")
        self._target.prepare(self._core)

    def _snapshot(self, undo: contextlib.ExitStack) -> None:
        self._progress.enter(migration_pb2.PHASE_SNAPSHOT)
        undo.callback(self._core.forget_tail)
        self._journal = [Kept(*each) for each in self._core.snapshot()]

    def _rebuild(self, undo: contextlib.ExitStack) -> None:
        self._progress.enter(migration_pb2.PHASE_REBUILD)
        with self._patience(REBUILD_PATIENCE):
            self._play(self._journal)
        undo.callback(self._core.drop_aliases)
        self._share()
        total = self._mapped.total()
        self._progress.report.mapped_bytes = total
        comparable = self._target.comparable and len(self._core.devices) == 1  # one device hashes
        self._progress.report.strategy = choose(self._order.strategy, total, comparable)

    def _precopy(self) -> None:
        """Send memory in rounds while the program runs, until another round would not pay."""
        self._progress.enter(migration_pb2.PHASE_PRECOPY)
        rounds = Precopy()
        mappings = self._share()
        left = hot_last(mapped.pages(mappings), self._core.hot(), mappings)
        while True:
            with self._patience(RUN_PATIENCE):
                self._contents.send(left)
                self._contents.compare(left)
                self._follow()
                mappings = self._share()
                left = self._contents.lacking(mapped.pages(mappings))
            if not rounds.goes_on(len(left)):
                break
        self._progress.report.rounds = rounds.rounds

    def _hold(self, undo: contextlib.ExitStack) -> None:
        self._progress.enter(migration_pb2.PHASE_HOLD)
        undo.callback(self._core.proceed)
        if not self._core.hold(HOLD_SECONDS):
            raise Refused(f"the program has sent half a call for {HOLD_SECONDS:g} s")
        if self._core.arriving:
            raise Refused(ARRIVING)

    def _drain(self) -> None:
        self._progress.enter(migration_pb2.PHASE_DRAIN)
        if reason := self._core.drain(self._drain_seconds):
            raise Refused(reason)
        if self._core.broken:
            raise Refused("its device has failed, and what failed it cannot be moved")

    @property
    def _drain_seconds(self) -> float:
        return self._order.drain_seconds or DRAIN_SECONDS

    def _catch_up(self) -> None:
        self._progress.enter(migration_pb2.PHASE_CATCH_UP)
        with self._patience(PAUSE_PATIENCE):
            self._follow()
            self._core.carry_orphans()
            self._journal = [Kept(*each) for each in self._core.snapshot()]  # of what there is now
            self._play(self._own.missing(self._journal))
            self._share()
            mappings = self._mapped.mappings()
            if mappings != sorted(self._core.mappings()):
                raise Refused("what its frames map is not what is mapped")
            self._progress.report.mapped_bytes = self._mapped.total()
            pages = mapped.pages(mappings)
            if self._progress.report.strategy == migration_pb2.STRATEGY_PRECOPY:
                pages = self._contents.lacking(pages)
            self._contents.send(pages)
            self._send_variables(mapped.pages(mappings))
            self._shared.show()
            self._others.meet(Stage.SHOWN, self._all_patience)
            self._opened_bytes = self._shared.open()
            self._send_state()
            self._shared.claim()
            self._target.wire.settle()

    def _look_for(self, sought: Sought, variables: list[Variable], pages: list[int]) -> None:
        """In all that moves but arrays: variables, memory, what made objects, and calls that wait."""
        for each in variables if sought else ():
            for _, data in self._contents_of(each):
                sought.look(data, f"the variable {each.name}")
        sought.look_at_pages(pages)
        for frame, _ in self._journal:
            sought.look(frame, frames.describe(frame), anywhere=True)
        sought.look(self._core.unread(), "a call that waits", anywhere=True)

    @property
    def _all_patience(self) -> float:
        """Seconds for others, who may have as much memory as the lease has."""
        return PAUSE_PATIENCE + self._core.stats()["memory_quota"] // SLOWEST

    def _verify(self) -> None:
        self._progress.enter(migration_pb2.PHASE_VERIFY)
        with self._patience(PAUSE_PATIENCE):
            self._target.done(self._mapped.total() + self._opened_bytes)

    def _take_over(self, undo: contextlib.ExitStack) -> None:
        self._progress.enter(migration_pb2.PHASE_TAKE_OVER)
        self._others.meet(Stage.COMPLETE, self._all_patience)
        if not self._others.alone:
            self._target.commit()
        try:
            with self._patience(PAUSE_PATIENCE):
                self._target.take_over(self._guest, self._core.unread(), self._core.unsent_head())
        except (Refused, LinkBroken, Cancelled) as error:
            if self._others.alone:
                raise
            undo.pop_all()  # the others have gone, and it can neither follow nor stay behind
            self._core.leave()
            raise Lost(f"the other processes of the program have moved: {error.reason}") from None
        except BaseException:  # the destination may have it: this side must not serve it again
            undo.pop_all()
            self._core.leave()
            raise
        undo.pop_all()

    def _leave(self) -> None:
        with contextlib.suppress(MigrationError):  # nothing can be stopped any more
            self._progress.enter(migration_pb2.PHASE_LEAVE)
        self._core.drop_aliases()
        self._core.leave()

    def _follow(self) -> None:
        """What the program did since this was last asked."""
        self._play([Kept(*each) for each in self._core.tail()])

    def _play(self, kept: list[Kept]) -> None:
        """Frames to the destination, and before them the images that they load."""
        kept = self._own.only(kept)
        self._send_images(kept)
        for each in kept:
            told = ", which its program was told" if frames.tells_address(each.frame) else ""
            self._target.wire.replay(each, frames.describe(each.frame) + told)
        self._target.wire.settle()
        self._contents.forget(self._mapped.apply(kept))

    def _send_images(self, kept: list[Kept]) -> None:
        loaded = {frames.LOAD_IMAGE.unpack_from(body)[0] for _, body in frames.of(kept, "sessionLoadImage")}
        loaded -= self._code.names.keys()
        linked = {frames.LINK_ADD.unpack_from(body)[1] for _, body in frames.of(kept, "sessionLinkAdd")}
        wanted = loaded | (linked - self._code.sent)
        if not wanted:
            return
        try:
            images = dict(self._core.images(wanted))  # what has ended meanwhile may be wanted too
        except (RuntimeError, LookupError) as error:
            raise Refused(str(error)) from None
        if missing := wanted - images.keys():
            raise Refused(f"it is just unloading code ({len(missing)} images): try again")
        for digest in wanted:
            image = bytes(images[digest])
            if digest in loaded:
                found = variables_of(image)
                self._code.names[digest] = found.names
                self._code.indirect |= found.indirect
            if digest in self._code.sent:
                continue
            self._code.sent.add(digest)
            for at in range(0, len(image), CHUNK):
                piece = memoryview(image)[at : at + CHUNK]
                self._target.wire.tell("sessionImageData", IMAGE_DATA.pack(digest, len(image), at), piece)

    def _share(self) -> list[mapped.Mapping]:
        """Brings new mappings aside, here and there; returns those that are mapped on both sides."""
        aliased = self._core.alias()
        self._target.memory.add(self._mapped.fresh(aliased))
        known = set(aliased)
        return [each for each in self._mapped.mappings() if each in known]

    def _send_variables(self, pages: list[int]) -> None:
        """What they hold, and before it what arrays do: nothing that moves may hold where one lay that lies
        elsewhere there.
        """
        found = [each for owner in frames.owners(self._journal) for each in self._variables(*owner)]
        alone = self._others.alone and not self._core.imports()
        why = bound(self._core, alone, self._code.indirect, self._order.variables_stay)
        if self._target.ask is None:
            self._send_to_file(found, Free(self._core, found, why), pages)
            return
        there = self._locate(found)
        moved = [each for each, place in zip(found, there, strict=True) if each.address != place]
        elsewhere = Elsewhere(self._core, moved)
        elsewhere.check(why)
        self._progress.report.variables_elsewhere = len(elsewhere)
        self._send_arrays(elsewhere)
        self._look_for(elsewhere, found, pages)
        for each, place in zip(found, there, strict=True):
            self._send_variable(each, place)

    def _send_to_file(self, found: list[Variable], free: Free, pages: list[int]) -> None:
        """Nobody can be asked yet: each by its name, and where it must lie if something knows."""
        self._send_arrays(free)
        self._look_for(free, found, pages)
        anywhere = free.left()
        for each in found:
            self._name(each, "sessionRestoreVariable", anywhere=each in anywhere)
            self._send_variable(each, each.address)

    def _variables(self, owner: int, context: int, digest: bytes) -> Iterator[Variable]:
        names = sorted(self._code.names[digest])
        placed = {name: self._core.variable(owner, context, name.encode()) for name in names}
        lacking = [name for name in names if placed[name] is None]
        for name in lacking:
            if not is_constant(name):
                raise Refused(f"nobody can say where the variable {name} of its code lies")
        for name, where in placed.items():
            if where is not None:
                yield Variable(owner, context, name, *where, texts=bool(lacking))

    def _locate(self, found: list[Variable]) -> list[int]:
        """Where they lie there. A destination that cannot tell must have them at the same addresses."""
        ask = self._target.ask
        if ask is None or LOCATE in self._target.lacks:
            for each in found:
                self._name(each, "sessionGetGlobal", anywhere=False)
            return [each.address for each in found]
        places: list[int] = []

        def take(variable: Variable) -> Callable[[int, memoryview], None]:
            def note(status: int, body: memoryview) -> None:
                require(status, f"looking for the variable {variable.name}")
                address, size = VARIABLE_FOUND.unpack_from(body)
                if size != variable.size:
                    raise Refused(f"the variable {variable.name} has another size there")
                places.append(address)

            return note

        for each in found:
            ask(
                "sessionRestoreVariable",
                HANDLE.pack(each.owner),
                take(each),
                each.name.encode(),
                each.context,
            )
        self._target.wire.settle()
        return places

    def _name(self, variable: Variable, op: str, anywhere: bool) -> None:
        """Without an answer of it that the destination's must be like, it may lie anywhere."""
        name = variable.name.encode()
        frame = frames.pack(op, HANDLE.pack(variable.owner), len(name), variable.context)
        found = VARIABLE_FOUND.pack(variable.address, variable.size)
        kept = Kept(frame + name, 0 if anywhere else frames.digest(frames.OPERATIONS[op], 0, found))
        self._target.wire.replay(kept, frames.describe(kept.frame))

    def _contents_of(self, variable: Variable) -> Iterator[tuple[int, memoryview]]:
        for at in range(0, variable.size, CHUNK):
            buffer = memoryview(bytearray(min(CHUNK, variable.size - at)))
            self._core.read_variable(variable.address + at, buffer)
            yield at, buffer

    def _send_variable(self, variable: Variable, place: int) -> None:
        for at, data in self._contents_of(variable):
            body = COPY_IN.pack(0, place + at, 0, len(data), 1)
            self._target.wire.tell("sessionCopyIn", body, data, variable.context)

    def _send_arrays(self, sought: Sought) -> None:
        """What arrays hold, by rows: they have no addresses. New ones are zero on the other side."""
        for handle, context, row, rows, layers in self._core.arrays():
            most = max(CHUNK // row, 1)
            for layer in range(layers):
                for at in range(0, rows, most):
                    count = min(most, rows - at)
                    buffer = memoryview(bytearray(row * count))
                    self._core.read_array(handle, at, layer, count, buffer)
                    sought.look(buffer, "an array")
                    if buffer != bytes(len(buffer)):
                        body = ARRAY_IN.pack(0, handle, 0, at, layer, row, count)
                        self._target.wire.tell("sessionArrayIn", body, buffer, context)

    def _send_state(self) -> None:
        tell = self._target.wire.tell
        contexts = {
            HANDLE.unpack_from(body)[0]: head.context
            for head, body in frames.of(self._journal, "cuEventCreate")
        }
        for event, flags, age in self._core.events():
            tell("sessionRestoreEvent", EVENT.pack(event, flags, age), context=contexts.get(event, PRIMARY))
        tell(*versions.counters(self._core.state(), self._target.lacks))
        if (resumable := self._core.resume_state()) is not None:
            tell("sessionRestoreResumable", resumable)
        unread, unsent, head = self._core.unread(), self._core.unsent(), self._core.unsent_head()
        for at in range(0, len(unread), INPUT_CHUNK):
            tell("sessionRestoreInput", payload=unread[at : at + INPUT_CHUNK])
        for at in range(0, len(unsent), CHUNK):
            body = BEGUN.pack(0 if at else head)
            tell("sessionRestoreOutput", body, unsent[at : at + CHUNK])

    @contextlib.contextmanager
    def _patience(self, seconds: float) -> Iterator[None]:
        """How long a link may be silent; the destination may have to copy everything before it answers."""
        with self._target.patient(seconds + self._mapped.total() // SLOWEST):
            yield


def variables_of(image: bytes) -> variables.Variables:
    """Return the variables in a loaded image. Raises Refused if the image cannot move."""
    found = variables.find(image)
    if found.heap:
        raise Refused("its kernels allocate memory themselves (malloc), which nobody can enumerate")
    return found


def is_constant(name: str) -> bool:
    """Whether the variable is one that a compiler made for a text that nobody writes to; drivers do not
    find those by name.
    """
    return name.startswith(("$str", "__unnamed_", ".str"))
