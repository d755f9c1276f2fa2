#!/bin/sh
# Writes the version header given as $1, only when it changes. The commit is a hash of git, with
# "+" when a tracked file differs from it; "unknown" where there is no git.
set -eu
version=0.1.0
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown
if [ "$commit" != unknown ] && ! git diff-index --quiet HEAD -- 2>/dev/null; then
    git update-index -q --refresh >/dev/null 2>&1 || true # a touched file is not a changed one
    git diff-index --quiet HEAD -- || commit=$commit+
fi
text="#define ZIGCUDA_VERSION \"$version\"
#define ZIGCUDA_COMMIT \"$commit\""
[ "$(cat "$1" 2>/dev/null || true)" = "$text" ] || echo "$text" >"$1"
