#!/usr/bin/env bash
# One attachment without us: the plugin alone, run by a shell. Prints the microseconds of ADD and of DEL.
#   bare.sh PLUGIN-OR-ITS-PATH CONFIGURATION CONTAINER-ID
set -euo pipefail
plugin=$1 configuration=$2 id=$3
netns=/run/netns/$id
export PATH=/usr/lib/cni:$PATH CNI_CONTAINERID=$id CNI_IFNAME=eth0 CNI_NETNS=$netns CNI_PATH=/usr/lib/cni
ip netns add "$id"
# As the daemon does for its staging namespaces; otherwise ptp waits for duplicate address detection.
ip netns exec "$id" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up'
t0=$EPOCHREALTIME
CNI_COMMAND=ADD "$plugin" <"$configuration" >/dev/null
t1=$EPOCHREALTIME
CNI_COMMAND=DEL "$plugin" <"$configuration" >/dev/null
t2=$EPOCHREALTIME
ip netns del "$id"
echo "$(( (${t1/./} - ${t0/./}) )) $(( (${t2/./} - ${t1/./}) ))"
