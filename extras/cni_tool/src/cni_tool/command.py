# SPDX-License-Identifier: Apache-2.0
"""The command `cni-invoker`, a drop-in for cnitool.

Results and errors are JSON on standard output, errors in the format of CNI plugins. Messages for people go to standard
error. The exit status is 0 on success and 1 on any error, as for cnitool.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import click

from cni_invoker.config_directories import ConfigurationDirectories, ConfigurationIndex
from cni_invoker.documents.attachment import Attachment
from cni_invoker.documents.lists import NetworkConfigurationList
from cni_invoker.documents.versions import SUPPORTED_VERSIONS
from cni_invoker.errors import CniError, ConfigurationNotFound, PluginError
from cni_invoker.execution.first_iptables_use import DEFAULT_LOCK_DIR
from cni_invoker.execution.limits import Limits
from cni_invoker.preflight import run_preflight
from cni_invoker.runtime import Runtime
from cni_tool import __version__
from cni_tool.errors import CacheDamaged
from cni_tool.file_cache import DEFAULT_CACHE_DIR, FileCache
from cni_tool.forms import (
    Messages,
    echo,
    find_configuration_dir,
    find_plugin_dirs,
    parse_attachment,
    parse_key,
    print_error,
    print_json,
    print_usage_error,
    render_attachments,
    render_index,
)
from cni_tool.runtime import CachedRuntime

_T = TypeVar("_T")

_LIMITS: Final = Limits()

_network = click.argument("network")
_netns = click.argument("netns")
_ignored_netns = click.argument("netns", required=False, expose_value=False)
_ifname = click.option("-i", "--ifname", help="Name of the interface; the default is $CNI_IFNAME, or eth0.")
_cache_dir = click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_CACHE_DIR,
    show_default=True,
    help="Directory of the attachment cache, in libcni's format.",
)


def main() -> None:
    """Run the tool with this process's arguments and environment, and end the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is inherited as ignored, exit statuses are lost
    for package in ("cni_invoker", "cni_tool"):
        logger = logging.getLogger(package)
        logger.addHandler(Messages())
        logger.setLevel(logging.DEBUG)
    try:
        commands.main(prog_name="cni-invoker", standalone_mode=False)
    except click.UsageError as exc:
        print_usage_error(exc)
    except click.ClickException as exc:
        exc.show()
    except click.Abort:
        echo("interrupted; an attachment whose add has begun is cached and needs a del", err=True)
    except CniError as exc:
        print_error(exc)
    else:
        return
    sys.exit(1)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(
    __version__,
    message=f"%(prog)s %(version)s, CNI {SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}",
)
def commands() -> None:
    """Attach network namespaces to CNI networks.

    \b
    NETCONFPATH  directory of network configurations          [/etc/cni/net.d]
    CNI_PATH     directories of plugins, separated by colons  [/opt/cni/bin:/usr/lib/cni]
    CNI_IFNAME   name of the interface                        [eth0]
    CNI_ARGS     arguments for plugins, K=V;K2=V2
    CAP_ARGS     capability arguments, a JSON object

    """  # noqa: D301  # \b tells click not to wrap the next paragraph


def _command(name: str, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command with an example of its arguments."""
    return commands.command(
        name, epilog=f"Examples: cni-invoker {name} {example}\n\nExit status: 0, or 1 after an error."
    )


@_command("add", "blue /run/netns/web")
@_network
@_netns
@_ifname
@_cache_dir
def _add(network: str, netns: str, ifname: str | None, cache_dir: Path) -> None:
    """Attach a network namespace; print the result."""
    found, attachment = _find_network(network), _attachment(netns, ifname)
    print_json(_run(lambda: _cached_runtime(cache_dir).add(found, attachment)).document)


@_command("check", "blue /run/netns/web")
@_network
@_netns
@_ifname
@_cache_dir
def _check(network: str, netns: str, ifname: str | None, cache_dir: Path) -> None:
    """Ask the plugins whether an attachment is as add left it."""
    found, attachment = _find_network(network), _attachment(netns, ifname)
    _run(lambda: _cached_runtime(cache_dir).check(found, attachment))


@_command("del", "blue /run/netns/web")
@_network
@_netns
@_ifname
@click.option("--container-id", metavar="ID", help="The container ID, if it was not derived from the namespace.")
@click.option("--force", is_flag=True, help="Forget the attachment even if plugins fail; what they created stays.")
@_cache_dir
def _del(
    network: str, netns: str, *, ifname: str | None, container_id: str | None, force: bool, cache_dir: Path
) -> None:
    """Detach a network namespace.

    It needs no configuration as long as the attachment is cached.
    """
    attachment = _attachment(netns, ifname)
    if container_id is not None:
        attachment = replace(attachment, container_id=container_id)
    try:
        _run(lambda: _delete(network, attachment, cache_dir, force=force))
    except PluginError as exc:
        exc.add_note("the attachment is still cached: repeat the del, or forget it with del --force")
        raise
    except CacheDamaged as exc:
        exc.add_note("remove that file if nothing needs it any more")
        raise


@_command("attachments", "blue")
@click.argument("network", required=False)
@_cache_dir
def _attachments(network: str | None, cache_dir: Path) -> None:
    """List the cached attachments.

    Those whose add or del has not completed are marked; a del removes them.
    """
    echo(render_attachments(_run(lambda: FileCache(cache_dir).list(network))))


@_command("gc", "--valid web/eth0 blue")
@_network
@_ignored_netns
@click.option("--valid", multiple=True, metavar="ID/IFNAME", help="An attachment to keep. Repeatable.")
@click.option("--all", "everything", is_flag=True, help="Keep none.")
@_cache_dir
def _gc(network: str, valid: tuple[str, ...], everything: bool, cache_dir: Path) -> None:
    """Delete the attachments to a network that are not valid.

    Unlike cnitool, which deletes all of them, it needs --valid or --all.
    """
    found = _find_network(network)
    keys = frozenset(map(parse_key, valid))
    if bool(keys) == everything:
        cached = _run(lambda: FileCache(cache_dir).list(network))
        names = ", ".join(f"{one.attachment.container_id}/{one.attachment.ifname}" for one in cached) or "none"
        raise click.UsageError(f"name the valid attachments, or use --all to delete every one; cached are: {names}")
    _run(lambda: _cached_runtime(cache_dir).gc(found, keys))


@_command("status", "blue")
@_network
@_ignored_netns
def _status(network: str) -> None:
    """Ask the plugins whether they are ready for an add."""
    _run(lambda: _cached_runtime(DEFAULT_CACHE_DIR).status(_find_network(network)))


@_command("validate", "blue")
@_network
@_ignored_netns
def _validate(network: str) -> None:
    """Look for problems of a network.

    Nothing is changed.
    """
    found = _find_network(network)
    report = _run(lambda: run_preflight(_runtime(), found))
    echo(report.render_text())
    if not report.is_good:
        sys.exit(1)


@_command("list", "")
def _list() -> None:
    """List the networks and where they come from.

    Files that are shadowed by others, or broken, are listed too.
    """
    echo(render_index(_index()))


def _index() -> ConfigurationIndex:
    return ConfigurationDirectories([find_configuration_dir(os.environ)]).index()


def _find_network(name: str) -> NetworkConfigurationList:
    return _index().find(name)


def _attachment(netns: str, ifname: str | None) -> Attachment:
    return parse_attachment(netns, os.environ, ifname=ifname)


def _runtime(running_dir: Path | None = None) -> Runtime:
    return Runtime(find_plugin_dirs(os.environ), _LIMITS, lock_dir=DEFAULT_LOCK_DIR, running_dir=running_dir)


def _cached_runtime(cache_dir: Path) -> CachedRuntime:
    cache = FileCache(cache_dir)
    return CachedRuntime(_runtime(cache.running_dir), cache, wait_s=_LIMITS.wait_s)


async def _delete(network: str, attachment: Attachment, cache_dir: Path, *, force: bool) -> None:
    runtime = _cached_runtime(cache_dir)
    try:
        found = _find_network(network)
    except ConfigurationNotFound as missing:
        cached = await FileCache(cache_dir).find(network, attachment.key)
        if cached is None:
            missing.add_note(
                f"no attachment of {attachment.container_id}/{attachment.ifname} to it is cached: "
                "see cni-invoker attachments"
            )
            raise
        await runtime.delete_cached(cached, force=force)
    else:
        await runtime.delete(found, attachment, force=force)


def _run(work: Callable[[], Coroutine[None, None, _T]]) -> _T:
    """Run `work` in an event loop; SIGTERM and SIGHUP interrupt it like Ctrl-C, so that no plugin is left running."""

    async def until_signalled() -> _T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # this is a coroutine
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work()

    try:
        return asyncio.run(until_signalled())
    except asyncio.CancelledError as exc:
        raise click.Abort from exc
