"""Docker's `daemon.json` changed on a box so that the engine comes back, or everything is as it was before.

The order is what makes a killed run converge: the record says what is about to happen and where the old file
lies, then the new file takes the old one's place in one step, then the engine is restarted, and only when it
answers is the record closed. Whoever finds an open record restarts the engine, and has the old file to put
back. Standard library only, Python 3.10; needs root and systemd.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.docker_api import DockerApi, EngineInfo
from ...core.documents import text_of
from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.files import object_in, replace_file
from ...core.locks import take
from ...core.procfs import age_of, command_of
from . import daemon_json
from .daemon_json import DAEMON_JSON, Settings
from .daemon_plan import Plan, Wishes, last_line, make_plan, run
from .dockerd_flags import option, without

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

RECORD_SUFFIX = ".drafthouse"
_LOCK = "/run/lock/drafthouse-docker.lock"
_ABOUT = "Which values of daemon.json beside this are Drafthouse's. Without this file they count as your own."
_LAST_LINES = 40  # of the engine's journal, among which the reason stands
_LOCK_WAIT_S = 300.0
_REASON = re.compile(
    r"failed to start daemon|unable to configure|level=(fatal|error)|^(fatal|error|panic)", re.IGNORECASE
)


@dataclass
class Done:
    """What was done, for Ansible's result."""

    changed: bool = False
    restarted: bool = False
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    backup: str = ""
    before: str = ""
    after: str = ""
    seconds: float = 0.0


class Daemon:
    """The engine of this box and its file."""

    def __init__(self, path: str = DAEMON_JSON, timeout_s: float = 120.0, unit: str = "docker.service") -> None:
        self.path = Path(path)
        self.record_path = Path(path + RECORD_SUFFIX)
        self.timeout_s, self.unit = timeout_s, unit
        self.api = DockerApi(timeout_s=30.0)

    # --- what is there ------------------------------------------------------------------------------

    def text(self) -> str:
        """The file's text; "" where there is no file."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return ""
        daemon_json.parse(raw, str(self.path))  # names what is wrong
        return text_of(raw)

    def read_record(self) -> tuple[Settings, str | None]:
        """Our part of the settings, and the text to put back after an unfinished change (else None)."""
        record = object_in(self.record_path)
        ours, before = record.get("ours"), record.get("before")
        if not isinstance(ours, dict):
            ours = {}
        if not isinstance(before, str):
            before = None
        return ours, before

    def flags(self) -> list[str]:
        """The words with which the engine was started: a key that is also among them keeps it from starting."""
        return [word for word in command_of(self._pid())[1:] if word]

    # --- the change ---------------------------------------------------------------------------------

    def apply(self, wishes: Wishes, restart_busy: bool, check: bool, ctk: str = "nvidia-ctk") -> Done:
        """Bring the file and the engine to what is wished; DrafthouseError where that is refused or has failed."""
        begun = time.monotonic()
        if check:
            done = self._apply(wishes, restart_busy, check, ctk)
        else:
            with self._alone():
                done = self._apply(wishes, restart_busy, check, ctk)
        done.seconds = round(time.monotonic() - begun, 1)
        return done

    def _apply(self, wishes: Wishes, restart_busy: bool, check: bool, ctk: str) -> Done:
        text = self.text()
        ours, pending = self.read_record()
        info = self._info()
        program = shutil.which(ctk) or ""
        if wishes.nvidia and not program and not check:
            raise one_problem(
                "nvidia-toolkit-missing",
                f"no {ctk}",
                "the NVIDIA container toolkit",
                "install the package nvidia-container-toolkit",
            )
        plan = make_plan(text, ours, wishes, info.get("LoggingDriver", ""), str(self.path), program)
        done = Done(left=list(plan.left), before=plan.before, after=plan.after)
        if plan.differs and not plan.needed and self._busy(info) and not restart_busy:
            done.after = done.before
            done.notes.append(
                f"log rotation and cgroup driver left as they are: they would restart an engine with "
                f"{info['ContainersRunning']} running containers (container_engine_restart=true allows it)"
            )
            plan = Plan(plan.before, plan.before, ours, plan.left, False)
        stale = pending is not None and not self._took_effect()
        if not plan.differs and not stale:
            return self._hold_running(done, bool(info), check, ours, plan.ours, pending)
        self._refuse_what_would_harm(plan, info, restart_busy)
        self._validate(plan.after)
        done.changed = done.restarted = True
        if check:
            return done
        good = plan.before if pending is None else pending
        done.backup = self._write(plan, good)
        reason = self._restart()
        if reason:
            self._restore(good, ours, reason)
        self._write_record(plan.ours)
        self._confirm(wishes)
        return done

    def take_out(self, check: bool) -> bool:
        """Take our values out of the file of an engine that is gone, and the record away; whether there were any."""
        text, (ours, _) = self.text(), self.read_record()
        if not self.record_path.exists():
            return False
        if not check:
            rest = daemon_json.without(daemon_json.parse(text.encode(), str(self.path)), ours)
            self._put(daemon_json.render(rest, text) if rest else "")
            self.record_path.unlink()
        return True

    def _hold_running(
        self, done: Done, answers: bool, check: bool, ours: Settings, now: Settings, pending: str | None
    ) -> Done:
        """See that the engine runs, whose file is as it should be, and close what is still open."""
        if not answers:
            done.changed = done.restarted = True
            if not check:
                reason = self._restart()
                if reason:
                    raise DrafthouseError(self._does_not_start(reason))
        if not check and (pending is not None or now != ours):
            self._write_record(now)
        return done

    @staticmethod
    def _busy(info: EngineInfo) -> int:
        """The number of containers that a restart would stop."""
        return 0 if info.get("LiveRestoreEnabled") else int(info.get("ContainersRunning", 0))

    def _refuse_what_would_harm(self, plan: Plan, info: EngineInfo, restart_busy: bool) -> None:
        problems = []
        busy = self._busy(info)
        if busy and not restart_busy:
            problems.append(
                Problem(
                    "containers-running",
                    f"{busy} running containers, which restarting the engine would stop",
                    f"a restart, for the change of {self.path}",
                    "run again with -e container_engine_restart=true when they may stop, or stop them first",
                    str(self.path),
                )
            )
        root = str(info.get("DockerRootDir", ""))
        now, then = _data_root(plan.before, self.path), _data_root(plan.after, self.path)
        stored = int(info.get("Containers", 0)) + int(info.get("Images", 0))
        if stored and now != then and os.path.realpath(then) != os.path.realpath(root):
            problems.append(
                Problem(
                    "docker-data-would-be-hidden",
                    f"{info.get('Containers')} containers and {info.get('Images')} images in {root}",
                    f"the engine's data in {then}, where these would be missing",
                    f"move them: `systemctl stop docker docker.socket`, `rsync -aHAXS {root}/ {then}/`, "
                    f'then write "data-root": "{then}" into {self.path}; or leave container_engine_data_root as it was',
                    "container_engine_data_root",
                )
            )
        if problems:
            raise DrafthouseError(problems)

    def _validate(self, text: str) -> None:
        """Let dockerd itself read the file, with the flags it is started with; dockerd can do so from 23.0 on."""
        dockerd = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin")
        if not dockerd or "--validate" not in run([dockerd, "--help"]).stdout:
            return
        flags = self.flags()
        other = option(flags, "--config-file")
        if other and Path(other) != self.path:
            raise one_problem(
                "docker-settings-refused",
                f"an engine started with --config-file {other}",
                f"one that reads {self.path}",
                "name that file in container_engine_daemon_json, or start the engine without the flag",
                str(self.path),
            )
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as copy:
            copy.write(text or "{}")
            copy.flush()
            done = run([dockerd, "--validate", f"--config-file={copy.name}", *without(flags, "--config-file")])
        if done.returncode != 0:
            words = last_line(done.stderr or done.stdout).replace(copy.name, self.path.name)
            raise one_problem(
                "docker-settings-refused",
                f"dockerd refuses the new settings: {words}",
                "settings that dockerd accepts",
                f"fix container_engine_settings or {self.path} (it was not changed)",
                str(self.path),
            )

    def _write(self, plan: Plan, good: str) -> str:
        """Put the new file in place, the old one beside it; return where the old one lies."""
        backup = ""
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if plan.differs and self.path.exists():
            backup = f"{self.path}.{time.strftime('%Y-%m-%d@%H:%M:%S')}~"
            shutil.copy2(self.path, backup)
        self._write_record(plan.ours, good)
        if plan.differs:
            self._put(plan.after)
        return backup

    def _put(self, text: str) -> None:
        """Replace the file in one step; none is there for an empty text."""
        if not text:
            self.path.unlink(missing_ok=True)
            return
        _replace(self.path, text)

    def _write_record(self, ours: Settings, before: str | None = None) -> None:
        data: dict[str, Json] = {"about": _ABOUT, "ours": ours}
        if before is not None:
            data["before"] = before
        if not ours and before is None and not self.record_path.exists():
            return
        _replace(self.record_path, json.dumps(data, indent=2) + "\n", 0o600)

    def _restore(self, good: str, ours: Settings, reason: str) -> None:
        """Put the file back that the engine ran with, start it, and say why."""
        self._put(good)
        again = self._restart()
        # What the good text holds is ours as before; a value that is not in it falls out of the record by itself.
        self._write_record(ours)
        state = "the old file is back and the engine runs"
        if again:
            state = f"the old file is back, and the engine does not start with it either: {again}"
        raise one_problem(
            "docker-not-answering",
            f"an engine that does not restart after the change of {self.path}: {reason}",
            "an engine that answers with the new settings",
            f"undo what it rejects (container_engine_settings, container_engine_data_root); {state}",
            str(self.path),
        )

    def _confirm(self, wishes: Wishes) -> None:
        """See that the engine really took the settings that can be seen from outside."""
        root = str(self.api.info().get("DockerRootDir", ""))
        if wishes.data_root and os.path.realpath(root) != os.path.realpath(wishes.data_root):
            raise one_problem(
                "docker-settings-refused",
                f"an engine that keeps its data in {root}",
                f"{wishes.data_root}, as {self.path} says",
                "check for another configuration of the engine: `systemctl cat docker`",
                str(self.path),
            )

    # --- the engine -----------------------------------------------------------------------------------

    def _restart(self) -> str:
        """Restart the engine and wait until it answers; return why it does not, "" when it does."""
        begun = time.time()
        # Three failed starts in a minute, and systemd starts the unit no more until it is told so.
        run(["systemctl", "reset-failed", self.unit, "docker.socket"])
        try:
            done = run(["systemctl", "restart", self.unit], self.timeout_s)
        except subprocess.TimeoutExpired:
            return f"it was not ready after {self.timeout_s:.0f} s. {self._journal(begun)}".strip()
        if done.returncode != 0:
            return self._journal(begun) or last_line(done.stderr)
        until = time.monotonic() + self.timeout_s
        while time.monotonic() < until:
            if self.api.answers():
                return ""
            if self._property("ActiveState") == "failed":
                return self._journal(begun) or "it stopped again"
            time.sleep(0.2)
        return f"it did not answer within {self.timeout_s:.0f} s. {self._journal(begun)}".strip()

    def _journal(self, since: float) -> str:
        """The engine's own reason from its journal, on one line."""
        words = ["--since", f"@{int(since)}", "-o", "cat", "--no-pager", "-n", str(_LAST_LINES)]
        done = run(["journalctl", "-u", self.unit, *words])
        last_error = start_error = ""
        for line in done.stdout.splitlines():
            if not _REASON.search(line):
                continue
            last_error = line.strip()
            if "failed to start daemon" in line or "unable to configure" in line:
                start_error = last_error
        return daemon_json.shown(start_error or last_error)[:500]

    def _info(self) -> EngineInfo:
        try:
            return self.api.info()
        except DrafthouseError:
            return {}

    def _does_not_start(self, reason: str) -> Problem:
        return Problem(
            "docker-not-answering",
            f"the container engine does not start: {reason}",
            "an engine that answers",
            "check `systemctl status docker` and `journalctl -u docker -n 50`, fix it, and run again",
            str(self.path),
        )

    def _took_effect(self) -> bool:
        """Tell whether the engine was started after the file was last written."""
        age_s = age_of(self._pid())
        if age_s is None or not self.path.exists():
            return False
        return self.api.answers() and time.time() - age_s > self.path.stat().st_mtime + 1.0

    def _pid(self) -> int:
        """The engine's process; 0, which none has, where it does not run."""
        main_pid = self._property("MainPID")
        return int(main_pid) if main_pid.isdigit() else 0

    def _property(self, name: str) -> str:
        return run(["systemctl", "show", "--value", "-p", name, self.unit]).stdout.strip()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for a run that was cut off but still works on the box: two must not write the file."""
        with Path(_LOCK).open("w") as lock:
            if not take(lock, _LOCK_WAIT_S):
                raise one_problem(
                    "already-running",
                    f"another run has held {_LOCK} for {_LOCK_WAIT_S:.0f} s",
                    "exclusive use of the container engine",
                    "wait for it, or stop it",
                )
            yield


# --- small things -------------------------------------------------------------------------------------


def _replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Write ``text`` in one step; a file that is there keeps its mode and its owner."""
    if not path.exists():
        replace_file(path, text, mode)
        return
    before = path.stat()
    replace_file(path, text, before.st_mode & 0o7777)
    os.chown(path, before.st_uid, before.st_gid)


def _data_root(text: str, path: Path) -> str:
    """Where the engine keeps its data according to the file."""
    settings = daemon_json.parse(text.encode(), str(path))
    return str(settings.get("data-root") or "/var/lib/docker")
