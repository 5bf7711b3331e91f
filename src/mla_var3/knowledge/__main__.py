"""Command line ``python -m mla_var3.knowledge``: lint, query, match, court and other commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from mla_var3 import arguments, evidence, front
from mla_var3.arguments import named
from mla_var3.blobs import blob_id
from mla_var3.errors import UsageError
from mla_var3.knowledge import (
    backtest,
    cited_kernels,
    deciding,
    linting,
    matching,
    pages,
    reference,
    search,
    stating,
    symptoms,
)
from mla_var3.knowledge.court import cases, packages, report
from mla_var3.paths import out_dir, relative, repo_root

EXIT_FINDINGS = 1


def lint(
    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], named("[PATH ...]")] = (),
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Check the knowledge, the devlogs and the records they cite.

    Args:
        paths: Files or folders to report about; all by default.
        as_json: Print the findings as JSON.
    """
    catalogue = pages.load_all()
    findings = linting.lint(catalogue)
    if paths:
        findings = linting.only(findings, catalogue, paths)
    errors = sum(finding.severity == "error" for finding in findings)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(finding)
        print(
            f"{len(catalogue.patterns)} patterns, {len(catalogue.texts)} texts, "
            f"{len(catalogue.devlogs)} devlogs: {errors} errors, "
            f"{len(findings) - errors} warnings"
        )
    return EXIT_FINDINGS if errors else 0


def query(
    words: Annotated[tyro.conf.Positional[tuple[str, ...]], named("WORD ...")], top: int = 10
) -> int:
    """Find patterns by words.

    Args:
        words: What to look for.
        top: Most hits.
    """
    _require_positive(top)
    hits = search.query(" ".join(words), pages.load_all(), top)
    for hit in hits:
        meta = hit.page.pattern
        print(f"{hit.score:6.2f}  {meta.title} [{meta.kind}, {meta.scope}]  {hit.page.name}")
    if not hits:
        print("no pattern holds any of these words")
    return 0


def api(
    words: Annotated[tyro.conf.Positional[tuple[str, ...]], named("WORD ...")], top: int = 8
) -> int:
    """Answer from the references of cuTile, the CuTe DSL, messages and CUTLASS, with file and line.

    Args:
        words: What to look for: words, or a name such as ct.load.
        top: Most answers.
    """
    from mla_var3.knowledge.references import asking

    _require_positive(top)
    print(asking.told(asking.answers(" ".join(words), repo_root(), top)))
    return 0


def match(record: Annotated[tyro.conf.Positional[str], named("RECORD")], top: int = 10) -> int:
    """Rank the patterns that a record's metrics trigger, by the gain that was measured.

    Args:
        record: Address of the record, as `records list` prints it; or an adopted file, of which it
            is the newest.
        top: Most patterns.
    """
    _require_positive(top)
    read = _of_file(Path(record)) if record.endswith(".py") else evidence.at(record)
    catalogue = pages.load_all()
    found = matching.match(read, catalogue)[:top]
    for item in found:
        mark = ", listed as violating it" if item.known_violation else ""
        told = matching.brought(item.measured)
        print(f"{item.page.pattern.title}{mark}; {told}  {item.page.name}")
        for fired in dict.fromkeys(map(str, item.fired)):
            print(f"       {fired}")
        if item.also:
            print(f"       see also {', '.join(page.pattern.id for page in item.also)}")
    for _, said in deciding.verdict(read, catalogue):
        print(said)
    shown = {reason.reading.metric.name for item in found for reason in item.fired}
    for symptom in symptoms.find(shown):
        anchor = f"#{read.arch}" if read.arch in symptoms.archs() else ""
        print(f"recipe: {symptom.title}: diagnosis/{symptom.key}/{anchor} of the site")
    return 0


def _of_file(path: Path) -> evidence.Record:
    """The newest record of an adopted file as it is now, with the files that it takes along."""
    known = evidence.find(out_dir() / "adopted")
    mine = [r for r in known if str(path.resolve()) in r.kernel.sources]
    fresh = [r for r in mine if all(map(_is_as_recorded, r.kernel.sources.items()))]
    if not fresh:
        said = "changed since it was profiled" if mine else "has no record"
        raise UsageError(f"{path} {said}; run nox -s profile -- {path}")
    return fresh[-1]


def _is_as_recorded(source: tuple[str, str]) -> bool:
    file = Path(source[0])
    return file.is_file() and blob_id(file.read_bytes()) == source[1]


def facts(
    words: Annotated[tyro.conf.Positional[tuple[str, ...]], named("[DESIGN [VERSION]]")] = (),
    lacking: bool = False,
) -> int:
    """List what static records state of each stage, and why where they state nothing.

    Args:
        words: Design and version; all by default.
        lacking: Only what was not observed, though it has a meaning; exit with 1 when there is any.
    """
    missing = 0
    for record in stating.newest(pages.load_all().records.values(), words):
        for stage, found in stating.of_record(record):
            open_ = [each for each in found if each.standing == "not observed"]
            missing += len(open_)
            shown = open_ if lacking else found
            if shown:
                kernel = record.kernel
                print(
                    f"{kernel.design}@{kernel.language} {kernel.version} {stage.name} {record.arch}"
                )
            for each in shown:
                print(f"  {each}")
    print(f"not observed: {missing} facts")
    return EXIT_FINDINGS if lacking and missing else 0


def replay() -> int:
    """Replay the advice over the project's own history, each step without what it taught."""
    done = backtest.backtest(pages.load_all())
    for case in done.cases:
        print(case)
    print(done)
    return 0


def hold_court(fresh: bool = False, strangers: Path | None = None) -> int:
    """Try the advice on kernels with a known fault, on good ones, on others' and on history.

    Args:
        fresh: Compile and count all kernels anew; takes about half an hour.
        strangers: Folder that holds the packages of others, as ``pip install --target`` leaves
            them: compile the kernels that the table lacks, with --fresh all.
    """
    if strangers is not None:
        path = packages.renew(cases.strangers(), strangers, fresh=fresh)
        print(f"wrote {relative(path, repo_root())}")
    session = report.hold(fresh=fresh)
    for line in session.missed():
        print(line)
    print(session.table())
    for path in report.write(session):
        print(f"wrote {relative(path, repo_root())}")
    return 0


def renew_reference(check: bool = False) -> int:
    """Write the reference tables of the contributing page anew.

    Args:
        check: Change nothing; exit with 1 when the page is out of date.
    """
    fresh = reference.reference(repo_root(), check=check)
    print(f"{reference.FOLDER}: {'fresh' if fresh else 'out of date' if check else 'written'}")
    return EXIT_FINDINGS if check and not fresh else 0


def compile_lists(
    names: Annotated[tyro.conf.Positional[tuple[str, ...]], named("[NAME ...]")] = (),
) -> int:
    """Compile the kernels that pages cite beside the versions, and record what was seen.

    Args:
        names: Lists of knowledge/compiles; all by default.
    """
    for path in cited_kernels.compile_lists(names, print):
        print(f"wrote {relative(path, repo_root())}")
    return 0


def _require_positive(top: int) -> None:
    if top < 1:
        raise UsageError(f"--top={top} is below 1")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names.

    Returns:
        0 when all is well, 1 when lint found errors.
    """
    command, rest, prog = arguments.choose(
        {
            "lint": lint,
            "query": query,
            "api": api,
            "match": match,
            "facts": facts,
            "backtest": replay,
            "court": hold_court,
            "compile": compile_lists,
            "reference": renew_reference,
        },
        sys.argv[1:] if argv is None else argv,
        "python -m mla_var3.knowledge",
    )
    return arguments.parse(command, rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.knowledge.__main__:main")
