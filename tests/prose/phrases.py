# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The phrases that documents, docstrings, comments and messages avoid, and what to write instead."""

from typing import Final

__all__ = ["PREFERRED"]

PREFERRED: Final = {
    r"(is|are|was|were|stays|remains|still) owed": "pending",
    r"owes?": "must complete",
    r"(is|are|was) said": "is logged",
    r"(is|are|was|were|being|be) told": "receives",
    r"tells? (us|it|them|him|Docker|dockerd)": "reports to …",
    r"told (its|the|no|apart|what|that|which|how|about|by|every|in|on)": "receives; reported",
    r"says? purely": "decides (pure)",
    r"an earlier (life|one's)": "the previous run",
    r"in the making": "being created",
    r"nobody('s)?": "no one; unowned",
    r"(gives?|gave|giving) way": "yields to",
    r"(has|have|had) its way": "wins",
    r"without a word": "silently",
    r"in vain": "without success",
    r"for want of": "because there is no",
    r"(is|are|was|were) done without": "is skipped",
    r"(let|lets) pass": "ignored",
    r"wishe[sd]": "requested values",
    r"a conversation": "a netlink socket",
    r"held against": "compared with",
    r"holds? .{1,40} against": "compares … with",
    r"(come|came|comes|coming) to (its|their|an|the) end": "completed",
    r"another's": "belongs to another endpoint",
    r"throw-?away": "short-lived",
    r"who (is|are) to have": "… that needs",
    r"whoever": "the caller, or the one that is meant",
    r"whosoever": "the caller, or the one that is meant",
    r"for ever": "forever, or a limit",
    r"ever after": "from then on",
    r"there is none of (it|them)": "it does not exist",
    r"as (good|well) as nothing": "almost nothing",
    r"looks? after": "maintains",
    r"tear downs": "teardowns (noun), tear down (verb)",
    r"(a|an|the|this|that|each|every|one|its|no|of|by|after|before|during|for|while) tear down": "teardown",
    r"by and by": "gradually",
    r"(is|are|was) no more": "no longer exists",
    r"ha(s|ve) gone by": "have passed",
    r"at its word": "literally",
    r"to speak of": "worth mentioning",
    r"whereupon": "and then",
    r"of its own accord": "by itself",
    r"knows? (nothing )?better": "has newer data",
    r"(some|every|any)body('s)?": "another process; each; any",
    r"(is|are|was|were) spoken": "uses the version; receives requests",
    r"spoken to": "is run with",
    r"gone through": "iterated; searched",
    r"(is|are|was|were) ended": "is killed; is cancelled",
    r"as ever": "as before",
}
"""Regular expression (a blank matches any white space) -> the words to use."""
