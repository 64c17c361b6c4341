# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which of the containers in a sandbox it belongs to. How they are found is tested in tests/kernel."""

from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.driver.attach.place_finder import choose_owner
from cnm_bridge.system.kernel import SandboxProcess

OWNER, PARTNER = "a" * 64, "b" * 64
BOOTING = "the Docker Engine is booting"


def process(pid: int, started: int, container_id: str) -> SandboxProcess:
    """Return the first process of a container."""
    return SandboxProcess(pid=pid, started=started, cgroup=f"0::/system.slice/docker-{container_id}.scope\n")


def container(container_id: str, mode: str) -> EngineContainer:
    """Return a container as the engine lists it."""
    return EngineContainer(
        id=container_id, name="web", image="busybox", labels={}, document={"HostConfig": {"NetworkMode": mode}}
    )


PROCESSES = (process(5, 100, OWNER), process(9, 200, PARTNER))


def test_a_container_that_shares_a_sandbox_is_not_its_owner() -> None:
    """The engine says which one shares it, whichever is older, and whether or not the owner has a first process."""
    listed = (container(PARTNER, f"container:{OWNER}"), container(OWNER, "blue"))
    chosen = choose_owner(PROCESSES, listed, "")
    assert (chosen.process, chosen.container, chosen.unknown) == (PROCESSES[0], listed[1], "")
    older = process(3, 50, PARTNER)
    assert choose_owner((older, *PROCESSES[:1]), listed, "").process == PROCESSES[0]
    alone = choose_owner(PROCESSES[1:], listed[:1], "")
    assert (alone.process, alone.container) == (None, None)
    assert "lists only those that share it" in alone.unknown


def test_a_listed_container_goes_before_an_unlisted_one() -> None:
    """The engine does not list the containers of another runtime."""
    chosen = choose_owner((process(3, 50, "c" * 64), *PROCESSES[:1]), (container(OWNER, "blue"),), "")
    assert chosen.process == PROCESSES[0]


def test_an_unlisted_process_beside_partners() -> None:
    """It is not taken for the owner: it may be another process of a partner. The reason is given."""
    listed = (container(PARTNER, f"container:{OWNER}"),)
    for unlisted in (process(3, 50, "c" * 64), SandboxProcess(pid=3, started=50, cgroup="0::/user.slice\n")):
        chosen = choose_owner((unlisted, *PROCESSES[1:]), listed, "")
        assert chosen.process is None
        assert "lists only those that share it" in chosen.unknown
    none = choose_owner(PROCESSES, (), "the Docker Engine does not list container a")
    assert (none.process, none.unknown) == (None, "the Docker Engine does not list container a")


def test_without_an_answer_the_oldest_is_taken() -> None:
    """A container that shares a sandbox starts later. Two that started at the same time cannot be distinguished."""
    chosen = choose_owner(PROCESSES, None, BOOTING)
    assert (chosen.process, chosen.container, chosen.unknown) == (PROCESSES[0], None, BOOTING)
    assert choose_owner((process(5, 100, OWNER), process(9, 100, PARTNER)), None, BOOTING).process is None
    assert choose_owner((), None, BOOTING).process is None
