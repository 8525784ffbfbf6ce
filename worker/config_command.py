"""`playhead config`: shows the resolved profile an engine would run with, and checks files."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict

import yaml

from playhead.engine.profile import Profile, load_profile, names, sha256

DESCRIPTION = (
    "Show or check profiles: the limits and targets of an engine. A profile file holds only what "
    "differs from its base (extends: NAME, or a .yaml file beside it)."
)


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command."""
    parser.description = DESCRIPTION
    default = env.get("PLAYHEAD_PROFILE") or "cpu"
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print every resolved value and the SHA-256 of them all")
    show.add_argument(
        "profiles",
        nargs="*",
        default=[default],
        metavar="PROFILE",
        help=f"built in: {', '.join(names())}; or a .yaml file; default {default} "
        "[PLAYHEAD_PROFILE]",
    )
    check = actions.add_parser("check", help="say whether profiles are right; nothing is loaded")
    check.add_argument(
        "profiles", nargs="+", metavar="PROFILE", help="a built-in name or a .yaml file"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code. Raises ConfigError for a wrong profile."""
    for name in args.profiles:
        profile = load_profile(name)
        if args.action == "show":
            print(described(profile), end="")
        else:
            print(f"{name}: right, sha256 {sha256(profile)}")
    return 0


def described(profile: Profile) -> str:
    """Return the resolved profile as YAML that `load_profile` reads back to the same values."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(profile).items()}
    body = yaml.safe_dump(values, sort_keys=False)
    return f"# sha256 {sha256(profile)}\n{body}"
