#!/bin/sh
# A first look at cgadvisor on a fresh machine: `sh samples/demo.sh`.
#
# Makes .venv, installs the package into it and runs it: on a GPU with a CUDA build of torch it profiles
# samples/mlp_train.py, elsewhere it analyses a recording of the same kind of script made on an H200.
# PYTHON=/path/to/python3 chooses the interpreter. Running it again installs nothing.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

say() { printf '%s\n' "demo: $*" >&2; }
has_cuda() { "$1" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; }

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  { say "needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 2; }

if [ ! -x .venv/bin/python ]; then
  say "making .venv"
  # With the system's packages when its torch can use the GPU, so that nothing large is downloaded.
  if has_cuda "$PYTHON"; then set -- --system-site-packages; else set --; fi
  "$PYTHON" -m venv "$@" .venv ||
    { rm -rf .venv; say "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 2; }
fi

stamp=.venv/.cgadvisor-demo
wanted=$(cksum <pyproject.toml)
if [ "$(cat "$stamp" 2>/dev/null || :)" != "$wanted" ]; then
  say "installing cgadvisor into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e . ||
    { say "pip could not install cgadvisor into .venv; see its message above"; exit 2; }
  printf '%s\n' "$wanted" >"$stamp"
fi

if has_cuda .venv/bin/python; then
  run=cgadvisor-runs/demo-profile
  say "profiling samples/mlp_train.py on this machine's GPU"
  set -- profile --out "$run" samples/mlp_train.py
else
  run=cgadvisor-runs/demo-analyze
  say "no GPU with a CUDA build of torch here: analysing a recording made on an H200"
  set -- analyze --out "$run" advisor/data/h200_mlp_adam_train.json.gz
fi
.venv/bin/cgadvisor "$@"
say "the report: $PWD/$run/report.html"
