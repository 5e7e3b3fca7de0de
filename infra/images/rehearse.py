#!/usr/bin/env python3
"""Run an image's build steps on a machine without a container engine, and try what comes out.

    infra/images/rehearse.py solving --folder /var/tmp/courant-images     # as root

It makes Debian's base with debootstrap, in place of the pinned one, goes through the stages of
Dockerfile that the target needs, each in a folder of its own entered by chroot, and then runs
check.sh there as the image's account. Packages come from the mirrors of this machine: apt's sources
and pip's variables are used. What differs from an image: Debian's packages are today's, and the
machine's certificates and resolv.conf are in the folder.

Only the instructions that Dockerfile uses are known; another is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUITE = "bookworm"
#: Of this machine, for a step's downloads.
HANDED = re.compile(r"^(PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE$|https?_proxy$|no_proxy$)", re.I)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
#: Where they lie in a folder: Debian's own package writes the usual file anew.
LENT = "/etc/lent.crt"


class RehearsalError(Exception):
    """A step that failed, or an instruction that is not known."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, its lines joined."""

    name: str
    rest: str


@dataclass
class Stage:
    """A stage: what it starts from, and what it does."""

    name: str
    source: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True)
class State:
    """What instructions change for those after them."""

    variables: dict[str, str]
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    folder: str = "/"
    user: str = "0:0"


def parse(text: str) -> dict[str, Stage]:
    """Read the stages of a Dockerfile, by name and in order."""
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    stages: dict[str, Stage] = {}
    current: Stage | None = None
    for line in re.sub(r"\\\n\s*", "", kept).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            source, _, stage = rest.partition(" AS ")
            current = stages[stage] = Stage(stage, source)
        elif name and current:
            current.instructions.append(Instruction(name, rest.strip()))
    return stages


def needed(stages: dict[str, Stage], target: str) -> list[Stage]:
    """Return the stages that the target is built from, in the order of the file."""
    wanted = [target]
    for name in wanted:
        stage = stages[name]
        used = [one.rest for one in stage.instructions if one.name == "COPY"]
        others = [match[1] for rest in used if (match := re.match(r"--from=(\S+)", rest))]
        wanted += [one for one in (stage.source, *others) if one in stages and one not in wanted]
    return [stage for name, stage in stages.items() if name in wanted]


class Rehearsal:
    """Stages as folders under one folder."""

    def __init__(self, folder: Path, arguments: dict[str, str]) -> None:
        self.folder, self.arguments = folder, arguments
        self.states: dict[str, State] = {}

    def build(self, stage: Stage) -> None:
        """Make the stage's folder from its source, and carry out its instructions."""
        place = self.folder / stage.name
        if place.exists():
            shutil.rmtree(place)
        source = self.folder / (stage.source if stage.source in self.states else "debian")
        run(["cp", "-a", "--reflink=auto", str(source), str(place)])
        state = self.states.get(stage.source, State({}))
        for one in stage.instructions:
            began = time.monotonic()
            state = self.carry_out(one, place, state)
            say(f"{stage.name}: {one.name} {one.rest[:60]}  {time.monotonic() - began:.0f} s")
        self.states[stage.name] = state

    def carry_out(self, one: Instruction, place: Path, state: State) -> State:
        """Carry out one instruction; return what it changes for the next."""
        rest = re.sub(
            r"\$\{(\w+)\}", lambda match: state.variables.get(match[1], match[0]), one.rest
        )
        if one.name == "RUN":
            enter(place, state, [*state.shell, one.rest], handed())
        elif one.name == "COPY":
            self.copy(rest, place)
        elif one.name == "ARG":
            name, _, default = rest.partition("=")
            given = {name: self.arguments.get(name, default)}
            return replace(state, variables=state.variables | given)
        elif one.name == "ENV":
            pairs = dict(pair.split("=", 1) for pair in shlex.split(rest))
            return replace(state, variables=state.variables | pairs)
        elif one.name == "SHELL":
            return replace(state, shell=tuple(re.findall(r'"([^"]+)"', rest)))
        elif one.name == "WORKDIR":
            (place / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            return replace(state, folder=rest)
        elif one.name == "USER":
            return replace(state, user=rest)
        elif one.name not in ("ENTRYPOINT", "CMD"):
            raise RehearsalError(f"{one.name} is an instruction that this rehearsal does not know")
        return state

    def copy(self, rest: str, place: Path) -> None:
        """Copy files of the repository, or with --from those of another stage."""
        words = rest.split()
        base = ROOT
        if words[0].startswith("--from="):
            base = self.folder / words.pop(0).partition("=")[2]
        *sources, target = words
        goal, several = place / target.lstrip("/"), target.endswith("/")
        (goal if several else goal.parent).mkdir(parents=True, exist_ok=True)
        for source in sources:
            origin = base / source.lstrip("/")
            # A folder's content goes into the target, as Docker has it.
            if origin.is_dir():
                goal.mkdir(parents=True, exist_ok=True)
                run(["cp", "-a", f"{origin}/.", f"{goal}/"])
            else:
                run(["cp", "-a", str(origin), str(goal / origin.name if several else goal)])


def handed() -> dict[str, str]:
    """Return what a step's downloads need of this machine's environment."""
    found = {name: value for name, value in os.environ.items() if HANDED.match(name)}
    return {name: LENT if value == str(CERTIFICATES) else value for name, value in found.items()}


def enter(place: Path, state: State, command: list[str], more: dict[str, str]) -> None:
    """Run a command in a folder as its root, with mounts that end with it."""
    uid, gid = state.user.split(":")
    mounts = "mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs tmpfs run"
    inner = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *command]
    script = f"{mounts}; exec chroot . /usr/bin/env -C {state.folder} {shlex.join(inner)}"
    home = {"HOME": "/root" if uid == "0" else "/home/courant", "LANG": "C.UTF-8"}
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    isolate = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-euc", script]
    run(isolate, cwd=place, env={**path, **home, **more, **state.variables})


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command; RehearsalError with its last lines where it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise RehearsalError(f"{shlex.join(command)[:300]}\nfailed:\n{last}")


def debian(place: Path, mirror: str) -> None:
    """Make Debian's smallest system, where it is not there yet."""
    if (place / "etc/debian_version").exists():
        return
    say(f"Debian {SUITE} from {mirror}")
    run(["debootstrap", "--variant=minbase", SUITE, str(place), mirror])


def lend(place: Path) -> None:
    """Put this machine's names and certificates where a step's downloads find them."""
    shutil.copy("/etc/resolv.conf", place / "etc/resolv.conf")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, place / LENT.lstrip("/"))


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def main() -> int:
    """Return the exit code."""
    stages = parse((HERE / "Dockerfile").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=["solving", "training", "workgroup"])
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/courant-images"))
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        print("error: chroot and mounts need root", file=sys.stderr)
        return 1
    asked.folder.mkdir(parents=True, exist_ok=True)
    rehearsal = Rehearsal(asked.folder, {"SNAPSHOT": "no", "REVISION": "rehearsal"})
    try:
        debian(asked.folder / "debian", asked.mirror)
        lend(asked.folder / "debian")
        for stage in needed(stages, asked.target):
            rehearsal.build(stage)
        place = asked.folder / asked.target
        shutil.copy(HERE / "check.sh", place / "check.sh")
        enter(place, rehearsal.states[asked.target], ["/bin/bash", "/check.sh"], {})
    except RehearsalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    size = subprocess.run(["du", "-sh", str(place)], capture_output=True, text=True).stdout
    say(f"{asked.target}: {size.split()[0]}, checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
