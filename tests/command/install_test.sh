#!/usr/bin/env bash
# An installation: plug-ins are found, and programs built with pkg-config and with find_package train as the command does.
# shellcheck source=tests/support/cli_testing.sh
. "$(dirname "$0")/../support/cli_testing.sh"

build=$(dirname "$LOCKSTEP")
outside=$(cd "$(dirname "$0")/../outside" && pwd)
if [[ $("$LOCKSTEP" version) == *sanitizers* ]]; then
    echo "SKIP: an installation is of a build without sanitizers"
    exit 77
fi

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install" || { cat "$work/install"; exit 1; }
LOCKSTEP=$prefix/bin/lockstep

# --- the command -----------------------------------------------------------------------------------------------------

settings=(train --model lenet --data synthetic --limit-train 96 --limit-val 0 --batch-size 32 --epochs 1 --devices 2xcpu
    --shards 4)
run 0 "${settings[@]}"
expected=$(awk '/^digest/ { print $2 }' "$work/stdout" "$work/stderr")
[[ ${#expected} -eq 32 ]] || fail "no digest"

# --- plug-ins --------------------------------------------------------------------------------------------------------

# Also if the command is a link that is found along PATH.
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
mapfile -t said < <("$work/outside" "" "$work/run")
[[ ${said[0]} == "$expected" ]] || fail "made with pkg-config: another digest"
run 0 evaluate "$work/run" --limit 96
prints "accuracy ${said[1]} ("
if [[ -e $build/liblockstep_mpi.so ]]; then
    [[ $("$work/outside" multi-worker) == "$expected" ]] || fail "made with pkg-config: no plug-in for MPI"
fi
for example in "$prefix"/share/doc/lockstep/examples/*.c; do
    cc -std=c11 -Wall -Wextra -Werror -fsyntax-only "$example" "${flags[@]}"
done
if command -v c++ >/dev/null; then
    c++ -std=c++17 -Wall -Wextra -pedantic -Werror "$outside/outside.cpp" -o "$work/outside-cpp" "${flags[@]}"
    "$work/outside-cpp" >"$work/stdout"
    line '^[0-9a-f]{32} 3$'
fi
cmake -S "$outside" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/stdout" 2>"$work/stderr" ||
    fail "find_package(lockstep) fails"
cmake --build "$work/cmake" >"$work/stdout" 2>"$work/stderr" || fail "made with find_package: does not build"
[[ $("$work/cmake/outside") == "$expected" ]] || fail "made with find_package: another digest"

# --- the rest --------------------------------------------------------------------------------------------------------

for file in man/man1/lockstep.1 man/man1/lockstep-train.1 bash-completion/completions/lockstep \
    zsh/site-functions/_lockstep fish/vendor_completions.d/lockstep.fish \
    doc/lockstep/LICENSE doc/lockstep/README.md doc/lockstep/docs/export.md doc/lockstep/examples/models/lenet.lk; do
    compgen -G "$prefix/share/$file*" >/dev/null || fail "share/$file is not installed"
done

cd "$prefix/share/doc/lockstep"
dead=$(grep -roE '\]\([^]):# =]+[)#]' --include='*.md' . | while IFS=: read -r file link; do
    link=${link#*(}
    [[ -e $(dirname "$file")/${link%?} ]] || echo "$file: $link"
done)
[[ -z $dead ]] || fail "links of installed documents are dead: $dead"
