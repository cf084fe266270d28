#!/usr/bin/env bash
# Packages for Debian and Ubuntu hold what they should, depend on what they need, and run from where they are unpacked.
# shellcheck source=tests/support/cli_testing.sh
. "$(dirname "$0")/../support/cli_testing.sh"

build=$(dirname "$LOCKSTEP")
if [[ $("$LOCKSTEP" version) == *sanitizers* ]]; then
    echo "SKIP: packages are of a build without sanitizers"
    exit 77
fi
if ! command -v cpack >/dev/null || ! command -v dpkg-shlibdeps >/dev/null; then
    echo "SKIP: no cpack, or no dpkg-shlibdeps"
    exit 77
fi

(cd "$build" && cpack -Wno-dev -B "$work/packages") >"$work/stdout" 2>"$work/stderr" || fail "cpack fails"
depends=$(dpkg-deb -f "$work"/packages/lockstep_*.deb Depends)
[[ $depends == *libc6* && $depends == *zlib1g* && $depends == *libjansson* ]] || fail "depends on '$depends'"
for package in "$work"/packages/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done
made=$LOCKSTEP
LOCKSTEP=$work/root/usr/bin/lockstep
run 0 version
[[ $(<"$work/stdout") == "$("$made" version)" ]] || fail "the package has another version"
[[ ! -e $build/liblockstep_mpi.so || -e $work/root/usr/lib/lockstep/liblockstep_mpi.so ]] || fail "no plug-in"
[[ -e $work/root/usr/share/zsh/vendor-completions/_lockstep && ! -e $work/root/usr/share/zsh/site-functions ]] ||
    fail "completion for zsh is not where Debian's looks"
[[ -e $work/root/usr/include/lockstep/lockstep.h && -e $work/root/usr/share/doc/liblockstep0/copyright ]] ||
    fail "the packages lack files"
if command -v lintian >/dev/null; then
    errors=$(lintian --allow-root --fail-on none "$work"/packages/{lockstep,liblockstep0}_*.deb 2>/dev/null | grep '^E:' |
        grep -v bogus-mail-host || true)
    [[ -z $errors ]] || fail "lintian: $errors"
fi
