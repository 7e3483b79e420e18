#!/usr/bin/env bash
# mkdocs refuses nothing by --strict where --quiet stands beside it.
#
# One would expect what `mkdocs build --help` says of --strict: "Enable strict mode. This will cause
# MkDocs to abort the build on any warnings." --quiet is to "silence warnings", on the terminal.
# What happens: --quiet sets the level of the logger to errors, and strict mode counts the warnings by
# a handler of that logger. So none is counted, and a site with a dead link is built with exit code 0.
# Source: mkdocs 1.6.1, mkdocs/__main__.py (quiet_option), mkdocs/commands/build.py (the counter of
# warnings), mkdocs/utils (CountHandler).
# Consequence for a user: a CI that runs `mkdocs build --quiet --strict`, to have a short log, has no
# check of links. Leave --quiet out, or check the built pages.
#
# Seen with mkdocs 1.6.1, Python 3.11, Linux; the output is below.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet mkdocs==1.6.1 "click<8.3"
mkdir "$work/docs"
printf 'site_name: x\n' > "$work/mkdocs.yml"
printf '# Home\n\n[A page that is not there](nowhere.md)\n' > "$work/docs/index.md"
cd "$work"
for options in "--strict" "--quiet --strict"; do
    code=0
    # shellcheck disable=SC2086
    env/bin/mkdocs build $options --site-dir "$work/site" >"$work/said" 2>&1 || code=$?
    echo "mkdocs build $options: exit code $code, $(grep -c "nowhere.md" "$work/said" || true) lines about the link"
done | tee "$work/seen"
diff "$work/seen" - <<'SEEN'
mkdocs build --strict: exit code 1, 1 lines about the link
mkdocs build --quiet --strict: exit code 0, 0 lines about the link
SEEN
echo "As seen."
