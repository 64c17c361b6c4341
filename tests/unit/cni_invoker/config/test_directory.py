# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which file gives a network its list, what is reported of the others, and when files are read."""

import os
import time
from pathlib import Path

import pytest

from cni_invoker import (
    BadConfiguration,
    ConfigurationDirectories,
    ConfigurationIndex,
    ConfigurationNotFound,
    read_configuration,
)


def write_list(file: Path, name: str, *types: str) -> Path:
    """Write a network configuration list."""
    plugins = ", ".join(f'{{"type": "{plugin_type}"}}' for plugin_type in types or ("bridge",))
    file.write_text(f'{{"name": "{name}", "cniVersion": "1.0.0", "plugins": [{plugins}]}}')
    return file


def write_plugin(file: Path, name: str, plugin_type: str = "bridge") -> Path:
    """Write the configuration of a single plugin."""
    file.write_text(f'{{"name": "{name}", "cniVersion": "1.0.0", "type": "{plugin_type}"}}')
    return file


def settle(*files: Path) -> None:
    """Wait until the files have not changed for so long that a change would show in their time stamps."""
    while time.time_ns() - max(file.stat().st_ctime_ns for file in files) < 60_000_000:
        time.sleep(0.005)


def index(*directories: Path) -> ConfigurationIndex:
    """Read directories afresh."""
    return ConfigurationDirectories(directories).index()


def test_every_kind_of_file_is_found(tmp_path: Path) -> None:
    """Lists and single plugins are found by the network's name, not the file's."""
    write_list(tmp_path / "10-a.conflist", "alpha", "bridge", "portmap")
    write_plugin(tmp_path / "20-b.conf", "beta")
    write_plugin(tmp_path / "30-c.json", "gamma")
    write_list(tmp_path / ".conflist", "hidden")
    write_list(tmp_path / "40-d.conflist~", "delta")
    found = index(tmp_path)
    assert found.names == ("alpha", "beta", "gamma", "hidden")
    assert [plugin.type for plugin in found.find("alpha").plugins] == ["bridge", "portmap"]
    assert found.find("beta").source == tmp_path / "20-b.conf"
    assert found.problems == ()


def test_lists_come_before_single_plugins(tmp_path: Path) -> None:
    """A list wins over a single plugin of an earlier name, and an earlier name over a later one."""
    single = write_plugin(tmp_path / "00-a.conf", "net")
    second = write_list(tmp_path / "60-a.conflist", "net")
    first = write_list(tmp_path / "50-a.conflist", "net", "ptp")
    found = index(tmp_path)
    assert found.find("net").source == first
    assert [(shadow.name, shadow.file, shadow.by) for shadow in found.shadowed] == [
        ("net", second, first),
        ("net", single, first),
    ]


def test_directories_come_in_their_order(tmp_path: Path) -> None:
    """Whatever an earlier directory has wins over a later one."""
    earlier, later = tmp_path / "earlier", tmp_path / "later"
    earlier.mkdir()
    later.mkdir()
    single = write_plugin(earlier / "90-a.conf", "net")
    shadowed = write_list(later / "00-a.conflist", "net")
    write_list(later / "10-b.conflist", "other")
    found = index(earlier, later, earlier)
    assert found.find("net").source == single
    assert [shadow.file for shadow in found.shadowed] == [shadowed]
    assert found.names == ("net", "other")


def write_further(directory: Path, name: str, text: str) -> Path:
    """Write a further plugin of a list."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    return directory / name


def types(directory: Path, name: str) -> list[str]:
    """Return the types of the plugins of a network."""
    return [plugin.type for plugin in index(directory).find(name).plugins]


def test_a_list_goes_on_in_its_sub_directory(tmp_path: Path) -> None:
    """The files `NAME/*.conf` are further plugins of the list, in the order of their names; other files are nothing."""
    write_list(tmp_path / "10-a.conflist", "net", "bridge")
    (tmp_path / "20-b.conflist").write_text(
        '{"name": "closed", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "a"}]}'
    )
    (tmp_path / "30-c.conflist").write_text('{"name": "open", "cniVersion": "1.0.0"}')
    for network in ("net", "closed", "open"):
        write_further(tmp_path / network, "20.conf", '{"type": "second"}')
        write_further(tmp_path / network, "10.conf", '{"type": "first"}')
        write_further(tmp_path / network, "00.json", '{"type": "no"}')
        write_further(tmp_path / network, "00.conflist", '{"type": "no"}')
        (tmp_path / network / "00.conf").mkdir()
    assert types(tmp_path, "net") == ["bridge", "first", "second"]
    assert types(tmp_path, "closed") == ["a"]
    assert types(tmp_path, "open") == ["first", "second"]


def test_a_broken_plugin_breaks_its_list_only(tmp_path: Path) -> None:
    """A list without one of its plugins would be another network; the error names the plugin's file."""
    write_list(tmp_path / "10-a.conflist", "net")
    write_list(tmp_path / "20-b.conflist", "other")
    broken = write_further(tmp_path / "net", "10.conf", '{"name": "x"}')
    found = index(tmp_path)
    assert found.names == ("other",)
    assert [(problem.file, problem.reason) for problem in found.problems] == [(broken, "'type' is a required property")]
    broken.write_text('{"type": "../x"}')
    assert [problem.reason for problem in index(tmp_path).problems] == [
        "invalid plugin type '../x': it must be the name of a file"
    ]


def test_an_edit_in_a_sub_directory_is_seen_at_once(tmp_path: Path) -> None:
    """A further plugin that comes, changes or goes changes the list."""
    list_file = write_list(tmp_path / "a.conflist", "net")
    directories = ConfigurationDirectories([tmp_path])

    def seen() -> list[str]:
        return [plugin.type for plugin in directories.index().find("net").plugins]

    assert seen() == ["bridge"]
    file = write_further(tmp_path / "net", "10.conf", '{"type": "first"}')
    assert seen() == ["bridge", "first"]
    settle(list_file, file)
    assert seen() == ["bridge", "first"]
    assert directories.index() is directories.index()
    file.write_text('{"type": "other"}')
    assert seen() == ["bridge", "other"]
    file.unlink()
    assert seen() == ["bridge"]


def test_a_sub_directory_that_is_a_file(tmp_path: Path) -> None:
    """A file of the network's name is nothing."""
    write_list(tmp_path / "a.conflist", "net")
    (tmp_path / "net").touch()
    assert types(tmp_path, "net") == ["bridge"]


def test_sub_directories_are_no_files(tmp_path: Path) -> None:
    """A directory is not looked into, whatever its name."""
    (tmp_path / "sub.conflist").mkdir()
    write_list(tmp_path / "sub.conflist" / "90-deep.conflist", "deep")
    found = index(tmp_path)
    assert (found.names, found.problems) == ((), ())


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """A missing directory is no error by itself, and is seen as soon as it is made."""
    directories = ConfigurationDirectories([tmp_path / "missing"])
    assert directories.index().names == ()
    assert directories.index().problems == ()
    (tmp_path / "missing").mkdir()
    write_list(tmp_path / "missing" / "a.conflist", "net")
    assert directories.index().names == ("net",)


def test_a_broken_file_hides_nothing(tmp_path: Path) -> None:
    """Files that are of no use are reported, each with its reason; the good ones around them are found."""
    (tmp_path / "00-syntax.conflist").write_text('{"name": "net",\n')
    (tmp_path / "01-type.conf").write_text('{"name": "net"}')
    os.mkfifo(tmp_path / "02-fifo.conf")
    (tmp_path / "03-dangling.conf").symlink_to("nowhere")
    (tmp_path / "04-large.conf").write_bytes(b" " * (1 << 20) + b"{}")
    (tmp_path / "05-binary.conf").write_bytes(b"\xff")
    write_list(tmp_path / "99-good.conflist", "net")
    found = index(tmp_path)
    assert found.names == ("net",)
    assert [(problem.file and problem.file.name, problem.line, problem.reason) for problem in found.problems] == [
        ("00-syntax.conflist", 2, "Expecting property name enclosed in double quotes"),
        ("01-type.conf", None, "'type' is a required property"),
        ("02-fifo.conf", None, "error reading it: not a regular file"),
        ("03-dangling.conf", None, "error reading it: No such file or directory"),
        ("04-large.conf", None, "it has more than 1048576 bytes"),
        ("05-binary.conf", 1, "not UTF-8"),
    ]


def test_a_link_that_leads_nowhere_hides_nothing(tmp_path: Path) -> None:
    """A link to itself, or to what is not there, is a problem of its own."""
    write_list(tmp_path / "50-good.conflist", "good")
    loop, lost = tmp_path / "10-loop.conflist", tmp_path / "20-lost.conf"
    loop.symlink_to(loop)
    lost.symlink_to("nowhere")
    found = index(tmp_path)
    assert found.names == ("good",)
    assert [problem.file for problem in found.problems] == [loop, lost]


def test_a_directory_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """What is configured as a directory and is none is reported."""
    file = write_plugin(tmp_path / "a.conf", "net")
    found = index(file)
    assert found.names == ()
    assert [str(problem) for problem in found.problems] == [f"{file}: error reading it: Not a directory"]


def test_an_unknown_name_says_what_there_is(tmp_path: Path) -> None:
    """The nearest name comes first; directories and unusable files are named."""
    for name in ("alpha", "backend", "my-network"):
        write_list(tmp_path / f"{name}.conflist", name)
    broken = tmp_path / "broken.conflist"
    broken.write_text("{")
    other = tmp_path / "missing"
    with pytest.raises(ConfigurationNotFound) as caught:
        index(tmp_path, other).find("mynetwork")
    error = caught.value
    assert error.name == "mynetwork"
    assert error.known == ("my-network", "alpha", "backend")
    assert error.directories == (tmp_path, other)
    assert [problem.file for problem in error.problems] == [broken]
    assert str(error) == (
        f"no network configuration named 'mynetwork' in {tmp_path}, {other}; "
        f"there are: my-network, alpha, backend; did you mean my-network?; unusable: {broken}, line 1, column 2: "
        "Expecting property name enclosed in double quotes"
    )


def test_no_configuration_at_all(tmp_path: Path) -> None:
    """Where nothing is configured, that is what the error says."""
    with pytest.raises(
        ConfigurationNotFound,
        match=f"^no network configuration named 'net' in {tmp_path}; there are: none; put a .conflist file there$",
    ):
        index(tmp_path).find("net")
    with pytest.raises(
        ConfigurationNotFound,
        match=f"^no network configuration in {tmp_path}; there are: none; put a .conflist file there$",
    ):
        index(tmp_path).require_any()
    write_list(tmp_path / "a.conflist", "net")
    index(tmp_path).require_any()


def test_the_index_stays_while_nothing_changes(tmp_path: Path) -> None:
    """Files that have not changed are not read again: the same index is returned."""
    file = write_list(tmp_path / "a.conflist", "net")
    settle(file)
    directories = ConfigurationDirectories([tmp_path])
    assert directories.index() is directories.index()


def test_an_edit_is_seen_at_once(tmp_path: Path) -> None:
    """A file that is made, changed, replaced or removed is seen by the next call; the others are not parsed again."""
    other = write_list(tmp_path / "z.conflist", "other")
    file = write_list(tmp_path / "a.conflist", "net1")
    settle(other, file)
    directories = ConfigurationDirectories([tmp_path])
    before = directories.index()
    write_list(file, "net2")
    changed = directories.index()
    assert changed.names == ("net2", "other")
    assert changed.find("other") is before.find("other")
    assert before.names == ("net1", "other")
    write_list(tmp_path / "new", "net3").replace(file)
    assert directories.index().names == ("net3", "other")
    file.unlink()
    assert directories.index().names == ("other",)


def test_other_directories(tmp_path: Path) -> None:
    """Directories can be exchanged; what is found, and where an error says that it was looked for, follow."""
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    write_list(second / "a.conflist", "net1")
    directories = ConfigurationDirectories([first])
    with pytest.raises(ConfigurationNotFound, match="first"):
        directories.index().find("net1")
    directories.look_in([second])
    assert directories.index().names == ("net1",)
    directories.look_in([tmp_path / "third"])
    with pytest.raises(ConfigurationNotFound, match="third"):
        directories.index().find("net1")


def test_a_file_that_has_just_changed_is_not_trusted(tmp_path: Path) -> None:
    """A file that may change once more within one tick of the kernel's clock is read again until that is over."""
    file = tmp_path / "a.conflist"
    directories = ConfigurationDirectories([tmp_path])
    for number in range(10, 60):
        write_list(file, f"net{number}")
        index = directories.index()
        assert index.names == (f"net{number}",)
        again = directories.index()
        just_changed = time.time_ns() - file.stat().st_ctime_ns < 50_000_000
        assert again is not index or not just_changed


def test_a_broken_file_is_seen_when_it_is_mended(tmp_path: Path) -> None:
    """Problems go away with their cause."""
    file = tmp_path / "a.conflist"
    file.write_text("{")
    directories = ConfigurationDirectories([tmp_path])
    assert len(directories.index().problems) == 1
    write_list(file, "net")
    assert directories.index().problems == ()


def test_reading_one_file(tmp_path: Path) -> None:
    """A single file can be read; one that is not there is an error with its path."""
    assert read_configuration(write_plugin(tmp_path / "a.conf", "net")).name == "net"
    with pytest.raises(BadConfiguration, match=r"missing\.conf: error reading it: No such file or directory"):
        read_configuration(tmp_path / "missing.conf")
