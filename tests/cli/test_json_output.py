import subprocess
import sys

import pytest

from flumina.cli.json_output import json_output


def test_a_document_among_others(capsys: pytest.CaptureFixture[str]) -> None:
    with json_output(alone=False) as shown:
        print("of a program")
        print("the document", file=shown)
    assert capsys.readouterr().out == "of a program\nthe document\n"


def test_a_document_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with json_output(alone=True) as shown:
        print("of a program")
        print("the document", file=shown)
        subprocess.run([sys.executable, "-c", "print('of a process')"], check=True)
    print("and later")
    found = capfd.readouterr()
    assert found.out == "the document\nand later\n"
    assert sorted(found.err.splitlines()) == ["of a process", "of a program"]
    assert sys.stdout is before


KEPT = """
import sys
from flumina.cli.json_output import json_output
kept = sys.stdout
with json_output(alone=True) as shown:
    print("of who had it before", file=kept)
    print("the document", file=shown)
"""


def test_who_has_kept_stdout_from_before_does_not_write_to_it() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    assert done.stdout == "the document\n"
    assert done.stderr == "of who had it before\n"


def test_after_an_error_there_is_no_document_and_all_is_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), json_output(alone=True) as shown:  # noqa: PT012
        print("half of it", file=shown)
        print(1 // 0)
    print("and later")
    assert capfd.readouterr().out == "and later\n"
