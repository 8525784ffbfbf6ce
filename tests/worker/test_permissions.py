import json

import pytest

from playhead.worker.permissions import Permissions, RoomPolicy, read_policy


@pytest.mark.parametrize(
    ("metadata", "linked", "allow"),
    [
        ((), None, set()),
        (("",), None, set()),
        (("not json", "[1]", "7", "null"), None, set()),
        (('{"linked_participant": "ann", "theme": "dark"}',), "ann", set()),
        (('{"linked_participant": 7, "allow": "bob"}',), None, set()),
        (('{"allow": ["bob", 7, ""]}', '{"allow": ["cid"]}'), None, {"bob", "cid"}),
        (('{"linked_participant": "ann"}', '{"linked_participant": "eve"}'), "ann", set()),
        (("[" * 100_000,), None, set()),
    ],
)
def test_policy_is_read_from_metadata_when_it_is_ours(
    metadata: tuple[str, ...], linked: str | None, allow: set[str]
) -> None:
    policy = read_policy(*metadata, allow=["flag"])
    assert policy == RoomPolicy(linked, frozenset(allow | {"flag"}))


def test_agents_and_the_first_person_may_speak_when_nobody_is_named() -> None:
    permissions = Permissions(RoomPolicy())
    permissions.joined("recorder", "other")
    permissions.joined("bot", "agent")
    permissions.joined("ann", "person")
    permissions.joined("eve", "person")
    assert permissions.linked == "ann"
    allowed = {
        name for name in ("recorder", "bot", "ann", "eve", "unknown") if permissions.may_speak(name)
    }
    assert allowed == {"bot", "ann"}
    permissions.left("ann")
    assert permissions.linked == "eve" and permissions.may_speak("eve")


def test_only_the_named_participant_is_linked_when_the_policy_names_one() -> None:
    policy = read_policy(json.dumps({"linked_participant": "ann", "allow": ["cid"]}))
    permissions = Permissions(policy)
    permissions.joined("eve", "person")
    assert not permissions.may_speak("eve")
    assert permissions.may_speak("ann") and permissions.may_speak("cid")
    assert permissions.known("cid") and not permissions.known("bob")


def test_a_phone_is_linked_when_it_joined_first() -> None:
    permissions = Permissions(RoomPolicy())
    permissions.joined("caller", "phone")
    permissions.joined("ann", "person")
    assert permissions.linked == "caller"
