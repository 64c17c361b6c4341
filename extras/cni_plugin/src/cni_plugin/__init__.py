# SPDX-License-Identifier: Apache-2.0
"""Write a CNI plugin: what `pkg/skel` of CNI's library is to Go.

A `Plugin` reads the call, has a function carry it out, and prints the answer. It works without asyncio and imports
little, because a plugin starts anew for each operation. It can also answer in the process of a runtime (`Runtime` of
cni_invoker, parameter `in_process`).
"""

from cni_invoker.documents.jsontypes import JsonObject
from cni_invoker.documents.versions import Verb
from cni_invoker.errors import ErrorCode
from cni_plugin.call import Call, CallError, run_in_namespace
from cni_plugin.plugin import Plugin

__all__ = ["Call", "CallError", "ErrorCode", "JsonObject", "Plugin", "Verb", "run_in_namespace"]

__version__ = "0.1.0"
