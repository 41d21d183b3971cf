"""What ``update`` does to the fields, read off its source.

Expectations are written ``"view:r change:rs!"``: a tag, then r(eads), s(ets), a(dds), then ``!`` for its own key only.
What is missed here is a race in a running program, so most cases are about not missing anything.
"""

import linecache
import textwrap
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import pytest

from flumina.errors import Problem
from flumina.model.tag import Tag
from flumina.program.analysis.field_accesses import accesses
from flumina.state.fields import Count, Field, Max, Min, PerKey, Replicated, Set, Sum, Tuple

HEADER = """
import copy
import functools
import flumina as fl
from flumina.state.fields import greatest, least

class Other:
    view = object()

def outside(state):
    state.total = 0

def wrap(function):
    @functools.wraps(function)
    def wrapper(self, state, event, emit):
        state.total = 5
        return function(self, state, event, emit)
    return wrapper

def reckless(function):
    def wrapper(*args):
        return function(*args)
    return wrapper
"""


class Tags:
    view = Tag("user long", key="page string")
    change = Tag("info string, page_count long", key="page string")
    tick = Tag("page string")


TAGS: dict[str, Tag] = {"view": Tags.view, "change": Tags.change, "tick": Tags.tick}
EVERY = "change:{0} tick:{0} view:{0}"


def fields() -> dict[str, Field]:
    return {
        "total": Sum(),
        "hi": Max(),
        "lo": Min(),
        "seen": Set(),
        "info": Replicated("string"),
        "rules": Replicated("map<string,long>"),
        "deep": Replicated("array<array<long>>"),
        "counts": PerKey(Count()),
        "best": PerKey(Max()),
        "sets": PerKey(Set()),
        "pair": Tuple(Sum(), Max()),
        "mixed": Tuple(Sum(), Set()),
    }


def program(body: str, helpers: str = "") -> Any:
    """A class with this update, whose source can be found."""
    text = f"{HEADER}\nclass P:\n    def update(self, state, event, emit):\n"
    text += textwrap.indent(textwrap.dedent(body).strip(), "        ") + "\n"
    text += textwrap.indent(textwrap.dedent(helpers), "    ")
    return compiled(text)


def compiled(text: str) -> Any:
    name = f"<case {abs(hash(text))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "case"}
    exec(compile(text, name, "exec"), namespace)  # noqa: S102 -- our own text
    cls = namespace["P"]
    for tag_name, tag in TAGS.items():
        setattr(cls, tag_name, tag)
    return cls


def analyzed(cls: Any) -> tuple[dict[str, str], list[Problem]]:
    found, problems = accesses({cls.update: frozenset(TAGS)}, cls, TAGS, fields())
    kinds: dict[str, dict[tuple[str, bool], set[str]]] = {}
    for access in found:
        kinds.setdefault(access.field, {}).setdefault((access.tag, access.own_key), set()).add(access.kind[0])
    shown = {
        name: " ".join(f"{tag}:{''.join(sorted(ks))}{'!' * own}" for (tag, own), ks in sorted(by.items()))
        for name, by in kinds.items()
    }
    return shown, problems


def effects(body: str, helpers: str = "") -> dict[str, str]:
    shown, problems = analyzed(program(body, helpers))
    assert problems == []
    return shown


def everything(*tags: str) -> dict[str, str]:
    """All fields read and set, at all keys, by these tags."""
    return {name: " ".join(f"{tag}:rs" for tag in sorted(tags)) for name in fields()}


ESCAPED = everything(*TAGS)

BRANCHES = {
    "if is": ("if event.tag is self.view: state.total += 1", {"total": "view:a"}),
    "if ==": ("if event.tag == self.view: state.total += 1", {"total": "view:a"}),
    "is not": ("if event.tag is not self.view: state.total += 1", {"total": "change:a tick:a"}),
    "!=": ("if event.tag != self.view: state.total += 1", {"total": "change:a tick:a"}),
    "in": ("if event.tag in (self.view, self.tick): state.total += 1", {"total": "tick:a view:a"}),
    "in list": ("if event.tag in [self.view]: state.total += 1", {"total": "view:a"}),
    "in set": ("if event.tag in {self.view}: state.total += 1", {"total": "view:a"}),
    "not in": ("if event.tag not in (self.view, self.tick): state.total += 1", {"total": "change:a"}),
    "not": ("if not event.tag is self.view: state.total += 1", {"total": "change:a tick:a"}),
    "else": (
        """
        if event.tag is self.view:
            state.total += 1
        elif event.tag is self.change:
            state.total = 0
        else:
            emit(state.total)
        """,
        {"total": "change:s tick:r view:a"},
    ),
    "and": ("if event.tag is self.view and event.user > 3: state.total += 1", {"total": "view:a"}),
    "else of and": (
        """
        if event.tag is self.view and event.user > 3:
            pass
        else:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "or": ("if event.tag is self.view or event.tag is self.tick: state.total += 1", {"total": "tick:a view:a"}),
    "else of or": (
        """
        if event.tag is self.view or event.ts > 3:
            pass
        else:
            state.total += 1
        """,
        {"total": "change:a tick:a"},
    ),
    "reading in a condition": (
        "if event.tag is self.view and state.total > 3: state.info = None",
        {"total": "view:r", "info": "view:s"},
    ),
    "reading after or": (
        "if event.tag is self.view or state.total > 3: pass",
        {"total": "change:r tick:r"},
    ),
    "nested": (
        """
        if event.tag is not self.tick:
            if event.tag is self.view:
                state.total += 1
            else:
                state.total = 0
        """,
        {"total": "change:s view:a"},
    ),
    "early return": (
        """
        if event.tag is self.view:
            return
        state.total += 1
        """,
        {"total": "change:a tick:a"},
    ),
    "early return of the state": (
        """
        if event.tag is self.view:
            return state
        state.total += 1
        return None
        """,
        {"total": "change:a tick:a"},
    ),
    "early raise": (
        """
        if event.tag is self.view:
            raise ValueError(state.info)
        state.total += 1
        """,
        {"info": "view:r", "total": "change:a tick:a"},
    ),
    "one-armed conditional": (
        "emit(state.total if event.tag is self.view else state.hi)",
        {"total": "view:r", "hi": "change:r tick:r"},
    ),
    "match": (
        """
        match event.tag:
            case self.view:
                state.total += 1
            case self.change | self.tick if event.ts > 3:
                state.info = None
            case self.change:
                emit(state.hi)
            case _:
                emit(state.lo)
        """,
        {"total": "view:a", "info": "change:s tick:s", "hi": "change:r", "lo": "tick:r"},
    ),
    "match with a capture": (
        """
        match event.tag:
            case self.view:
                pass
            case other:
                state.total += 1
        state.info = None
        """,
        {"total": "change:a tick:a", "info": EVERY.format("s")},
    ),
    "match that does not take all": (
        """
        match event.tag:
            case self.view:
                return
        state.total += 1
        """,
        {"total": "change:a tick:a"},
    ),
    "match with an as-pattern": (
        """
        match event.tag:
            case self.view as tag:
                state.total += 1
            case self.change:
                state.total = 0
        """,
        {"total": "change:as tick:a view:a"},
    ),
    "match on something else": (
        """
        match state.info:
            case "x":
                state.total += 1
            case state.hi:
                state.total = 0
        """,
        {"info": EVERY.format("r"), "hi": EVERY.format("r"), "total": EVERY.format("as")},
    ),
    "class-qualified": ("if event.tag is P.view: state.total += 1", {"total": "view:a"}),
    "alias": (
        """
        tag = event.tag
        if tag is self.view:
            state.total += 1
        """,
        {"total": "view:a"},
    ),
    "annotated alias": (
        """
        tag: object = event.tag
        if tag is self.view:
            state.total += 1
        """,
        {"total": "view:a"},
    ),
    "walrus": ("if (tag := event.tag) is self.view or tag is self.tick: state.total += 1", {"total": "tick:a view:a"}),
}

FIELDS = {
    "read": ("emit(state.total)", {"total": EVERY.format("r")}),
    "set": ("state.total = 0", {"total": EVERY.format("s")}),
    "add": ("state.total += event.ts", {"total": EVERY.format("a")}),
    "subtract": ("state.total -= event.ts", {"total": EVERY.format("a")}),
    "multiply": ("state.total *= 2", {"total": EVERY.format("rs")}),
    "add what it reads": ("state.total += state.total", {"total": EVERY.format("ar")}),
    "add what another reads": ("state.total += state.hi", {"total": EVERY.format("a"), "hi": EVERY.format("r")}),
    "spelled out": ("state.total = state.total + 1", {"total": EVERY.format("rs")}),
    "annotated": ("state.total: int = 3", {"total": EVERY.format("s")}),
    "delete": ("del state.counts[event.key]", {"counts": "change:s! tick:s view:s!"}),
    "unpacking": (
        "state.total, (state.hi, *state.info) = 1, (2, 3)",
        {"total": EVERY.format("s"), "hi": EVERY.format("s"), "info": EVERY.format("s")},
    ),
    "chained": ("state.total = state.hi = 3", {"total": EVERY.format("s"), "hi": EVERY.format("s")}),
    "greatest": ("state.hi = fl.greatest(state.hi, event.ts)", {"hi": EVERY.format("a")}),
    "greatest, imported": ("state.hi = greatest(event.ts, state.hi, 3)", {"hi": EVERY.format("a")}),
    "least": ("state.lo = fl.least(state.lo, event.ts)", {"lo": EVERY.format("a")}),
    "least of a Max": ("state.hi = fl.least(state.hi, event.ts)", {"hi": EVERY.format("rs")}),
    "max fails on None": ("state.hi = max(state.hi, event.ts)", {"hi": EVERY.format("rs")}),
    "greatest of itself": ("state.hi = fl.greatest(state.hi, state.hi + 1)", {"hi": EVERY.format("ar")}),
    "greatest of another": (
        "state.hi = fl.greatest(state.lo, event.ts)",
        {"hi": EVERY.format("s"), "lo": EVERY.format("r")},
    ),
    "greatest to another": ("state.lo = fl.greatest(state.lo, event.ts)", {"lo": EVERY.format("rs")}),
    "greatest of a Sum": ("state.total = fl.greatest(state.total, 3)", {"total": EVERY.format("rs")}),
    "somebody else's greatest": ("state.hi = self.greatest(state.hi, 3)", {"hi": EVERY.format("rs")}),
    "a local greatest": (
        """
        greatest = lambda a, b: b
        state.hi = greatest(state.hi, 3)
        """,
        {"hi": EVERY.format("rs")},
    ),
    "set: add": ("state.seen.add(event.ts)", {"seen": EVERY.format("a")}),
    "set: update": ("state.seen.update([1, 2])", {"seen": EVERY.format("a")}),
    "set: or": ("state.seen |= {1}", {"seen": EVERY.format("a")}),
    "set: update from a field": (
        "state.seen.update(state.rules)",
        {"seen": EVERY.format("a"), "rules": EVERY.format("r")},
    ),
    "set: and": ("state.seen &= {1}", {"seen": EVERY.format("rs")}),
    "set: discard": ("state.seen.discard(1)", {"seen": EVERY.format("rs")}),
    "set: member": ("if event.ts in state.seen: pass", {"seen": EVERY.format("r")}),
    "set: truth": ("if state.seen: pass", {"seen": EVERY.format("r")}),
    "set: len": ("emit(len(state.seen))", {"seen": EVERY.format("r")}),
    "set: loop": ("for x in state.seen: emit(x)", {"seen": EVERY.format("r")}),
    "set: comprehension": ("emit([x for x in state.seen if x])", {"seen": EVERY.format("r")}),
    "set: union": ("x = state.seen | {1}", {"seen": EVERY.format("r")}),
    "set: sorted": ("x = sorted(state.seen)", {"seen": EVERY.format("r")}),
    "map: look up": ("x = state.rules['a']", {"rules": EVERY.format("r")}),
    "map: items": ("for a, b in state.rules.items(): emit(a)", {"rules": EVERY.format("r")}),
    "map: entry": ("state.rules['a'] = 3", {"rules": EVERY.format("s")}),
    "map: add to an entry": ("state.rules['a'] += 3", {"rules": EVERY.format("rs")}),
    "own key": ("state.counts[event.key] += 1", {"counts": "change:a! tick:a view:a!"}),
    "own key by its name": ("emit(state.counts[event.page])", {"counts": "change:r! tick:r view:r!"}),
    "own key by an alias": (
        """
        page = event.page
        state.counts[page] = 0
        """,
        {"counts": "change:s! tick:s view:s!"},
    ),
    "another column": (
        "if event.tag is self.change: state.counts[event.page_count] += 1",
        {"counts": "change:a"},
    ),
    "another key": ("state.counts['x'] += 1", {"counts": EVERY.format("a")}),
    "a computed key": ("emit(state.counts[event.key + 'x'])", {"counts": EVERY.format("r")}),
    "key from a field": (
        "state.counts[state.info] += 1",
        {"counts": EVERY.format("a"), "info": EVERY.format("r")},
    ),
    "greatest at a key": (
        "state.best[event.key] = greatest(state.best[event.key], event.ts)",
        {"best": "change:a! tick:a view:a!"},
    ),
    "greatest of another key": (
        "state.best[event.key] = greatest(state.best['x'], event.ts)",
        {"best": "change:r change:s! tick:rs view:r view:s!"},
    ),
    "set at a key": ("state.sets[event.key].add(1)", {"sets": "change:a! tick:a view:a!"}),
    "whole map": ("emit(len(state.counts))", {"counts": EVERY.format("r")}),
    "all entries": ("for k, n in state.counts.items(): emit(k, n)", {"counts": EVERY.format("r")}),
    "tuple: read": ("emit(state.pair[0])", {"pair": EVERY.format("r")}),
    "tuple: replace": ("state.pair = (state.pair[0] + 1, 3)", {"pair": EVERY.format("rs")}),
    "f-string": ("emit(f'{state.total} {state.seen}')", {"total": EVERY.format("r"), "seen": EVERY.format("r")}),
    "emit": ("emit.flagged(state.seen, n=state.deep)", {"seen": EVERY.format("r"), "deep": EVERY.format("r")}),
    "return of emit": ("return emit(state.total)", {"total": EVERY.format("r")}),
    "loop over a range": (
        """
        for i in range(3):
            state.total += i
        else:
            state.info = None
        """,
        {"total": EVERY.format("a"), "info": EVERY.format("s")},
    ),
    "while": ("while state.total < 3: state.total += 1", {"total": EVERY.format("ar")}),
    "try": (
        """
        try:
            state.total += 1
        except ValueError:
            state.total = 0
        else:
            emit(state.hi)
        finally:
            state.info = None
        """,
        {"total": EVERY.format("as"), "hi": EVERY.format("r"), "info": EVERY.format("s")},
    ),
    "return within try, and what happens finally": (
        """
        try:
            if event.tag is self.view:
                return
            raise ValueError
        except ValueError:
            state.total += 1
        finally:
            state.info = None
        """,
        {"total": EVERY.format("a"), "info": EVERY.format("s")},
    ),
    "with": (
        """
        with open(state.info) as state.total:
            state.hi = 3
        """,
        {"info": EVERY.format("r"), "total": EVERY.format("s"), "hi": EVERY.format("s")},
    ),
    "loop target": ("for state.total in range(3): pass", {"total": EVERY.format("s")}),
    "comprehension target": ("[0 for state.total in range(3)]", {"total": EVERY.format("rs")}),
    "lambda": ("emit((lambda x: state.total + x)(1))", {"total": EVERY.format("r")}),
    "default of a lambda": ("f = lambda x=state.total: x", {"total": EVERY.format("r")}),
    "nested function": (
        """
        def inner(x=state.hi):
            state.total += x
            return 3
        inner()
        """,
        {"total": EVERY.format("a"), "hi": EVERY.format("r")},
    ),
    "nested class": (
        """
        class Inner:
            x = state.total
        """,
        {"total": EVERY.format("r")},
    ),
    "assert": ("assert state.total > 0, state.info", {"total": EVERY.format("r"), "info": EVERY.format("r")}),
    "docstring and pass": ("'''Nothing.'''", {}),
    "walrus of a field": ("if (n := state.total) > 3: emit(n)", {"total": EVERY.format("r")}),
    "except as": (
        """
        try:
            pass
        except state.info:
            pass
        """,
        {"info": EVERY.format("r")},
    ),
}

KEPT = {
    "alias of a mutable field": (
        """
        seen = state.seen
        seen.add(1)
        """,
        {"seen": EVERY.format("rs")},
    ),
    "a bound method": ("add = state.seen.add", {"seen": EVERY.format("rs")}),
    "in a container": ("x = [state.seen]", {"seen": EVERY.format("rs")}),
    "given away": ("print_all(state.seen)", {"seen": EVERY.format("rs")}),
    "put into another field": (
        "state.deep.append(state.rules)",
        {"deep": EVERY.format("rs"), "rules": EVERY.format("rs")},
    ),
    "by or": ("x = state.seen or None", {"seen": EVERY.format("rs")}),
    "by a conditional": ("x = state.seen if event.ts else None", {"seen": EVERY.format("rs")}),
    "by walrus": ("if (x := state.seen): pass", {"seen": EVERY.format("rs")}),
    "as a default": ("f = lambda x=state.seen: x.clear()", {"seen": EVERY.format("rs")}),
    "elements by a loop": ("for x in state.deep: x.append(1)", {"deep": EVERY.format("rs")}),
    "elements by a subscript": ("state.deep[0].append(1)", {"deep": EVERY.format("rs")}),
    "elements by a comprehension": ("[x.append(1) for x in state.deep]", {"deep": EVERY.format("rs")}),
    "elements by list": ("list(state.deep)[0].append(1)", {"deep": EVERY.format("rs")}),
    "elements by min": ("min(state.deep).append(1)", {"deep": EVERY.format("rs")}),
    "elements by a sum": ("(state.deep + [])[0].append(1)", {"deep": EVERY.format("rs")}),
    "values of a map of sets": ("for s in state.sets.values(): s.add(1)", {"sets": EVERY.format("rs")}),
    "items of a map of sets": ("for k, s in state.sets.items(): s.add(1)", {"sets": EVERY.format("rs")}),
    "get from a map of sets": ("state.sets.get(event.key).add(1)", {"sets": EVERY.format("rs")}),
    "a set of a map of sets": ("s = state.sets[event.key]", {"sets": "change:rs! tick:rs view:rs!"}),
    "a part of a tuple": ("state.mixed[1].add(2)", {"mixed": EVERY.format("rs")}),
    "added to an alias": ("x = []\nx += state.deep", {"deep": EVERY.format("rs")}),
    "len that is not len": (
        """
        len = print
        len(state.seen)
        """,
        {"seen": EVERY.format("rs")},
    ),
    "len of a lambda": ("f = lambda len: len(state.seen)", {"seen": EVERY.format("rs")}),
    "emit that is not emit": ("self.emit(state.seen)", {"seen": EVERY.format("rs")}),
    "match": (
        """
        match state.seen:
            case x:
                x.add(1)
        """,
        {"seen": EVERY.format("rs")},
    ),
}

ESCAPES = {
    "an alias of the state": "s = state\ns.total = 3",
    "a call": "outside(state)",
    "in a container": "x = [state]",
    "setattr": "setattr(state, 'total', 3)",
    "getattr": "x = getattr(state, 'total')",
    "vars": "vars(state)['total'] = 3",
    "locals": "locals()['state'].total = 3",
    "eval": "eval('state.total')",
    "exec": "exec('state.total = 3')",
    "copy": "x = copy.copy(state)",
    "a lambda that returns it": "f = lambda: state\nf().total = 3",
    "a nested function that returns it": "def f():\n    return state\nf().total = 3",
    "walrus": "if (s := state): s.total = 3",
    "a conditional": "s = state if event.ts else None",
    "comparison": "if state == 3: pass",
    "unpacking": "s, t = state, 1",
    "starred": "outside(*[state])",
    "star-star": "outside(**{'state': state})",
    "attribute of the program": "self.last = state",
    "rebound state": "state = state.total",
    "rebound event": "event = other\nif event.tag is self.view: state.total += 1",
    "rebound self": "self = other\nif event.tag is self.view: state.total += 1",
    "event of a loop": "for event in []:\n    if event.tag is self.view: state.total += 1",
    "event of a comprehension": "[state.total for event in [] if event.tag is self.view]",
    "event of a lambda": "f = lambda event: state.total if event.tag is self.view else 0",
    "event of a nested function": "def f(event):\n    if event.tag is self.view: state.total += 1",
    "event of except": "try: pass\nexcept ValueError as event: state.total += 1",
    "event of with": "with x as event: pass",
    "event of a match": "match 3:\n    case event: state.total += 1",
    "event of an import": "import event",
    "another state returned": "return fl.State({'total': 0})",
    "a value returned": "return 5",
    "generator": "yield state",
    "match on it": "match state:\n    case x: x.total = 3",
    "a method of another class": "Other.helper(self, state)",
    "super": "super().update(state, event, emit)",
    "dispatch by a dict": "{self.view: outside}[event.tag](state)",
}

WIDE = {
    "alias that is bound again": (
        """
        tag = event.tag
        tag = other
        if tag is self.view:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "alias that a loop binds again": (
        """
        tag = event.tag
        for tag in []:
            pass
        if tag is self.view:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "alias in a nested function only": (
        """
        def inner():
            tag = event.tag
        if tag is self.view:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "alias that is global": (
        """
        global tag
        tag = event.tag
        if tag is self.view:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "alias that a nested function binds again": (
        """
        tag = event.tag
        def inner():
            nonlocal tag
            tag = other
        if tag is self.view:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "alias of another event": (
        """
        tag = other.tag
        if tag is self.view:
            state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "key alias that is bound again": (
        """
        key = event.key
        key = 'x'
        state.counts[key] += 1
        """,
        {"counts": EVERY.format("a")},
    ),
    "a tag of another class": ("if event.tag is Other.view: state.total += 1", {"total": EVERY.format("a")}),
    "a local class of that name": ("P = Other\nif event.tag is P.view: state.total += 1", {"total": EVERY.format("a")}),
    "is a tuple": ("if event.tag is (self.view,): state.total += 1", {"total": EVERY.format("a")}),
    "== a tuple": (
        "if event.tag == (self.view, self.tick): pass\nelse: state.total += 1",
        {"total": EVERY.format("a")},
    ),
    "in something": ("if event.tag in self.view: state.total += 1", {"total": EVERY.format("a")}),
    "in a list with more": ("if event.tag in (self.view, x): state.total += 1", {"total": EVERY.format("a")}),
    "chained comparison": ("if event.tag is self.view is x: state.total += 1", {"total": EVERY.format("a")}),
    "by name": ("if event.tag.name == 'view': state.total += 1", {"total": EVERY.format("a")}),
    "break out of a loop": (
        """
        while True:
            if event.tag is self.view:
                break
            return
        state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "return within a loop": (
        """
        for x in []:
            return
        state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
    "suppressed": (
        """
        with suppress(ValueError):
            if event.tag is self.view:
                raise ValueError
        state.total += 1
        """,
        {"total": EVERY.format("a")},
    ),
}

HELPERS: dict[str, tuple[str, str, Mapping[str, str]]] = {
    "given the state": (
        "if event.tag is self.view: self.helper(state, event, emit)",
        """
        def helper(self, s, e, out):
            s.total += e.user
            out(s.hi)
        """,
        {"total": "view:a", "hi": "view:r"},
    ),
    "in another order": (
        "self.helper(event, state)",
        """
        def helper(self, e, s):
            if e.tag is self.view:
                s.counts[e.key] += 1
        """,
        {"counts": "view:a!"},
    ),
    "by keyword": (
        "self.helper(event, s=state)",
        """
        def helper(self, e, s):
            if e.tag is self.view:
                s.total += 1
        """,
        {"total": "view:a"},
    ),
    "given the key": (
        "self.helper(state, event.key)",
        """
        def helper(self, s, k):
            s.counts[k] += 1
        """,
        {"counts": "change:a! tick:a view:a!"},
    ),
    "given the tag": (
        "self.helper(state, event.tag)",
        """
        def helper(self, s, t):
            if t is self.view:
                s.total += 1
        """,
        {"total": "view:a"},
    ),
    "that binds the key again": (
        "self.helper(state, event.key)",
        """
        def helper(self, s, k):
            k = 'x'
            s.counts[k] += 1
        """,
        {"counts": EVERY.format("a")},
    ),
    "given a field too": (
        "self.helper(state, state.seen)",
        """
        def helper(self, s, seen):
            s.total += 1
        """,
        {"total": EVERY.format("a"), "seen": EVERY.format("rs")},
    ),
    "given only a field": (
        "self.helper(state.seen)",
        """
        def helper(self, seen):
            seen.clear()
        """,
        {"seen": EVERY.format("rs")},
    ),
    "that returns a value": (
        "emit(self.helper(state))",
        """
        def helper(self, s):
            return s.total + 1
        """,
        {"total": EVERY.format("r")},
    ),
    "whose result is returned": (
        "return self.helper(state, event)",
        """
        def helper(self, s, e):
            if e.tag is self.view:
                s.total += 1
            return s
        """,
        {"total": "view:a"},
    ),
    "that calls another": (
        "self.first(state, event)",
        """
        def first(self, s, e):
            if e.tag is self.view:
                self.second(s)
            s.info = None
        def second(self, x):
            x.total += 1
        """,
        {"total": "view:a", "info": EVERY.format("s")},
    ),
    "called twice": (
        """
        if event.tag is self.view:
            self.helper(state)
        if event.tag is self.tick:
            self.helper(state)
        """,
        """
        def helper(self, s):
            s.total += 1
        """,
        {"total": "tick:a view:a"},
    ),
    "after the walk of one": (
        """
        self.helper(state)
        if event.tag is self.view:
            state.total += 1
        """,
        """
        def helper(self, event):
            pass
        """,
        {"total": "view:a"},
    ),
    "that returns the state": (
        """
        s = self.helper(state)
        s.total = 3
        """,
        """
        def helper(self, s):
            return s
        """,
        ESCAPED,
    ),
    "that returns another state": (
        "return self.helper(state)",
        """
        def helper(self, s):
            return fl.State({})
        """,
        ESCAPED,
    ),
    "that calls itself": (
        "self.helper(state)",
        """
        def helper(self, s):
            self.helper(s)
        """,
        ESCAPED,
    ),
    "that takes anything": (
        "self.helper(state)",
        """
        def helper(self, *args):
            args[0].total = 3
        """,
        ESCAPED,
    ),
    "that takes any keyword": (
        "self.helper(s=state)",
        """
        def helper(self, **kwargs):
            kwargs['s'].total = 3
        """,
        ESCAPED,
    ),
    "given the state twice": (
        "self.helper(state, state)",
        """
        def helper(self, a, b):
            a.total += 1
            b.info = None
        """,
        ESCAPED,
    ),
    "given stars": (
        "self.helper(state, *args)",
        """
        def helper(self, s, x):
            pass
        """,
        ESCAPED,
    ),
    "that is static": (
        "self.helper(state)",
        """
        @staticmethod
        def helper(s):
            s.total += 1
        """,
        ESCAPED,
    ),
    "that is wrapped": (
        "self.helper(state, event, emit)",
        """
        @wrap
        def helper(self, s, e, out):
            pass
        """,
        ESCAPED,
    ),
    "that does not exist": ("self.helper(state)", "", ESCAPED),
    "that keeps the state": (
        "self.helper(state)",
        """
        def helper(self, s):
            self.kept = s
        """,
        ESCAPED,
    ),
}


@pytest.mark.parametrize(("body", "expected"), BRANCHES.values(), ids=list(BRANCHES))
def test_branches(body: str, expected: dict[str, str]) -> None:
    assert effects(body) == expected


@pytest.mark.parametrize(("body", "expected"), FIELDS.values(), ids=list(FIELDS))
def test_fields(body: str, expected: dict[str, str]) -> None:
    assert effects(body) == expected


@pytest.mark.parametrize(("body", "expected"), KEPT.values(), ids=list(KEPT))
def test_a_mutable_value_that_may_be_kept_counts_as_set(body: str, expected: dict[str, str]) -> None:
    assert effects(body) == expected


@pytest.mark.parametrize("body", ESCAPES.values(), ids=list(ESCAPES))
def test_a_state_that_can_not_be_followed_counts_as_read_and_set(body: str) -> None:
    found = effects(body)
    assert found.keys() == fields().keys()
    for shown in found.values():
        for tag in TAGS:
            (kinds,) = [part.partition(":")[2] for part in shown.split() if part.startswith(f"{tag}:")]
            assert {"r", "s"} <= set(kinds)


@pytest.mark.parametrize(("body", "expected"), WIDE.values(), ids=list(WIDE))
def test_what_looks_like_a_branch_on_the_tag_and_is_none(body: str, expected: dict[str, str]) -> None:
    assert effects(body) == expected


@pytest.mark.parametrize(("body", "helpers", "expected"), HELPERS.values(), ids=list(HELPERS))
def test_helpers(body: str, helpers: str, expected: dict[str, str]) -> None:
    assert effects(body, helpers) == expected


@pytest.mark.parametrize(
    "signature",
    [
        "self, *args",
        "*args",
        "self, state, *rest",
        "self, *rest, emit=None",
    ],
)
def test_parameters_that_can_not_be_named(signature: str) -> None:
    found, _ = analyzed(compiled(f"{HEADER}\nclass P:\n    def update({signature}): pass\n"))
    # Where the state has a name, nothing is done to it; where it has none, nobody knows.
    assert found == ({} if "state" in signature else ESCAPED)


def test_other_names_for_the_parameters() -> None:
    text = "class P:\n    def update(me, s, e, out):\n        if e.tag is me.view: s.total += 1\n"
    assert analyzed(compiled(text))[0] == {"total": "view:a"}


@pytest.mark.parametrize("decorator", ["wrap", "reckless"])
def test_a_wrapped_update_can_not_be_followed(decorator: str) -> None:
    text = f"{HEADER}\nclass P:\n    @{decorator}\n    def update(self, state, event, emit): pass\n"
    assert analyzed(compiled(text))[0] == ESCAPED


def test_an_overridden_tag_is_not_the_base_class_s() -> None:
    text = (
        "class Base:\n    view = object()\n"
        "class P(Base):\n    def update(self, state, event, emit):\n"
        "        if event.tag is Base.view: state.total += 1\n"
    )
    assert analyzed(compiled(text))[0] == {"total": EVERY.format("a")}


def test_an_unknown_field_is_a_mistake_with_its_line() -> None:
    cls = program("state.total += 1\nemit(state.totl)\nstate.x = 3\nstate.x.y(1)")
    _, problems = analyzed(cls)
    assert {(p.condition, p.message.split(",")[0]) for p in problems} == {
        ("UNKNOWN_FIELD", "update uses state.totl"),
        ("UNKNOWN_FIELD", "update uses state.x"),
    }
    first = cls.update.__code__.co_firstlineno
    assert [p.where.rpartition(":")[2] for p in problems] == [str(first + n) for n in (2, 3, 4)]


def test_where_an_access_is() -> None:
    cls = program("pass\nif event.tag is self.view:\n    state.total += 1")
    found, _ = accesses({cls.update: frozenset(TAGS)}, cls, TAGS, fields())
    assert [access.where.rpartition(":")[2] for access in found] == [str(cls.update.__code__.co_firstlineno + 3)]


class TestSourceMissing:
    def update(self) -> FunctionType:
        namespace: dict[str, Any] = {}
        exec("def update(self, state, event, emit): state.total = 0", namespace)  # noqa: S102 -- our own text
        function: FunctionType = namespace["update"]
        return function

    def test_is_a_mistake(self) -> None:
        found, problems = accesses(
            {self.update(): frozenset(TAGS)}, object, TAGS, {"total": Sum(), "info": Replicated("string")}
        )
        assert found == []
        assert [p.condition for p in problems] == ["NO_SOURCE"]

    def test_unless_every_field_says_who_does_what(self) -> None:
        declared = {
            "total": Sum(read_by=[Tags.view], set_by=[Tags.change]),
            "counts": PerKey(Count(), added_by=[Tags.view]),
        }
        found, problems = accesses({self.update(): frozenset(TAGS)}, object, TAGS, declared)
        assert problems == []
        assert {(a.tag, a.field, a.kind, a.own_key) for a in found} == {
            ("view", "total", "read", False),
            ("change", "total", "set", False),
            ("view", "counts", "add", True),
        }

    def test_a_lambda_has_no_statements(self) -> None:
        class P:
            update = lambda self, state, event, emit: None  # noqa: E731

        _, problems = accesses({P.update: frozenset(TAGS)}, P, TAGS, {"total": Sum()})
        assert [p.condition for p in problems] == ["NO_SOURCE"]


def test_a_declaration_overrules_what_was_found_for_its_field_only() -> None:
    cls = program("state.total = 0\nstate.hi = 3")
    declared = {"total": Sum(added_by=[Tags.view]), "hi": Max()}
    found, problems = accesses({cls.update: frozenset(TAGS)}, cls, TAGS, declared)
    assert problems == []
    assert {(a.tag, a.field, a.kind) for a in found} == {
        ("view", "total", "add"),
        ("view", "hi", "set"),
        ("change", "hi", "set"),
        ("tick", "hi", "set"),
    }
