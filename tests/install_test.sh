#!/usr/bin/env bash
# What an installation has in it: a program made with pkg-config, and one made with find_package, train as the command
# does; the plug-ins are found; manual pages are well-formed and complete; shells complete; packages hold it all.
# shellcheck source=tests/cli_testing.sh
. "$(dirname "$0")/cli_testing.sh"

build=$(dirname "$LOCKSTEP")
outside=$(cd "$(dirname "$0")/outside" && pwd)
if [[ $("$LOCKSTEP" version) == *sanitizers* ]]; then
    echo "SKIP: an installation is of a build without sanitizers"
    exit 77
fi

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install" || { cat "$work/install"; exit 1; }
installed=$LOCKSTEP
LOCKSTEP=$prefix/bin/lockstep

# --- the command -----------------------------------------------------------------------------------------------------

settings=(train --model lenet --data synthetic --limit-train 96 --limit-val 0 --batch-size 32 --epochs 1 --devices 2xcpu
    --shards 4)
run 0 "${settings[@]}"
expected=$(awk '/^digest/ { print $2 }' "$work/stdout" "$work/stderr")
[[ ${#expected} -eq 32 ]] || fail "no digest"

# --- plug-ins --------------------------------------------------------------------------------------------------------

# Also where the command is a link, and is found along the path.
plugins=("$build"/liblockstep_*.so)
mkdir "$work/path"
ln -s "$LOCKSTEP" "$work/path/lockstep"
if [[ -e $build/liblockstep_mpi.so ]]; then
    export OMPI_MCA_btl=self
    PATH=$work/path:$PATH LOCKSTEP=lockstep run 0 "${settings[@]}" --strategy multi-worker
    grep -qh "$expected" "$work/stdout" "$work/stderr" || fail "another digest with the plug-in for MPI"
    mv "$prefix/lib/lockstep" "$prefix/lib/elsewhere"
    run 1 "${settings[@]}" --strategy multi-worker
    says liblockstep_mpi.so
    mv "$prefix/lib/elsewhere" "$prefix/lib/lockstep"
fi
for plugin in "${plugins[@]}"; do
    [[ ! -e $plugin || -e $prefix/lib/lockstep/${plugin##*/} ]] || fail "${plugin##*/} is not installed"
done

# --- outside programs ------------------------------------------------------------------------------------------------

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
read -ra flags < <(pkg-config --cflags --libs lockstep)
cc -std=c11 -Wall -Wextra -Werror "$outside/outside.c" -o "$work/outside" "${flags[@]}"
[[ $("$work/outside") == "$expected" ]] || fail "made with pkg-config: another digest"
if [[ -e $build/liblockstep_mpi.so ]]; then
    [[ $("$work/outside" multi-worker) == "$expected" ]] || fail "made with pkg-config: no plug-in for MPI"
fi
cmake -S "$outside" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/stdout" 2>"$work/stderr" ||
    fail "find_package(lockstep) fails"
cmake --build "$work/cmake" >"$work/stdout" 2>"$work/stderr" || fail "made with find_package: does not build"
[[ $("$work/cmake/outside") == "$expected" ]] || fail "made with find_package: another digest"
unset LD_LIBRARY_PATH

# --- manual pages ----------------------------------------------------------------------------------------------------

run 0 help
mapfile -t commands < <(sed -nE 's/^  ([a-z]+) +.*/\1/p' "$work/stdout")
[[ ${#commands[@]} -gt 10 ]] || fail "help lists ${#commands[@]} commands"
for name in lockstep "${commands[@]/#/lockstep-}"; do
    page=$(compgen -G "$prefix/share/man/man1/$name.1*") || fail "no manual page $name"
    text=$(gzip -dcf "$page")
    if command -v groff >/dev/null; then
        warnings=$(groff -man -Kutf8 -Tutf8 -ww <<<"$text" 2>&1 >/dev/null)
        [[ -z $warnings ]] || fail "$name.1: $warnings"
    fi
    if command -v mandoc >/dev/null; then
        warnings=$(mandoc -Tlint -Wwarning <<<"$text" | grep -v 'missing date' || true)
        [[ -z $warnings ]] || fail "$name.1: $warnings"
    fi
    [[ $name != lockstep ]] || continue
    run 0 help "${name#lockstep-}"
    while read -r option; do
        grep -qF -- "\\fB${option//-/\\-}\\fR" <<<"$text" || fail "$name.1 lacks $option"
    done < <(sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' "$work/stdout")
done

# --- completion ------------------------------------------------------------------------------------------------------

completes()
{
    local expected=$1
    shift
    found=$(bash --norc -c '. "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep
        echo "${COMPREPLY[*]}"' bash "$prefix/share/bash-completion/completions/lockstep" "$@")
    [[ $found == "$expected" ]] || fail "'$*' is completed to '$found', not '$expected'"
}
completes "train" lockstep tra
completes "--dtype" lockstep train --dt
completes "f32 bf16" lockstep train --dtype ""
completes "bf16" lockstep train --dtype = b
completes "--optimizer" lockstep launch -n 2 -- train --opti
completes "--workers" lockstep launch --wor
completes "profile" lockstep help prof
completes "" lockstep train --seed ""
mkdir -p "$work/folders/logs-1"
cd "$work/folders"
completes "logs-1" lockstep train --log-dir lo
cd "$outside"
for shell in zsh fish; do
    script=$prefix/share/zsh/vendor-completions/_lockstep
    [[ $shell == zsh ]] || script=$prefix/share/fish/vendor_completions.d/lockstep.fish
    ! command -v $shell >/dev/null || $shell -n "$script" || fail "$shell cannot read its completion"
done
run 2 completion tcsh
complains_just "unknown shell 'tcsh': expected bash, zsh or fish"

# --- packages --------------------------------------------------------------------------------------------------------

if command -v cpack >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    (cd "$build" && cpack -Wno-dev -B "$work/packages") >"$work/stdout" 2>"$work/stderr" || fail "cpack fails"
    depends=$(dpkg-deb -f "$work"/packages/lockstep_*.deb Depends)
    [[ $depends == *libc6* && $depends == *zlib1g* && $depends == *libjansson* ]] || fail "depends on '$depends'"
    for package in "$work"/packages/*.deb; do
        dpkg-deb -x "$package" "$work/root"
    done
    LOCKSTEP=$work/root/usr/bin/lockstep run 0 version
    [[ $(<"$work/stdout") == "$("$installed" version)" ]] || fail "the package has another version"
    [[ ! -e $build/liblockstep_mpi.so || -e $work/root/usr/lib/lockstep/liblockstep_mpi.so ]] || fail "no plug-in"
    [[ -e $work/root/usr/include/lockstep/lockstep.h && -e $work/root/usr/share/doc/liblockstep0/copyright ]] ||
        fail "the packages lack files"
    if command -v lintian >/dev/null; then
        errors=$(lintian --allow-root --fail-on none "$work"/packages/*.deb 2>/dev/null | grep '^E:' |
            grep -v bogus-mail-host || true)
        [[ -z $errors ]] || fail "lintian: $errors"
    fi
else
    echo "left out: packages, for cpack or dpkg-shlibdeps is missing"
fi
