#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin that behaves like Calico's `calico` and `calico-ipam` without Kubernetes, and like its agent felix.

* `calico` needs the file `nodename`, for ADD and for DEL; without it `calico-ipam` takes the host's name, of which the
  datastore has no node. Both support CNI versions up to 1.0.0.
* `calico-ipam` gives an address with the prefix of its block, and a route to the block; `calico` makes it a /32, with
  a default route via 169.254.1.1. The host's end of the link is called `cali` and eleven characters of the container
  ID, and answers ARP for all addresses. A link that has this name is removed first.
* If the datastore has an endpoint of the container, ADD makes no link, and its result is that endpoint.
* felix keeps a permanent neighbour entry with the MAC that the link had in ADD.
* Labels come only from `args["org.apache.mesos"].network_info.labels.labels`.
* With a pod's name and namespace in CNI_ARGS, it asks Kubernetes, which is not there.

So does Calico 3.32.1. What the datastore would have is in `/run/calico`: a file for each endpoint and for each address.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

Json = dict[str, Any]

NODENAME = Path("/run/calico/nodename")
ENDPOINTS, ADDRESSES = Path("/run/calico/endpoints"), Path("/run/calico/addresses")
GATEWAY = "169.254.1.1"
BLOCK = "10.65.0.{}/26"
VERSIONS = ["0.3.0", "0.3.1", "0.4.0", "1.0.0"]


def main() -> None:
    """Answer the call."""
    verb = os.environ["CNI_COMMAND"]
    if verb == "VERSION":
        answer({"cniVersion": "1.0.0", "supportedVersions": VERSIONS})
        return
    conf = json.load(sys.stdin)
    if conf["cniVersion"] not in VERSIONS:
        fail(f"version {conf['cniVersion']} is not supported")
    is_ipam = "ipam" in Path(sys.argv[0]).name
    if not is_ipam and not NODENAME.exists():
        fail(f"stat {NODENAME}: no such file or directory: check that the calico/node container is running")
    calls = {"ADD": (add, allocate), "DEL": (delete, release)}
    if verb in calls:
        calls[verb][is_ipam](conf)


def allocate(conf: Json) -> None:
    """Give the lowest free address of the block, or that of CNI_ARGS, to the handle of this container."""
    if not NODENAME.exists():
        fail(f"resource does not exist: Node({socket.gethostname()}) with error: <nil>")
    ADDRESSES.mkdir(exist_ok=True)
    wanted = arguments().get("IP")
    for number in range(1, 63):
        address = BLOCK.format(number)
        if wanted not in {None, address.partition("/")[0]}:
            continue
        try:
            with (ADDRESSES / address.partition("/")[0]).open("x") as file:
                file.write(handle(conf))
        except FileExistsError:
            continue
        ips = [{"version": "4", "address": address}]
        answer({"cniVersion": conf["cniVersion"], "ips": ips, "routes": [{"dst": BLOCK.format(0)}]})
        return
    fail(f"no address is free for {wanted or 'this container'}")


def release(conf: Json) -> None:
    """Release the addresses of the handle."""
    for file in ADDRESSES.glob("*"):
        if file.read_text() == handle(conf):
            file.unlink()


def add(conf: Json) -> None:
    """Make the link and the endpoint."""
    if {"K8S_POD_NAME", "K8S_POD_NAMESPACE"} <= arguments().keys():
        fail("unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST must be defined")
    if (existing := endpoint_file(conf)).exists():
        answer(json.loads(existing.read_text())["result"])
        return
    result = json.loads(delegate(conf))
    address = result["ips"][0]["address"].partition("/")[0]
    ifname, netns, host = os.environ["CNI_IFNAME"], os.environ["CNI_NETNS"], host_link()
    inside = ("nsenter", f"--net={netns}")
    subprocess.run(("ip", "link", "delete", host), check=False, capture_output=True)
    run(*inside, "ip", "link", "add", ifname, "type", "veth", "peer", host, "netns", str(os.getpid()))
    run(*inside, "ip", "link", "set", ifname, "up")
    run("ip", "link", "set", host, "address", "ee:ee:ee:ee:ee:ee", "up")
    Path(f"/proc/sys/net/ipv4/conf/{host}/proxy_arp").write_text("1")
    run(*inside, "ip", "address", "add", f"{address}/32", "dev", ifname)
    run(*inside, "ip", "route", "add", GATEWAY, "dev", ifname, "scope", "link")
    run(*inside, "ip", "route", "add", "default", "via", GATEWAY, "dev", ifname)
    (shown,) = json.loads(run(*inside, "ip", "-json", "link", "show", ifname))
    run("ip", "route", "add", f"{address}/32", "dev", host)
    run("ip", "neighbour", "replace", address, "lladdr", shown["address"], "dev", host, "nud", "permanent")
    mesos = conf.get("args", {}).get("org.apache.mesos", {}).get("network_info", {})
    endpoint = {"mac": shown["address"], "labels": mesos.get("labels", {}).get("labels", []), "host": host}
    version = {"version": "4"} if conf["cniVersion"].startswith("0.") else {}
    ips = [{**version, "address": f"{address}/32", "interface": 1}]
    links = [{"name": host}, {"name": ifname, "mac": shown["address"], "sandbox": netns}]
    made = {"cniVersion": conf["cniVersion"], "interfaces": links, "ips": ips, "routes": result["routes"]}
    ENDPOINTS.mkdir(exist_ok=True)
    existing.write_text(json.dumps({**endpoint, "result": made}))
    answer(made)


def delete(conf: Json) -> None:
    """Release the address, and remove the link and the endpoint with the names that ADD had; netns may be gone."""
    delegate(conf)
    subprocess.run(("ip", "link", "delete", host_link()), check=False, capture_output=True)
    endpoint_file(conf).unlink(missing_ok=True)


def delegate(conf: Json) -> str:
    """Run the IPAM plugin with what this one received."""
    program = shutil.which(conf["ipam"]["type"], path=os.environ["CNI_PATH"])
    done = subprocess.run((str(program),), input=json.dumps(conf), text=True, check=False, stdout=subprocess.PIPE)
    if done.returncode:
        sys.stdout.write(done.stdout)
        sys.exit(1)
    return done.stdout


def answer(document: Json) -> None:
    """Print a result or an error."""
    sys.stdout.write(json.dumps(document))


def host_link() -> str:
    """Return the name of the host's end, made of the container ID."""
    return f"cali{os.environ['CNI_CONTAINERID'][:11]}"


def endpoint_file(conf: Json) -> Path:
    """Return the file of an endpoint, by network, container and link."""
    return ENDPOINTS / f"{conf['name']}.{os.environ['CNI_CONTAINERID']}.{os.environ['CNI_IFNAME']}"


def handle(conf: Json) -> str:
    """Return the owner of addresses."""
    return f"{conf['name']}.{os.environ['CNI_CONTAINERID']}"


def arguments() -> dict[str, str]:
    """Return CNI_ARGS."""
    return dict(pair.split("=", 1) for pair in os.environ.get("CNI_ARGS", "").split(";") if "=" in pair)


def run(*command: str) -> str:
    """Run a command; the plugin fails if it does."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def fail(message: str) -> NoReturn:
    """End with an error."""
    answer({"cniVersion": "1.0.0", "code": 999, "msg": message})
    sys.exit(1)


if __name__ == "__main__":
    main()
