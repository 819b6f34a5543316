#!/usr/bin/env bash
# Build the wheel, install it where no source is on the path, and prove it there:
# a strict type check of a consumer, imports that do nothing, the experiments with the real local
# model, and pause, approve and re-entry by the installed command.
set -euo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
python=$("${PYTHON:-python3}" -c "import sys; print(sys.executable)") # found from anywhere
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset PYTHONPATH

echo "== wheel"
cd "$repository"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$place/dist" .
wheel=$(echo "$place"/dist/fulfil-*.whl)

echo "== install into an empty environment"
cd "$place"
"$python" -m venv env
env/bin/python -m pip install --quiet "$wheel[local]" mypy
"$repository/tools/without_source.sh" "$place/env/bin/python" "$repository"

echo "== a strict consumer of the public API"
cp "$repository/tests/consumer/consumer.py" consumer.py
env/bin/mypy --strict consumer.py

echo "== importing does nothing"
mkdir empty && cd empty
../env/bin/python - <<'PY'
import os, sys, threading
before = set(os.listdir("."))
import fulfillment_cli
from fulfillment_cli import (
    run_checkpoint, run_compensation, run_fallback, run_pause,
    run_retry, run_session, run_side_effect, run_timeout,
)
assert set(os.listdir(".")) == before, "an import wrote something"
assert threading.active_count() == 1, "an import started a thread"
heavy = {"openai", "typer", "rich"} & set(sys.modules)
assert not heavy, f"an import loaded {heavy}"
print("eight entry points imported")
PY
[ -z "$(ls -A .)" ]
cd ..

echo "== the experiments, from the installed package"
mkdir work && cd work
../env/bin/fulfil experiments --report report.json

echo "== pause, approve, re-enter, by the installed command"
../env/bin/fulfil pause --output json > paused.json
read -r directory stage < <(../env/bin/python -c '
import json; d = json.load(open("paused.json")); print(d["directory"], d["result"]["stage"])')
[ "$stage" = paused ]
../env/bin/fulfil pause --directory "$directory" --decision approve --actor package-check
../env/bin/fulfil pause --directory "$directory" --output json > again.json
../env/bin/python - <<'PY'
import json
result = json.load(open("again.json"))["result"]
assert (result["stage"], result["questions"]) == ("completed", 0), result
PY
echo "package check passed"
