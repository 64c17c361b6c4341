#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
#
# Wraps the real CNI plugin of the same name and makes each ADD slow or hang, each DEL slow, or the first DEL of each
# container ID fail or hang, if the configuration says so (tests/plugins/unreliable.py). Everything else is left to the real plugin.

name=${0##*/}
real=@REAL@/$name
case $CNI_COMMAND in
ADD | DEL) input=$(cat) ;;
*) exec "$real" ;;
esac
if [ "$CNI_COMMAND" = ADD ]; then
    case $input in
    *"\"$name is slow in ADD\""*) sleep 1.5 ;;
    *"\"$name hangs in ADD\""*) sleep 600 ;; # until it is killed
    esac
    printf '%s' "$input" | "$real"
    exit
fi
fail() {
    printf '{"cniVersion": "1.0.0", "code": 100, "msg": "%s", "details": "the first DEL of this container ID"}\n' "$1"
    exit 1
}
case $input in
*"\"$name fails before its work\""*) how=before ;;
*"\"$name fails after its work\""*) how=after ;;
*"\"$name hangs\""*) how=hang ;;
*) how= ;;
esac
if [ -n "$how" ]; then
    mkdir -p @SEEN@
    mkdir "@SEEN@/$name-$CNI_CONTAINERID" 2>/dev/null || how= # it exists: this is not the first DEL
fi
case $input in
*"\"$name is slow in DEL\""*) sleep 4 ;;
esac
case $how in
before) fail "fails before its work" ;;
hang) sleep 600 ;; # until it is killed
esac
if [ "$how" = after ]; then
    printf '%s' "$input" | "$real" >/dev/null || exit
    fail "fails after its work"
fi
printf '%s' "$input" | "$real"
