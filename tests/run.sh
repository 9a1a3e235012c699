#!/bin/sh
# All checks that need no GPU: `sh tests/run.sh`. Arguments go to pytest.
#
# Makes .venv and installs the package with its development extras; the second run installs nothing.
# PYTHON=/path/to/python3 chooses the interpreter. GPU tests: `python -m pytest -m gpu` on a machine that has one.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }
apt_install() { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"; }

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  { echo "run.sh: needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }

if [ ! -x .venv/bin/python ]; then
  if ! "$PYTHON" -m venv .venv; then
    # Debian ships the interpreter without venv.
    rm -rf .venv
    can_apt && apt_install python3-venv && "$PYTHON" -m venv .venv ||
      { echo "run.sh: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 2; }
  fi
fi

stamp=.venv/.cgadvisor-dev
wanted=$(cksum <pyproject.toml)
if [ "$(cat "$stamp" 2>/dev/null || :)" != "$wanted" ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
  printf '%s\n' "$wanted" >"$stamp"
fi

# Browser tests open the report in Chromium; without one they skip and say so.
if ! command -v chromium >/dev/null 2>&1 && can_apt; then
  apt_install chromium >/dev/null || echo "run.sh: chromium could not be installed; browser tests will skip" >&2
fi

PATH="$PWD/.venv/bin:$PATH"
export PATH
ruff check .
mypy --strict
lint-imports
python -m pytest -n 2 -m 'not gpu' "$@"
