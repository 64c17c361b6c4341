#!/bin/sh
# A plugin whose resource is a file. Files in $CONTROL make it fail, or kill the runtime and go on by itself.
cat >/dev/null
name=${0##*/}
own=$RESOURCES/$name
case $CNI_COMMAND in
ADD)
    echo "$name ADD begins" >>"$JOURNAL"
    if [ -e "$CONTROL/$name.orphan" ]; then
        kill -9 $PPID
        until [ -e "$CONTROL/go" ]; do sleep 0.01; done
    fi
    [ -e "$CONTROL/$name.fails-early" ] || echo >"$own"
    if [ -e "$CONTROL/$name.fails-early" ] || [ -e "$CONTROL/$name.fails" ]; then
        echo '{"code": 100, "msg": "as wanted"}'
        exit 1
    fi
    echo '{"cniVersion": "1.0.0"}'
    ;;
DEL)
    if [ -e "$CONTROL/$name.del-fails" ]; then
        echo "$name DEL fails" >>"$JOURNAL"
        echo '{"code": 100, "msg": "as wanted"}'
        exit 1
    fi
    rm -f "$own"
    if [ -e "$CONTROL/$name.del-fails-late" ]; then
        echo "$name DEL fails" >>"$JOURNAL"
        kill -9 $$
    fi
    echo "$name DEL succeeds" >>"$JOURNAL"
    ;;
VERSION)
    echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
    ;;
esac
