# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A program that says for each URL whether a server answers there within some seconds.

python fetch.py URL…
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

_LIMIT_S: Final = 2.0


def answers(url: str) -> str:
    """Return `yes` or `no`."""
    with suppress(URLError, OSError), build_opener(ProxyHandler({})).open(url, timeout=_LIMIT_S):
        return "yes"
    return "no"


if __name__ == "__main__":
    with ThreadPoolExecutor() as threads:
        for tried, answer in zip(sys.argv[1:], threads.map(answers, sys.argv[1:]), strict=True):
            sys.stdout.write(f"from the host: {tried} = {answer}\n")
