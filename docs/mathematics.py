"""Turn the TeX of a Markdown text into MathML, which browsers draw without a script.

It is done before the build, in HTML that every Markdown parser hands on as it is, so that no
builder of sites has to know mathematics, and search finds what is shown.
"""

import html
import re

from latex2mathml.converter import convert

TEX = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)"
    r"|<(?P<tag>code|pre|script|style)\b.*?</(?P=tag)>)"
    r"|\$\$(?P<display>.+?)\$\$"
    r"|(?<![\\$])\$(?![\s$])(?P<inline>(?:\\.|[^\\$])+?)(?<!\s)\$(?!\d)",
    re.DOTALL,
)
UNKNOWN = re.compile(r">(\\\w+|&)<")  # what the converter does not know it leaves in the text
NAMED_OPERATOR = r'<mo lspace="0.17em" rspace="0.17em">\2</mo>'  # log, max: apart from what follows


def replace_tex(markdown: str, place: str) -> str:
    r"""Return a Markdown text with MathML for `$...$` and `$$...$$` outside of code.

    Raise ValueError, which names `place`, for a command that has no MathML.
    """

    def replace(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        if found["inline"]:  # in a span: some parsers end the paragraph where a line begins <math
            return f"<span>{to_mathml(found['inline'], 'inline', place)}</span>"
        return f'<div class="formula">{to_mathml(found["display"], "block", place)}</div>'

    return TEX.sub(replace, markdown)


def to_mathml(tex: str, display: str, place: str) -> str:
    """Return MathML; `display` is "inline" or "block". Raise ValueError for unknown commands."""
    source = tex.strip().replace("{aligned}", "{split}").replace("{align*}", "{split}")
    mathml = convert(source, display=display)
    unknown = UNKNOWN.findall(mathml)
    if unknown:
        raise ValueError(
            f"Mathematics must be TeX that becomes MathML. Received: {unknown[0]} in {place}: "
            f"{source[:200]}. Write it with other commands."
        )
    mathml = re.sub(r"<m([oi])>([A-Za-z]{2,})</m\1>", NAMED_OPERATOR, mathml)
    return re.sub(r"(?<=>)[^<]+", _escape, mathml)


def _escape(text: re.Match[str]) -> str:
    """Return the text of an element with a number for all that may mean something in Markdown."""
    characters = html.unescape(text[0])
    return "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in characters)
