"""Which expressions count, told by the mistakes found in them: no tag has ``tip``, only refunds have ``cost``."""

import pytest

import flumina as fl
from flumina.program.analysis.reach import reached
from tests.analysis import mistakes, program

TIP = ["UNKNOWN_COLUMN tip"]
COST = ["UNKNOWN_COLUMN cost"]

CERTAIN: dict[str, list[str]] = {
    # by tag
    "if event.tag is self.sale: event.cost": COST,
    "if event.tag == self.sale: event.cost": COST,
    "if event.tag in (self.sale, self.tick): event.cost": COST,
    "if event.tag is not self.refund: event.cost": COST,
    "if event.tag not in [self.refund]: event.cost": COST,
    "if not event.tag is self.refund: event.cost": COST,
    "if event.tag is self.refund: pass\nelse: event.cost": COST,
    "if event.tag is self.refund: return\nevent.cost": COST,
    "if event.tag is self.refund: raise ValueError\nevent.cost": COST,
    "if event.tag is self.sale or event.tag is self.tick: event.cost": COST,
    "if event.tag is self.sale and event.cost: pass": COST,
    "if event.tag is self.refund or event.cost: pass": COST,
    "x = event.cost if event.tag is self.sale else 0": COST,
    "tag = event.tag\nif tag is self.sale: event.cost": COST,
    "if (tag := event.tag) is self.sale: event.cost": COST,
    "if event.tag is P.sale: event.cost": COST,
    "match event.tag:\n    case self.sale: event.cost": COST,
    "match event.tag:\n    case self.refund: pass\n    case _: event.cost": COST,
    "match event.tag:\n    case self.sale | self.tick if event.ts > 3: event.cost": COST,
    # where events decide
    "if event.ts > LIMIT: event.tip": TIP,
    "if event.ts > self.limit: event.tip": TIP,
    "if event.ts > 3: return\nevent.tip": TIP,
    "if state.total: event.tip": TIP,
    "while event.ts < state.total: event.tip": TIP,
    "if len(str(event.ts)) > 3 and math.isnan(event.ts): event.tip": TIP,
    "for x in range(event.ts): event.tip": TIP,
    "for x in (1, 2): event.tip": TIP,
    "for x in (1, 2):\n    if event.ts > 1: break\nevent.tip": TIP,
    "late = event.ts > 3\nif late: event.tip": TIP,
    "day, time = divmod(event.ts, 24)\nif day and not time: event.tip": TIP,
    "[event.tip for x in range(event.ts) if event.ts]": TIP,
    "{1: event.tip for x in range(event.ts)}": TIP,
    "match event.ts:\n    case 3: event.tip": TIP,
    "if event.shop.startswith('a'): event.tip": TIP,
    "if event['shop'] == 'a': event.tip": TIP,
    # where nothing else can happen
    "if FLAG: x = 1\nevent.tip": TIP,
    "for x in self.tips: pass\nevent.tip": TIP,
    "try: x = 1\nfinally: event.tip": TIP,
    "try: event.tip\nexcept (KeyError, ValueError): pass": TIP,
    "with contextlib.suppress(ValueError): pass\nevent.tip": TIP,
    "x: int = event.tip": TIP,
    "state.total += event.tip": TIP,
    "assert event.ts\nevent.tip": TIP,
    "print(f'{event.tip}')": TIP,
    "return event.tip": TIP,
    "raise ValueError(event.tip)": TIP,
    "del state.x[event.tip]": [*TIP, "UNKNOWN_FIELD x"],
}


@pytest.mark.parametrize("body", CERTAIN)
def test_what_events_get_to(body: str) -> None:
    assert mistakes(body) == CERTAIN[body]


FINE = [
    # one tag that has it is enough
    "event.cost, event.shop, event.amount, event.user, event.key, event.ts, event.stream, event.seq, event.tag",
    "event.count(1), event.index, event._fields, event._asdict(), event.__class__, event['key'], event[0], event[name]",
    "if event.tag.name == 'refund': event.cost",
    "if event.tag is self.sale: return\nevent.cost",
    "if event.tag is self.sale and event.ts > 3: return\nevent.shop",
    "if event.tag is self.tick or event.ts > 3: event.shop",
    "if event.tag in self.some: event.cost",
    "assert event.tag is self.sale\nevent.cost",
    "for x in (1, 2):\n    if event.tag is self.refund: break\nevent.cost",
    "while event.tag is self.sale: break\nevent.cost",
    "try:\n    if event.tag is self.refund: return\nexcept KeyError: pass\nevent.cost",
    "with contextlib.suppress(KeyError):\n    if event.tag is self.refund: return\nevent.cost",
    "tag = event.tag\ntag = self.sale\nif tag is self.sale: event.cost",
    "match event.tag:\n    case self.sale if event.ts: pass\n    case _: event.shop",
    "match event.tag:\n    case self.refund | _: event.cost",
    "match event.tag:\n    case other: event.cost",
    # it may be settled beforehand that nothing gets there
    "if FLAG: event.tip",
    "if self.with_tips: event.tip",
    "if self.with_tips and event.ts: event.tip",
    "if event.ts and self.with_tips: event.tip",
    "if event.ts or self.with_tips: event.tip",
    "if self.with_tips: pass\nelif event.ts: event.tip",
    "if not self.with_tips: return\nevent.tip",
    "if not self.with_tips:\n    if event.ts: return\nevent.tip",
    "x = event.tip if self.with_tips else 0",
    "x = self.with_tips and event.tip",
    "x = self.no_tips or event.tip",
    "while self.with_tips: event.tip",
    "while True:\n    if FLAG: event.tip\n    return",
    "for x in self.tips: event.tip",
    "for x in self.tips: return\nevent.tip",
    "for x in [*self.tips]: event.tip",
    "for x in (1, 2):\n    if FLAG: continue\n    event.tip",
    "for x in (1, 2): pass\nelse: event.tip",
    "[event.tip for x in self.tips]",
    "[event.tip for x in range(event.ts) if self.with_tips]",
    "tips = self.with_tips\nif tips: event.tip",
    "tips = event.ts\ntips = FLAG\nif tips: event.tip",
    "tips = event.ts if FLAG else 0\nif tips: event.tip",
    "tips = event.ts\ntips += 1\nif tips: event.tip",
    "assert self.with_tips\nevent.tip",
    "if is_tip(event.ts): event.tip",
    "if self.is_tip(event.ts): event.tip",
    "match self.kind:\n    case 3: event.tip",
    "match event.ts:\n    case 3 if FLAG: event.tip\n    case _ : event.tip",
    "if event.stream == 'tips': event.tip",
    "if event.tag.name == 'tips': event.tip",
    "if 'tip' in event.tag.columns.names: event.tip",
    # what an event has may be asked
    "if hasattr(event, 'tip'): event.tip",
    "if not hasattr(event, 'tip'): return\nevent.tip",
    "tip = getattr(event, 'tip', None)\nif tip is not None: event.tip",
    "if 'tip' in event._fields: event.tip",
    "if len(event) > 9: event.tip",
    "try: event.tip\nexcept AttributeError: pass",
    "try: event.tip\nexcept Exception: pass",
    "try: event.tip\nexcept: pass",
    "try: event.tip\nexcept (KeyError, AttributeError): pass",
    "try: event.tip\nexcept fl.FluminaError: pass",
    "try: event.tip\nexcept self.errors: pass",
    "try: event.tip\nexcept AttributeError: return\nevent.tip",
    "try: event.tip\nexcept* AttributeError: pass",
    "try: x = 1\nexcept ValueError: event.tip",
    "try: tip = FLAG\nexcept ValueError: return\nevent.tip",
    "with contextlib.suppress(AttributeError): event.tip",
    "getattr(event, 'tip', 0)",
    # another event, or none
    "e = event\ne.tip",
    "for event in self.recent: event.tip",
    "[event.tip for event in self.recent]",
    "(event.tip for x in self.recent)",
    "sorted(self.recent, key=lambda event: event.tip)",
    "sorted(self.recent, key=lambda x: event.tip)",
    "event = adapted(event)\nevent.tip",
    "event.amount\ndel event",
    "if event.ts: event = other\nevent.tip",
    "def tip(): return event.tip",
    "def tip(event): return event.tip",
    "class A:\n    x = event.tip",
    "return\nevent.tip",
    "raise ValueError\nevent.tip",
    "if event.tag is self.none: event.tip",
    "event.tip = 3",
    # another emit, or values that are not known
    "emit = print\nemit(1)",
    "for emit in self.all: emit(1)",
    "def send(emit): emit(1)",
    "emit(*row)",
    "emit(1, *row)",
    "emit(*row, a=1)",
    "emit(**row)",
    "emit(a=1, **row)",
    "emit(1, **row)",
    "emit(1, 2), emit(a=1, b=2), emit.columns([1], [2]), emit.columns(a=[1], b=[2], at=[0])",
    "emit.event, emit.batch, emit.items, emit.drain(), emit.output(1, 2), emit.output.columns([1], [2])",
    "if self.three: emit(1, 2, 3)",
    "getattr(emit, 'b')(1)",
    "try: emit(1)\nexcept fl.OutputError: pass",
]


@pytest.mark.parametrize("body", FINE)
def test_what_events_may_never_get_to(body: str) -> None:
    assert [told for told in mistakes(body) if not told.startswith("UNKNOWN_TAG")] == []


HELPERS = {
    ("self.look(event)", "def look(self, event): event.tip"): TIP,
    ("self.look(state, event, emit)", "def look(self, s, e, out): out(e.tip)"): ["OUTPUT_VALUES out(e.tip)", *TIP],
    ("self.look(e=event)", "def look(self, *, e=None): e.tip"): [],
    ("self.look(1, e=event)", "def look(self, x, e): e.tip"): TIP,
    ("if event.tag is self.sale: self.look(event)", "def look(self, e): e.cost"): COST,
    ("self.look(event)", "def look(self, e): e.cost"): [],
    ("self.look(event)", "def look(self, e):\n    if e.tag is self.sale: e.cost"): COST,
    ("self.look(event, event.ts)", "def look(self, e, ts):\n    if ts > 3: e.tip"): TIP,
    ("self.look(event, FLAG)", "def look(self, e, flag):\n    if flag: e.tip"): [],
    ("self.look(event)", "def look(self, e):\n    if FLAG: return\n    e.tip"): [],
    ("self.look(event)\nevent.tip", "def look(self, e):\n    if FLAG: return"): TIP,
    ("if FLAG: self.look(event)", "def look(self, e): e.tip"): [],
    ("self.look(event.ts)", "def look(self, event): event.tip"): [],
    ("self.look(event)", "@staticmethod\ndef look(e): e.tip"): [],
    ("self.look(event)", "@functools.cache\ndef look(self, e): e.tip"): [],
    ("self.look(event)", "def look(self, e): yield e.tip"): [],
    ("self.look(*[event])", "def look(self, e): e.tip"): [],
    ("self.look(event)", "def look(self, e): self.look(e); e.tip"): TIP,
    ("self.look(event)", "def look(self, e): e.tip\ndef __init__(self): self.look = print"): [],
    ("self.look(event)", "def look(self, e): e.tip\ndef __init__(self): setattr(self, 'look', print)"): [],
    ("self.look(event)", "def look(self, e): e.tip\ndef __init__(self): self.x = 1"): TIP,
    ("if event.tag is self.sale: event.cost", "def __init__(self): self.sale = self.refund"): [],
    ("look(event)", "def look(event): event.tip"): [],
    ("self.missing(event)", ""): [],
}


@pytest.mark.parametrize(("body", "more"), HELPERS)
def test_methods_that_are_given_events(body: str, more: str) -> None:
    assert mistakes(body, more=more) == HELPERS[body, more]


def test_state_that_may_be_settled_beforehand() -> None:
    """A state decides like an event, unless it may begin with how the class is set up."""
    base = "def fork(self, state, left, right): ...\ndef join(self, left, right): ...\ntotal = None\n"
    same = f"{base}def init(self): return {{}}"
    told = f"{base}def init(self): return {{'tips': self.with_tips}}"
    other = "tips = fl.Replicated('boolean', FLAG, read_by=[sale], set_by=[])"
    assert mistakes("if state['tips']: event.tip", more=same) == TIP
    assert mistakes("if state['tips']: event.tip", more=told) == []
    assert mistakes("if event.ts > state['limit']: event.tip", more=told) == TIP
    assert mistakes("if state.tips: event.tip", more=other) == []
    assert mistakes("if state > 3: event.tip\nstate = 4\nreturn state", more=same) == []


def test_subclasses_are_looked_at_as_they_are() -> None:
    class Base(fl.Program, abstract=True):
        sale = fl.Tag("amount long")
        depends = fl.depends()
        total = fl.Sum()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.total += event.amount + event.tip + self.more(event)

        def more(self, event: fl.Event) -> int:
            return int(event.bonus)

    class Full(Base):
        sale = fl.Tag("amount long, tip long, bonus long")

    class Other(Base):
        sale = fl.Tag("amount long, tip long")

        def more(self, event: fl.Event) -> int:
            return 0

    assert {name for cls in (Full, Other) for name in fl.define(cls).tags["sale"].columns.names} >= {"tip", "bonus"}
    with pytest.raises(fl.DefinitionError) as caught:

        class Wrong(Base): ...

    assert len(caught.value.problems) == 2


def test_a_method_that_is_wrapped_may_be_given_anything() -> None:
    wrapper = """
    def adapted(function):
        @functools.wraps(function)
        def call(self, state, event, emit):
            return function(self, state, event, emit)
        return call

    update = adapted(update)
    """
    assert mistakes("event.tip", more=wrapper) == []


def test_every_expression_comes_with_its_tags() -> None:
    cls = program("if event.tag is self.sale:\n    x = 1\nelse:\n    y = 2")
    found = reached(vars(cls)["update"], cls, cls._tags, cls._fields, batches=False)
    tags = {getattr(place.node, "value", None): place.live for place in found}
    assert tags[1] == {"sale"}
    assert tags[2] == {"refund", "tick"}
