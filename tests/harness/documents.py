"""What documents say of the tree, held against it. Each check takes a text and returns what is wrong with it."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FUNCTION_LINK = re.compile(r"\[`(\w+)`\]\(([^)#\s]+\.(?:rs|c|py))\)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_SOURCES = {"build", "run", "target", "corpus", "artifacts", "__pycache__", "node_modules"}
# Units and bounds that a setting's name ends in.
SETTING_ENDING = r"(?:bytes|entries|max|ms|permille|second)"
FILE_ENDING = r"(?:rs|py|c|h|md|toml|sh|yml|json|txt|sock|conf|mdb|new|d|so)"

Settings = Mapping[str, set[str]]
"""The keys of each section; those above all sections have an empty name."""

Words = Sequence[str]
Help = Callable[[Words], tuple[int, str]]
"""Carries out `tombolo WORDS --help`: its exit code and what it prints."""


def sources(root: Path) -> Iterator[Path]:
    """All files below a folder but those that were built or are hidden."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in NOT_SOURCES:
            continue
        if path.is_dir():
            yield from sources(path)
        else:
            yield path


# ---- crates ----


def drawn_arrows(text: str) -> dict[str, set[str]]:
    """The list of crates, `CRATE -> WHAT IT IMPORTS, ...`, under the heading "Crates"; a line that begins with a blank
    goes on with the one before."""
    section = text.split("\n## Crates\n", 1)[1]
    block = FENCED.search(section)
    assert block, "no list of crates"
    arrows = {}
    for line in re.sub(r"\n +", " ", block.group(2)).splitlines():
        crate, imports = line.split("->")
        arrows[crate.strip()] = set(re.findall(r"[^\s,]+", imports))
    return arrows


def real_arrows(metadata: Mapping[str, Any]) -> dict[str, set[str]]:
    """Normal dependencies between the crates of a workspace, by their folders, of what `cargo metadata` prints."""
    root = Path(metadata["workspace_root"])
    folders = {
        package["name"]: str(Path(package["manifest_path"]).parent.relative_to(root))
        for package in metadata["packages"]
    }
    return {
        folders[package["name"]]: {
            folders[used["name"]]
            for used in package["dependencies"]
            if used["kind"] is None and used["name"] in folders
        }
        for package in metadata["packages"]
    }


def arrow_faults(drawn: Mapping[str, set[str]], real: Mapping[str, set[str]]) -> list[str]:
    every = sorted(drawn.keys() | real.keys())
    faults = [f"{crate}: not in the {where}" for crate in every for where in missing_from(crate, drawn, real)]
    for crate in drawn.keys() & real.keys():
        faults += [f"{crate} -> {used}: not drawn" for used in sorted(real[crate] - drawn[crate])]
        faults += [f"{crate} -> {used}: not in its manifest" for used in sorted(drawn[crate] - real[crate])]
    return faults


def missing_from(crate: str, drawn: Mapping[str, set[str]], real: Mapping[str, set[str]]) -> list[str]:
    return [where for where, known in (("drawing", drawn), ("workspace", real)) if crate not in known]


# ---- metrics ----


def unknown_metrics(text: str, known: set[str]) -> list[str]:
    """Names of metrics that do not exist, and in a paragraph with metrics ends of names, which nobody can look up. A
    name in a path or before `::`, `.` or `/` is a package's."""
    text = FUNCTION_LINK.sub("", text)
    named = re.findall(r"(?<![\w/.])tombolo_[a-z_]*[a-z](?![\w*])(?!::|/|\.\w)", text)
    paragraphs = [paragraph for paragraph in text.split("\n\n") if "tombolo_" in paragraph]
    shortened = re.findall(r"`(_[a-z_]+)`", "\n".join(paragraphs))
    return sorted({*named, *shortened} - known)


# ---- settings ----


def settings_in(configuration: str) -> dict[str, set[str]]:
    """Every section and key of docs/CONFIGURATION.md."""
    settings: dict[str, set[str]] = {}
    for part in re.split(r"^## ", configuration, flags=re.MULTILINE)[1:]:
        heading, rows = part.split("\n", 1)
        section = re.match(r"`\[([\w.]+)\]`", heading)
        settings[section.group(1) if section else ""] = set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))
    return settings


def unknown_settings(text: str, settings: Settings) -> list[str]:
    """Settings named as `[section] key` or `section.key`, in blocks of TOML, or in `tombolo policy set`, that do not
    exist."""
    named = [*re.findall(r"`\[(\w+)\]`? `?(\w+)`", text), *re.findall(r"\[([a-z]+)\] (\w+_\w+)", text)]
    dotted = re.findall(rf"`([a-z]+)\.(?!{FILE_ENDING}`)([a-z_]+)`", text)
    named += [(section, key) for section, key in dotted if section in settings]
    named += [pair for language, block in FENCED.findall(text) if language == "toml" for pair in keys_of_toml(block)]
    commands = [words[2:] for words, _ in command_lines(text) if words[:2] == ["policy", "set"]]
    changed = [word.partition("=")[0] for words in commands for word in words if "=" in word]
    named += [("cache" if key == "replacement" else "prefetch", key) for key in changed]
    return sorted({f"[{section}] {key}" for section, key in named if key not in settings.get(section, set())})


def keys_of_toml(block: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in block.splitlines():
        if heading := re.match(r"\[([\w.]+)\]", line):
            section = re.sub(r"^store\.replica\.\w+$", "store.replica.NAME", heading.group(1))
        elif key := re.match(r"(\w+) *=", line):
            yield section, key.group(1)


def unknown_keys(text: str, settings: Settings, others: set[str]) -> list[str]:
    """Names in code quotes that end as settings do, without their section, and are neither settings nor `others`."""
    named = set(re.findall(rf"`([a-z]+(?:_[a-z]+)*_{SETTING_ENDING})`", text))
    return sorted(named - others - set().union(*settings.values()))


# ---- command lines ----


def command_lines(text: str) -> Iterator[tuple[list[str], bool]]:
    """The words after `tombolo` of every command line, and whether the line is whole: those in a sentence leave out
    what they are not about."""
    for _, block in FENCED.findall(text):
        for line in block.splitlines():
            for command in re.split(r"&&|\|\||;|\|", re.sub(r"\s+#.*", "", line)):
                if found := re.match(r"\s*(?:\$ |sudo )?(?:/usr/bin/)?tombolo( .*|$)", command):
                    yield shlex.split(found.group(1)), True
    for command in re.findall(r"`tombolo\s([^`]+)`", FENCED.sub("", text)):
        yield shlex.split(command), False
    for command in re.findall(r"^ExecStart=/usr/bin/tombolo (.*)$", text, re.MULTILINE):
        yield shlex.split(command), True


def command_faults(text: str, ask_help: Help) -> list[str]:
    """Command lines that the program does not take: subcommands, flags and values that it does not know, and, where a
    line is whole, arguments that are wanting. Asked for help behind it all, it reads the line and does nothing."""
    faults = []
    for words, is_whole in command_lines(text):
        code, said = ask_help(words)
        said = said if code else missing_arguments(words, said) if is_whole else ""
        if said:
            faults.append(f"tombolo {' '.join(words)}: {said.splitlines()[0]}")
    return faults


def missing_arguments(words: Words, said: str) -> str:
    """Which arguments the line in front of this help lacks."""
    usage = re.search(r"^Usage: tombolo(.*)$", said, re.MULTILINE)
    assert usage, said
    if "<COMMAND>" in usage.group(1):
        return "a subcommand is missing"
    required = re.sub(r"\[[^\]]*\]\S*", "", usage.group(1))
    flags = re.findall(r"(--[\w-]+) <", required)
    absent = [flag for flag in flags if not any(word.split("=")[0] == flag for word in words)]
    wanted = re.sub(r"--[\w-]+ <[^>]*>", "", required).split()
    given = positionals(words, set(re.findall(r"(--[\w-]+) <", said)))
    return f"{', '.join([*absent, *wanted[len(given) :]])} is missing" if absent or wanted[len(given) :] else ""


def positionals(words: Words, valued: set[str]) -> list[str]:
    """Words that are neither flags nor values of `valued` flags."""
    before = ["", *words]
    return [word for left, word in zip(before, words, strict=False) if not word.startswith("--") and left not in valued]


# ---- exit codes ----


def unknown_exit_codes(text: str, known: set[int]) -> list[int]:
    named = re.findall(r"\bexit(?:s|ed)?(?: with)?(?: (?:status|code)s?)? (\d+)", text, re.IGNORECASE)
    return sorted({int(code) for code in named} - known)


def exit_codes_of_help(said: str) -> set[int]:
    return {int(code) for code in re.findall(r"^ +(\d+) ", said.split("Exit codes:")[1], re.MULTILINE)}


# ---- links and paths ----


def anchors(text: str) -> set[str]:
    """What its headings can be linked by, as GitHub makes it of them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = sum(known == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", known) is not None for known in found)
        found.add(f"{slug}-{again}" if again else slug)
    return found


def broken_links(document: Path) -> list[str]:
    """Links of a document to files and headings that are not there."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            broken.append(target)
    return broken


def missing_functions(document: Path) -> list[str]:
    """Links whose text is a function that the file does not define."""
    missing = []
    for name, target in FUNCTION_LINK.findall(document.read_text()):
        source = (document.parent / target).read_text()
        if not re.search(rf"\b(?:fn|def) {name}\b|^[a-z][\w *]*\b{name}\(", source, re.MULTILINE):
            missing.append(f"{name} in {target}")
    return missing


def missing_paths(text: str, root: Path, beside: Path) -> list[str]:
    """Paths in code quotes that begin with a folder of the repository, and exist neither below `root` nor beside the
    text."""
    folders = "|".join(sorted(path.name for path in root.iterdir() if path.is_dir() and path.name not in NOT_SOURCES))
    quoted = re.findall(rf"`((?:{folders})/[^`\s*{{}}<>]*?)(?:::?\w+)?`", text)
    return sorted({path for path in quoted if not (root / path).exists() and not (beside / path).exists()})


def missing_documents(text: str, root: Path, beside: Path) -> list[str]:
    """Documents that are named anywhere, in comments too, and do not exist."""
    named = re.findall(r"(?<![\w/.])(?:docs|decisions|results)/[\w./-]*\.md\b", text)
    places = (root, root / "docs", beside)
    return sorted({path for path in named if not any((place / path).exists() for place in places)})


# ---- decisions ----


def decision_faults(folder: Path) -> list[str]:
    """Records that are out of order, without a date or a status, or not in the index; and the index's own."""
    records = sorted(path for path in folder.glob("*.md") if path.name not in ("README.md", "template.md"))
    listed = re.findall(r"^\| \[\d{4}\]\(([^)]+)\) \|", (folder / "README.md").read_text(), re.MULTILINE)
    faults = [] if listed == [path.name for path in records] else ["README.md does not list the records in order"]
    for number, path in enumerate(records, 1):
        header = rf"# {number}\. .+\n\n\* Date: \d{{4}}-\d\d-\d\d\b.*\n\* Status: (proposed|accepted|superseded by \[)"
        if not path.name.startswith(f"{number:04}-") or not re.match(header, path.read_text()):
            faults.append(f"{path.name}: wants number {number}, a date and a status")
    return faults
