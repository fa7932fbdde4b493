"""Change Docker's `daemon.json` and restart the engine (the Docker daemon); if that fails, restore the old file.

A killed run is completed by the next one because of the order of the steps. First the record (a file beside
daemon.json) is opened: it holds the old text. Then the file is replaced atomically and the engine restarted. Only
when the engine answers is the record closed, that is, written without the old text. A run that finds an open record
restarts the engine and can restore the old text. Standard library only, Python 3.10; needs root and systemd.
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
from ...core.locks import take_lock
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
_LAST_LINES = 40  # of the engine's journal; the reason of a failed start is among them
_LOCK_WAIT_S = 300.0
# A line of the journal that may tell why the engine does not start.
_REASON = re.compile(
    r"failed to start daemon|unable to configure|level=(fatal|error)|^(fatal|error|panic)", re.IGNORECASE
)


@dataclass
class Applied:
    """Result of `Daemon.apply` for Ansible."""

    changed: bool = False
    restarted: bool = False
    left: list[str] = field(default_factory=list)  # keys of the likes (`daemon_json`) that gave way to the user's
    notes: list[str] = field(default_factory=list)  # sentences for the user
    backup: str = ""  # path of the old file's copy; '' without one
    before: str = ""  # text of the file before
    after: str = ""  # text of the file after
    seconds: float = 0.0  # duration


class Daemon:
    """The container engine of this machine and its daemon.json; ``unit`` is its systemd unit."""

    def __init__(self, path: str = DAEMON_JSON, timeout_s: float = 120.0, unit: str = "docker.service") -> None:
        self.path = Path(path)
        self.record_path = Path(path + RECORD_SUFFIX)
        self.timeout_s = timeout_s  # for a restart, until the engine answers
        self.unit = unit
        self.api = DockerApi(timeout_s=30.0)

    # --- the present state ----------------------------------------------------------------------------

    def text(self) -> str:
        """The text of daemon.json; "" if it does not exist. Raises DrafthouseError if it is invalid."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return ""
        daemon_json.parse(raw, str(self.path))  # validates the file
        return text_of(raw)

    def read_record(self) -> tuple[Settings, str | None]:
        """Our part of the settings, and the old text if the record is open, to restore on failure (else None)."""
        record = object_in(self.record_path)
        ours = record.get("ours")
        before = record.get("before")
        if not isinstance(ours, dict):  # as in a damaged record
            ours = {}
        if not isinstance(before, str):
            before = None
        return ours, before

    def flags(self) -> list[str]:
        """The engine's command line. dockerd does not start if a key of daemon.json is also among its flags."""
        return [word for word in command_of(self._pid())[1:] if word]

    # --- the change ---------------------------------------------------------------------------------

    def apply(self, wishes: Wishes, restart_busy: bool, check: bool, ctk: str = "nvidia-ctk") -> Applied:
        """Apply ``wishes`` to file and engine. Raises DrafthouseError.

        ``restart_busy`` permits stopping containers. With ``check`` nothing is changed, and the result says what would
        be. ``ctk`` is NVIDIA's tool, by name or path.
        """
        started = time.monotonic()
        if check:
            result = self._apply(wishes, restart_busy, check, ctk)
        else:
            with self._exclusive():
                result = self._apply(wishes, restart_busy, check, ctk)
        result.seconds = round(time.monotonic() - started, 1)
        return result

    def _apply(self, wishes: Wishes, restart_busy: bool, check: bool, ctk: str) -> Applied:
        """`apply` without the lock and the duration."""
        text = self.text()
        ours, old_text = self.read_record()
        info = self._info()
        program = shutil.which(ctk) or ""
        if wishes.nvidia and not program and not check:
            found = f"no {ctk}"
            needed = "the NVIDIA container toolkit"
            do = "install the package nvidia-container-toolkit"
            raise one_problem("nvidia-toolkit-missing", found, needed, do)
        plan = make_plan(text, ours, wishes, driver=info.get("LoggingDriver", ""), where=str(self.path), ctk=program)
        result = Applied(left=list(plan.left), before=plan.before, after=plan.after)
        # Likes alone, such as log rotation, are not worth stopping containers for.
        if plan.differs and not plan.needed and self._stopped_by_restart(info) and not restart_busy:
            result.after = result.before
            result.notes.append(
                f"log rotation and cgroup driver left as they are: they would restart an engine with "
                f"{info['ContainersRunning']} running containers (container_engine_restart=true allows it)"
            )
            plan = Plan(before=plan.before, after=plan.before, ours=ours, left=plan.left, needed=False)
        # An open record: an earlier run was killed, perhaps after it wrote the file and before it restarted the engine.
        needs_restart = old_text is not None and not self._took_effect()
        if not plan.differs and not needs_restart:
            if not info:  # the engine does not answer
                self._start(result, check)
            if not check and (old_text is not None or plan.ours != ours):
                self._write_record(plan.ours)
            return result
        self._refuse_harm(plan, info, restart_busy)
        self._validate(plan.after)
        result.changed = result.restarted = True
        if check:
            return result
        # The text that the engine started with; after a killed run that is the one in the record.
        working_text = plan.before if old_text is None else old_text
        result.backup = self._carry_out(plan, working_text, ours)
        self._confirm_data_root(wishes)
        return result

    def _carry_out(self, plan: Plan, working_text: str, ours: Settings) -> str:
        """Write the planned file, restart the engine, and close the record; return the path of the old file's copy.

        If the engine does not start, ``working_text`` and our part before the change are restored, and DrafthouseError
        is raised.
        """
        backup = self._write(plan, working_text)
        reason = self._restart()
        if reason:
            self._restore(working_text, ours, reason)
        self._write_record(plan.ours)
        return backup

    def take_out(self, check: bool) -> bool:
        """Remove our settings and the record after the engine was removed; return True if there was a record."""
        text = self.text()
        ours, _ = self.read_record()
        if not self.record_path.exists():
            return False
        if not check:
            remaining = daemon_json.without(daemon_json.parse(text.encode(), str(self.path)), ours)
            self._put(daemon_json.render(remaining, text) if remaining else "")
            self.record_path.unlink()
        return True

    def _start(self, result: Applied, check: bool) -> None:
        """Start an engine that does not answer, although its file needs no change. Raises DrafthouseError."""
        result.changed = result.restarted = True
        if check:
            return
        reason = self._restart()
        if reason:
            raise DrafthouseError(self._start_problem(reason))

    @staticmethod
    def _stopped_by_restart(info: EngineInfo) -> int:
        """The number of running containers that a restart would stop: none with Docker's setting live-restore."""
        return 0 if info.get("LiveRestoreEnabled") else int(info.get("ContainersRunning", 0))

    def _refuse_harm(self, plan: Plan, info: EngineInfo, restart_busy: bool) -> None:
        """Raise DrafthouseError if the restart would stop containers, or a new data root would hide their data."""
        problems = []
        running = self._stopped_by_restart(info)
        if running and not restart_busy:
            found = f"{running} running containers, which restarting the engine would stop"
            needed = f"a restart, for the change of {self.path}"
            do = "run again with -e container_engine_restart=true when they may stop, or stop them first"
            problems.append(Problem("containers-running", found, needed, do, str(self.path)))
        root = str(info.get("DockerRootDir", ""))
        old_root = _data_root(plan.before, self.path)
        new_root = _data_root(plan.after, self.path)
        stored_objects = int(info.get("Containers", 0)) + int(info.get("Images", 0))
        if stored_objects and old_root != new_root and os.path.realpath(new_root) != os.path.realpath(root):
            found = f"{info.get('Containers')} containers and {info.get('Images')} images in {root}"
            needed = f"the engine's data in {new_root}, where these would be missing"
            do = (
                f"move them: `systemctl stop docker docker.socket`, `rsync -aHAXS {root}/ {new_root}/`, "
                f'then write "data-root": "{new_root}" into {self.path}; '
                "or leave container_engine_data_root as it was"
            )
            problems.append(Problem("docker-data-would-be-hidden", found, needed, do, "container_engine_data_root"))
        if problems:
            raise DrafthouseError(problems)

    def _validate(self, text: str) -> None:
        """Let dockerd (23.0 or newer) validate the text with its flags. Raises DrafthouseError if it refuses.

        An older dockerd cannot; then only its restart shows whether it accepts the text.
        """
        dockerd = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin")
        if not dockerd or "--validate" not in run([dockerd, "--help"]).stdout:
            return
        flags = self.flags()
        config_file = option(flags, "--config-file")
        if config_file and Path(config_file) != self.path:
            found = f"an engine started with --config-file {config_file}"
            needed = f"one that reads {self.path}"
            do = "name that file in container_engine_daemon_json, or start the engine without the flag"
            raise one_problem("docker-settings-refused", found, needed, do, str(self.path))
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as copy:
            copy.write(text or "{}")
            copy.flush()
            completed = run([dockerd, "--validate", f"--config-file={copy.name}", *without(flags, "--config-file")])
        if completed.returncode != 0:
            message = last_line(completed.stderr or completed.stdout).replace(copy.name, self.path.name)
            found = f"dockerd refuses the new settings: {message}"
            needed = "settings that dockerd accepts"
            do = f"fix container_engine_settings or {self.path} (it was not changed)"
            raise one_problem("docker-settings-refused", found, needed, do, str(self.path))

    def _write(self, plan: Plan, working_text: str) -> str:
        """Back up the old file, open the record with ``working_text``, and write the new file; return the backup."""
        backup = ""
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if plan.differs and self.path.exists():
            backup = f"{self.path}.{time.strftime('%Y-%m-%d@%H:%M:%S')}~"
            shutil.copy2(self.path, backup)
        self._write_record(plan.ours, working_text)
        if plan.differs:
            self._put(plan.after)
        return backup

    def _put(self, text: str) -> None:
        """Replace daemon.json atomically; an empty text removes it."""
        if not text:
            self.path.unlink(missing_ok=True)
            return
        _replace(self.path, text)

    def _write_record(self, ours: Settings, before: str | None = None) -> None:
        """Write the record: open with the old text ``before``, closed with None. No new record is made for nothing."""
        data: dict[str, Json] = {"about": _ABOUT, "ours": ours}
        if before is not None:
            data["before"] = before
        if not ours and before is None and not self.record_path.exists():
            return
        _replace(self.record_path, json.dumps(data, indent=2) + "\n", 0o600)

    def _restore(self, working_text: str, ours: Settings, reason: str) -> None:
        """Restore ``working_text``, restart the engine, and raise DrafthouseError with the reason."""
        self._put(working_text)
        second_reason = self._restart()
        # The record again holds our part before the change. A later run drops values that the file lacks.
        self._write_record(ours)
        outcome = "the old file is back and the engine runs"
        if second_reason:
            outcome = f"the old file is back, and the engine does not start with it either: {second_reason}"
        found = f"an engine that does not restart after the change of {self.path}: {reason}"
        needed = "an engine that answers with the new settings"
        do = f"undo what it rejects (container_engine_settings, container_engine_data_root); {outcome}"
        raise one_problem("docker-not-answering", found, needed, do, str(self.path))

    def _confirm_data_root(self, wishes: Wishes) -> None:
        """Raise DrafthouseError if the engine does not use the wanted data root; other settings are not visible."""
        root = str(self.api.info().get("DockerRootDir", ""))
        if wishes.data_root and os.path.realpath(root) != os.path.realpath(wishes.data_root):
            found = f"an engine that keeps its data in {root}"
            needed = f"{wishes.data_root}, as {self.path} says"
            do = "check for another configuration of the engine: `systemctl cat docker`"
            raise one_problem("docker-settings-refused", found, needed, do, str(self.path))

    # --- the engine -----------------------------------------------------------------------------------

    def _restart(self) -> str:
        """Restart the engine and wait until it answers; return "" then, else the reason of the failure."""
        started = time.time()
        # After three failed starts within a minute systemd refuses further starts until this reset.
        run(["systemctl", "reset-failed", self.unit, "docker.socket"])
        try:
            completed = run(["systemctl", "restart", self.unit], self.timeout_s)
        except subprocess.TimeoutExpired:
            return f"it was not ready after {self.timeout_s:.0f} s. {self._journal(started)}".strip()
        if completed.returncode != 0:
            return self._journal(started) or last_line(completed.stderr)
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            if self.api.answers():
                return ""
            if self._unit_property("ActiveState") == "failed":
                return self._journal(started) or "it stopped again"
            time.sleep(0.2)
        return f"it did not answer within {self.timeout_s:.0f} s. {self._journal(started)}".strip()

    def _journal(self, since: float) -> str:
        """The last line with an error in the engine's journal since that unix time; "" if there is none.

        A line that says why the engine does not start goes before any other.
        """
        options = ["--since", f"@{int(since)}", "-o", "cat", "--no-pager", "-n", str(_LAST_LINES)]
        completed = run(["journalctl", "-u", self.unit, *options])
        last_error = start_error = ""
        for line in completed.stdout.splitlines():
            if not _REASON.search(line):
                continue
            last_error = line.strip()
            if "failed to start daemon" in line or "unable to configure" in line:
                start_error = last_error
        return daemon_json.redacted(start_error or last_error)[:500]

    def _info(self) -> EngineInfo:
        """The engine's settings and state; {} if it does not answer."""
        try:
            return self.api.info()
        except DrafthouseError:
            return {}

    def _start_problem(self, reason: str) -> Problem:
        """The problem that the engine does not start although its file was not changed."""
        found = f"the container engine does not start: {reason}"
        needed = "an engine that answers"
        do = "check `systemctl status docker` and `journalctl -u docker -n 50`, fix it, and run again"
        return Problem("docker-not-answering", found, needed, do, str(self.path))

    def _took_effect(self) -> bool:
        """True if the engine answers and was started more than 1 s after the last change of the file."""
        age_s = age_of(self._pid())
        if age_s is None or not self.path.exists():
            return False
        return self.api.answers() and time.time() - age_s > self.path.stat().st_mtime + 1.0

    def _pid(self) -> int:
        """The engine's process id; 0 if it does not run."""
        main_pid = self._unit_property("MainPID")
        return int(main_pid) if main_pid.isdigit() else 0

    def _unit_property(self, name: str) -> str:
        """A property of the engine's unit, as systemd writes it."""
        return run(["systemctl", "show", "--value", "-p", name, self.unit]).stdout.strip()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold a lock, so that a run that lost its connection but still works cannot write the file as well."""
        with Path(_LOCK).open("w") as lock:
            if not take_lock(lock, _LOCK_WAIT_S):
                found = f"another run has held {_LOCK} for {_LOCK_WAIT_S:.0f} s"
                needed = "exclusive use of the container engine"
                do = "wait for it, or stop it"
                raise one_problem("already-running", found, needed, do)
            yield


# --- files --------------------------------------------------------------------------------------------


def _replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Write ``text`` atomically. An existing file keeps its mode and owner."""
    if not path.exists():
        replace_file(path, text, mode)
        return
    status = path.stat()
    replace_file(path, text, status.st_mode & 0o7777)
    os.chown(path, status.st_uid, status.st_gid)


def _data_root(text: str, path: Path) -> str:
    """The engine's data folder according to the ``text`` of daemon.json."""
    settings = daemon_json.parse(text.encode(), str(path))
    return str(settings.get("data-root") or "/var/lib/docker")
