"""The page's patterns with many works, and the page as a whole."""

import ast
import re
from collections import Counter
from datetime import UTC, date, datetime, time
from types import SimpleNamespace

import pytest

from django_ayework import NotRetryable, enqueue, retry
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.patterns import test_long_running
from tests.patterns.kit import failing, only, run_for
from tests.patterns.page import PAGE, blocks

pytestmark = pytest.mark.django_db
BILLED = {"ann@example.com": 1500, "bob@example.com": 4000}


class TestPage:
    """Each pattern is complete, tested, and goes with the others."""

    def test_every_pattern_of_the_page_is_tested(self):
        classes = {**globals(), **vars(test_long_running)}.values()
        tested = [each.section for each in classes if hasattr(each, "section")]
        text = PAGE.read_text()
        assert sorted(re.findall(r"^\| \[(.+?)\]\(#", text, re.MULTILINE)) == sorted(tested)
        assert text.count("\n**When a work dies.** ") == text.count("\n**Guaranteed.** ") == len(tested)
        found = {section: [] for section in ["What they share", *tested]}
        for block in blocks():
            found[block.section].append(block.file)
        assert found.pop("What they share") == ["shop/models.py", "shop/services.py"]
        assert {tuple(files) for files in found.values()} == {("shop/works.py", "")}

    def test_the_works_of_all_patterns_fit_into_one_file(self):
        names = Counter(
            node.name
            for block in blocks()
            if block.file == "shop/works.py"
            for node in ast.parse(block.source).body
            if isinstance(node, ast.FunctionDef)
        )
        assert [name for name, count in names.items() if count > 1] == []


class TestFanIn:
    """A month is billed, then summed up."""

    section = "Fan-out and fan-in"
    summary = "2 invoices, 5500 cents in all."

    @pytest.fixture
    def invoices(self, shop):
        """Return a function that gives each customer's invoice."""
        return lambda: dict(shop.models.Invoice.objects.values_list("email", "cents"))

    @pytest.fixture
    def place(self, shop):
        """Return a function that places an order in March."""

        def place(name, cents, state="placed", day=date(2026, 3, 5)):
            order = shop.order(email=f"{name}@example.com", cents=cents, state=state)
            moment = datetime.combine(day, time(12), UTC)
            shop.models.Order.objects.filter(pk=order.pk).update(created=moment)

        return place

    @pytest.fixture
    def orders(self, place):
        place("ann", 1000)
        place("ann", 500)
        place("ann", 800, day=date(2026, 4, 1))
        place("bob", 4000)
        place("bob", 7000, state="cancelled")

    def test_each_customer_is_billed_once_and_then_the_sum_is_mailed(
        self, shop, orders, place, invoices, mailoutbox
    ):
        handle = shop.use()["handle"]
        assert drain().dead == 0
        assert handle.group(timeout=0) == 5500
        place("ann", 9000)
        shop.use()
        drain()
        assert invoices() == BILLED
        assert [mail.body for mail in mailoutbox] == [self.summary] * 2

    def test_a_month_without_orders_is_summed_up_too(self, shop, mailoutbox):
        shop.use()
        drain()
        assert [mail.body for mail in mailoutbox] == ["0 invoices, 0 cents in all."]

    def test_a_dead_bill_stops_the_summary_until_it_is_retried(
        self, shop, orders, invoices, monkeypatch, mailoutbox
    ):
        real = shop.works.Invoice

        def get_or_create(email, **values):
            if email.startswith("bob"):
                raise ValueError("no address")
            return real.objects.get_or_create(email=email, **values)

        broken = SimpleNamespace(objects=SimpleNamespace(get_or_create=get_or_create))
        monkeypatch.setattr(shop.works, "Invoice", broken)
        handle = shop.use()["handle"]
        run_for(120, raises=False)
        assert (invoices(), len(mailoutbox)) == ({"ann@example.com": 1500}, 0)
        gate = SimpleNamespace(name="@work/dependency")
        assert only(gate).reason == "unsatisfiable"
        assert handle.group(timeout=0) == 1500, "the group is done; the one bill is all it has"
        monkeypatch.setattr(shop.works, "Invoice", real)
        retry(only(shop.works.bill_customer, status="dead").id)
        assert only(gate).status == "blocked"
        drain()
        assert invoices() == BILLED
        assert [mail.body for mail in mailoutbox] == [self.summary]
        assert handle.group(timeout=0) == 5500


class TestMapReduce:
    """Takings, added up in parts."""

    section = "Map-reduce"

    def place(self, shop, *cents):
        article = shop.models.Article.objects.create(stock=0)
        for each in cents:
            shop.order(article=article, cents=each, state="placed")

    @pytest.mark.parametrize(
        ("cents", "works", "sums"),
        [
            ([500, 1000, 1500], 4, {"orders": 3, "cents": 3000, "average": 1000.0}),
            ([], 2, {"orders": 0, "cents": 0, "average": 0.0}),
        ],
        ids=["three orders", "no orders"],
    )
    def test_the_parts_are_added_up_and_the_average_comes_last(self, shop, cents, works, sums):
        self.place(shop, *cents)
        shop.order(cents=99, state="new")
        handle = shop.use()["handle"]
        assert drain().succeeded == works
        assert handle.group(timeout=0) == sums

    def test_a_part_whose_attempts_fail_is_added_once_and_a_dead_one_is_missing_until_it_is_retried(
        self, shop, monkeypatch
    ):
        added = shop.works.added
        sometimes = failing(added, ValueError("not now"), times=3)

        def unlucky(total, orders, cents):
            if cents == 7:
                raise ValueError("not this part")
            return sometimes(total, orders, cents)

        self.place(shop, 1, 2, 3, 4, 5)
        monkeypatch.setattr(shop.works, "added", unlucky)
        handle = shop.use()["handle"]
        run_for(120, raises=False)
        assert handle.group(timeout=0) == {"orders": 3, "cents": 8}
        monkeypatch.setattr(shop.works, "added", added)
        retry(only(shop.works.add_up, status="dead").id)
        drain()
        assert handle.group(timeout=0) == {"orders": 5, "cents": 15, "average": 3.0}


class TestPipeline:
    """Bank statement, matched payments, booked payments."""

    section = "Pipeline"

    @pytest.fixture
    def paid(self, shop):
        """Return a function that tells what was paid of the orders 1 and 7."""
        orders = [shop.order(id=number, cents=5000) for number in (1, 7)]
        return lambda: [order.refresh_from_db() or order.paid for order in orders]

    def read(self, shop, *lines):
        """Queue a statement of these references, texts and cents."""
        lines = [dict(zip(("reference", "text", "cents"), line, strict=True)) for line in lines]
        return enqueue(shop.works.read_statement(lines=lines))

    def test_a_line_that_names_its_order_is_booked_and_another_waits_for_a_retry(self, shop, paid):
        handle = shop.use()["handle"]
        drain()
        assert paid() == [1990, 0]
        assert handle.result(timeout=0) == 2
        dead = only(shop.works.match_payment, status="dead")
        assert (dead.reason, dead.unit) == ("aborted", "2026-03-02/2")
        retry(dead.id, {"text": "order 7", "cents": 4900})
        drain()
        assert paid() == [1990, 4900]
        assert handle.group(timeout=0) is not None

    def test_a_statement_that_is_imported_again_books_nothing_twice(self, shop, paid):
        for _ in range(2):
            shop.use()
        drain()
        dead = only(shop.works.match_payment, status="dead")
        shop.use()
        drain(limit=1)
        with pytest.raises(NotRetryable, match="2026-03-02/2"):
            retry(dead.id)
        drain()
        assert paid() == [1990, 0]
        assert shop.models.Payment.objects.count() == 1

    def test_two_parts_are_both_booked_and_an_ambiguous_statement_and_an_unknown_order_are_not(
        self, shop, paid
    ):
        handle = self.read(shop, ("a", "order 1", 1000), ("a", "order 7", 4000))
        drain()
        assert (handle.state().status, Work.objects.count()) == ("dead", 1)
        self.read(shop, ("a", "order 999", 1000))
        drain()
        assert "'order 999'" in only(shop.works.match_payment, status="dead").error
        self.read(shop, ("b", "order 1", 1000), ("c", "order 1", 4000))
        drain()
        assert paid() == [5000, 0]
