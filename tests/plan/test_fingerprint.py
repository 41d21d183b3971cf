import flumina as fl
from flumina.plan import fingerprint
from tests.plan.support import Finite, Global, Keyed, Typed


def test_fingerprints_tell_programs_apart() -> None:
    class Same(Keyed):
        depends = fl.depends((Keyed.read, Keyed.inc), (Keyed.read, Keyed.read))

    class Less(Keyed):
        depends = fl.depends((Keyed.read, Keyed.inc))

    class Always(Keyed):
        depends = fl.depends((Keyed.read, Keyed.read), always=[(Keyed.read, Keyed.inc)])

    class Text(Keyed):
        inc = fl.Tag(key="k string")
        read = fl.Tag(key="k string")
        depends = fl.depends((read, read), (read, inc))

    programs = [Keyed, Less, Always, Text, Global, Finite, Typed]
    assert len({fingerprint(fl.define(program)) for program in programs}) == len(programs)
    assert fingerprint(fl.define(Same)) == fingerprint(fl.define(Keyed))
