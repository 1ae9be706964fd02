"""Measures what permissions cost: passages in so many groups, searched by the owner and by a member of one group.

Half of the documents are everyone's, the rest is shared out among the groups by rules. `own` is the option that lost:
an index of its own for what this member may see. `changed` is the first question after rules were added to an index
that was made without any; `regroup` is what `citehound index` then does. All times are CPU times, which a busy machine
blurs least; searches in milliseconds, the rest in seconds. Options: --groups, --passages, --queries, --json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from citehound.access import OWNER, Access, Principal, Rule
from citehound.index.embedded import EmbeddedIndex
from index import Words, entries, share, size_of

MEMBER = Principal(name="member", groups=frozenset({"g0"}))
_SHARES = 100


@dataclass(frozen=True, kw_only=True)
class Row:
    groups: int
    build: float
    megabytes: float
    first_owner: float
    """Of the owner's first question, in milliseconds."""
    first_member: float
    owner_p95: float
    member_p95: float
    own_p95: float
    own_megabytes: float
    changed: float
    regroup: float


def access_of(groups: int) -> Access:
    """Rules by the last two digits of a document's number."""
    rules: list[Rule] = []
    for group in range(groups):
        mine = [n for n in range(_SHARES) if n % (2 * groups) == group]
        paths = [f"docs/d*{n:02d}.md" for n in mine] + [f"docs/d{n}.md" for n in mine if n < 10]
        rules.append(Rule(paths=tuple(paths), groups=frozenset({f"g{group}"})))
    return Access(sources={"docs": None}, rules=tuple(rules))


def build(folder: Path, passages: int, access: Access, *, only: Principal = OWNER) -> float:
    began = time.process_time()
    with EmbeddedIndex(folder, write=True, access=lambda: access) as index:
        index.add(
            e
            for e in entries(passages)
            if only.may_see(access.audience(document=e.document.id, source="docs", path=e.document.path))
        )
    return time.process_time() - began


def p95(search: Callable[[str], object], queries: Sequence[str]) -> float:
    best = [float("inf")] * len(queries)
    for _ in range(3):
        for at, query in enumerate(queries):
            began = time.thread_time()
            search(query)
            best[at] = min(best[at], (time.thread_time() - began) * 1000)
    return share(best, 0.95)


def first(index: EmbeddedIndex, query: str, who: Principal) -> float:
    began = time.process_time()
    index.search(query, principal=who)
    return time.process_time() - began


def measured(folder: Path, plain: Path, groups: int, passages: int, queries: Sequence[str]) -> Row:
    access = access_of(groups)
    seconds = build(folder / "index", passages, access)
    build(folder / "own", passages, access, only=MEMBER)
    with EmbeddedIndex(folder / "index", access=lambda: access) as index:
        firsts = [first(index, queries[0], who) * 1000 for who in (OWNER, MEMBER)]
        owner, member = (
            p95(lambda q: index.search(q, principal=who), queries)  # noqa: B023
            for who in (OWNER, MEMBER)
        )
    with EmbeddedIndex(folder / "own") as own:
        alone = p95(lambda q: own.search(q, principal=OWNER), queries)
    shutil.copytree(plain, folder / "changed")
    with EmbeddedIndex(folder / "changed", access=lambda: access) as changed:
        stalled = first(changed, queries[0], MEMBER)
    began = time.process_time()
    EmbeddedIndex(folder / "changed", write=True, access=lambda: access).close()
    return Row(
        groups=groups,
        build=seconds,
        megabytes=size_of(folder / "index"),
        first_owner=firsts[0],
        first_member=firsts[1],
        owner_p95=owner,
        member_p95=member,
        own_p95=alone,
        own_megabytes=size_of(folder / "own"),
        changed=stalled,
        regroup=time.process_time() - began,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="2,10,50", help="numbers of groups, separated by commas")
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()
    words = Words(1)
    queries = [words.query() for _ in range(options.queries)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        seconds = build(root / "plain", options.passages, Access(sources={"docs": None}))
        with EmbeddedIndex(root / "plain") as index:
            plain = p95(lambda q: index.search(q, principal=OWNER), queries)
        print(
            f"without rules: built in {seconds:.1f} s, {size_of(root / 'plain'):.0f} MB, p95 {plain:.2f} ms", flush=True
        )
        print(" ".join(f"{name:>15}" for name in Row.__dataclass_fields__), flush=True)
        for groups in (int(n) for n in str(options.groups).split(",")):
            rows.append(measured(root / str(groups), root / "plain", groups, options.passages, queries))
            print(" ".join(f"{value:>15.2f}" for value in asdict(rows[-1]).values()), flush=True)
            shutil.rmtree(root / str(groups), ignore_errors=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
