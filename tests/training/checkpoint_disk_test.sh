#!/usr/bin/env bash
# Full disks, folders that cannot be written, and damaged files are reported by name, and earlier checkpoints stay
# intact. The test mounts a file system in its own namespace, which ends with the test.
if [[ -z ${LOCKSTEP_TEST_INSIDE-} ]] && unshare -m true 2>/dev/null; then
    LOCKSTEP_TEST_INSIDE=1 exec unshare -m "${BASH_SOURCE[0]}"
fi
# shellcheck source=tests/support/cli_testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli_testing.sh"

training=(train --json --model lenet --data synthetic --limit-train 200 --limit-val 50 --batch-size 50 --epochs 3
    --momentum 0.9 --devices 1)
kept=("${training[@]}" --checkpoint-dir "$work/kept" --checkpoint-every 2)

ends_alike()
{
    [[ $(field digest) == "$digest" && $(field state_digest) == "$state" ]] || fail 'other bits'
}

run 0 "${training[@]}"
digest=$(field digest)
state=$(field state_digest)

# ---- files ----

newest()
{
    find "$work/kept" -maxdepth 1 -name 'checkpoint-*' | sort | tail -n 1
}

# Removes the newest checkpoints, as if the run had been killed.
rewind()
{
    rm -rf "$work/kept"
    cp -r "$work/whole" "$work/kept"
    rm -rf "$work/kept/checkpoint-00000012" "$work/kept/checkpoint-00000010"
}

run 0 "${kept[@]}" --keep 100
ends_alike
cp -r "$work/kept" "$work/whole"

# damaged TEXT: the newest checkpoint is damaged, so the one before it is used and a warning contains TEXT.
damaged()
{
    local name
    name=$(basename "$(newest)")
    run 0 "${kept[@]}" --resume
    ends_alike
    says "$1"
    says 'checkpoint-00000006 is used in its place'
    [[ -d $work/kept/damaged-$name ]] || fail "$name was not put aside"
}

rewind
printf '\x5a' | dd of="$(newest)/model.safetensors" bs=1 seek=5000 conv=notrunc status=none
damaged 'checkpoint-00000008/model.safetensors: is damaged'
rewind
truncate -s 100000 "$(newest)/optimizer.safetensors"
damaged 'checkpoint-00000008/optimizer.safetensors: has 100000 bytes, and the manifest says'
rewind
rm "$(newest)/state.json"
damaged 'checkpoint-00000008/state.json: is missing, and the manifest lists it'
rewind
rm "$(newest)/manifest.json"
damaged 'checkpoint-00000008/manifest.json: is missing'

rewind
for checkpoint in "$work"/kept/checkpoint-*; do
    truncate -s 7 "$checkpoint/model.safetensors"
done
run 1 "${kept[@]}" --resume
complains 'checkpoint-00000008/model.safetensors: has 7 bytes'

# Hostile files: a header of 2 GB, one of brackets only, tensors that overlap. Memory is limited, except under
# sanitizers, which reserve more than any limit.
bounded()
{
    (
        [[ $("$LOCKSTEP" version) == *sanitizers* ]] || ulimit -v 4000000
        run 1 "${training[@]}" --weights "$work/hostile"
    )
}
printf '\0\0\0\200\0\0\0\0{}' >"$work/hostile"
truncate -s 2147483700 "$work/hostile"
bounded
says 'a header of 2147483648 bytes'
{ printf '\0\0\100\0\0\0\0\0' && head -c 4194304 /dev/zero | tr '\0' '['; } >"$work/hostile"
bounded
says 'the header is not JSON'
header='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}'
printf "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0%s123456789012" "$header" >"$work/hostile"
run 1 "${training[@]}" --weights "$work/hostile"
says 'tensor b: begins at byte 4'

# ---- disks ----

mkdir "$work/disk"
if [[ -z ${LOCKSTEP_TEST_INSIDE-} ]] || ! mount -t tmpfs -o size=2600k none "$work/disk" 2>/dev/null; then
    echo 'SKIP: file systems cannot be mounted here: nothing of full disks and read-only folders'
    exit 77
fi

# The disk has space for two checkpoints but not for three.
full=("${training[@]}" --checkpoint-dir "$work/disk/kept" --checkpoint-every 4 --keep 2 --checkpoint-best none)
run 1 "${full[@]}"
says 'a checkpoint could not be written: '
says 'the last checkpoint could not be written: '
says 'No space left on device'
ends_alike
[[ $(find "$work/disk/kept" -name '.unfinished*') == '' ]] || fail 'something unfinished is left'
mount -o remount,size=20m "$work/disk"
run 0 "${full[@]}" --resume
ends_alike

# A warning says if an interrupted training leaves no checkpoint.
rm -rf "$work/disk/kept"
mount -o remount,size=1500k "$work/disk"
begin "${training[@]}" --epochs 100000 --checkpoint-dir "$work/disk/kept" --checkpoint-every 1000000 --checkpoint-best none
until_there '"epoch":3,' "$work/stdout"
kill -TERM "$process"
ends_with 130
says 'warning: a checkpoint could not be written: '
says 'No space left on device'
[[ $(ls -A "$work/disk/kept") == checkpoint-00000000 ]] || fail "left: $(ls -A "$work/disk/kept")"
mount -o remount,size=20m "$work/disk"
rm -rf "$work/disk/kept"
run 0 "${full[@]}"
mount -o remount,ro "$work/disk"
run 0 "${full[@]}" --resume
ends_alike
run 1 "${training[@]}" --checkpoint-dir "$work/disk/other"
complains "$work/disk/other" 'Read-only file system'
mount -o remount,rw "$work/disk"
rm -rf "$work/disk/kept"
# With --keep 1 there is enough space.
mount -o remount,size=2600k "$work/disk"
run 1 train "${full[@]:2}" # without --json
says 'the last checkpoint could not be written: '
says "digest $digest"
run 0 "${full[@]}" --resume --keep 1
ends_alike
rm -rf "$work/disk/kept"
mkdir "$work/disk/empty"
mount -o remount,ro "$work/disk"
run 1 "${training[@]}" --checkpoint-dir "$work/disk/empty"
complains "--checkpoint-dir $work/disk/empty: cannot be written: Read-only file system"
umount "$work/disk"
