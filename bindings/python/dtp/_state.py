# SPDX-License-Identifier: Apache-2.0
"""Nested state dicts as tensors by name, and back.

Names are paths joined by dots: state["model"]["w"] is "model.w". What is no tensor (numbers, texts,
None) and how all of it nests stands in a tree of JSON, so that nothing executable is ever stored. A
node is a scalar itself, or a list that begins with what it is:

["t"] tensor   ["b"] bytes, stored as one   ["f", text] a float that JSON has not
["d", {key: node}] dict   ["m", [[key, node]..]] dict whose keys are not all text
["l", [node..]] list   ["u", [node..]] tuple
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

KEY = "dtp.state"  # of the tree among the metadata
VERSION = 1
MAX_NESTED = 30  # metadata nests 63 levels at most, of which a container takes two
Path = tuple[Any, ...]


class Shard(NamedTuple):
    """A part of a tensor: `array` is its box that begins at `offset` in a tensor of `shape`."""

    array: Any
    shape: Any
    offset: Any


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def is_parts(value: Any) -> bool:
    """A list of Shards: the parts of one tensor."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, Shard) for v in value)


def is_container(value: Any) -> bool:
    if isinstance(value, Shard) or is_parts(value):
        return False
    return isinstance(value, (Mapping, list, tuple))


def name_of(path: Path) -> str:
    return ".".join(map(str, path))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    else:
        yield from enumerate(value)


class Flat(NamedTuple):
    """Tensors by name; the tree, None where it says nothing that the names do not."""

    tensors: dict[str, Any]
    tree: Any


def flatten(state: Any) -> Flat:
    if not isinstance(state, Mapping):
        raise TypeError(f"tensors: a {type(state).__name__} is no dict of tensors and values")
    tensors: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    plain = all(
        isinstance(k, str) and not is_container(v) and not is_scalar(v) and not _is_bytes(v)
        for k, v in state.items()
    )

    def add(path: Path, value: Any) -> None:
        name = name_of(path)
        if name in paths:
            raise ValueError(f"two values are called {name}: {paths[name]} and {path}")
        paths[name] = path
        if not is_scalar(value):
            tensors[name] = value

    tree = _encode((), state, add)
    return Flat(tensors, None if plain else {"version": VERSION, "tree": tree})


def _is_bytes(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray))


def _encode(path: Path, value: Any, add: Callable[[Path, Any], None]) -> Any:
    if is_scalar(value):
        add(path, value)
        return _encode_scalar(value)
    if is_container(value):
        if len(path) >= MAX_NESTED:
            raise ValueError(
                f"state {name_of(path)[:60]}...: nested more than {MAX_NESTED} levels, or within itself"
            )
        nodes = [(k, _encode((*path, k), v, add)) for k, v in _items(value)]
        if not isinstance(value, Mapping):
            return ["u" if isinstance(value, tuple) else "l", [node for _, node in nodes]]
        for key, _ in nodes:
            if not is_scalar(key):
                raise TypeError(f"state {name_of(path)}: a {type(key).__name__} is no key")
        if all(isinstance(key, str) for key, _ in nodes):
            return ["d", dict(nodes)]
        return ["m", [[key, node] for key, node in nodes]]
    add(path, value)
    return ["b"] if _is_bytes(value) else ["t"]


def _encode_scalar(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(value) if math.isfinite(value) else ["f", repr(float(value))]


def _tree(stored: Any) -> Any:
    if not isinstance(stored, dict) or stored.get("version") != VERSION:
        raise ValueError(f"the metadata's {KEY} is of no version that is known")
    return stored["tree"]


def unflatten(stored: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """The state as it was saved; tensors that its tree does not name stand beside it by name."""
    left = dict(tensors)
    state = dict(tensors) if stored is None else _decode((), _tree(stored), left)
    if not isinstance(state, dict):
        raise ValueError(f"the metadata's {KEY} is no dict")
    return state if stored is None else state | left


def _decode(path: Path, node: Any, tensors: dict[str, Any]) -> Any:
    match node:
        case ["t"]:
            return tensors.pop(name_of(path))
        case ["b"]:
            return tensors.pop(name_of(path)).tobytes()
        case ["f", str(text)]:
            return float(text)
        case ["d", dict(nodes)]:
            return {k: _decode((*path, k), v, tensors) for k, v in nodes.items()}
        case ["m", list(nodes)]:
            return {k: _decode((*path, k), v, tensors) for k, v in nodes}
        case ["l", list(nodes)]:
            return [_decode((*path, i), v, tensors) for i, v in enumerate(nodes)]
        case ["u", list(nodes)]:
            return tuple(_decode((*path, i), v, tensors) for i, v in enumerate(nodes))
        case None | bool() | int() | float() | str():
            return node
    raise ValueError(f"the metadata's {KEY} is damaged at {name_of(path) or 'its root'}")


def scalars(stored: Any) -> dict[str, Any]:
    """The values that are no tensors, by name."""
    found: dict[str, Any] = {}

    def walk(path: Path, node: Any) -> None:
        match node:
            case ["t"] | ["b"]:
                pass
            case ["d", dict(nodes)]:
                for key, child in nodes.items():
                    walk((*path, key), child)
            case ["m", list(nodes)]:
                for key, child in nodes:
                    walk((*path, key), child)
            case ["l" | "u", list(nodes)]:
                for i, child in enumerate(nodes):
                    walk((*path, i), child)
            case _:
                found[name_of(path)] = _decode(path, node, {})

    if stored is not None:
        walk((), _tree(stored))
    return found


def replace(state: Any, values: Mapping[str, Any], path: Path = ()) -> Any:
    """`state` with the values by name in their places: dicts and lists are changed, tuples made
    anew."""
    name = name_of(path)
    if path and name in values:
        return values[name]
    if not is_container(state):
        return state
    new = [(k, replace(v, values, (*path, k))) for k, v in _items(state)]
    if isinstance(state, (MutableMapping, list)):
        for key, value in new:
            if state[key] is not value:
                state[key] = value
        return state
    if isinstance(state, Mapping):
        return dict(new)
    made = [value for _, value in new]
    return type(state)(*made) if hasattr(state, "_fields") else tuple(made)


def leaves(state: Any, path: Path = ()) -> Iterator[tuple[str, Any]]:
    """What is no container, by name."""
    for key, value in _items(state):
        if is_container(value):
            yield from leaves(value, (*path, key))
        else:
            yield name_of((*path, key)), value
