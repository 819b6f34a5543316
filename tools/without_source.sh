#!/usr/bin/env bash
# Fail where the interpreter $1 finds the packages in the repository $2 instead of its own.
set -euo pipefail
cd /
"$1" - "$2" <<'PY'
import sys
from pathlib import Path
import fulfillment_cli, reference_service
repository = Path(sys.argv[1]).resolve()
for package in (fulfillment_cli, reference_service):
    found = Path(package.__file__).resolve()
    assert repository not in found.parents, f"{found} is the source, not the wheel"
PY
