"""The routes of vLLM's own server with its own key in front, and no engine behind them: nothing computes.

Runs in the environment of any vLLM: python routes_server.py PORT (the key: VLLM_API_KEY).
"""

import importlib
import os
import sys

try:
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.api_server import build_app
    from vllm.entrypoints.openai.cli_args import make_arg_parser
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

given = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", "x", "--api-key", os.environ["VLLM_API_KEY"]])
tasks = {"supported_tasks": ("generate",)} if "supported_tasks" in build_app.__annotations__ else {}
importlib.import_module("uvicorn").run(
    build_app(given, **tasks), host="127.0.0.1", port=int(sys.argv[1]), lifespan="off", log_level="warning"
)
