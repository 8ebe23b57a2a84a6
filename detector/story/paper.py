"""A page as PDF, by WeasyPrint; nothing is ever fetched."""

from __future__ import annotations

import logging
from typing import Any

from detector.story.model import StoryError

_WANTED = "a PDF needs the extra pdf: pip install 'oddnode[pdf]'"


def pdf_of(page: str) -> bytes:
    """Return a page as PDF.

    Raises
    ------
    StoryError
        When WeasyPrint or a library that it needs is not installed.
    """
    # it tells of every property that it does not know
    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    try:
        from weasyprint import HTML
    except ImportError:
        raise StoryError(_WANTED) from None
    except OSError as error:
        raise StoryError(
            f"a PDF needs the system library Pango (Debian: libpango-1.0-0 libpangoft2-1.0-0): {error}"
        ) from None
    return bytes(HTML(string=page, url_fetcher=_refused).write_pdf())


def _refused(url: str, *args: Any, **kwargs: Any) -> Any:
    raise ValueError(f"{url[:80]} is not fetched")
