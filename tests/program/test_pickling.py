"""Programs reach other processes, wherever they were written; what can't be sent is named."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import flumina as fl
from flumina.apps.page_views import PageViews
from flumina.errors import UsageError
from flumina.program import pickling

SCRIPT = """
import sys
import flumina as fl
from flumina.program import pickling

STEP = 2

class Base(fl.Program, abstract=True):
    def size(self): return STEP

class Sums(Base):
    value = fl.Tag("v long NOT NULL", key="k string")
    reset = fl.Tag()
    depends = fl.depends((reset, reset), always=[(reset, value)])
    output = "k string, total long"
    totals = fl.PerKey(fl.Sum("long"))
    def update(self, state, event, emit):
        if event.tag is self.value:
            state.totals[event.key] += event.v * self.size()
        else:
            for key, total in state.totals.items():
                emit(key, total)

sys.stdout.buffer.write(pickling.dumps((Sums, Sums())))
"""


def test_a_class_of_a_script_needs_no_source_where_it_arrives(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    made = subprocess.run([sys.executable, str(file)], capture_output=True, check=True)
    file.unlink()
    sums, instance = pickling.loads(made.stdout)
    definition = fl.define(sums)
    assert definition.tags["value"] is sums.value
    assert type(instance) is sums
    rows = [{"ts": 1, "tag": "v", "k": "a", "v": 3}, {"ts": 2, "tag": "r"}]
    stream = fl.Stream("all", {"v": sums.value, "r": sums.reset}, rows, tag_column="tag")
    assert fl.spec(sums, [stream]).output.to_pylist()[0]["total"] == 6


def test_what_can_be_imported_travels_by_name() -> None:
    data = pickling.dumps(PageViews)
    assert len(data) < 100
    assert pickling.loads(data) is PageViews


def test_what_can_not_be_sent_is_named() -> None:
    class Locked(fl.Program):
        tick = fl.Tag()
        depends = fl.depends((tick, tick))
        output = "n long"
        n = fl.Count()
        lock = threading.Lock()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.n += 1

    with pytest.raises(UsageError, match="lock") as caught:
        pickling.dumps(Locked)
    assert caught.value.condition == "NOT_PICKLABLE"


def test_a_module_that_the_workers_lack_is_named() -> None:
    data = pickling.dumps(PageViews).replace(b"flumina.apps.page_views", b"flumina.apps.page_vieww")
    with pytest.raises(UsageError, match="page_vieww") as caught:
        pickling.loads(data)
    assert caught.value.condition == "NOT_IMPORTABLE"


SUBCLASS = """
import sys
from flumina.apps.page_views import PageViews
from flumina.program import pickling

class Mine(PageViews):
    update_batch = None

sys.stdout.buffer.write(pickling.dumps(Mine))
"""


def test_a_subclass_of_what_can_be_imported_keeps_its_tags(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SUBCLASS, encoding="utf-8")
    mine = pickling.loads(subprocess.run([sys.executable, str(file)], capture_output=True, check=True).stdout)
    assert issubclass(mine, PageViews)
    assert fl.define(mine).tags == fl.define(PageViews).tags
