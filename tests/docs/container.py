"""Do what the Dockerfile says where no containers run: `python -m tests.docs.container FOLDER`.

As root, its lines are run in a fresh Debian that `debootstrap` makes in FOLDER, for this machine's
own processor. NAME=VALUE after FOLDER replaces a variable of the Dockerfile, if this machine cannot
reach what it names. What pip's settings name here (PIP_CERT, PIP_FIND_LINKS) is seen there, too.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.tree import ROOT, tracked

DOCKERFILE = ROOT / "docs/how-to/Dockerfile"
MIRROR = "http://deb.debian.org/debian"
START = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
SETTINGS_OF_PIP = ("PIP_CERT", "PIP_FIND_LINKS")
# Of a root, a folder, a command, and paths that are seen in /here. The mounts end with the process.
IN_ROOT = """
set -e
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
for path in $3; do
  mkdir -p "$0/here$(dirname "$path")"
  test -d "$path" && mkdir -p "$0/here$path" || touch "$0/here$path"
  mount --bind "$path" "$0/here$path"
done
exec /usr/sbin/chroot "$0" /bin/sh -c "cd $1 && $2"
"""


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Iterate over the instructions of a Dockerfile, each with what stands behind it."""
    without_comments = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE)
    for line in without_comments.replace("\\\n", "").splitlines():
        if line:
            instruction, _, rest = line.partition(" ")
            yield instruction, rest


def copy(names: str, folder: Path) -> None:
    """Copy what git knows of files and folders, as COPY does: a folder's content."""
    *sources, target = names.split()
    for source in sources:
        for path in tracked(source):
            name = path.relative_to(ROOT / source) if (ROOT / source).is_dir() else path.name
            copied = folder / target / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied)


def run_in(root: Path, folder: str, command: str, variables: Mapping[str, str]) -> None:
    """Run a shell's command in a folder of the root."""
    paths = {name: os.environ[name] for name in SETTINGS_OF_PIP if name in os.environ}
    pip = {name: f"/here{path}" for name, path in paths.items()}
    command_in_root = ["sh", "-c", IN_ROOT, str(root), folder, command, " ".join(paths.values())]
    print(f"RUN {command}", flush=True)
    subprocess.run(["unshare", "--mount", *command_in_root], env={**pip, **variables}, check=True)


def main(target: str, *replaced: str) -> None:
    """Run the Dockerfile's lines in a new folder, and then its command."""
    root, folder = Path(target).resolve(), "/"
    variables, replacements = dict(START), dict(one.split("=", 1) for one in replaced)
    for instruction, rest in instructions(DOCKERFILE.read_text()):
        match instruction:
            case "FROM":
                suite = re.fullmatch(r"debian:(\w+)-slim", rest)
                assert suite, rest
                subprocess.run(
                    ["debootstrap", "--variant=minbase", suite[1], str(root), MIRROR], check=True
                )
            case "RUN":
                run_in(root, folder, rest, variables)
            case "WORKDIR":
                folder = rest
                (root / folder[1:]).mkdir(parents=True)
            case "COPY":
                copy(rest, root / folder[1:])
            case "ENV":
                name, value = rest.split("=", 1)
                variables[name] = replacements.get(name, value)
            case "CMD":
                run_in(root, folder, " ".join(json.loads(rest)), variables)
            case _:
                raise NotImplementedError(instruction)


if __name__ == "__main__":
    main(*sys.argv[1:])
