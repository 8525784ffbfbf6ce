"""Permissions: who may make a room's worker speak or fall silent; pure.

Agents may, the linked participant may, and identities of an allow-list may. The linked
participant is named by the job's or dispatch's metadata, else it is the first that joined and is
neither an agent nor a recorder. Identities and kinds are vouched for by the LiveKit server.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

ParticipantKind = Literal["person", "phone", "agent", "other"]
"""person: a standard participant; phone: SIP; other: egress, ingress and whatever comes."""


@dataclass(frozen=True, slots=True)
class RoomPolicy:
    """What the job says about a room."""

    linked_participant: str | None = None
    allow: frozenset[str] = field(default_factory=frozenset)


def read_policy(*metadata: str, allow: Iterable[str] = ()) -> RoomPolicy:
    """Read the policy from JSON metadata, the first that names a thing wins.

    Keys: `linked_participant` (identity), `allow` (list of identities). Metadata is shared with
    other programs, so what is not ours, or not JSON, is passed over.
    """
    linked: str | None = None
    allowed = set(allow)
    for text in metadata:
        try:
            body = json.loads(text) if text else None
        except (ValueError, RecursionError):
            continue
        if not isinstance(body, dict):
            continue
        name = body.get("linked_participant")
        if linked is None and isinstance(name, str) and name:
            linked = name
        names = body.get("allow")
        if isinstance(names, list):
            allowed.update(each for each in names if isinstance(each, str) and each)
    return RoomPolicy(linked, frozenset(allowed))


class Permissions:
    """Answers for one room, whose participants come and go."""

    def __init__(self, policy: RoomPolicy) -> None:
        """Start with an empty room."""
        self._policy = policy
        self._kinds: dict[str, ParticipantKind] = {}

    def joined(self, identity: str, kind: ParticipantKind) -> None:
        """Note a participant; joins come in order."""
        self._kinds.setdefault(identity, kind)

    def left(self, identity: str) -> None:
        """Note that a participant left."""
        self._kinds.pop(identity, None)

    def known(self, identity: str) -> bool:
        """Its kind is known, or does not matter."""
        return identity in self._kinds or identity in self._policy.allow

    @property
    def linked(self) -> str | None:
        """The participant the worker speaks for."""
        if self._policy.linked_participant is not None:
            return self._policy.linked_participant
        people = (name for name, kind in self._kinds.items() if kind in ("person", "phone"))
        return next(people, None)

    @property
    def has_agents(self) -> bool:
        """An agent is in the room."""
        return "agent" in self._kinds.values()

    def may_speak(self, identity: str) -> bool:
        """The participant may make the worker speak, and interrupt it."""
        if identity in self._policy.allow or identity == self.linked:
            return True
        return self._kinds.get(identity) == "agent"
