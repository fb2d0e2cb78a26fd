"""``ayework_typing``: a module whose ``enqueue`` is typed for each registered name."""

from __future__ import annotations

import re
from inspect import Parameter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.template import Context, Engine

from django_ayework.define.annotations import Source, annotations_of, batch_input, results_of
from django_ayework.define.types import AnyWorkType, BatchType, registry
from django_ayework.management.base import AyeworkCommand, refused

TEMPLATE = Path(__file__).parents[2] / "templates" / "django_ayework" / "by_name.txt"
#: The functions of the module.
FUNCTIONS = (
    {"name": "enqueue", "type": "Enqueue", "prefix": ""},
    {"name": "aenqueue", "type": "AsyncEnqueue", "prefix": "async "},
)


class Command(AyeworkCommand):
    """Write a module in which works are enqueued by name and checked by mypy and pyright."""

    help = "Write a module whose enqueue() knows the names of works with their inputs, for type checkers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--output`` and ``--check``."""
        parser.add_argument(
            "--output", metavar="FILE", type=Path, help="Write to this file instead of printing."
        )
        parser.add_argument(
            "--check", action="store_true", help="Write nothing; fail if the file is not up to date."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the module, or compare it with the file."""
        output: Path | None = options["output"]
        if options["check"] and output is None:
            raise refused("typing-check", "expected --output FILE with --check, got --check alone.")
        text = module_text()
        if output is None:
            return self.say(text, ending="")
        try:
            if not options["check"]:
                output.write_text(text, encoding="utf-8")
            elif not output.exists() or output.read_text(encoding="utf-8") != text:
                raise refused(
                    "typing-outdated",
                    f"{output} is not up to date. Write it again: manage.py ayework_typing --output {output}",
                )
        except OSError as error:
            raise refused("typing-file", f"{output} cannot be used: {error.strerror}.") from error


def module_text() -> str:
    """Return the source text of the module. Raises CommandError if no type of work is registered."""
    registry.load()
    source, works = Source(), list[dict[str, Any]]()
    for work_type in sorted(registry, key=lambda each: each.name):
        if has_own_inputs(work_type):
            works.append(named_work(work_type, source, {work["input_class"] for work in works}))
    if not works:
        raise refused(
            "typing-without-types",
            "expected at least one type of work, found none. Define one with @work in works.py.",
        )
    context = {
        "works": works,
        "modules": sorted(source.modules),
        "functions": FUNCTIONS,
    }
    return str(Engine().from_string(TEMPLATE.read_text()).render(Context(context)))


def has_own_inputs(work_type: AnyWorkType) -> bool:
    """Tell whether the handler names the inputs: that of a gate or of one of Django's tasks does not."""
    return "/" not in work_type.name and "alias" not in work_type.signature.parameters


def named_work(work_type: AnyWorkType, source: Source, taken: set[str]) -> dict[str, Any]:
    """Return a type of work as the module has it: its input, result and contribution as source text.

    ``fields`` are the keys of ``input_class``. Without any, the input has no class of its own.
    """
    results = ", ".join(map(source.of, results_of(work_type)))
    fields = fields_of(work_type, source)
    input_class = class_name(work_type.name, taken)
    if isinstance(work_type, BatchType):
        input = source.of(batch_input(work_type))
    elif fields:
        is_required = any(field["is_required"] for field in fields)
        input = input_class if is_required else f"{input_class} | None = None"
    else:
        input = "dict[str, Any] | None = None"
    named = {"name": work_type.name, "input_class": input_class, "fields": fields}
    return {**named, "input": input, "results": results}


def fields_of(work_type: AnyWorkType, source: Source) -> list[dict[str, Any]]:
    """Return the inputs of a type; none where the keys are not known, or the input is no mapping."""
    parameters = work_type.signature.parameters
    if isinstance(work_type, BatchType) or any(
        each.kind is Parameter.VAR_KEYWORD for each in parameters.values()
    ):
        return []
    annotations = annotations_of(work_type)
    return [
        {
            "name": name,
            "quoted": in_quotes(source.of(annotations.get(name, Any))),
            "is_required": parameter.default is Parameter.empty,
        }
        for name, parameter in parameters.items()
    ]


def in_quotes(annotation: str) -> str:
    """Return an annotation in quotes: an input may have the name of a module that its annotation names."""
    return repr(annotation) if '"' in annotation else f'"{annotation}"'


def class_name(type: str, taken: set[str]) -> str:
    """Return a name for the class of a type's inputs; one that is taken gets a number.

    >>> class_name("shop.send_receipt", set()), class_name("shop.send-receipt", {"ShopSendReceiptInput"})
    ('ShopSendReceiptInput', 'ShopSendReceiptInput2')
    """
    words = re.findall(r"[A-Za-z0-9]+", type)
    plain = "".join(word[:1].upper() + word[1:] for word in words) + "Input"
    plain = f"_{plain}" if plain[0].isdigit() else plain
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}{number}", number + 1
    return name
