"""How an argument that is more than a number travels: what an emitter needs to know and to write for it.

`travel(types, arg)` tells where an argument is, `ArgCodec` gives the text for both sides. Three forms:

  PLAIN   a member of the fixed struct, as ever (`wire.wire_field`): nothing of this module is needed
  FLAT    a struct without pointers, not nullable: `u8 name[n]` in the fixed struct, its image
  BEHIND  bytes behind the fixed struct, in the order of the arguments: what is nullable, counted or nested

Request, guest side. `guest_encode` is an expression of type CUresult; it refuses NULL, and what the type's
checks refuse:

    struct gf_bytes behind;                     only if `behind_request(types, variant)`
    gf_bytes_begin(&behind);
    result = gf_encode_CUmemAllocationProp(prop, NULL, request.prop);                    FLAT
    result = gf_append_CUmemAccessDesc(&behind, desc, (uint64_t)(count), false);         BEHIND
    result = gf_append_CUjit_options(&behind, (uint64_t)count, options, values);         BEHIND, options
    ... iovec {behind.data, behind.size} after the request struct ...
    gf_bytes_end(&behind);                      on every way out

Request, server side. `server_declare` are lines of declarations, `server_decode` an expression: 0, a CUresult
or GF_MALFORMED, which `codec_status(s, f, &d, status)` turns into `malformed(…)`; `server_argument` is what
the driver gets:

    cdef gf_decoder d
    begin_codec(s, f, &d, sizeof(gf_req_cuX))   # reads behind the fixed struct
    cdef cu.CUmemAllocationProp prop            # server_declare
    cdef cu.CUmemAccessDesc *desc = NULL
    status = status or gf_decode_CUmemAllocationProp(&d, q.prop, &prop)
    status = status or gf_take_CUmemAccessDesc(&d, <uint64_t>(q.count), False, &desc)
    status = status or gf_take_CUjit_options(&d, &count, &options, &values)
    status = status or gf_decoder_done(&d)      # unless a payload follows
    status = codec_status(s, f, &d, status)
    status = status or cu.cuX(&prop, desc, …)   # server_argument
    gf_decoder_end(&d)                          # on every way out

Reply, server side: `server_room` (before the call; empty: not needed) and `server_encode` (after a success);
FLAT goes to the reply struct, BEHIND to `cdef gf_bytes behind`, whose bytes follow it. Of an array that is
answered and may be null, `server_decode` makes the room: the request says if it is wanted (`tells_presence`):

    status = status or gf_room(&d, <uint64_t>(q.count), sizeof(cu.CUdeviceptr), False, <void **>&list)
    status = status or gf_return_CUmemAllocationProp(&d, &prop, out.prop)
    status = status or gf_return_plain(&behind, list, <uint64_t>(q.count), sizeof(list[0]))

Reply, guest side: `guest_decode`, an expression of type CUresult; BEHIND reads `struct gf_decoder in`, begun
over the reply's payload:

    result = gf_fetch(prop, reply.prop, sizeof *prop);
    result = gf_fetch_behind(&in, list, (uint64_t)(count), sizeof *list);

An array that is an argument travels whole: its number is another argument. In a struct, elements without
effect are left out, and their number is that of the others.

`layout(types, variant)` is what two builds must agree on beside the fields (it is in `wire.canonical`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .basics import SpecError
from .expression import saturating
from .model import Arg, Kind, Objects, Types, Variant

BEHIND_POINTER = {Kind.IN, Kind.OUT, Kind.INOUT}


class Form(Enum):
    """Where an argument behind a pointer travels: in the request, in the reply, or in both."""

    PLAIN = "plain"
    FLAT = "flat"
    BEHIND = "behind"


def is_list(arg: Arg) -> bool:
    """Whether an argument is a list of options; its number and its values are other arguments."""
    return arg.kind is Kind.OPTIONS and arg.values is not None


def travels_behind(arg: Arg) -> bool:
    """Whether more of an argument may travel than its value."""
    return arg.kind in BEHIND_POINTER or is_list(arg)


def pointee(arg: Arg) -> str:
    """What an argument points to, without const."""
    return (arg.param.pointee or "").removeprefix("const ").strip()


def form(types: Types, arg: Arg, reply: bool = False) -> Form:
    """Where an argument behind a pointer travels, in the request or (`reply`) in the reply. A null pointer
    for an answer stays with the guest: only an array's is told to the server.
    """
    struct = types.nesting.find(pointee(arg))
    if not travels_behind(arg):
        return Form.PLAIN
    if arg.count is not None or arg.size is not None or (arg.nullable and not reply):
        return Form.BEHIND
    if struct is None:
        return Form.PLAIN
    if not types.nesting.is_flat(struct.name):
        if reply:
            cause = f"{arg.name}: {struct.name} leads to memory, and cannot be an answer"
            raise SpecError(arg.where, cause, "Let the guest answer by other operations ('via')")
        return Form.BEHIND
    return Form.FLAT


def in_request(arg: Arg) -> bool:
    return arg.kind in (Kind.IN, Kind.INOUT) or is_list(arg)


def in_reply(arg: Arg) -> bool:
    return arg.kind in (Kind.OUT, Kind.INOUT)


def tells_presence(arg: Arg) -> bool:
    """Whether the request says if there is room for an answered array: one byte behind the struct."""
    return arg.kind is Kind.OUT and arg.nullable and (arg.count or arg.size) is not None


def behind_request(types: Types, variant: Variant) -> tuple[Arg, ...]:
    """The arguments whose bytes follow the request struct, in this order."""
    return tuple(
        a for a in variant.args if (in_request(a) and form(types, a) is Form.BEHIND) or tells_presence(a)
    )


def behind_reply(types: Types, variant: Variant) -> tuple[Arg, ...]:
    return tuple(a for a in variant.args if in_reply(a) and form(types, a, True) is Form.BEHIND)


def layout(types: Types, variant: Variant) -> str:
    """The layouts of all nested types that an operation carries; empty: it carries none."""
    found = {pointee(a) for a in variant.args if a.kind in BEHIND_POINTER and types.nesting.find(pointee(a))}
    marks = [f"{a.name}?" for a in variant.args if tells_presence(a) or (in_request(a) and a.nullable)]
    counts = [f"{a.name}[{a.count}]" for a in variant.args if a.count is not None and not is_list(a)]
    counts += [f"{a.name}:{pointee(a)}" for a in variant.args if is_list(a)]
    return " ".join([types.nesting.layout(name) for name in sorted(found)] + marks + counts)


@dataclass(frozen=True)
class ArgCodec:
    """The text of one argument on both sides; see the top of this file."""

    types: Types
    arg: Arg

    @property
    def struct(self) -> str:
        """Name of the nested type; empty for numbers, handles and bytes."""
        found = self.types.nesting.find(pointee(self.arg))
        return found.name if found else ""

    @property
    def handles(self) -> str:
        """Kind of object that an array of handles is of; empty if it is none."""
        return self.types.handles.get(self.types.aliases.get(pointee(self.arg), pointee(self.arg)), "")

    @property
    def name(self) -> str:
        return self.arg.name

    def form(self, reply: bool = False) -> Form:
        return form(self.types, self.arg, reply)

    def _count(self, number: str) -> str:
        """How many elements there are; `number` is how a number among the arguments is spelled."""
        text = self.arg.count or self.arg.size
        return "1" if text is None else saturating(text, lambda name: number.format(name))

    @property
    def _unit(self) -> str:
        """Bytes of one element, in C."""
        return "1" if self.arg.size is not None else f"sizeof *{self.name}"

    @property
    def cython(self) -> str:
        """Type of an element in Cython."""
        ctype = "char" if pointee(self.arg) == "void" else pointee(self.arg)
        return f"cu.{ctype}" if ctype.startswith("CU") else ctype

    @property
    def guest_encode(self) -> str:
        arg, name, nullable = self.arg, self.name, str(self.arg.nullable).lower()
        if tells_presence(arg):
            return f"gf_append_presence(&behind, {name})"
        if is_list(arg):
            return f"gf_append_{pointee(arg)}s(&behind, (uint64_t){arg.count}, {name}, {arg.values})"
        if self.form() is Form.FLAT:
            return f"gf_encode_{self.struct}({name}, NULL, request.{name})"
        count = f"(uint64_t)({self._count('(uint64_t){}')})"
        if self.struct:
            return f"gf_append_{self.struct}(&behind, {name}, {count}, {nullable})"
        if self.handles:
            return f"gf_append_{self.handles}(&behind, {name}, {count}, {nullable})"
        return f"gf_append_plain(&behind, {name}, {count}, {self._unit}, {nullable})"

    @property
    def guest_decode(self) -> str:
        name = self.name
        if self.form(True) is Form.FLAT:
            return f"gf_fetch({name}, reply.{name}, sizeof *{name})"
        count = f"(uint64_t)({self._count('(uint64_t){}')})"
        return f"gf_fetch_behind(&in, {name}, {count}, {self._unit})"

    @property
    def server_declare(self) -> tuple[str, ...]:
        if is_list(self.arg):
            declared = f"cdef unsigned int {self.arg.count} = 0", f"cdef void **{self.arg.values} = NULL"
            return (*declared, f"cdef {self.cython} *{self.name} = NULL")
        if self._by_value:
            return (f"cdef {self.cython} {self.name}",)
        return (f"cdef {self.cython} *{self.name} = NULL",)

    @property
    def _by_value(self) -> bool:
        """Whether the server has one of them in a local, not a pointer into memory of the call."""
        if in_request(self.arg):
            return self.form() is Form.FLAT
        return self.form(True) is not Form.BEHIND

    @property
    def server_argument(self) -> str:
        """What the driver, or a step by hand, is given; of options number, list and values."""
        if is_list(self.arg):
            return f"{self.arg.count}, {self.name}, {self.arg.values}"
        return f"&{self.name}" if self._by_value else self.name

    @property
    def server_decode(self) -> str:
        arg, name, nullable = self.arg, self.name, str(self.arg.nullable)
        if tells_presence(arg):
            return self._room
        if is_list(arg):
            return f"gf_take_{pointee(arg)}s(&d, &{arg.count}, &{name}, &{arg.values})"
        if self.form() is Form.FLAT:
            return f"gf_decode_{self.struct}(&d, q.{name}, &{name})"
        count = f"<uint64_t>({self._count('<uint64_t>q.{}')})"
        if self.struct:
            return f"gf_take_{self.struct}(&d, {count}, {nullable}, &{name})"
        if self.handles:
            return f"gf_take_{self.handles}(&d, {count}, {nullable}, &{name})"
        unit = "1" if arg.size is not None else f"sizeof({self.cython})"
        return f"gf_take_plain(&d, {count}, {unit}, {nullable}, <void **>&{name})"

    @property
    def server_room(self) -> str:
        return "" if self._by_value or in_request(self.arg) or tells_presence(self.arg) else self._room

    @property
    def _room(self) -> str:
        count = f"<uint64_t>({self._count('<uint64_t>q.{}')})"
        unit = "1" if self.arg.size is not None else f"sizeof({self.cython})"
        told = str(tells_presence(self.arg))
        return f"gf_room(&d, {count}, {unit}, {told}, <void **>&{self.name})"

    @property
    def server_encode(self) -> str:
        name = self.name
        if self.form(True) is Form.FLAT:
            return f"gf_return_{self.struct}(&d, &{name}, out.{name})"
        count = f"<uint64_t>({self._count('<uint64_t>q.{}')})"
        if self.struct:
            return f"gf_return_all_{self.struct}(&d, {name}, {count}, &behind)"
        if self.handles:
            return f"gf_return_all_{self.handles}(&d, {name}, {count}, &behind)"
        unit = "1" if self.arg.size is not None else f"sizeof({self.cython})"
        return f"gf_return_plain(&behind, {name}, {count}, {unit})"


def check_types(types: Types, objects: Objects) -> None:
    """Raise SpecError if a handle in a struct is of a kind that does not exist."""
    for struct in types.nesting.structs.values():
        for member in types.nesting.walk(struct.members):
            for name in member.of:
                if name not in objects:
                    known = ", ".join(kind.name for kind in objects.all)
                    cause = f"member {member.name!r}: unknown object {name!r}"
                    raise SpecError(member.where, cause, f"Known: {known}")


def check_options(types: Types, variant: Variant) -> None:
    """A list of options names the arguments that hold its number and its values, and nothing else is left."""
    options = {arg.name for arg in variant.args if arg.kind is Kind.OPTIONS}
    lists = [arg for arg in variant.args if arg.name in options and pointee(arg) in types.nesting.options]
    parts = {name for arg in lists for name in (arg.name, arg.count, arg.values)}
    for arg in lists:
        if not {arg.count, arg.values} <= options:
            cause = f"{variant.symbol}({arg.name}): how many options there are, or their values, is not said"
            remedy = "Give 'count' and 'values': the arguments that hold them, of kind 'options' too"
            raise SpecError(arg.where, cause, remedy)
    for arg in variant.args:
        if arg.name in options - parts:
            cause = f"{variant.symbol}({arg.name}): no list of options has {arg.param.ctype!r}"
            remedy = f"Known: {', '.join(types.nesting.options)}; say 'count' and 'values'"
            raise SpecError(arg.where, cause, remedy)


def check(types: Types, variant: Variant) -> None:
    """Raise SpecError for what cannot travel; called for every operation with a message."""
    check_options(types, variant)
    for arg in variant.args:
        if arg.kind not in BEHIND_POINTER:
            continue

        def wrong(cause: str, remedy: str, arg: Arg = arg) -> SpecError:
            return SpecError(arg.where, f"{variant.symbol}({arg.name}): {cause}", remedy)

        if arg.count is not None and arg.size is not None:
            raise wrong("'count' and 'size' say the same", "Give 'count' for elements or 'size' for bytes")
        if arg.size is not None and types.nesting.find(pointee(arg)):
            raise wrong(f"{pointee(arg)} is no bytes", "Give 'count' in place of 'size'")
        if arg.count is not None and pointee(arg) == "void":
            raise wrong("how large an element is, is not said", "Give 'size' in place of 'count'")
        if arg.kind is Kind.INOUT and arg.nullable:
            raise wrong("'inout' is never null here", "Remove 'nullable', or make it custom")
        if in_reply(arg):
            form(types, arg, True)
