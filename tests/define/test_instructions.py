"""Building what a handler returns: ``ctx.result``, ``ctx.queue``, ``ctx.void`` and ``.next``."""

import pytest

from django_ayework import Context, Count, Retry, dependency
from django_ayework.define.instructions import Instruction
from tests.define.declared import context, step


@pytest.fixture
def ctx() -> Context:
    return context()


@pytest.fixture
def build():
    return step()


def test_a_context_remembers_what_it_built_in_order(ctx, build):
    built = [ctx.result(1), ctx.queue([build()]), ctx.void()]

    assert ctx.built == built
    assert all(isinstance(node, Instruction) for node in built)


def test_a_context_tells_the_facts_of_the_attempt():
    ctx = context(attempt=2, parent="p", dependents=("a", "b"), last_error="ValueError: no")

    assert (ctx.id, ctx.type, ctx.group_id, ctx.chain_id) == ("me", "shop.me", "us", "me")
    assert (ctx.attempt, ctx.parent, ctx.dependents) == (2, "p", ("a", "b"))
    assert (ctx.last_error, ctx.deadline) == ("ValueError: no", None)
    assert not ctx.signal.aborted


def test_works_may_be_given_alone_in_lists_in_nested_lists_and_by_generators(ctx, build):
    a, b, c, d = (build() for _ in range(4))

    assert ctx.queue(a).items == [a]
    assert ctx.queue([a, b]).items == ctx.queue((a, b)).items == [a, b]
    assert ctx.queue([a, [b, [c]], (d,)]).items == [a, b, c, d]
    assert ctx.queue(request for request in (a, b)).items == [a, b]
    assert ctx.queue([]).items == []


def test_instructions_may_stand_among_the_works(ctx, build):
    a, inner, value = build(), ctx.queue([build()]), ctx.result(1)

    assert ctx.queue([a, inner, value]).items == [a, inner, value]
    assert ctx.queue(inner).items == [inner]


@pytest.mark.parametrize("wrong", ["shop.add", 5, None, b"x", {"a": 1}, object(), ["shop.add"], [None]])
def test_what_is_no_work_is_refused_with_how_to_build_one(ctx, wrong):
    with pytest.raises(TypeError, match=r"built by calling their type, such as add\(a=1, b=2\), or .* got: "):
        ctx.queue(wrong)


def test_a_type_that_was_not_called_is_refused(ctx, build):
    with pytest.raises(TypeError, match="got: <WorkType step>"):
        ctx.queue([build])


def test_an_unknown_option_is_refused_with_the_nearest_one(ctx, build):
    with pytest.raises(TypeError, match=r"'prority' is not a queueing option. Did you mean 'priority'"):
        ctx.queue([build()], prority=1)
    with pytest.raises(TypeError, match=r"'dely' is not a queueing option. Did you mean 'delay'"):
        ctx.queue([build()]).next([build()], dely=1)


@pytest.mark.parametrize("option", ["id", "on_commit"])
def test_options_of_enqueue_alone_are_no_options_of_ctx_queue(ctx, build, option):
    with pytest.raises(TypeError, match=f"'{option}' is not a queueing option"):
        ctx.queue([build()], **{option: "x"})


# .next


def test_next_chains(ctx, build):
    first, second, third = build(), build(), build()
    node = ctx.queue([first])

    chained = node.next([second]).next(third, "all-done", retry=Retry(attempts=1))

    assert chained is node
    assert [link.works for link in node.links] == [(second,), (third,)]
    assert [link.condition for link in node.links] == ["all-success", "all-done"]
    assert [link.options for link in node.links] == [{}, {"retry": Retry(attempts=1)}]


def test_next_is_of_queue_only(ctx, build):
    for node in (ctx.result(1), ctx.void()):
        with pytest.raises(AttributeError, match="has no"):
            node.next([build()])


@pytest.mark.parametrize("wrong", ["shop.add", None, 5, [None], ["shop.add"]])
def test_next_refuses_what_is_no_work(ctx, build, wrong):
    with pytest.raises(TypeError, match=r"expected next\(works\) to have works built by calling their type"):
        ctx.queue([build()]).next(wrong)


def test_next_takes_no_instructions(ctx, build):
    with pytest.raises(TypeError, match=r"expected next\(works\) to have works"):
        ctx.queue([build()]).next([ctx.result(1)])


def test_next_refuses_a_count_larger_than_the_link_before(ctx, build):
    node = ctx.queue([build(), [build()]]).next([build()], Count(2))

    with pytest.raises(ValueError, match="n at most the 1 watched works, got: 2"):
        node.next([build()], Count(2))


def test_next_counts_the_works_of_nested_instructions_and_their_links(ctx, build):
    nested = ctx.queue([build()]).next([build()])

    assert ctx.queue([build(), nested, ctx.result(1)]).next([build()], Count(3)).links
    with pytest.raises(ValueError, match="n at most the 3 watched works"):
        ctx.queue([build(), nested]).next([build()], Count(4))


def test_next_refuses_a_condition_that_does_not_exist(ctx, build):
    with pytest.raises(ValueError, match=r"got: 'all-don'. Did you mean 'all-done'"):
        ctx.queue([build()]).next([build()], "all-don")


def test_next_counts_a_work_listed_twice_once(ctx, build):
    twice = build()
    with pytest.raises(ValueError, match="n at most the 1 watched works, got: 2"):
        ctx.queue([twice, twice]).next([build()], Count(2))


def test_gates_may_be_queued_and_watched(ctx, build):
    gate = dependency(on=["a"], queue=[build()])

    assert ctx.queue([gate]).next([build()], Count(1)).items == [gate]
