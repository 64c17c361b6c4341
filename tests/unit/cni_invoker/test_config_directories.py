# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which file defines a network, what is reported about the others, and when files are read again."""

import os
import time
from pathlib import Path

import pytest

from cni_invoker import ConfigurationDirectories, ConfigurationIndex, read_configuration
from cni_invoker.errors import BadConfiguration, ConfigurationNotFound


def write_list(file: Path, name: str, *types: str) -> Path:
    """Write a network configuration list."""
    plugins = ", ".join(f'{{"type": "{plugin_type}"}}' for plugin_type in types or ("bridge",))
    file.write_text(f'{{"name": "{name}", "cniVersion": "1.0.0", "plugins": [{plugins}]}}')
    return file


def write_plugin(file: Path, name: str) -> Path:
    """Write the configuration of a single plugin."""
    file.write_text(f'{{"name": "{name}", "cniVersion": "1.0.0", "type": "bridge"}}')
    return file


def wait_for_a_new_timestamp(*files: Path) -> None:
    """Wait until a change of the files would change their timestamps."""
    while time.time_ns() - max(file.stat().st_ctime_ns for file in files) < 60_000_000:
        time.sleep(0.005)


def index(*directories: Path) -> ConfigurationIndex:
    """Return the index of directories, read anew."""
    return ConfigurationDirectories(directories).index()


def test_lists_and_single_plugins_are_found(tmp_path: Path) -> None:
    """The key is the network's name in the file, not the name of the file."""
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


def test_earlier_directories_come_first(tmp_path: Path) -> None:
    """Any file of an earlier directory wins over all files of a later one."""
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


def write_plugin_file(directory: Path, name: str, text: str) -> Path:
    """Write the file of a plugin that belongs to a list."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    return directory / name


def types(directory: Path, name: str) -> list[str]:
    """Return the types of the plugins of a network."""
    return [plugin.type for plugin in index(directory).find(name).plugins]


def test_a_list_continues_in_its_subdirectory(tmp_path: Path) -> None:
    """`NAME/*.conf` are further plugins of the list, in the order of their file names; other files are ignored."""
    write_list(tmp_path / "10-a.conflist", "net", "bridge")
    (tmp_path / "20-b.conflist").write_text(
        '{"name": "closed", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "a"}]}'
    )
    (tmp_path / "30-c.conflist").write_text('{"name": "open", "cniVersion": "1.0.0"}')
    for network in ("net", "closed", "open"):
        write_plugin_file(tmp_path / network, "20.conf", '{"type": "second"}')
        write_plugin_file(tmp_path / network, "10.conf", '{"type": "first"}')
        write_plugin_file(tmp_path / network, "00.json", '{"type": "no"}')
        write_plugin_file(tmp_path / network, "00.conflist", '{"type": "no"}')
        (tmp_path / network / "00.conf").mkdir()
    assert types(tmp_path, "net") == ["bridge", "first", "second"]
    assert types(tmp_path, "closed") == ["a"]
    assert types(tmp_path, "open") == ["first", "second"]


def test_an_invalid_plugin_file_invalidates_its_list_only(tmp_path: Path) -> None:
    """A list without one of its plugins would be another network; the problem names the plugin's file."""
    write_list(tmp_path / "10-a.conflist", "net")
    write_list(tmp_path / "20-b.conflist", "other")
    broken = write_plugin_file(tmp_path / "net", "10.conf", '{"name": "x"}')
    found = index(tmp_path)
    assert found.names == ("other",)
    assert [(problem.file, problem.reason) for problem in found.problems] == [(broken, "type is missing")]
    broken.write_text('{"type": "../x"}')
    assert [problem.reason for problem in index(tmp_path).problems] == [
        "invalid plugin type '../x': it must be the name of a file"
    ]


def test_an_edit_in_a_subdirectory_is_seen_immediately(tmp_path: Path) -> None:
    """A plugin file that is added, changed or removed changes the list."""
    list_file = write_list(tmp_path / "a.conflist", "net")
    directories = ConfigurationDirectories([tmp_path])

    def seen() -> list[str]:
        return [plugin.type for plugin in directories.index().find("net").plugins]

    assert seen() == ["bridge"]
    file = write_plugin_file(tmp_path / "net", "10.conf", '{"type": "first"}')
    assert seen() == ["bridge", "first"]
    wait_for_a_new_timestamp(list_file, file)
    assert seen() == ["bridge", "first"]
    assert directories.index() is directories.index()
    file.write_text('{"type": "other"}')
    assert seen() == ["bridge", "other"]
    file.unlink()
    assert seen() == ["bridge"]


def test_a_file_instead_of_a_subdirectory_is_ignored(tmp_path: Path) -> None:
    """A regular file with the network's name adds no plugins."""
    write_list(tmp_path / "a.conflist", "net")
    (tmp_path / "net").touch()
    assert types(tmp_path, "net") == ["bridge"]


def test_a_directory_with_the_name_of_a_list_is_ignored(tmp_path: Path) -> None:
    """A directory is not read, even if its name ends in .conflist."""
    (tmp_path / "sub.conflist").mkdir()
    write_list(tmp_path / "sub.conflist" / "90-deep.conflist", "deep")
    found = index(tmp_path)
    assert (found.names, found.problems) == ((), ())


def test_a_missing_directory_is_empty(tmp_path: Path) -> None:
    """It is not a problem, and is read as soon as it exists."""
    directories = ConfigurationDirectories([tmp_path / "missing"])
    assert directories.index().names == ()
    assert directories.index().problems == ()
    (tmp_path / "missing").mkdir()
    write_list(tmp_path / "missing" / "a.conflist", "net")
    assert directories.index().names == ("net",)


def test_an_invalid_file_hides_no_other(tmp_path: Path) -> None:
    """Each invalid file is reported with the reason; valid files around it are found."""
    (tmp_path / "00-syntax.conflist").write_text('{"name": "net",\n')
    (tmp_path / "01-type.conf").write_text('{"name": "net"}')
    os.mkfifo(tmp_path / "02-fifo.conf")
    (tmp_path / "03-dangling.conf").symlink_to("nowhere")
    (tmp_path / "04-large.conf").write_bytes(b" " * (1 << 20) + b"{}")
    (tmp_path / "05-binary.conf").write_bytes(b"\xff")
    (tmp_path / "06-loop.conf").symlink_to("06-loop.conf")
    write_list(tmp_path / "99-good.conflist", "net")
    found = index(tmp_path)
    assert found.names == ("net",)
    assert [(problem.file and problem.file.name, problem.line, problem.reason) for problem in found.problems] == [
        ("00-syntax.conflist", 2, "Expecting property name enclosed in double quotes"),
        ("01-type.conf", None, "type is missing"),
        ("02-fifo.conf", None, "not a regular file"),
        ("03-dangling.conf", None, "No such file or directory"),
        ("04-large.conf", None, "it has more than 1048576 bytes"),
        ("05-binary.conf", 1, "not UTF-8"),
        ("06-loop.conf", None, "Too many levels of symbolic links"),
    ]


def test_a_directory_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """A file given as a directory is reported."""
    file = write_plugin(tmp_path / "a.conf", "net")
    found = index(file)
    assert found.names == ()
    assert [str(problem) for problem in found.problems] == [f"error reading {file}: Not a directory"]


def test_an_unknown_network_lists_the_known_ones(tmp_path: Path) -> None:
    """The nearest name comes first; directories and invalid files are named."""
    for name in ("alpha", "backend", "my-network"):
        write_list(tmp_path / f"{name}.conflist", name)
    broken = tmp_path / "broken.conflist"
    broken.write_text("{")
    other = tmp_path / "missing"
    with pytest.raises(ConfigurationNotFound) as caught:
        index(tmp_path, other).find("mynetwork")
    error = caught.value
    assert [problem.file for problem in error.problems] == [broken]
    assert str(error) == (
        f'no net configuration with name "mynetwork" in {tmp_path}, {other}; '
        f"there are: my-network, alpha, backend; did you mean my-network?; "
        f"unusable: error parsing configuration list: {broken}, line 1, column 2: "
        "Expecting property name enclosed in double quotes"
    )


def test_a_broken_file_of_that_name_is_all_that_is_said(tmp_path: Path) -> None:
    """What is wrong with it is not buried among other networks."""
    write_list(tmp_path / "alpha.conflist", "alpha")
    broken = tmp_path / "10-blue.conflist"
    broken.write_text("{")
    with pytest.raises(ConfigurationNotFound) as caught:
        index(tmp_path).find("blue")
    assert [problem.file for problem in caught.value.own] == [broken]
    assert str(caught.value) == (
        f'no net configuration with name "blue": error parsing configuration list: {broken}, line 1, column 2: '
        "Expecting property name enclosed in double quotes"
    )


def test_a_directory_that_cannot_be_read_is_all_that_is_said(tmp_path: Path) -> None:
    """Whether the configuration exists is not known, so nothing is suggested."""
    directory = tmp_path / "file"
    directory.touch()
    with pytest.raises(
        ConfigurationNotFound,
        match=f'^no net configuration with name "blue": error reading {directory}: Not a directory$',
    ):
        index(directory).find("blue")


def test_an_empty_configuration_says_so(tmp_path: Path) -> None:
    """The error says that there are no networks, and where to put a file."""
    with pytest.raises(
        ConfigurationNotFound,
        match=f'^no net configuration with name "net" in {tmp_path}; there are: none; put a .conflist file there$',
    ):
        index(tmp_path).find("net")
    with pytest.raises(
        ConfigurationNotFound,
        match=f"^no net configurations found in {tmp_path}; there are: none; put a .conflist file there$",
    ):
        index(tmp_path).require_any()
    write_list(tmp_path / "a.conflist", "net")
    index(tmp_path).require_any()


def test_an_edit_is_seen_immediately(tmp_path: Path) -> None:
    """A file that is added, changed, replaced or removed is seen by the next call."""
    other = write_list(tmp_path / "z.conflist", "other")
    file = write_list(tmp_path / "a.conflist", "net1")
    wait_for_a_new_timestamp(other, file)
    directories = ConfigurationDirectories([tmp_path])
    before = directories.index()
    write_list(file, "net2")
    changed = directories.index()
    assert changed.names == ("net2", "other")
    assert before.names == ("net1", "other")
    write_list(tmp_path / "new", "net3").replace(file)
    assert directories.index().names == ("net3", "other")
    file.unlink()
    assert directories.index().names == ("other",)


def test_a_file_that_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """A second change within one tick of the kernel's clock would not change the timestamp."""
    file = tmp_path / "a.conflist"
    directories = ConfigurationDirectories([tmp_path])
    for number in range(10, 60):
        write_list(file, f"net{number}")
        index = directories.index()
        assert index.names == (f"net{number}",)
        again = directories.index()
        just_changed = time.time_ns() - file.stat().st_ctime_ns < 50_000_000
        assert again is not index or not just_changed


def test_a_single_file_can_be_read(tmp_path: Path) -> None:
    """A missing file is an error with its path."""
    assert read_configuration(write_plugin(tmp_path / "a.conf", "net")).name == "net"
    with pytest.raises(BadConfiguration, match=r"error reading .*missing\.conf: No such file or directory"):
        read_configuration(tmp_path / "missing.conf")
