"""Reading the messages of the package out of its source, with the code of the entry each leads to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

import django_ayework.errors
from django_ayework.errors import AyeworkError
from tests.architecture.sources import parsed
from tests.documentation.pages import page as page_at

#: The calls that log from WARNING upward.
LOGGING = ("warning", "error", "exception", "critical")
#: The functions that give an error its entry, with the places of the error or text and of the code.
GIVING = {"documented": (0, 1), "type_error": (1, 0), "value_error": (1, 0), "refused": (1, 0)}
#: Errors that are no messages: a handler raises them to say what is to happen.
INSTRUCTIONS = ("Defer", "Reschedule", "Abort")
#: Errors of the package by their name, and the function that makes one.
CLASSES = {name: kind for name, kind in vars(django_ayework.errors).items() if isinstance(kind, type)}
OWN = {name: kind for name, kind in CLASSES.items() if issubclass(kind, AyeworkError)}

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Message(NamedTuple):
    """A message in the source: where, its page and code, and its templates with … for what is filled in."""

    place: str
    page: str
    code: str
    templates: tuple[str, ...]


def functions_of(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield each node with the innermost function (or the module) that it is in."""
    left = [(tree, tree)]
    while left:
        node, within = left.pop()
        yield node, within
        inner = node if isinstance(node, Function) else within
        left.extend((child, inner) for child in reversed([*ast.iter_child_nodes(node)]))


def template(node: ast.AST | None) -> str | None:
    """Return a text with … for what is filled in; None when the source does not say it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(part) or "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{template(left) or '…'}{template(right) or '…'}"
        case ast.Call(func=ast.Name(id="_"), args=[text, *_]):
            return re.sub(r"%(\(\w+\))?[srd]", "…", template(text) or "…")
    return None


def templates(node: ast.AST | None, within: ast.AST) -> tuple[str, ...]:
    """Return the forms of a text: one, or what is assigned to its name in the function; none if unknown."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        node = node.left
    if isinstance(node, ast.Name):
        before = [each for each in assigned(within).get(node.id, ()) if each.lineno < node.lineno]
        return templates(before[-1].value, within) if before else ()
    if isinstance(node, ast.IfExp):
        return (*templates(node.body, within), *templates(node.orelse, within))
    found = template(node)
    return () if found is None else (tidy(found),)


@cache
def assigned(within: ast.AST) -> dict[str, list[ast.Assign]]:
    """Return the assignments in a function to each name, in the order of their lines."""
    found: dict[str, list[ast.Assign]] = {}
    assignments = [each for each in ast.walk(within) if isinstance(each, ast.Assign)]
    for each in sorted(assignments, key=lambda each: each.lineno):
        found.setdefault(ast.unparse(each.targets[0]), []).append(each)
    return found


def tidy(text: str) -> str:
    """Return a text in one line, in which what is filled in side by side is one.

    >>> tidy("got: …….  Write … ,")
    'got: …. Write … ,'
    """
    return re.sub(r"…+", "…", " ".join(text.split()))


@cache
def messages() -> list[Message]:
    """Return the messages of errors, commands, checks and the log, wherever one is made."""
    return [message for name, tree in parsed() for message in messages_in(name, tree)]


def messages_in(module: str, tree: ast.Module) -> Iterator[Message]:
    for node, within in functions_of(tree):
        if not isinstance(node, ast.Call):
            continue
        name, place = ast.unparse(node.func).split(".")[-1], f"{module}:{node.lineno}"
        if name in GIVING and len(node.args) >= 2:
            text, given = (node.args[at] for at in GIVING[name])
            if isinstance(given, ast.Constant):
                first = text.args[0] if isinstance(text, ast.Call) and text.args else text
                page = "commands" if name == "refused" else "errors"
                yield Message(place, page, str(given.value), templates(first, within))
        elif name in LOGGING and ast.unparse(node.func).startswith("logger."):
            yield Message(place, "log", *record(node))
        elif name in ("Error", "Warning") and (id := keyword(node, "id")) is not None:
            yield Message(place, "checks", id, templates(node.args[0], within))
        elif (name in OWN and name not in INSTRUCTIONS) or name == "invalid":
            code = keyword(node, "code") or (OWN[name].entry if name in OWN else "")
            yield Message(place, "errors", code, message_of(name, node, within))


def keyword(node: ast.Call, name: str) -> str | None:
    """Return a text that a call is given by name; None for anything else."""
    [value] = [each.value for each in node.keywords if each.arg == name] or [None]
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def record(node: ast.Call) -> tuple[str, tuple[str, ...]]:
    """Return the code of a record, which ``logged()`` is given in the call, and its text without the link."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    codes = [template(each.args[0]) or "" for each in calls if ast.unparse(each.func) == "logged"]
    text = tidy(re.sub(r"%(\.\d+)?[sdrf]", "…", template(node.args[0]) or "…"))
    return (codes[0], (text.removesuffix(" …"),)) if codes else ("", (text,))


def message_of(name: str, node: ast.Call, within: ast.AST) -> tuple[str, ...]:
    """Return the forms of the message of an error: given, or else the default of its class."""
    if name == "invalid":
        return tuple(f"the handler of … {each}" for each in templates(node.args[1], within))
    at = 1 if name == "Aborted" else 0
    if len(node.args) > at:
        return templates(node.args[at], within)
    if name == "Aborted":  # which has a form of its own
        return ("The attempt was asked to stop: ….",)
    return (tidy((OWN[name].__doc__ or "").replace("``", "")),) if OWN[name].entry else ()


def says(template: str, sentence: str) -> bool:
    """Tell whether a sentence is one of a template, whose … stand for anything.

    >>> says("expected … to be …, got: ….", "expected weight= to be a number, got: ….")
    True
    """
    return re.fullmatch(".*".join(map(re.escape, template.split("…"))), sentence) is not None


class Entry(NamedTuple):
    """An entry of a page: its code, the sentences it lists, and the text below them."""

    page: str
    code: str
    sentences: tuple[str, ...]
    text: str


@cache
def entries(page: str) -> list[Entry]:
    """Return the entries of a page of Troubleshooting."""
    text = page_at(f"troubleshooting/{page}.md").read_text()
    found = []
    for part in re.split(r"^(?=#{2,3} )", text, flags=re.MULTILINE):
        if match := re.match(r"### (\S+)\n\n((?:- .+\n(?:  .+\n)*)*)\n?((?s:.*))", part):
            listed = re.findall(r"^- (`+)(.+?)\1$", match[2], re.DOTALL | re.MULTILINE)
            found.append(Entry(page, match[1], tuple(tidy(each.strip()) for _, each in listed), match[3]))
    return found
