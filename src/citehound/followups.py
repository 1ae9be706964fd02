"""Makes a question of a chat self-contained by rules: another name in its place, or the subject that it leaves out.

Five languages by their words, no corpus by heart: names are the filter values and titles that the lexicon knows. Asks
no model and searches nothing. What is left in doubt stays as it was asked, and is said to be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .models.planner.plan import query_of
from .models.planner.state import Names, Source, Weights
from .models.planner.words import asks, compares, fold, language_of, words

LOOK_BACK = 3
"""Earlier questions in which a name of the same kind is looked for."""
MOST_QUESTION = 2000
"""Characters of a question that rules rewrite or take up."""
_SHORT = 8
"""Words of a question that has no verb of its own."""


@dataclass(frozen=True, kw_only=True)
class FollowUp:
    """What became of a question that may lean on those before it."""

    question: str
    """Self-contained, or as it was asked."""
    why: str = ""
    """Empty where nothing had to be done."""
    open: bool = False
    """It leans on what came before, and what it leaves out could not be told."""
    enough: bool = False
    """What was read earlier is enough to answer it."""
    clarification: str | None = None
    """What to ask back; only where that was allowed."""


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A name that stands in a question; `kinds` are those of the things that are called so."""

    start: int
    end: int
    kinds: frozenset[tuple[str, str]]
    name: str
    """Folded."""
    written: str
    """As the corpus writes it where that is known, else as it stands."""


@dataclass(frozen=True, kw_only=True)
class _Token:
    text: str
    low: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(text=m.group(), low=fold(m.group()), start=m.start(), end=m.end()) for m in re.finditer(r"[^\W_]+", text)
    ]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a question is made of.

_OPENERS = (
    # en
    "and what about|and how about|what about|how about|what of|how is it with|how is it for|and for|and in|and with|"
    "and at|and under|and by|and on|and from|and to|and|but|or|also|and also|same for|the same for|same question for|"
    "same with|and the same for|now for|likewise for|is it the same for|is that the same for|does the same apply to|"
    "does that also apply to|does that apply to|does this apply to|does it apply to|does it also apply to|only for|"
    "just for|"
    # de
    "und was ist mit|was ist mit|und wie ist es bei|wie ist es bei|wie ist es mit|und wie sieht es bei|"
    "wie sieht es bei|wie sieht es mit|wie sieht es fur|wie steht es um|wie steht es mit|und fur|und bei|und mit|"
    "und unter|und in|und|aber|oder|auch fur|gilt das auch fur|gilt dies auch fur|gilt das fur|gilt das gleiche fur|"
    "das gleiche fur|dasselbe fur|ebenso fur|nur fur|"
    # pt
    "e para|e com|e em|e no|e na|e do|e da|e quanto a|e quanto ao|quanto a|quanto ao|e sobre|e que tal|o mesmo para|"
    "e o|e a|e os|e as|e|mas|ou|tambem para|isso vale para|isso tambem vale para|isso se aplica a|so para|"
    # es
    "y para|y con|y en|y sobre|y que hay de|y que pasa con|que hay de|que pasa con|y que tal|y el|y la|y los|y las|"
    "y de|y del|y al|y en cuanto a|en cuanto a|y respecto a|y|pero|tambien para|lo mismo para|solo para|"
    # fr
    "et pour|et avec|et chez|et dans|et concernant|et en ce qui concerne|en ce qui concerne|qu en est il de|"
    "qu en est il du|qu en est il pour|et qu en est il de|et qu en est il pour|quid de|quid du|meme chose pour|et le|"
    "et la|et les|et de|et du|et|mais|aussi pour|est ce aussi le cas pour|cela vaut il aussi pour|seulement pour"
)
_OPENING = tuple(sorted((tuple(o.split()) for o in set(_OPENERS.split("|"))), key=len, reverse=True))
_LEADS = _set(
    "for in with at under by on of from to about the a an only just fur bei mit im unter der die das den dem des nur "
    "para com em no na do da dos das o os as con en el la los las del al de sobre pour avec chez dans le les l du un "
    "une d"
)
_PRONOUNS: Mapping[str, frozenset[str]] = {
    "en": _set("it its they them their theirs this that these those him his her"),
    "de": _set(
        "er sie ihr ihre ihren ihrem ihres dessen deren diese dieser dieses diesen diesem dies dafur davon dabei damit "
        "daran darin dort"
    ),
    "pt": _set(
        "ele ela eles elas dele dela deles delas isso isto esse essa esses essas este esta estes estas seu sua seus "
        "suas nele nela disso nisso"
    ),
    "es": _set("ella ellos ellas eso esto ese esa esos esas este esta estos estas su sus aquello"),
    "fr": _set("elle ils elles cela ca cette cet ces celui celle ceux son sa ses leur leurs lui eux"),
}
_AFTER_THAT = _set("one case with to for and")
_EMPTY_IT = re.compile(
    r"\b(?:is|was|isn.t|be|would|can|must|will|should) it (?:be )?(?:not )?(?:allowed|possible|permitted|ok|okay|"
    r"necessary|required|mandatory|true|legal|safe|acceptable|forbidden|correct|clear|likely|worth|enough|fine|for|"
    r"that|to)\b|\bdo(?:es)? it (?:take|matter|cost|need)\b",
    re.IGNORECASE,
)
_GENERIC = _set(
    "one ones thing things other others same next last first second third else more yes no ok okay please thanks thank "
    "ding dinge aus andere anderen anderer letzte letzten nachste nachsten erste zweite bitte ja nein danke gleiche "
    "coisa coisas outro outra outros outras mesmo mesma ultimo ultima proximo proxima sim nao obrigado "
    "cosa cosas otro otra otros otras mismo misma si gracias "
    "chose choses autre autres dernier derniere prochain oui non merci"
)
_ASK_BACK: Mapping[str, str] = {
    "en": "What does the question refer to? Name the document, the party or the matter.",
    "de": "Worauf bezieht sich die Frage? Nennen Sie das Dokument, den Beteiligten oder die Sache.",
    "pt": "A que se refere a pergunta? Indique o documento, a parte ou o assunto.",
    "es": "¿A qué se refiere la pregunta? Indique el documento, la parte o el asunto.",
    "fr": "À quoi se rapporte la question ? Indiquez le document, la partie ou le sujet.",
}
_DATED = (
    re.compile(r"\b(?:19|20)\d\d\b"),
    re.compile(r"\b(?:v(?:ersion)?[ .]?)\d+(?:\.\d+)*\b", re.IGNORECASE),
    re.compile(r"\bQ[1-4]\b"),
)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The names of a corpus, as they are looked for in questions."""

    names: Names
    sources: tuple[Source, ...]
    _values: dict[tuple[str, ...], set[tuple[str, str]]] = field(
        default_factory=dict[tuple[str, ...], set[tuple[str, str]]], init=False
    )
    _parts: dict[str, dict[str, set[tuple[str, ...]]]] = field(
        default_factory=dict[str, dict[str, set[tuple[str, ...]]]], init=False
    )
    _written: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str], init=False)

    def __post_init__(self) -> None:
        for source in self.sources:
            for key, values in source.filters.items():
                for value in values:
                    parts = tuple(t.low for t in _tokens(value))
                    if not parts or (len(parts) == 1 and (len(parts[0]) < 2 or parts[0].isdigit())):
                        continue
                    self._values.setdefault(parts, set()).add(("value", key))
                    self._written.setdefault(parts, value)
                    for token in _tokens(value):
                        if len(token.low) > 2 and not token.text.islower():
                            self._parts.setdefault(token.low, {}).setdefault(key, set()).add(parts)

    def mentions(self, text: str) -> list[Mention]:
        """Names in a text, the longest of each kind, in order. One word of a value counts where only it has the word,
        and where it is written like a name."""
        found: list[Mention] = []
        tokens = _tokens(text)
        longest = max((len(v) for v in self._values), default=0)
        for at in range(len(tokens)):
            for size in range(min(12, len(tokens) - at), 0, -1):
                part = tokens[at : at + size]
                low = tuple(t.low for t in part)
                name = " ".join(low)
                kinds = set(self._values.get(low, ())) if size <= longest else set[tuple[str, str]]()
                if size > 1 or (at > 0 and part[0].text[:1].isupper()):
                    kinds |= {("title", d.split("/", 1)[0]) for d in self.names.plain.get(name, ()) if len(name) >= 4}
                if size == 1 and not kinds and (part[0].text[:1].isupper() or part[0].text[:1].isdigit()):
                    kinds = {("value", k) for k, values in self._parts.get(name, {}).items() if len(values) == 1}
                if kinds:
                    start, end = part[0].start, part[-1].end
                    written = self._written.get(low, text[start:end])
                    found.append(Mention(start=start, end=end, kinds=frozenset(kinds), name=name, written=written))
        return [
            m
            for m in found
            if not any(
                o is not m and o.start <= m.start and m.end <= o.end and o.end - o.start > m.end - m.start
                for o in found
                if o.kinds & m.kinds
            )
        ]


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A question taken apart."""

    text: str
    opened: bool
    """It begins like one that goes on ('and for …')."""
    rest: str
    """Without such a beginning."""
    clause: bool
    """It asks something by itself."""
    content: tuple[str, ...]
    """Its words that mean something by themselves, folded."""
    leans: bool
    """A pronoun in it stands for something outside of it."""


def _taken_apart(text: str, *, language: str) -> _Asked:
    tokens = _tokens(text)
    low = tuple(t.low for t in tokens)
    opening = next((o for o in _OPENING if low[: len(o)] == o), ())
    rest = text[tokens[len(opening)].start :] if len(tokens) > len(opening) else ""
    if not opening:
        rest = text
    clause = asks(rest.rstrip(" ?!.\"'”’)"))
    pronouns = _PRONOUNS[language]
    content = tuple(
        fold(w.text)
        for w in words(rest, language=language)
        if fold(w.text) not in _GENERIC and fold(w.text) not in pronouns
    )
    return _Asked(
        text=text,
        opened=bool(opening),
        rest=rest,
        clause=clause,
        content=content,
        leans=_leans(text, tokens, language),
    )


def _leans(text: str, tokens: Sequence[_Token], language: str) -> bool:
    """True where a pronoun comes before the question has named anything that it could stand for."""
    empty = _EMPTY_IT.search(text) if language == "en" else None
    stop = {fold(w.text) for w in words(text, language=language)}
    before = 0
    for at, token in enumerate(tokens):
        if token.low in _PRONOUNS[language]:
            last = at == len(tokens) - 1
            joins = token.low == "that" and not (last or not before or tokens[at + 1].low in _AFTER_THAT)
            hollow = token.low == "it" and empty is not None and empty.start() <= token.start < empty.end()
            if before < 2 and not joins and not hollow:
                return True
        elif token.low in stop and token.low not in _GENERIC:
            before += 1
    return False


# Rewriting.


def follow_up(
    question: str,
    earlier: Sequence[str],
    *,
    known: Known,
    weigh: Weights | None = None,
    clarify: bool = False,
) -> FollowUp:
    """The question made self-contained from the questions before it (self-contained themselves, the last one last).

    With `clarify` one that says nothing by itself, and that nothing before it explains, gives what to ask back.
    """
    text = " ".join(question.split())
    before = [" ".join(q.split())[:MOST_QUESTION] for q in earlier if q.strip()]
    language = language_of(f"{text} {before[-1] if before else ''}")
    asked = _taken_apart(text, language=language)
    if not before:
        hollow = not asked.content and (asked.opened or asked.leans or len(_tokens(text)) <= 4)
        return _left(text, hollow=hollow, language=language, clarify=clarify)
    if len(text) > MOST_QUESTION:
        return FollowUp(question=text)
    mentions = known.mentions(text)
    named = {part for m in mentions for part in m.name.split()}
    bare = bool(asked.content) and set(asked.content) <= named
    elliptic = not asked.clause and len(_tokens(asked.rest)) <= _SHORT
    elliptic = elliptic and (asked.opened or bare or text.endswith("?"))
    if elliptic and asked.content:
        changed = _replaced(asked, mentions, before, known, language=language, weigh=weigh)
        if changed is not None:
            return changed
    if not asked.content:
        if asked.clause and not asked.leans:
            return FollowUp(question=f"{before[-1]} {_capital(asked.rest)}", why="it goes on from the question before")
        return _left(text, hollow=True, language=language, clarify=clarify)
    if not (asked.leans if mentions and not elliptic else asked.opened or asked.leans or elliptic):
        return FollowUp(question=text)
    other = frozenset[tuple[str, str]]() if compares(text) else frozenset(k for m in mentions for k in m.kinds)
    subject = _subject(before, known, language=language, weigh=weigh, without=asked.content, other=other)
    if not subject:
        return FollowUp(question=text, open=asked.leans)
    return FollowUp(question=_with(text, subject), why=f"it leaves out what it is about: {subject}")


def _left(text: str, *, hollow: bool, language: str, clarify: bool) -> FollowUp:
    if hollow and clarify:
        return FollowUp(
            question=text, open=True, clarification=_ASK_BACK[language], why="it names nothing that can be searched"
        )
    return FollowUp(question=text, open=hollow)


def _replaced(
    asked: _Asked,
    mentions: Sequence[Mention],
    before: Sequence[str],
    known: Known,
    *,
    language: str,
    weigh: Weights | None,
) -> FollowUp | None:
    """An earlier question with the name, year or version of this one in the place of its own; None without such."""
    for one in list(reversed(before))[:LOOK_BACK] if mentions else ():
        changed = _exchanged(asked, mentions, one, known.mentions(one), language=language)
        if changed is not None:
            return changed
    if mentions:
        return None
    for pattern in _DATED:
        new = pattern.search(asked.rest)
        old = {m.group() for m in pattern.finditer(before[-1])}
        if new is not None and len(old) == 1:
            (was,) = old
            return FollowUp(
                question=before[-1].replace(was, new.group()), why=f"{new.group()!r} in the place of {was!r}"
            )
    return _unknown_name(asked, before[-1], known, language=language, weigh=weigh)


def _exchanged(
    asked: _Asked, mentions: Sequence[Mention], one: str, there: Sequence[Mention], *, language: str
) -> FollowUp | None:
    """`one` with each new name of the question in the place of its own of that kind, the longest names first."""
    old_names = {m.name for m in there}
    new = [m for m in mentions if m.name not in old_names] or list(mentions)
    used: list[Mention] = []
    changes: list[tuple[Mention, str]] = []
    why: list[str] = []
    for kinds in dict.fromkeys(m.kinds for m in sorted(new, key=lambda m: m.start - m.end)):
        group = [m for m in new if m.kinds == kinds and not any(_inside(m, u) for u in used)]
        places = [m for m in there if m.kinds & kinds and not any(_overlap(m, c) for c, _ in changes)]
        if not group or not places:
            continue
        said = group[0].written
        if len({m.name for m in group}) > 1:
            said = asked.text[min(m.start for m in group) : max(m.end for m in group)]
        if len({m.name for m in places}) > 1:
            return FollowUp(question=_with(one, said), why=f"{said!r} beside what was asked before")
        used += group
        changes += [(place, said) for place in places]
        why.append(f"{said!r} in the place of {one[places[0].start : places[0].end]!r}")
    if not changes:
        return None
    changed = _put(one, changes)
    extra = _extra(asked, one, used, language=language)
    return FollowUp(question=_with(changed, extra) if extra else changed, why="; ".join(why))


def _inside(inner: Mention, outer: Mention) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _overlap(a: Mention, b: Mention) -> bool:
    return a.start < b.end and b.start < a.end


def _unknown_name(asked: _Asked, one: str, known: Known, *, language: str, weigh: Weights | None) -> FollowUp | None:
    """A name that the corpus does not know, in the place of the only one that the question before has."""
    tokens = _tokens(asked.rest)
    led = asked.text[: len(asked.text) - len(asked.rest)].count(" ") > 1  # "und für", "wie steht es um"
    while tokens and tokens[0].low in _LEADS:
        led, tokens = True, tokens[1:]
    if not asked.opened or not tokens or len(tokens) > 3:
        return None
    if not all(t.text[:1].isupper() or t.text[:1].isdigit() for t in tokens):
        return None
    german = "de" in (language, language_of(asked.text))  # where every noun is written like a name
    if german and (not led or any(weigh is not None and weigh.frequency(t.low) > 0 for t in tokens)):
        return None
    values = [
        m for m in known.mentions(one) if any(k == "value" for k, _ in m.kinds) and not one[m.start : m.end].islower()
    ]
    if len({m.name for m in values}) != 1:
        return None
    said = asked.rest[tokens[0].start : tokens[-1].end]
    old = one[values[0].start : values[0].end]
    return FollowUp(question=_put(one, [(place, said) for place in values]), why=f"{said!r} in the place of {old!r}")


def _extra(asked: _Asked, one: str, mentions: Sequence[Mention], *, language: str) -> str:
    """What the question says besides the name and the words of the question it goes on from."""
    there = {w.stem for w in words(one, language=language)}
    named = {part for m in mentions for part in m.name.split()}
    more = [
        w for w in words(asked.rest, language=language) if w.stem not in there and fold(w.text) not in named | _GENERIC
    ]
    if not more:
        return ""
    tokens = _tokens(asked.rest)
    while tokens and tokens[0].low in _LEADS:
        tokens = tokens[1:]
    return asked.rest[tokens[0].start : tokens[-1].end] if tokens else ""


def _put(text: str, changes: Sequence[tuple[Mention, str]]) -> str:
    for place, said in sorted(changes, key=lambda change: -change[0].start):
        text = text[: place.start] + said + text[place.end :]
    return text


def _subject(
    before: Sequence[str],
    known: Known,
    *,
    language: str,
    weigh: Weights | None,
    without: Sequence[str],
    other: frozenset[tuple[str, str]],
) -> str:
    """What the last question is about: the names in it (of no kind in `other`), or its rarest words."""
    one = before[-1]
    found = [m for m in known.mentions(one) if not m.kinds & other]
    outer = [m for m in found if not any(o is not m and o.start <= m.start and m.end <= o.end for o in found)]
    names = list(dict.fromkeys(one[m.start : m.end] for m in outer or found))
    names = [n for n in names if not {t.low for t in _tokens(n)} <= set(without)]
    names = [n for n in names if " " in n or not n.islower()] or names  # a value may be an ordinary word, as 'contract'
    if names:
        return ", ".join(names[:3])
    if weigh is None or other:
        return ""
    return query_of(weigh.of(one), one, language=language, most=4)


def _with(text: str, said: str) -> str:
    body = text.rstrip()
    end = body[len(body.rstrip(" ?!.")) :].strip() or "?"
    return f"{body.rstrip(' ?!.')} ({said}){end}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# Judging a wording.


_ADDRESS = re.compile(r"\b(?:[a-z][a-z0-9+.-]*://|www\.)[^\s<>\"']+", re.IGNORECASE)


def invented(said: str, question: str, *, known: Known, earlier: Sequence[str], told: str) -> str:
    """What is wrong with a wording of a question: a name or number that nobody has said, or one that it has lost.

    `earlier` are the questions before, `told` all that was said. An address must come from a person: a page that a
    question names may be fetched.
    """
    if "\n" in said or len(said) > MOST_QUESTION:
        return "it is too long"
    asked = " ".join((question, *earlier))
    address = next((m.group() for m in _ADDRESS.finditer(said) if m.group() not in asked), None)
    if address is not None:
        return f"it adds {address!r}"
    there = {t.low for t in _tokens(f"{asked} {told}")}
    german = "de" in (language_of(said), language_of(question))
    for token in _tokens(said)[1:]:
        named = any(c.isdigit() for c in token.text) or (token.text[:1].isupper() and not german)
        if named and token.low not in there:
            return f"it adds {token.text!r}"
    kept = {t.low for t in _tokens(said)}
    for token in _tokens(question):
        if any(c.isdigit() for c in token.text) and token.low not in kept:
            return f"it leaves out {token.text!r}"
    for mention in known.mentions(question):
        if not set(mention.name.split()) <= kept:
            return f"it leaves out {mention.written!r}"
    return ""
