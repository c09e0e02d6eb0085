"""Temporary: the room is `evenhand.pools`."""

from evenhand.pools import *  # noqa: F403
