"""Text as a reader sees it, from Markdown, HTML and Org, with titles and the fields of front matter.

Markdown is parsed by markdown-it-py, and its blocks are written by the same reader of tags as those of HTML. Everything
is linear in the length of the source: a long paragraph is parsed in pieces, nesting is bounded by the parser.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from datetime import date
from html import unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Literal

from msdc.arguments import checked
from msdc.errors import InputError, first_line
from msdc.progress import warn
from msdc.text.org import read_org

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

Kind = Literal["plain", "markdown", "html", "org"]
MOST_FRONT_MATTER = 1 << 16  # characters
RESERVED = ("id", "_id", "text")  # what `Index.add` takes for itself
# Characters of a paragraph that are parsed at once: a parser of emphasis and links compares pairs of marks.
PIECE = 4000
DEEPEST = 90  # lists and quotes inside of each other; a list counts twice
PARAGRAPHS = frozenset(
    ("article", "blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "ol", "p", "pre", "section",
     "table", "ul")
)  # fmt: skip
LINES = PARAGRAPHS | frozenset(
    ("address", "aside", "body", "br", "caption", "center", "dd", "details", "dialog", "dir", "div", "dt", "fieldset",
     "figcaption", "footer", "form", "frameset", "head", "header", "hgroup", "html", "iframe", "legend", "li", "main",
     "menu", "nav", "noscript", "optgroup", "option", "search", "select", "summary", "tbody", "textarea", "tfoot",
     "thead", "title", "tr")
)  # fmt: skip
HIDDEN = frozenset(("script", "style", "template", "rt", "rp"))  # rt, rp: readings above words, which they would divide
HIDING = re.compile(r"\s*<(script|style|template|rt|rp)\b", re.IGNORECASE)
FRONT_END = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
DATA_URI = re.compile(r"data:[\w.+-]+/[\w.+-]+(?:;[\w.=-]+)*;base64,[\w+/=%-]*", re.ASCII)
HIGHLIGHT = re.compile(r"(?<![\w=])==(?=[^\s=])([^=\n]*)(?<=\S)==(?![\w=])")
WIKI_LINK = re.compile(r"!?\[\[([^\[\]\n]+)\]\]")
MATHS = re.compile(
    r"\$\$[^$]+\$\$|\$(?=[^\s$])[^$\n]*(?<=\S)\$(?!\d)|\\\([^\n]{1,400}?\\\)|\\\[.{1,400}?\\\]", re.DOTALL
)
FOOTNOTE = re.compile(r"^ {0,3}\[\^[^\[\]\s]{1,80}\]:", re.MULTILINE)
FOOTNOTE_MARK = re.compile(r"\[\^[^\[\]\s]{1,80}\]")
TASK = re.compile(r"\[([ xX])\](?=\s)")
# Letters of scripts without blanks between words: a line end between two of them is none of the text.
UNSPACED = re.compile(r"[\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
BLANKS = re.compile(r"[ \t\n\r\f]+")


@checked
def markup_document(source: str, kind: Kind) -> dict[str, Any]:
    """The `text` of a file as a reader sees it, its `title`, and the fields of its front matter, for `Index.add`.

    Links are their words, images their alternative text, rows of tables lines; code and maths stay. The title is that
    of the front matter, `<title>` or `#+title:`, else the first heading of level 1. A field named `id`, `_id` or `text`
    gets the prefix `front_matter_`. Front matter that is not YAML is text, with a warning.

    Raises:
        InputError: a source that is no text, an unknown kind.
    """
    if not isinstance(source, str):
        raise InputError(f"`source` takes a text, not {type(source).__name__}")
    return read_markup(source, kind, "a document")


def read_markup(source: str, kind: Kind, origin: str) -> dict[str, Any]:
    """`markup_document` of `origin`, which a warning names."""
    if kind == "plain":
        return {"title": "", "text": source}
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if kind == "org":
        return _document(*read_org(source))
    fields, body = _front_matter(source, origin)
    reader = _Reader()
    if kind == "html":
        reader.read(body)
    else:
        _read_markdown(body, reader)
    return _document("\n".join(reader.lines).strip("\n"), reader.title or reader.heading, fields)


def _document(text: str, title: str, fields: dict[str, Any]) -> dict[str, Any]:
    own_title = fields.pop("title", None)
    named = {f"front_matter_{name}" if name in RESERVED else name: value for name, value in fields.items()}
    if isinstance(own_title, date):
        own_title = own_title.isoformat()
    return {**named, "title": title if own_title in (None, "") else str(own_title), "text": text}


def _front_matter(source: str, origin: str) -> tuple[dict[str, Any], str]:
    """The fields between `---` lines at the beginning, and what follows; none, and all, where they are not YAML."""
    first, _, _ = source.partition("\n")
    end = FRONT_END.search(source, len(first) + 1) if first.rstrip() == "---" else None
    if end is None:
        return {}, source
    head = source[len(first) + 1 : end.start()]
    if len(head) > MOST_FRONT_MATTER:
        warn(f"{origin}: front matter of more than {MOST_FRONT_MATTER} characters is taken as text")
        return {}, source
    import yaml

    class Loader(yaml.SafeLoader):
        """Without references, by which a few lines stand for millions of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.composer.ComposerError(None, None, "it has a reference (*name)", None)
            return super().compose_node(parent, index)

    try:
        fields = yaml.load(head, Loader)
    except Exception as error:  # PyYAML's constructors raise errors of many types on wrong dates and numbers
        warn(f"{origin}: front matter that is not valid YAML is taken as text ({first_line(error)})")
        return {}, source
    if fields is None:
        return {}, source[end.end() :]
    if not isinstance(fields, dict):  # text between two lines
        return {}, source
    return {str(name): value for name, value in fields.items()}, source[end.end() :]


class _Reader(HTMLParser):
    """Writes the text between tags to `lines`; `title` is that of `<title>`, `heading` the first of level 1."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.title = self.heading = ""
        self._parts: list[str] = []  # of the line that is written
        self._has_text = False
        self._hidden: set[str] = set()
        self._title_parts: list[str] | None = None
        self._heading_line: int | None = None
        self._verbatim = self._in_svg = False

    def read(self, source: str) -> None:
        """Read a document, or a part of it whose tags leave no state for the next."""
        self.fragment(source)
        self.settle()

    def fragment(self, source: str) -> None:
        """Read a part inside of a line."""
        self.feed(source)
        # `close` would search to the end again for each tag that is not complete.
        rest = "" if self.cdata_elem in HIDDEN else self.rawdata
        self.reset()
        if rest:
            self.handle_data(unescape(rest))

    def settle(self) -> None:
        """End the paragraph, and what was not closed in it."""
        self._end_title()
        self._end_line(paragraph=True)
        self._hidden.clear()
        self._verbatim = self._in_svg = False

    def parse_html_declaration(self, start: int) -> int:
        """One past the end of `<!...>`, or -1; the library's raises on unknown ones."""
        return self.rawdata.find(">", start) + 1 or -1

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Break lines at tags of blocks, hide what a reader does not see."""
        if tag in LINES:
            self._hidden -= {"rt", "rp"}  # whose end tags may be omitted
            self._end_title()
        if tag in HIDDEN or (tag == "title" and (self._in_svg or self.title)):
            self._hidden.add(tag)
        if self._hidden:
            return
        if tag in LINES:
            self._end_line(tag in PARAGRAPHS)
        if tag in ("td", "th") and self._has_text:
            self._parts.append(" | ")
        elif tag == "img":
            self.handle_data(next((value or "" for name, value in attrs if name == "alt"), ""))
        elif tag == "title":
            self._title_parts = []
        elif tag == "h1" and not self.heading:
            self._heading_line = len(self.lines)
        elif tag == "pre":
            self._verbatim = True
        elif tag == "svg":
            self._in_svg = True

    def handle_endtag(self, tag: str) -> None:
        """End what a start tag began."""
        if tag == "ruby" or tag in LINES:
            self._hidden -= {"rt", "rp"}
        if self._hidden:
            self._hidden.discard(tag)
            return
        if tag == "title":
            self.title = BLANKS.sub(" ", "".join(self._title_parts or [])).strip()
            self._title_parts = None
        elif tag in LINES:
            self._end_line(tag in PARAGRAPHS)
        if tag == "h1" and self._heading_line is not None:
            self.heading = " ".join(filter(None, self.lines[self._heading_line :]))
            self._heading_line = None
        elif tag == "pre":
            self._verbatim = False
        elif tag == "svg":
            self._in_svg = False

    def handle_data(self, data: str) -> None:
        """Text, unless it is hidden."""
        if self._title_parts is not None:
            self._title_parts.append(data)
        elif not self._hidden:
            self._parts.append(data)
            self._has_text = self._has_text or not data.isspace()

    def block(self, content: str) -> None:
        """Lines that stay as they are, such as code."""
        self._end_line(paragraph=True)
        self.lines += [content.strip("\n"), ""]

    def _end_title(self) -> None:
        """A title without an end tag is text."""
        if self._title_parts is not None:
            parts, self._title_parts = self._title_parts, None
            self.handle_data("".join(parts))

    def _end_line(self, paragraph: bool = False) -> None:
        line = DATA_URI.sub("", "".join(self._parts))
        line = line.strip("\n") if self._verbatim else BLANKS.sub(" ", line.replace("\xa0", " ")).strip()
        if line.strip():
            self.lines.append(line)
        self._parts, self._has_text = [], False
        if paragraph and self.lines and self.lines[-1]:
            self.lines.append("")


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _wiki_words(link: str) -> str:
    """The words of `[[target|words]]`, else the target, without the name of a block of it."""
    target, _, words = link.partition("|")
    return words.strip() or re.sub(r"#\^.*", "", target).strip().lstrip("#").replace("#", " > ")


def _inline_rule(state: StateInline, silent: bool) -> bool:
    """Wiki links, maths, which stays as it is, and marks of footnotes that the document has."""
    if state.src[state.pos] not in "![$\\":
        return False
    if match := WIKI_LINK.match(state.src, state.pos):
        content = _wiki_words(match[1])
    elif match := MATHS.match(state.src, state.pos):
        content = match[0]
    elif (match := FOOTNOTE_MARK.match(state.src, state.pos)) and match[0] in state.env["footnotes"]:
        content = ""
    else:
        return False
    if not silent:
        state.push("text_special", "", 0).content = content
    state.pos = match.end()
    return True


def _maths_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines from `$$` to `$$`, in which nothing is markup."""
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    if not first.startswith("$$") or "$$" in first[2:] or state.is_code_block(start):
        return False
    for line in range(start + 1, end):
        if "$$" in state.src[state.bMarks[line] : state.eMarks[line]]:
            if not silent:
                state.push("code_block", "", 0).content = state.getLines(start, line + 1, state.blkIndent, False)
                state.line = line + 1
            return True
    return False


def _deep_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """What is nested deeper than the parser reads, which would be lost."""
    if silent or state.level < DEEPEST:
        return False
    state.push("code_block", "", 0).content = state.getLines(start, end, state.blkIndent, False)
    state.line = end
    return True


@functools.cache
def _parser(nesting: int) -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block.reference import reference

    def links_only(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        """Definitions of links, but not those of footnotes, whose text is shown."""
        footnote = state.src.startswith("[^", state.bMarks[start] + state.tShift[start])
        return not footnote and reference(state, start, end, silent)

    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": nesting}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # otherwise `data:` links stay text
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.block.ruler.at("reference", links_only)
    parser.block.ruler.before(
        "fence", "maths_block", _maths_block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    parser.block.ruler.before("table", "deep_block", _deep_block)
    parser.inline.ruler.before("escape", "note_marks", _inline_rule)
    return parser


def _pieces(content: str) -> Iterable[str]:
    """A paragraph in parts of at most PIECE characters, which end at a line end or a blank if there is one."""
    start = 0
    while len(content) - start > PIECE:
        cut = max(content.rfind("\n", start, start + PIECE), start) or start
        if cut <= start:
            cut = content.rfind(" ", start, start + PIECE)
        end = cut + 1 if cut > start else start + PIECE
        yield content[start:end]
        start = end
    yield content[start:]


def _read_markdown(source: str, reader: _Reader) -> None:
    from markdown_it.rules_core import StateCore, block, normalize

    parser, inline_parser = _parser(DEEPEST + 10), _parser(20)
    env: dict[str, Any] = {"footnotes": {label.strip().rstrip(":") for label in FOOTNOTE.findall(source)}}
    state = StateCore(source, parser, env)
    normalize(state)
    block(state)
    before: list[str] = []  # types of the last tokens
    for token in state.tokens:
        if token.type == "inline":
            _read_inline(
                token.content, inline_parser, env, reader, in_item=before[-2:] == ["list_item_open", "paragraph_open"]
            )
        elif token.type in ("fence", "code_block"):
            reader.block(token.content)
        elif token.type == "html_block":
            hiding = HIDING.match(token.content)
            if hiding and f"</{hiding[1]}" not in token.content.lower():  # text about a tag
                reader.block(token.content)
            else:
                reader.read(token.content)
        elif token.nesting >= 0 and not token.hidden:
            reader.handle_starttag(token.tag, [])
            if token.type == "list_item_open" and token.info:
                reader.handle_data(f"{token.info}{token.markup} ")
        elif not token.hidden:
            reader.handle_endtag(token.tag)
        before = [*before[-1:], token.type]
    reader.settle()


def _read_inline(content: str, parser: MarkdownIt, env: dict[str, Any], reader: _Reader, in_item: bool) -> None:
    content = DATA_URI.sub("", content)
    if in_item and (task := TASK.match(content)):
        content = ("☐" if task[1] == " " else "☑") + content[task.end() :]
    for number, part in enumerate(FOOTNOTE.split(content)):
        if number:
            reader.handle_starttag("br", [])
        for piece in _pieces(part):
            tokens: list[Token] = []
            parser.inline.parse(piece, parser, env, tokens)
            _write_inline(tokens, reader)
    # What a tag inside of a paragraph hides ends with it.
    reader._hidden.clear()


def _write_inline(tokens: Sequence[Token], reader: _Reader) -> None:
    closed = {token.content[2:-1].strip().lower() for token in tokens if token.content.startswith("</")}
    for number, token in enumerate(tokens):
        if token.type == "html_inline":
            if (hiding := HIDING.match(token.content)) and hiding[1].lower() not in closed:
                reader.handle_data(token.content)
                continue
            reader.fragment(token.content)
        elif token.type == "image":
            _write_inline(token.children or [], reader)
        elif token.type == "hardbreak":
            reader.handle_starttag("br", [])
        elif token.type == "softbreak":
            sides = [side.content for side in (*tokens[number - 1 : number], *tokens[number + 1 : number + 2])]
            joined = len(sides) == 2 and UNSPACED.match(sides[0][-1:]) and UNSPACED.match(sides[1][:1])
            reader.handle_data("" if joined else " ")
        elif token.type == "text":
            reader.handle_data(HIGHLIGHT.sub(r"\1", token.content))
        elif token.content:
            reader.handle_data(token.content)
