# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is there of ours: links in the host namespace and in sandboxes, staging namespaces."""

from pathlib import Path

from cnm_bridge.kernel.errors import NamespaceMissing, attempt
from cnm_bridge.kernel.links import Link, delete_link, find_link, find_link_by_altname, list_links
from cnm_bridge.kernel.netlink import Netlink
from cnm_bridge.kernel.netns import NamespaceId, enter, namespace_id, open_namespace

__all__ = ["delete_host_link", "find_link_in", "list_host_links", "list_namespaces", "sandbox_is_gone"]


def list_host_links(*, reply_limit_s: float) -> tuple[Link, ...]:
    """Give all links of the namespace that the calling thread is in."""
    with attempt("list", "links"), Netlink(reply_limit_s=reply_limit_s) as netlink:
        return list_links(netlink)


def delete_host_link(link: Link, *, reply_limit_s: float) -> None:
    """Delete a virtual link of the namespace that the calling thread is in, if it is still there under its name."""
    with attempt("delete", f"link {link.state.name}"), Netlink(reply_limit_s=reply_limit_s) as netlink:
        found = find_link(netlink, link.state.name)
        if found is not None and found.index == link.index and found.state.kind is not None:
            delete_link(netlink, found)


def find_link_in(sandbox: Path, altname: str, *, host: NamespaceId, reply_limit_s: float) -> bool:
    """Tell whether the link with this alternative name is in a sandbox; moves the calling thread there."""
    try:
        with attempt("look into", str(sandbox)), open_namespace(sandbox) as fd:
            if namespace_id(fd) == host:
                return False
            enter(fd, host=host)
            with Netlink(reply_limit_s=reply_limit_s) as netlink:
                return find_link_by_altname(netlink, altname) is not None
    except NamespaceMissing:
        return False


def list_namespaces(directory: Path) -> tuple[Path, ...]:
    """Give what is in a directory of namespaces; nothing if there is none."""
    with attempt("list", str(directory)):
        return tuple(sorted(directory.iterdir())) if directory.is_dir() else ()


def sandbox_is_gone(path: Path) -> bool:
    """Tell whether Docker has removed a sandbox, as far as that can be seen.

    Docker makes a file for it and mounts the namespace there. Where the directory itself is not to be seen, as from a
    container that does not share it, nothing can be told. Where only the mount is not to be seen, the file still is.
    """
    return path.parent.is_dir() and not path.is_symlink() and not path.exists()
