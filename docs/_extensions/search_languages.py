"""Search in languages that Sphinx has no rules for: Korean and Vietnamese, and Chinese without a
dictionary.

Chinese is written without spaces, and Korean joins particles to its words. So a text in them is
looked up by the pairs of characters that stand side by side in it, as search engines do; every pair
of what is asked must occur on the page.
"""

import re

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage
from sphinx.util.typing import ExtensionMetadata

__all__ = ["setup"]

# CJK ideographs and Hangul syllables.
JOINED = "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
RUN = re.compile(f"[{JOINED}]+|[^\\W{JOINED}]+")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the languages."""
    for language in (SearchKorean, SearchChinese, SearchVietnamese):
        app.add_search_language(language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class SearchByPairs(SearchLanguage):
    """Split what is written without spaces into pairs of characters; leave other words whole."""

    js_splitter_code = f"""
function splitQuery(query) {{
  const runs = query.match(/[{JOINED}]+|(?:(?![{JOINED}])[\\p{{Letter}}\\p{{Number}}_])+/gu) || [];
  return runs.flatMap((run) =>
    /^[{JOINED}]{{2}}/.test(run)
      ? Array.from(run.slice(1), (_, at) => run.slice(at, at + 2))
      : [run]
  );
}}
"""

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx names it
        words = []
        for run in RUN.findall(input):
            if re.match(f"[{JOINED}]", run):
                words += [run[at : at + 2] for at in range(len(run) - 1)]
                words += run
            else:
                words.append(run)
        return words


class SearchKorean(SearchByPairs):
    lang = "ko"
    language_name = "Korean"


class SearchChinese(SearchByPairs):
    lang = "zh"
    language_name = "Chinese"


class SearchVietnamese(SearchLanguage):
    """Split at spaces, which stand between syllables; no word has endings."""

    lang = "vi"
    language_name = "Vietnamese"
