"""Looking at processes, as /proc shows them."""

from pathlib import Path


def children(parent: int) -> dict[int, str]:
    """The children of a process and theirs, with their command lines; those that have ended do not count."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, ValueError):
                continue  # gone meanwhile
            if state != "Z":
                parents[int(folder.name)] = (int(above), command)
    found: dict[int, str] = {}
    level = {parent}
    while level:
        level = {pid for pid, (above, _) in parents.items() if above in level}
        found |= {pid: parents[pid][1] for pid in level}
    return found
