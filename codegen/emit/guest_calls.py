"""What the guest does for a function, step by step, from what the spec says of it.

    check     each argument in the order of the signature, handles are looked up; then `early` results
    send      the request is filled, sent, and its answer waited for
    publish   what was created gets its handle, or is given back if the request could not be sent
    effect    what the guest itself remembers of it
    decode    the answer is given to the program

A function that is made of another one ends with that call; one that the guest answers has no `send`. A step
that is overridden becomes a call of `gf_<symbol>_<step>`, which is written by hand; behind a `check` by hand
handles are looked up and `early` results asked all the same.
"""

from __future__ import annotations

from .. import codec
from ..codec import ArgCodec, Form
from ..expression import Path, c_text, saturating
from ..guest_names import BEHIND, BYTES, CONSTANT, Names
from ..guest_use import check_use
from ..model import (
    Access,
    Arg,
    Assignment,
    Attribute,
    AttributeUse,
    By,
    Class,
    Kind,
    Needs,
    ObjectKind,
    Spec,
    Step,
    Use,
    Variant,
)
from ..render import render
from ..wire import BY_VALUE, Message, message
from .guest_objects import struct

INVALID = "CUDA_ERROR_INVALID_VALUE"


def refuse(condition: str, result: str) -> list[str]:
    return [f"if ({condition})", f"    return {result};"]


class Body:
    """The statements of one function of the guest, step by step."""

    def __init__(self, spec: Spec, variant: Variant) -> None:
        self.spec = spec
        self.variant = variant
        self.names = Names(spec, variant)
        self.args = self.names.args
        self.message: Message | None = message(spec.types, variant) if variant.on_wire else None
        creates = self.message is not None or variant.klass is Class.LOCAL
        self.created = next(
            (a for a in variant.args if a.kind is Kind.HANDLE and a.use is Use.CREATE and creates), None
        )
        self.ended = next((a for a in variant.args if a.kind is Kind.HANDLE and a.use is Use.DESTROY), None)
        self.asked = {
            path[0]
            for text, _ in self.names.expressions()
            for path in self.names.paths(text)
            if len(path) > 1
        }
        self.asked |= {variant.attribute.of} if variant.attribute else set()

    # Check

    def look_up(self, arg: Arg) -> list[str]:
        """Statements that find the object of a handle, and what the wire calls it."""
        kinds, name = self.names.kinds(arg), arg.name
        first = kinds[0]
        error = arg.error or first.error
        asked = name in self.asked or arg is self.ended
        lines = [f"{struct(first)} *{name}_object = NULL;"]
        if first.look_up and arg is not self.ended:
            lines += [f"uint64_t {name}_wire;"]
            given = "NULL" if arg.absent == "current" else name
            finder = "look_up_inactive" if arg.inactive else "look_up"
            lookup = f"gf_{first.name}_{finder}({name}, &{name}_object, &{name}_wire)"
            lines += [f"CUresult {name}_result = {lookup};"]
            if not arg.nullable:
                lines = [*refuse(f"{given} == 0", error), *lines] if not self.zero_is_object(first) else lines
            if arg.error:
                lines += refuse(f"{name} != 0 && {name}_result == {first.error}", arg.error)
            lines += refuse(f"{name}_result != CUDA_SUCCESS", f"{name}_result")
            lines += self.usable(arg, kinds, f"gf_{first.name}_usable({name}_object)")
            lines += [] if self.travels(arg) else [f"(void){name}_wire;"]
        else:
            ctype = first.ctype
            find = [f"{name}_object = gf_{first.name}_find(({ctype}){name});"]
            for kind in kinds[1:]:
                find += [f"if ({name}_object == NULL)"]
                find += [f"    {name}_object = ({struct(first)} *)gf_{kind.name}_find(({kind.ctype}){name});"]
            find += refuse(f"{name}_object == NULL", error)
            find += self.usable(arg, kinds, f"gf_owner_usable({name}_object->object.owner)")
            find += self.settle(kinds, name)
            if arg.nullable:
                find = [f"if ({name} != 0) {{", *("    " + line for line in find), "}"]
            lines += find
            if self.travels(arg):
                lines += [f"uint64_t {name}_wire = (uint64_t){name};"]
        return lines if asked or self.travels(arg) else [*lines, f"(void){name}_object;"]

    def usable(self, arg: Arg, kinds: list[ObjectKind], asked: str) -> list[str]:
        """Statements that refuse an object whose context has failed or ended, where none need be current."""
        if self.variant.needs is not Needs.OWNER:
            return []
        if any(kind.owners != ("context",) for kind in kinds):
            cause = f"{arg.name}: 'needs: owner', but not every such object is of a context"
            raise self.names.fail(arg.where, cause, "Write 'needs: context'")
        result = f"{arg.name}_usable"
        return [f"CUresult {result} = {asked};", *refuse(f"{result} != CUDA_SUCCESS", result)]

    def settle(self, kinds: list[ObjectKind], name: str) -> list[str]:
        """Statements that wait until an object is made, whose maker did not."""
        if not any(kind.settle for kind in kinds):
            return []
        if len(kinds) > 1:
            cause = f"{name}: a handle of several kinds, of which one has 'settle'"
            raise self.names.fail(self.variant.where, cause, "Take one kind")
        result = f"{name}_made"
        asked = f"CUresult {result} = gf_{kinds[0].name}_settle({name}_object, (uint64_t){name});"
        return [asked, *refuse(f"{result} != CUDA_SUCCESS", result)]

    def zero_is_object(self, kind: ObjectKind) -> bool:
        """Whether a null handle names something all the same: the default stream."""
        return any(field.absent is not None for field in kind.fields)

    def travels(self, arg: Arg) -> bool:
        """Whether the generated request holds it; a `send` by hand fills its own."""
        if self.message is None or Step.SEND in self.variant.guest_steps:
            return False
        return any(f.name == arg.name for f in self.message.request)

    def is_unsigned(self, arg: Arg) -> bool:
        """Whether its largest values are no negative ones."""
        return self.spec.types.scalars.get(arg.param.ctype, "").startswith("u")

    def check_arg(self, arg: Arg) -> list[str]:
        name, calls = arg.name, self.variant.calls
        lines: list[str] = []
        if arg.kind in BEHIND and not arg.nullable:
            size = arg.size or arg.count
            some = f" && {saturating(size, lambda name: f'(uint64_t){name}')} > 0" if size else ""
            lines += refuse(f"{name} == NULL{some}", arg.error or INVALID)
        if arg.kind is Kind.FLAGS:
            allowed = f" & ~(unsigned)({' | '.join(arg.allow)})" if arg.allow else ""
            lines += refuse(f"({name}{allowed}) != 0", INVALID)
        if arg.kind is Kind.ENUM and arg.allow:
            lines += refuse(" && ".join(f"{name} != {one}" for one in arg.allow), INVALID)
        if arg.min is not None:
            wide = "uint64_t" if self.is_unsigned(arg) and arg.min.isdecimal() else "int64_t"
            lines += refuse(f"({wide}){name} < ({wide})({arg.min})", INVALID)
        if arg.max is not None:
            wide = "(unsigned)" if arg.kind is Kind.ENUM and arg.min is None else ""
            lines += refuse(f"{wide}{name} > {arg.max}", INVALID)
        if arg.clamp is not None:
            low, high = (self.names.value(text, arg.where) for text in arg.clamp)
            lines += [f"{name} = {name} < {low} ? {low} : {name} > {high} ? {high} : {name};"]
        if arg.kind is Kind.DEVICE:
            error = arg.error or "CUDA_ERROR_INVALID_DEVICE"
            lines += refuse(f"{name} < 0 || {name} >= gf_session.device_count", error)
        if arg.kind is Kind.HANDLE and arg.use is Use.CREATE:
            lines += refuse(f"{name} == NULL", INVALID)
        elif arg.kind is Kind.HANDLE and (calls is None or name in self.asked):
            lines += self.look_up(arg)
        if arg.kind is Kind.POINTER and self.message is not None and arg.size is not None:
            size = saturating(arg.size, lambda name: f"(uint64_t){name}")
            some = f"{name} != 0 && " if arg.nullable else ""
            write = "false" if arg.access is Access.READ else "true"
            lines += refuse(f"{some}!gf_device_range({name}, {size}, {write})", INVALID)
        return lines

    def check(self) -> list[str]:
        if Step.CHECK in self.variant.guest_steps:
            lines = [f"CUresult checked = {self.by_hand(Step.CHECK)};"]
            lines += refuse("checked != CUDA_SUCCESS", "checked")
            for arg in self.variant.args:
                if arg.kind is Kind.HANDLE and arg.use is not Use.CREATE:
                    lines += self.look_up(arg)
        else:
            lines = [line for arg in self.variant.args for line in self.check_arg(arg)]
        for early in self.variant.early:
            lines += refuse(self.names.value(early.condition, early.where), early.result)
        return lines

    # Send

    def by_hand(self, step: Step, *more: str) -> str:
        arguments = ", ".join([*(p.name for p in self.variant.signature.params), *more])
        return f"gf_{self.variant.symbol}_{step.value}({arguments})"

    def request(self) -> list[str]:
        if self.message is None or not self.message.request:
            return []
        members = []
        for field in self.message.request:
            arg = self.args[field.name]
            if arg.kind is Kind.HANDLE:
                members.append(f".{arg.name} = {arg.name}_wire")
            elif arg.kind in BY_VALUE:
                members.append(f".{arg.name} = {arg.name}")
            elif ArgCodec(self.spec.types, arg).form() is Form.PLAIN:
                members.append(f".{arg.name} = *{arg.name}")
        return [f"struct gf_req_{self.variant.symbol} request = {{{', '.join(members)}}};"]

    def send(self) -> list[str]:
        if self.message is None:
            return []
        v, m = self.variant, self.message
        if Step.SEND in v.guest_steps:
            return [f"CUresult result = {self.by_hand(Step.SEND)};"]
        for arg in v.args:
            if arg.kind is Kind.PAYLOAD:
                raise self.names.fail(arg.where, "a payload is sent by hand", "Override the step 'send'")
        if self.nested() or (self.created is not None and v.klass is Class.SYNC):
            return self.send_nested(m)
        request = "&request, sizeof request" if m.request else "NULL, 0"
        lines = self.request()
        if v.klass is Class.ASYNC:
            sent = (
                f"gf_send_struct(GF_OP_{v.symbol}, &request)"
                if m.request
                else f"gf_send(GF_OP_{v.symbol}, NULL, 0)"
            )
            return [*lines, f"CUresult result = {sent};"]
        reply = "&reply, sizeof reply" if m.reply else "NULL, 0"
        if m.reply:
            lines += [f"struct gf_rep_{v.symbol} reply;"]
        call = f"gf_call_struct(GF_OP_{v.symbol}, {request}, {reply})"
        return [*lines, *(self.remember(call) if v.remember else [f"CUresult result = {call};"])]

    def remember(self, call: str) -> list[str]:
        """Statements that ask only for what is not remembered."""
        what = f"GF_OP_{self.variant.symbol}, &request, sizeof request, &reply, sizeof reply"
        return [
            "CUresult result = CUDA_SUCCESS;",
            "uint64_t asked;",
            f"if (!gf_recall({what}, &asked)) {{",
            f"    result = {call};",
            "    if (result == CUDA_SUCCESS)",
            f"        gf_remember({what}, asked);",
            "}",
        ]

    def nested(self) -> list[ArgCodec]:
        """The arguments of which more travels than their value."""
        types = self.spec.types
        found = [ArgCodec(types, arg) for arg in self.variant.args if codec.travels_behind(arg)]
        return [c for c in found if Form.PLAIN not in (c.form(), c.form(True))]

    def send_nested(self, m: Message) -> list[str]:
        """Statements that send a request with a codec for each argument that needs one; the first that
        refuses its value says why.
        """
        v, types = self.variant, self.spec.types
        lines = [*self.request(), "CUresult result = CUDA_SUCCESS;"]
        behind = codec.behind_request(types, v)
        encoded = [c for c in self.nested() if codec.in_request(c.arg) or c.arg in behind]
        if behind:
            lines += ["struct gf_bytes behind;", "gf_bytes_begin(&behind);"]
        for c in encoded:
            lines += ["if (result == CUDA_SUCCESS)", f"    result = {c.guest_encode};"]
        parts = ["{&request, sizeof request}"] if m.request else []
        parts += ["{behind.data, behind.size}"] if behind else []
        lines += [f"struct iovec parts[] = {{{', '.join(parts)}}};"] if parts else []
        given = f"{'parts' if parts else 'NULL'}, {len(parts)}"
        if v.klass is Class.ASYNC:
            lines += ["if (result == CUDA_SUCCESS)", f"    result = gf_send(GF_OP_{v.symbol}, {given});"]
        else:
            reply = ", .reply = &reply, .reply_size = sizeof reply" if m.reply else ""
            lines += [f"struct gf_rep_{v.symbol} reply;"] if m.reply else []
            lines += [f"struct gf_call call = {{.op = GF_OP_{v.symbol}{reply}}};"]
            lines += ["if (result == CUDA_SUCCESS)", f"    result = gf_call_parts(&call, {given});"]
            lines += self.fetch()
        return [*lines, *(["gf_bytes_end(&behind);"] if behind else [])]

    def fetch(self) -> list[str]:
        """Statements that give the program the answers behind the reply struct."""
        behind = codec.behind_reply(self.spec.types, self.variant)
        lines = []
        for c in self.nested():
            if not codec.in_reply(c.arg):
                continue
            fetched = ["if (result == CUDA_SUCCESS)", f"    result = {c.guest_decode};"]
            lines += fetched
        if behind:
            begin = ["struct gf_decoder in;", "gf_decoder_begin(&in, call.payload, call.payload_size);"]
            lines = [*begin, *lines, "gf_decoder_end(&in);"]
        return [*lines, "free(call.payload);"]

    def create(self) -> list[str]:
        """Statements before the request: the new object, whose handle the request carries."""
        if self.created is None:
            return []
        name = self.created.name
        kind = self.names.kinds(self.created)[0]
        lines = [
            f"uint64_t {name}_wire;",
            f"{struct(kind)} *{name}_object = gf_{kind.name}_new(&{name}_wire);",
        ]
        return [*lines, *refuse(f"{name}_object == NULL", "CUDA_ERROR_OUT_OF_MEMORY"), *self.effects(True)]

    def publish(self) -> list[str]:
        if self.created is None:
            return []
        name = self.created.name
        kind = self.names.kinds(self.created)[0]
        owner = {"context": "gf_context_current()", "session": "NULL"}.get(kind.owners[0])
        if owner is None:
            owned = next((a for a in self.variant.args if a.of and set(a.of) <= set(kind.owners)), None)
            if owned is None:
                raise self.names.fail(
                    self.created.where, f"no argument is the owner of a {kind.name}", "Write it by hand"
                )
            owner = f"{owned.name}_object"
        lines = []
        if self.message is not None:
            discard = [f"    gf_object_discard({name}_object);", "    return result;"]
            lines = ["if (result != CUDA_SUCCESS) {", *self.take_back(kind), *discard, "}"]
        lines += [f"gf_object_publish({name}_object, {name}_wire, {owner});"]
        return [*lines, f"*{name} = ({kind.ctype}){name}_wire;"]

    def take_back(self, kind: ObjectKind) -> list[str]:
        """The server made what the program is not given, for the answer told of an earlier call's failure."""
        if self.created is None or self.variant.klass is not Class.SYNC:
            return []
        destroy = self.spec.by_symbol.get(str(kind.destroy))
        ended = [a for a in destroy.args if a.use is Use.DESTROY] if destroy and destroy.on_wire else []
        if destroy is None or len(ended) != 1 or len(destroy.args) != 1:
            cause = f"nothing ends a {kind.name} that the server made and the program is not given"
            raise self.names.fail(self.created.where, cause, "Make it async, or write it by hand")
        request = f"&(struct gf_req_{destroy.symbol}){{.{ended[0].name} = {self.created.name}_wire}}"
        send = f"        gf_send_struct(GF_OP_{destroy.symbol}, {request});"
        return ["    if (call.done && call.status == CUDA_SUCCESS)", send]

    def end(self) -> list[str]:
        """Statements before the request: the handle, and those of what its object owns, become no one's."""
        if self.ended is None:
            return []
        name, error = self.ended.name, self.names.kinds(self.ended)[0].error
        lines = [f"struct gf_object *ended = gf_object_end({name}_object, (uint64_t){name});"]
        return [*lines, *refuse("ended == NULL", error)]

    # Effect and decode

    def effects(self, of_created: bool) -> list[str]:
        lines = []
        for item in self.variant.effect:
            root = item.target.partition(".")[0]
            if (self.created is not None and root == self.created.name) != of_created:
                continue
            target = self.names.value(item.target, item.where)
            value = self.names.value(item.value, item.where)
            # To add is one operation, for another thread may add to the member at the same time.
            lines.append(f"{target} {'+=' if item.adds else '='} {value};")
        return lines

    def answer_one(self, item: Assignment) -> str:
        arg = self.args.get(item.target)
        if arg is None or arg.kind is not Kind.OUT:
            known = ", ".join(a.name for a in self.variant.args if a.kind is Kind.OUT)
            raise self.names.fail(item.where, f"{item.target!r} brings nothing back", f"Known: {known}")
        pointee = arg.param.pointee
        if not isinstance(item.value, str):
            return f"*{arg.name} = ({pointee}){self.names.literal(item)};"
        copied = BYTES.match(item.value)
        text = self.names.value(copied[1] if copied else item.value, item.where)
        if pointee == "char" and arg.size is not None:
            return f'snprintf({arg.name}, (size_t){arg.size}, "%s", {text});'
        if copied is not None:
            return f"memcpy({arg.name}, {text}, sizeof *{arg.name});"
        return f"*{arg.name} = ({pointee})({text});"

    def attribute(self, use: AttributeUse) -> list[str]:
        """A `switch` over what the object of `use` has."""
        arg, value = self.args.get(use.of), self.args.get(use.value)
        if arg is None or value is None or use.by not in self.args or arg.kind is not Kind.HANDLE:
            raise self.names.fail(
                use.where, "'attribute' names no argument", f"Known: {', '.join(self.args)}"
            )
        kind = self.names.kinds(arg)[0]
        if not kind.attributes:
            raise self.names.fail(use.where, f"a {kind.name} has no attributes", "Add them in objects.yaml")
        lines = [f"switch ((int){use.by}) {{"]
        for one in kind.attributes:
            given = f"*(const {one.ctype} *){use.value}"

            def resolve(path: Path, one: Attribute = one, given: str = given) -> str:
                if path == ("value",):
                    return given
                if CONSTANT.match(path[0]):
                    return path[0]
                return self.names.member(arg, (arg.name, *path), one.where)

            if value.kind is Kind.OUT:
                body = [f"*({one.ctype} *){use.value} = ({one.ctype})({c_text(one.get, resolve)});"]
            elif not one.set:
                continue
            else:
                body = refuse(f"!({c_text(one.condition, resolve)})", INVALID) if one.condition else []
                body += [
                    f"{c_text(item.target, resolve)} = {c_text(str(item.value), resolve)};"
                    for item in one.set
                ]
            lines += [f"case {one.name}:", *("    " + line for line in body), "    break;"]
        return [*lines, "default:", f"    return {INVALID};", "}"]

    def decode(self) -> list[str]:
        v = self.variant
        if v.attribute is not None:
            return self.attribute(v.attribute)
        if Step.DECODE in v.guest_steps:
            has_reply = self.message is not None and bool(self.message.reply)
            return [f"return {self.by_hand(Step.DECODE, *(['&reply'] if has_reply else []))};"]
        lines = []
        for item in v.answer:
            line = self.answer_one(item)
            arg = self.args[item.target]
            lines += [f"if ({arg.name} != NULL)", f"    {line}"] if arg.nullable else [line]
        if self.message is not None:
            fetched = {c.name for c in self.nested()}
            for field in self.message.reply:
                if field.name in fetched:
                    continue
                copy = f"*{field.name} = reply.{field.name};"
                nullable = self.args[field.name].nullable
                lines += [f"if ({field.name} != NULL)", f"    {copy}"] if nullable else [copy]
        return lines

    # All of it

    def finish(self) -> list[str]:
        v = self.variant
        if v.calls is not None:
            target = v.calls.function
            arguments = ", ".join(self.names.value(text, v.where) for text in v.calls.arguments)
            return [f"return {target if target.startswith('gf_') else f'gf_{target}'}({arguments});"]
        lines = self.publish()
        after = [*self.effects(False), *([] if self.created else self.decode())]
        result = "result" if self.message is not None else v.result or "CUDA_SUCCESS"
        if self.created is not None and Step.DECODE in v.guest_steps:
            return [*lines, *after, *self.decode()]
        if self.ended is not None:
            return [*after, "gf_objects_release(ended);", f"return {result};"]
        if self.message is None:
            return [*lines, *after, f"return {result};"]
        if self.created is None and after:
            lines += [*refuse("result != CUDA_SUCCESS", "result"), *after]
        elif self.created is not None:
            lines += after
        return [*lines, "return result;"]

    def lines(self) -> list[str]:
        found: list[str] = []
        for step in (self.check, self.create, self.end, self.send, self.finish):
            found += step()
        return found


def hands(spec: Spec, variants: list[Variant]) -> list[str]:
    """Declarations of the steps that are written by hand."""
    found = []
    for v in variants:
        for step in v.guest_steps:
            parameters = v.signature.parameters
            has_reply = v.on_wire and bool(message(spec.types, v).reply) and step is Step.DECODE
            more = f", const struct gf_rep_{v.symbol} *reply" if has_reply else ""
            found.append(f"CUresult gf_{v.symbol}_{step.value}({parameters}{more});")
    return found


def outputs(spec: Spec) -> dict[str, str]:
    calls = [v for v in spec.driver.variants if v.guest is By.GENERATED and v.alias is None]
    for variant in spec.driver.variants:
        check_use(variant)
    bodies: list[tuple[Variant, list[str]]] = [(v, Body(spec, v).lines()) for v in calls]
    file = spec.driver.file
    return {
        "guest/_generated/steps.h": render("guest_steps.h.j2", __file__, file, steps=hands(spec, calls)),
        "guest/_generated/calls.c": render("guest_calls.c.j2", __file__, file, bodies=bodies),
    }
