"""Copy a bundle to the box, piece by piece so that a broken copy goes on, and unpack it there.

Ansible's own copy begins anew after 60 of 65 GB, and rsync is missing on many rented boxes; this needs no more than the
connection that Ansible has.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from ansible.utils.display import Display

from ..module_utils.core.errors import one_problem
from ..module_utils.operate.offline_bundle import Manifest, read_manifest
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, TaskVars

PIECE = 256 << 20  # bytes that a break costs at most
_display = Display()


class ActionModule(FollowingAction):
    """`drafthouse.core.bundle`."""

    module = "drafthouse.core.bundle"
    looks_first = True

    def answer(self, variables: TaskVars) -> Answer:
        """Return the module's result; a box that holds the bundle already is asked once and sent nothing."""
        arguments = self._task.args
        bundle = Path(arguments["src"])
        manifest = read_manifest(bundle)
        arguments["id"] = manifest.id
        if self._connection.transport != "local" and not self._task.check_mode:
            looked = self._unchanged(dict(arguments), variables)
            if looked is not None:
                return looked
            arguments["src"] = self._sent(bundle, manifest, str(arguments["dest"]), variables)
            arguments["copied"] = True
        return super().answer(variables)

    def _sent(self, bundle: Path, manifest: Manifest, dest: str, variables: TaskVars) -> str:
        """Make the box have the whole file beside ``dest``; return its path there."""
        host = str(variables.get("inventory_hostname", ""))
        there = f"{dest}.{manifest.id[:16]}.tar"
        quoted = shlex.quote(there)
        # In Ansible's own folder: the login user may not write into the home of another that he becomes.
        piece = self._connection._shell.join_path(self._make_tmp_path(), "piece")
        self._shell(f"mkdir -p {shlex.quote(str(Path(dest).parent))} && touch {quoted}")
        size = bundle.stat().st_size
        has = int(self._shell(f"stat -c %s {quoted}") or 0)
        with bundle.open("rb") as stream, tempfile.NamedTemporaryFile(prefix="drafthouse-") as local:
            if has > size:
                self._shell(f": > {quoted}")
                has = 0
            stream.seek(has)
            while has < size:
                _display.display(f"  {host}: sending {bundle.name}, {has / 1e6:,.0f} of {size / 1e6:,.0f} MB")
                local.seek(0)
                local.truncate()
                has += local.write(stream.read(PIECE))
                local.flush()
                self._connection.put_file(local.name, piece)
                self._shell(f"cat {shlex.quote(piece)} >> {quoted} && rm {shlex.quote(piece)}")
        self._remove_tmp_path(self._connection._shell.tmpdir, force=True)
        return there

    def _shell(self, command: str) -> str:
        done = self._low_level_execute_command(command)
        if done.get("rc"):
            found = str(done.get("stderr") or done.get("stdout")).strip()
            raise one_problem(
                "bundle-not-unpacked", found, "space and permission for it on the box", "fix that, then run again"
            )
        return str(done.get("stdout")).strip()
