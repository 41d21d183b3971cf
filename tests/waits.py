"""Find every call in the source that can wait, to be compared with the table in ``waits.toml``.

A wait that nothing wakes and nothing bounds is a hang; so the table lists for each one what wakes it, what bounds it,
and the test that shows it. Calls are found by their form: ``Thread.join()`` takes no argument or a time, ``str.join``
takes what is to be joined.
"""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("waits.toml")

ALWAYS = {
    "accept",
    "acquire",
    "allGather",
    "awaitTermination",
    "barrier",
    "collect",
    "communicate",
    "do_handshake",
    "flock",
    "recv",
    "recv_bytes",
    "recv_into",
    "shake_hands",
    "sleep",
    "toArrow",
    "wait",
    "wait_for",
    "waitpid",
}
"""Methods and functions that wait, whatever they are called on."""

LOOK_ALIKES = {"_reviving.get", "_init.get", "BarrierTaskContext.get", "child.collect", "self.collect"}
"""Calls that have the form of a wait and are none: a context variable, Spark's context, a worker's own method."""

SCALARS = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.Call, ast.IfExp)
TIMES = ("deadline", "timeout", "left", "seconds")


@dataclass(frozen=True, order=True)
class Wait:
    """A call that can wait: the function it is in, and the called expression as it is written."""

    where: str
    call: str


def is_wait(call: ast.Call) -> bool:
    """Whether a call has the form of one that waits."""
    if not isinstance(call.func, ast.Attribute):
        return False
    name, receiver = call.func.attr, ast.unparse(call.func.value)
    keywords = {keyword.arg for keyword in call.keywords}
    if name in ALWAYS:
        return True
    if name == "join":
        is_text = isinstance(call.func.value, ast.Constant | ast.JoinedStr)
        timed = keywords <= {"timeout"} and (not call.args or (len(call.args) == 1 and _is_time(call.args[0])))
        return timed and not is_text and not receiver.endswith(("sep", "Path"))
    if name == "select":
        return receiver in {"select", "selector"} or receiver.endswith((".selector", "_selector"))
    if name == "get":
        return not call.args
    if name == "put":
        return receiver.endswith("queue")
    if name == "read":
        return receiver in {"os", "pipe"}
    return False


def _is_time(node: ast.expr) -> bool:
    """Whether an argument of ``join`` is a number of seconds: a number, or a constant, deadline or timeout by name."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    text = ast.unparse(node)
    return isinstance(node, SCALARS) and (text.isupper() or any(word in text.lower() for word in TIMES))


def found(root: Path) -> Iterator[Wait]:
    """All waits below a folder of modules."""
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        yield from _inside(ast.parse(path.read_text(encoding="utf-8")), module, ())


def _inside(node: ast.AST, module: str, names: tuple[str, ...]) -> Iterator[Wait]:
    for child in ast.iter_child_nodes(node):
        inner = names
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*names, child.name)
        if isinstance(child, ast.Call) and is_wait(child) and ast.unparse(child.func) not in LOOK_ALIKES:
            yield Wait(f"{module}:{'.'.join(names)}", ast.unparse(child.func))
        yield from _inside(child, module, inner)


def listed() -> list[dict[str, str]]:
    """The rows of the table."""
    rows: list[dict[str, str]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["wait"]
    return rows
