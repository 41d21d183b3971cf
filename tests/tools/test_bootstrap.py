import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import bootstrap
from tools.bootstrap import Java, Project, SetupError

TOOLS = Path(bootstrap.__file__).parent


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    """A home whose `java` describes itself as a real one does: on stderr, among other properties."""
    script(
        home / "bin" / "java",
        f"""cat >&2 <<'END'
Property settings:
    java.class.version = 61.0
    java.home = {home}
    java.specification.name = Java Platform API Specification
    java.specification.version = {version}
    java.vm.specification.version = 99

openjdk version "{version}.0.1" 2025-01-01
END""",
    )
    return home


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A working copy with made-up locks and an empty `.venv`."""
    project = Project(tmp_path)
    (tmp_path / "tools").mkdir()
    project.venv.mkdir()
    project.pyproject.write_text('[project]\nname = "x"\n[tool.ruff]\nline-length = 110\n')
    for lock in (project.main_lock, project.build_lock, project.java_lock, project.docs_lock):
        lock.write_text("a==1\n")
    return project


class TestInspectJava:
    @pytest.mark.parametrize(("says", "version"), [("1.8", 8), ("11", 11), ("17", 17), ("25", 25)])
    def test_home_and_version(self, tmp_path: Path, says: str, version: int) -> None:
        home = fake_java(tmp_path / "a java", says)
        assert bootstrap.inspect_java(home / "bin" / "java") == Java(home, version)

    def test_missing(self, tmp_path: Path) -> None:
        assert bootstrap.inspect_java(tmp_path / "java") is None

    @pytest.mark.parametrize("does", ["echo 'no java here' >&2; exit 1", "echo '  java.home = /x' >&2"])
    def test_something_else(self, tmp_path: Path, does: str) -> None:
        assert bootstrap.inspect_java(script(tmp_path / "java", does)) is None


class TestFindJava:
    @pytest.mark.parametrize("version", ["17", "21"])
    def test_java_home_comes_before_path(self, tmp_path: Path, version: str) -> None:
        home = fake_java(tmp_path / "home", version)
        other = fake_java(tmp_path / "other", "17")
        environ = {"JAVA_HOME": str(home), "PATH": f"{other}/bin:{os.environ['PATH']}"}
        assert bootstrap.find_java(environ) == home

    def test_java_home_keeps_a_wrapper(self, tmp_path: Path) -> None:
        home = fake_java(tmp_path / "real", "21")
        wrapper = script(tmp_path / "own" / "bin" / "java", bootstrap.java_wrapper(home / "bin" / "java"))
        own = wrapper.parent.parent
        assert bootstrap.find_java({"JAVA_HOME": str(own), "PATH": ""}) == own

    @pytest.mark.parametrize("version", ["1.8", "11", "25"])
    def test_unsupported_java_home_is_refused(self, tmp_path: Path, version: str) -> None:
        home = fake_java(tmp_path, version)
        major = version.removeprefix("1.")
        with pytest.raises(SetupError, match=f"^JAVA_HOME={home} is Java {major}: set it to Java 17 or 21"):
            bootstrap.find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})

    def test_empty_java_home_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SetupError, match="has no working bin/java: set it to Java 17 or 21"):
            bootstrap.find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})

    @pytest.mark.parametrize("version", ["17", "21"])
    def test_path(self, tmp_path: Path, version: str) -> None:
        home = fake_java(tmp_path, version)
        assert bootstrap.find_java({"JAVA_HOME": "", "PATH": f"{home}/bin:{os.environ['PATH']}"}) == home

    def test_unsupported_java_on_path_is_passed_over(self, tmp_path: Path) -> None:
        home = fake_java(tmp_path, "25")
        assert bootstrap.find_java({"PATH": f"{home}/bin:{os.environ['PATH']}"}) is None

    def test_no_java(self, tmp_path: Path) -> None:
        assert bootstrap.find_java({"PATH": str(tmp_path)}) is None


class TestJavaWrapper:
    def arguments_passed(self, tmp_path: Path, *arguments: str) -> list[str]:
        real = script(tmp_path / "the real" / "java", """printf '%s\\0' "$#" "$@" """)
        wrapper = script(tmp_path / "java", bootstrap.java_wrapper(real))
        output = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True).stdout
        count, *passed = output.removesuffix("\0").split("\0")
        assert int(count) == len(passed)
        return passed

    def test_drops_the_flag_only(self, tmp_path: Path) -> None:
        kept = ["-cp", "a b:*", "", "--add-modules=jdk.incubator.vector,java.sql", "--add-modules=ALL-SYSTEM"]
        kept += ["-Dq='\"$HOME\"'", "-n", "Main", "two\nlines"]
        flag = bootstrap.DROPPED_JAVA_FLAG
        assert self.arguments_passed(tmp_path, flag, *kept[:4], flag, *kept[4:], flag) == kept

    def test_no_arguments(self, tmp_path: Path) -> None:
        assert self.arguments_passed(tmp_path) == []

    def test_becomes_the_real_java(self, tmp_path: Path) -> None:
        wrapper = script(tmp_path / "java", bootstrap.java_wrapper(script(tmp_path / "real", "echo $$; exit 7")))
        with subprocess.Popen([wrapper], stdout=subprocess.PIPE, text=True) as process:
            output, _ = process.communicate()
        assert (int(output), process.returncode) == (process.pid, 7)


class TestStamp:
    def test_absent(self, project: Project) -> None:
        assert not project.is_set_up()

    def test_present(self, project: Project) -> None:
        bootstrap.write_whole(project.stamp, project.fingerprint())
        assert project.is_set_up()

    @pytest.mark.parametrize("lock", ["main_lock", "build_lock", "java_lock"])
    def test_changed_lock(self, project: Project, lock: str) -> None:
        bootstrap.write_whole(project.stamp, project.fingerprint())
        getattr(project, lock).write_text("a==2\n")
        assert not project.is_set_up()

    def test_changed_project_table(self, project: Project) -> None:
        bootstrap.write_whole(project.stamp, project.fingerprint())
        project.pyproject.write_text(project.pyproject.read_text().replace('"x"', '"y"'))
        assert not project.is_set_up()

    def test_changed_settings_of_a_linter_are_no_reason(self, project: Project) -> None:
        bootstrap.write_whole(project.stamp, project.fingerprint())
        project.pyproject.write_text(project.pyproject.read_text().replace("110", "100"))
        assert project.is_set_up()

    def test_other_python(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        bootstrap.write_whole(project.stamp, project.fingerprint())
        monkeypatch.setattr(sys, "version", "3.12.0")
        assert not project.is_set_up()

    def test_moved_folder(self, project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
        bootstrap.write_whole(project.stamp, project.fingerprint())
        moved = shutil.copytree(project.root, tmp_path_factory.mktemp("moved") / "copy")
        assert not Project(moved).is_set_up()


class TestSetUp:
    @pytest.fixture
    def lock(self, project: Project) -> Iterator[int]:
        lock = bootstrap.open_lock(project)
        yield lock
        os.close(lock)

    @pytest.fixture
    def steps(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
        """The commands that a set-up would have run."""
        steps: list[tuple[str, ...]] = []
        monkeypatch.setattr(bootstrap, "run", lambda *command: steps.append(command))
        return steps

    def test_happens_once(self, project: Project, lock: int, tmp_path: Path, steps: list[tuple[str, ...]]) -> None:
        environ = {"JAVA_HOME": str(fake_java(tmp_path / "java", "17"))}
        for _ in range(2):
            assert bootstrap.set_up(project, environ, lock) == tmp_path / "java"
            assert [step[1:3] for step in steps] == [("-m", "venv"), *[("-m", "pip")] * 3]

    def test_docs_are_added_for_those_who_ask(
        self, project: Project, lock: int, tmp_path: Path, steps: list[tuple[str, ...]]
    ) -> None:
        environ = {"JAVA_HOME": str(fake_java(tmp_path / "java", "17"))}
        bootstrap.set_up(project, environ, lock)
        steps.clear()
        for _ in range(2):  # once for both
            bootstrap.set_up(project, environ, lock, docs=True)
            assert [step[-1] for step in steps] == [str(project.docs_lock)]
        project.docs_lock.write_text("a==2\n")
        bootstrap.set_up(project, environ, lock)
        assert len(steps) == 1, "who does not ask does not wait"
        bootstrap.set_up(project, environ, lock, docs=True)
        assert len(steps) == 2

    def test_is_repeated_after_a_failure(
        self, project: Project, lock: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environ = {"JAVA_HOME": str(fake_java(tmp_path / "java", "17"))}
        bootstrap.write_whole(project.stamp, "of an older set-up")
        monkeypatch.setattr(bootstrap, "real_interpreter", lambda: "/bin/false")
        for _ in range(2):
            with pytest.raises(SetupError, match=r"^`/bin/false -m venv --clear .*` failed: "):
                bootstrap.set_up(project, environ, lock)
            assert not project.stamp.exists()

    def test_uses_its_own_java_for_want_of_another(self, project: Project, lock: int, steps: object) -> None:
        fake_java(project.own_java_home, "21")
        assert bootstrap.set_up(project, {"PATH": ""}, lock) == project.own_java_home

    def test_waits_for_commands_that_use_it(
        self, project: Project, lock: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        user = bootstrap.open_lock(project)
        bootstrap.acquire(user, fcntl.LOCK_SH)
        bootstrap.acquire(lock, fcntl.LOCK_SH)  # several may use it at a time
        assert capfd.readouterr().err == ""
        waiter = threading.Thread(target=bootstrap.acquire, args=(lock, fcntl.LOCK_EX))
        waiter.start()
        waiter.join(0.05)
        assert waiter.is_alive()
        os.close(user)
        waiter.join()
        assert capfd.readouterr().err.startswith("flumina: waiting for another command")

    def test_python_without_venv(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(SetupError, match=rf"install the package python3\.{sys.version_info.minor}-venv"):
            bootstrap.create_venv(project)


def test_environment(project: Project) -> None:
    given = {"PATH": "/bin", "HOME": "/home/me", "SPARK_HOME": "/opt/other-spark", "PYTHONPATH": "/elsewhere"}
    venv = project.root / ".venv"
    assert bootstrap.environment(project, Path("/java"), given) == {
        "PATH": f"{venv}/bin:/bin",
        "HOME": "/home/me",
        "VIRTUAL_ENV": str(venv),
        "JAVA_HOME": "/java",
        "PYSPARK_PYTHON": f"{venv}/bin/python",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class TestWithEnv:
    """The choice of a Python, with fakes that have a version and print how they were called."""

    def call(self, tmp_path: Path, pythons: dict[str, str], chosen: str = "") -> subprocess.CompletedProcess[str]:
        tools = tmp_path / "tools"
        shutil.copytree(TOOLS, tools, ignore=shutil.ignore_patterns("__pycache__"))
        for name, version in pythons.items():
            pretend = f'{sys.executable} -ISc "import sys; sys.version_info = ({version}, 0); $2"'
            script(tmp_path / name, f'if [ "$1" = -ISc ]; then {pretend}; else echo "$0" "$@"; fi')
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": chosen}
        command = [str(tools / "with-env"), "some", "command"]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    @pytest.mark.parametrize(
        ("pythons", "expected"),
        [
            ({"python3.11": "3, 11", "python3.12": "3, 12"}, "python3.11"),
            ({"python3.11": "3, 9", "python3.12": "3, 12"}, "python3.12"),
            ({"python3.11": "3, 11", ".venv/bin/python": "3, 13"}, ".venv/bin/python"),
            ({"python3.11": "3, 11", ".venv/bin/python": "3, 14"}, "python3.11"),
        ],
    )
    def test_first_supported(self, tmp_path: Path, pythons: dict[str, str], expected: str) -> None:
        python, *arguments = self.call(tmp_path, pythons).stdout.split()
        assert Path(python).resolve() == tmp_path / expected
        assert arguments == ["-IS", str(tmp_path / "tools" / "bootstrap.py"), "some", "command"]

    def test_chosen(self, tmp_path: Path) -> None:
        pythons = {"my python": "3, 12", "python3.11": "3, 11"}
        assert self.call(tmp_path, pythons, f"{tmp_path}/my python").stdout.startswith(f"{tmp_path}/my python")

    @pytest.mark.parametrize("version", ["2, 7", "3, 10", "3, 14"])
    def test_unsupported_choice_is_refused(self, tmp_path: Path, version: str) -> None:
        result = self.call(tmp_path, {"mine": version, "python3.11": "3, 11"}, "mine")
        assert result.returncode == 1
        assert result.stderr.splitlines() == [
            "flumina: PYTHON=mine is not Python 3.11, 3.12 or 3.13: name one that is, or none."
        ]

    def test_none_at_all_is_refused(self, tmp_path: Path) -> None:
        unsupported = dict.fromkeys(["python3.11", "python3.12", "python3.13", "python3"], "3, 14")
        result = self.call(tmp_path, unsupported)
        assert result.returncode == 1
        assert result.stderr.splitlines() == [
            "flumina: no Python 3.11, 3.12 or 3.13 is on PATH: install one, or name one with PYTHON=."
        ]
