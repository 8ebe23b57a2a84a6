"""Whether two names of a part mean the same: ``GPU 3``, ``gpu3`` and ``gpu_3`` do."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d_]+|\d+")
_FILLER = frozenset({"device", "port", "index", "slot"})


def normalised(part: str) -> tuple[str, ...]:
    """Return the words and whole numbers of a part's name, without filler words."""
    words = (word for word in _WORD.findall(part.casefold()) if word not in _FILLER)
    return tuple(str(int(word)) if word.isdecimal() else word for word in words)


def same_part(named: str, labelled: str) -> bool:
    """Tell whether a named part is one of the labelled ones (separated by commas).

    Nothing named is never right: to say only the node is not to name the part. A number of parts
    (``8 GPUs``) is right when just so many of that kind are labelled.
    """
    words = normalised(named)
    parts = [normalised(one) for one in labelled.split(",")]
    if len(words) == 2 and words[0].isdecimal():
        kinds = {part[0] for part in parts if part}
        return len(set(parts)) == int(words[0]) > 1 and kinds == {words[1].removesuffix("s")}
    return bool(words) and any(words == part for part in parts)
