"""List, show and verify the snapshots of a checkpoint: ``flumina checkpoint``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from flumina.checkpoint.store.batches import verify_sink
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import EpochManifest
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.checkpoint.store.verify import verify_log
from flumina.errors import CheckpointError, PlanError, UsageError
from flumina.formatting import size, table
from flumina.plan.render.json import from_json
from flumina.plan.render.text import to_text

_HELP = """\
examples:

  flumina checkpoint ls totals.checkpoint
  flumina checkpoint show totals.checkpoint 17
  flumina checkpoint verify s3://bucket/totals.checkpoint --json
  flumina checkpoint verify query.checkpoint --sink

exit codes: 0 success; 1 a file is damaged; 2 there is no checkpoint, or the call is invalid
"""

_DAMAGE = ("CHECKPOINT_DAMAGED", "CHECKPOINT_MISSING_FILE")


def add_parser(subparsers: Any) -> None:  # noqa: ANN401 -- argparse has no public name for it
    """Add ``checkpoint`` to the commands of ``flumina``."""
    parser = subparsers.add_parser(
        "checkpoint",
        help="list, show or verify the snapshots of a checkpoint",
        description="List, show or verify the snapshots of a checkpoint. Its files are only read.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, action, help_text in (
        ("ls", _ls, "list the snapshots"),
        ("show", _show, "show the details of one snapshot"),
        ("verify", _verify, "read every file and verify its checksum"),
    ):
        one = actions.add_parser(
            name,
            help=help_text,
            description=help_text.capitalize() + ".",
            epilog=f"example: flumina checkpoint {name} totals.checkpoint",
        )
        one.add_argument("path", help="the folder of the checkpoint, or its URI")
        if name == "show":
            one.add_argument("number", nargs="?", type=int, help="number of the snapshot (default: the latest)")
        if name == "verify":
            one.add_argument(
                "--sink",
                nargs="?",
                const="",
                metavar="DIR",
                help="for a streaming query: verify the files of its sink, too (default: the folder it wrote to)",
            )
        one.add_argument("--json", action="store_true", help="print JSON instead of text")
        one.set_defaults(run=run, action=action)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns 1 if a file is damaged."""
    store = Checkpoints(args.path)
    args.log = None
    if {"log", "state"} <= set(store.folder.names()):  # the checkpoint of a streaming query
        args.log = store.folder.below("log")
        store = Checkpoints(f"{args.path.rstrip('/')}/state")
    if not store.folder.names():
        raise UsageError(
            "NO_CHECKPOINT", f"{args.path} does not exist, or is empty", hint="name the folder of a checkpoint"
        )
    try:
        code: int = args.action(store, args)
    except CheckpointError as error:
        if error.condition not in _DAMAGE:
            raise
        print(f"flumina: {error}", file=sys.stderr)
        return 1
    return code


def _ls(store: Checkpoints, args: argparse.Namespace) -> int:
    store.check_ours(store.folder.listing())
    found = list(store.each())
    wrong = [error for _, error in found if isinstance(error, CheckpointError)]
    try:
        latest = store.latest()
    except CheckpointError as error:
        latest, wrong = None, [error, *wrong]
    place = None if latest is None else latest.manifest.snapshot_id
    if args.json:
        rows = [
            {"number": at.number, "term": at.term, "latest": at == place, **_summary(snapshot)}
            for at, snapshot in found
        ]
        print(json.dumps(rows, indent=1))
    elif not found:
        print("no snapshot was committed yet")
    else:
        head = ["", "number", "term", "created (UTC)", "up to", "events", "state", "rows", "finished"]
        cells = [["*" if at == place else "", str(at.number), str(at.term), *_cells(one)] for at, one in found]
        print(table([head, *cells]))
    for message in dict.fromkeys(map(str, wrong)):
        print(f"flumina: {message}", file=sys.stderr)
    return 1 if wrong else 0


def _summary(snapshot: Snapshot | CheckpointError) -> dict[str, Any]:
    if isinstance(snapshot, CheckpointError):
        return {"damaged": snapshot.message}
    manifest = snapshot.manifest
    return {
        "created": manifest.created.isoformat(),
        "end": manifest.end,
        "events": manifest.events,
        "state_size": manifest.state_size,
        "rows": manifest.rows,
        "finished": manifest.finished,
        "damaged": None,
    }


def _cells(snapshot: Snapshot | CheckpointError) -> list[str]:
    if isinstance(snapshot, CheckpointError):
        return ["damaged", "", "", "", "", ""]
    manifest = snapshot.manifest
    return [
        f"{manifest.created:%Y-%m-%d %H:%M:%S}",
        "" if manifest.end is None else str(manifest.end),
        f"{manifest.events:,}",
        size(manifest.state_size),
        _rows(manifest.rows),
        "yes" if manifest.finished else "no",
    ]


def _show(store: Checkpoints, args: argparse.Namespace) -> int:
    snapshot = store.latest() if args.number is None else store.at(args.number)
    if snapshot is None:
        raise UsageError("NO_SNAPSHOT", f"{args.path} has no snapshot: nothing was committed yet")
    if args.json:
        print(json.dumps(snapshot.manifest.to_json(), indent=1))
    else:
        print("\n".join(_described(snapshot.manifest)))
    return 0


def _described(manifest: EpochManifest) -> Iterator[str]:
    yield f"snapshot {manifest.number} of term {manifest.term}"
    before = manifest.parent
    lines = {
        "created": f"{manifest.created:%Y-%m-%d %H:%M:%S} UTC by flumina {manifest.flumina}",
        "run": manifest.run,
        "after": "nothing" if before is None else f"snapshot {before.number} of term {before.term}",
        "up to": "" if manifest.end is None else f"timestamp {manifest.end}",
        "events": f"{manifest.events:,}",
        "finished": "yes" if manifest.finished else "no",
        "outputs in": manifest.outputs.folder or "",
    }
    yield from (f"  {name:<13} {text}" for name, text in lines.items() if text)
    for file in manifest.state:
        trees = f", of {', '.join(tree for tree, _ in file.tree_sizes)}" if file.tree_sizes else ""
        yield f"  {'state':<13} {file.name}, {size(file.size)}{trees}"
    for name in dict.fromkeys(file.output for file in manifest.outputs.files):
        mine = [file for file in manifest.outputs.files if file.output == name]
        files, bytes_ = f"{len(mine)} file{'' if len(mine) == 1 else 's'}", sum(file.size for file in mine)
        yield f"  {'output':<13} {name}: {sum(file.rows for file in mine):,} rows in {files}, {size(bytes_)}"
    content = manifest.to_json()
    yield from ("input", *_nested(content["inputs"]))
    yield from ("outputs", *_nested({name: content["outputs"][name] for name in ("rows", "last")}))
    if manifest.fingerprint:
        yield from ("program", *_nested(manifest.fingerprint))
    if manifest.plan is not None:
        yield "plan"
        yield from (f"  {line}" for line in _drawn(manifest.plan).splitlines())


def _drawn(plan: str) -> str:
    try:
        return to_text(from_json(plan))
    except PlanError as error:
        return f"can't be drawn: {error.message}"


def _nested(content: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    """Yield the lines of nested values; a mapping of plain values takes one line."""
    for name, value in content.items():
        if not isinstance(value, Mapping):
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            yield f"{indent}{name}: {'none' if text is None else text}"
        elif value and not any(isinstance(inner, Mapping) for inner in value.values()):
            yield f"{indent}{name}: {', '.join(f'{k} {_plain(v)}' for k, v in value.items())}"
        elif value:
            yield f"{indent}{name}:"
            yield from _nested(value, indent + "  ")


def _plain(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


def _verify(store: Checkpoints, args: argparse.Namespace) -> int:
    findings = store.verify() + ([] if args.log is None else verify_log(args.log))
    if args.sink is not None:
        findings += verify_sink(store, args.sink or None)
    damaged = [finding for finding in findings if finding.damaged]
    if args.json:
        found = [{"file": f.file, "what": f.what, "damaged": f.damaged} for f in findings]
        print(json.dumps({"path": args.path, "damaged": bool(damaged), "findings": found}, indent=1))
    else:
        for finding in findings:
            print(f"{'DAMAGED' if finding.damaged else 'note   '} {finding.file}: {finding.what}")
        count = len(store.folder.listing().snapshot_ids)
        snapshots = f"{count} snapshot{'' if count == 1 else 's'}"
        print(f"{snapshots}, {f'{len(damaged)} damaged' if damaged else 'nothing is damaged'}")
    return 1 if damaged else 0


def _rows(rows: Mapping[str, int]) -> str:
    return " ".join(f"{name} {count:,}" for name, count in rows.items())
