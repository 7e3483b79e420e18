#!/usr/bin/env bash
# cyclopts takes a fraction for a whole number, and rounds it without a word.
#
# One would expect `--steps 2.5` of a parameter `steps: int` to be refused, as argparse does, and where
# it is taken, that `--steps 1e3`, a whole number, is taken too.
# What happens: 2.5 is taken as 2, 3.5 as 4 (a half goes to the even neighbour), 2.51 as 3. `1e3` is
# refused; `0x10` and `1_000` are taken.
# Source: "Floating-point values will be rounded prior to casting to an int", section Coercion Rules,
# Int, of cyclopts' manual.
# Consequence for a user: a setting that must be a whole number is another than the one typed, in what
# is run and in what is recorded of it. A converter of one's own, `Parameter(converter=...)`, refuses.
#
# Seen with cyclopts 5.5.2, Python 3.11, Linux.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet cyclopts==5.5.2 >&2
"$work/venv/bin/python" - <<'PYTHON' | tee "$work/seen"
import argparse

import cyclopts

app = cyclopts.App(result_action="return_value")


@app.default
def run(*, steps: int) -> int:
    return steps


plain = argparse.ArgumentParser(exit_on_error=False)
plain.add_argument("--steps", type=int)
for word in ("2.5", "3.5", "2.51", "3.0", "1e3", "0x10", "1_000"):
    try:
        taken = app(["--steps", word], exit_on_error=False, print_error=False)
    except cyclopts.CoercionError:
        taken = "refused"
    try:
        there = plain.parse_args(["--steps", word]).steps
    except argparse.ArgumentError:
        there = "refused"
    print(f"{word:6} cyclopts {taken!s:8} argparse {there}")
PYTHON
diff "$work/seen" - <<'SEEN'
2.5    cyclopts 2        argparse refused
3.5    cyclopts 4        argparse refused
2.51   cyclopts 3        argparse refused
3.0    cyclopts 3        argparse refused
1e3    cyclopts refused  argparse refused
0x10   cyclopts 16       argparse refused
1_000  cyclopts 1000     argparse 1000
SEEN
echo "As seen."
