"""Serves a selector: records and a result in, the selection out, one JSON line each.

Started by forestctl as `python3 -c DRIVER module:function`. What the selector prints goes to stderr.
"""

import importlib
import inspect
import json
import os
import sys
import traceback

answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


class CallRecord(dict):
    """One captured call; its fields are attributes too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the call record has no {name}") from None


def say(value):
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def resolve(target):
    module, _, path = target.partition(":")
    value = importlib.import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    if not callable(value):
        raise TypeError(f"{target} is no function but a {type(value).__name__}")
    if inspect.iscoroutinefunction(value):
        raise TypeError(f"{target} is a coroutine function; a selector is synchronous")
    try:
        signature = inspect.signature(value)
    except ValueError:
        return value
    try:
        signature.bind([], {})
    except TypeError as error:
        raise TypeError(f"{target}{signature} cannot be called as (records, result): {error}")
    return value


def answer(select, request):
    records = [CallRecord(record) for record in request["records"]]
    selection = select(records, request["result"])
    try:
        selected, terminal = selection
        selected = list(selected)
    except (TypeError, ValueError):
        raise TypeError("a selector returns (selected records, terminal response id), got "
                        f"{type(selection).__name__}") from None
    return {"selected": selected, "terminal_response_id": terminal}


def main():
    try:
        sys.path.insert(0, os.getcwd())
        select = resolve(sys.argv[1])
    except BaseException as error:
        say({"error": f"{type(error).__name__}: {error}"})
        return
    say({"ready": True})
    for line in sys.stdin:
        try:
            say(answer(select, json.loads(line)))
        except Exception as error:
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"})


main()
