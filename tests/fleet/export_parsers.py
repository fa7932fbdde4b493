"""Read files with a tool's own parser: run by the Python that has the tool, one process for all files.

`python export_parsers.py TOOL < FILES`: FILES is JSON, a name to a text; the answer is JSON, a name to null or to what
the parser said.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

KUBERNETES = "1.37"
#: Of the Prometheus Operator, whose schema is none of Kubernetes'.
NOT_KUBERNETES = ("ServiceMonitor",)


def skypilot() -> Callable[[str], None]:
    task, yaml = importlib.import_module("sky").Task, importlib.import_module("yaml")
    key = "DRAFTHOUSE_API_KEY"

    def read(text: str) -> None:
        data = yaml.safe_load(text)
        # As `sky serve up --secret` hands it over; one that stands in the file stays.
        told = [(key, "told-on-the-command-line")] if (data.get("secrets") or {}).get(key) is None else None
        post_data = data["service"]["readiness_probe"]["post_data"]
        service = task.from_yaml_config(data, None, told).service
        # It fills in variables of the task, and finds none of its own in what it posts.
        assert service.post_data == json.loads(post_data)

    return read


def dstack() -> Callable[[str], None]:
    models = importlib.import_module("dstack._internal.core.models.configurations")
    yaml = importlib.import_module("yaml")
    interpolator = importlib.import_module("dstack._internal.utils.interpolator")
    known = {"run": {"args": "x"}, "secrets": {"HF_TOKEN": "x"}, "env": {"HOME": "x"}}
    fill = interpolator.VariablesInterpolator(known).interpolate_or_error

    def read(text: str) -> None:
        parsed = models.parse_apply_configuration(yaml.safe_load(text))
        # It fills in variables, and finds none of its own in what it starts and posts.
        for filled in (*parsed.commands, *(probe.body for probe in parsed.probes)):
            assert fill(filled) == filled

    return read


def kubernetes() -> Callable[[str], None]:
    validate, yaml = importlib.import_module("kubernetes_validate"), importlib.import_module("yaml")

    def read(text: str) -> None:
        documents = [one for one in yaml.safe_load_all(text) if one]
        kinds = {one["kind"] for one in documents}
        assert {"Deployment", "Service", "PersistentVolumeClaim", "PodDisruptionBudget", *NOT_KUBERNETES} <= kinds
        for one in documents:
            if one["kind"] not in NOT_KUBERNETES:
                validate.validate(one, KUBERNETES, strict=True)

    return read


def chart() -> Callable[[str], None]:
    """The chart's values.schema.json, named by the second argument, on the values as Helm merges them."""
    jsonschema, yaml = importlib.import_module("jsonschema"), importlib.import_module("yaml")
    schema = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    check = jsonschema.validators.validator_for(schema)(schema)
    return lambda text: check.validate(yaml.safe_load(text))


def main() -> None:
    """Read them all."""
    tools: dict[str, Callable[[], Callable[[str], None]]] = {
        "skypilot": skypilot,
        "dstack": dstack,
        "kubernetes": kubernetes,
        "chart": chart,
    }
    read, found = tools[sys.argv[1]](), dict[str, Any]()
    for name, text in json.load(sys.stdin).items():
        try:
            read(text)
            found[name] = None
        except (Exception, SystemExit) as error:
            found[name] = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:400]
    # The tools write to standard output themselves.
    print(f"\n{json.dumps(found)}")


if __name__ == "__main__":
    main()
