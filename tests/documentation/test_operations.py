"""The pages on operations name what there is, and their numbers are those of the code."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.core.management import load_command_class

from bench.selection import select
from django_ayework import conf
from django_ayework.flow import bulk_actions, maintenance
from django_ayework.management.commands.ayework_worker import LOOPBACK
from django_ayework.ports.pubsub import PostgresPubSub
from django_ayework.ports.pubsub.base import connections_of
from django_ayework.rules.codec.richjson import MAX_DEPTH
from django_ayework.rules.health import Budget
from django_ayework.store import throughput
from django_ayework.worker import bounds
from tests.documentation.pages import OPERATIONS, ROOT, blocks, listed, names, page, plain, series, table
from tests.documentation.test_reference import COMMANDS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What a process may take beyond the grace until it has ended, alone and with a supervisor.
ALONE = bounds.FAREWELL + bounds.EXIT
SUPERVISED = bounds.FAREWELL + bounds.CHILDREN + bounds.EXIT
GRACE = conf.Settings().shutdown_grace


# --- command lines ---------------------------------------------------------------------------------------


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line of ours, as its parser reads them."""
    place = words.index("manage.py")
    name = words[place + 1]
    assert name in COMMANDS, name
    parser = load_command_class("django_ayework", name).create_parser("manage.py", name)
    return {"command": name} | vars(parser.parse_args(words[place + 2 :]))


def time_to_stop(options: dict[str, Any]) -> float:
    return GRACE + (SUPERVISED if options["processes"] > 1 else ALONE)


def units() -> dict[str, configparser.RawConfigParser]:
    found = {}
    for block in blocks("operations/systemd.md", "ini"):
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(block)
        [path] = re.findall(r"^# /etc/(?:systemd/system|supervisor/conf\.d)/(\S+)$", block, re.MULTILINE)
        found[path] = unit
    return found


def options_of(unit: configparser.RawConfigParser) -> dict[str, Any]:
    """Return the options with which a unit starts its command, those of the file of an instance included."""
    line, files = unit["Service"]["ExecStart"], "".join(blocks("operations/systemd.md", "sh"))
    [(instance, options)] = re.findall(r"^# /etc/shop/worker-(\w+)\nOPTIONS=(.+)$", files, re.MULTILINE)
    return parsed(shlex.split(line.replace("%i", instance).replace("$OPTIONS", options)))


WORKERS = ["shop-worker.service", "shop-worker@.service"]


@pytest.mark.parametrize("name", WORKERS)
def test_a_unit_runs_a_worker_and_waits_until_it_has_stopped(name):
    unit = units()[name]
    options = options_of(unit)
    assert options["command"] == "ayework_worker"
    assert float(unit["Service"]["TimeoutStopSec"]) == time_to_stop(options)
    assert (unit["Service"]["Restart"], float(unit["Unit"]["StartLimitIntervalSec"])) == ("always", 0)


def test_instances_of_the_template_read_their_options_and_stop_with_the_target():
    template = units()[WORKERS[1]]
    assert template["Service"]["EnvironmentFile"] == "/etc/shop/worker-%i"
    assert template["Unit"]["PartOf"] == template["Install"]["WantedBy"] == "shop-workers.target"


def test_supervisord_and_the_timer_agree_with_the_unit():
    found = units()
    program, service = found["shop-worker.conf"]["program:shop-worker"], found[WORKERS[0]]["Service"]
    assert program["command"] == service["ExecStart"]
    assert program["directory"] == service["WorkingDirectory"]
    assert program["stopwaitsecs"] == service["TimeoutStopSec"]
    assert program["autorestart"] == "true"
    start = found["shop-worker-health.service"]["Service"]["ExecStart"]
    assert f"http://127.0.0.1:{parsed(shlex.split(service['ExecStart']))['health_port']}/live" in start
    assert WORKERS[0] in start
    others = ["shop-workers.target", "shop-worker.conf"]
    others += [f"shop-worker-health.{kind}" for kind in ("service", "timer")]
    assert set(found) == {*WORKERS, *others}


def test_the_container_and_the_services_of_compose():
    [dockerfile] = blocks("operations/containers.md", "dockerfile")
    [command] = re.findall(r"^CMD (\[.+\])$", dockerfile, re.MULTILINE)
    assert parsed(yaml.safe_load(command))["command"] == "ayework_worker"
    services, worker = compose()
    options = parsed(worker["command"])
    assert worker["stop_grace_period"] == f"{time_to_stop(options):.0f}s"
    assert f"http://127.0.0.1:{options['health_port']}/live" in " ".join(worker["healthcheck"]["test"])
    assert {name for service in services.values() for name in service.get("depends_on", ())} <= set(services)
    assert services["migrate"]["command"] == ["python", "manage.py", "migrate"]
    [seconds] = re.findall(r"`docker stop` say `-t (\d+)`", plain("operations/containers.md"))
    assert float(seconds) == time_to_stop(options)


def compose() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the services of compose, and that of the worker."""
    [block] = blocks("operations/containers.md", "yaml")
    services = yaml.safe_load(block)["services"]
    return services, services["worker"]


@pytest.mark.parametrize(("answer", "fails"), [(200, False), (503, True)])
def test_the_health_check_of_compose_fails_when_the_worker_is_not_live(answer, fails):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(answer if self.path == "/live" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    kind, _, *command = compose()[1]["healthcheck"]["test"]
    assert kind == "CMD"
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        command[1] = command[1].replace(":8099/", f":{server.server_port}/")
        done = subprocess.run([sys.executable, *command], capture_output=True, timeout=60)
        thread.join()
    assert bool(done.returncode) is fails, done.stderr


def of_kind(kind: str) -> dict[str, Any]:
    found = [yaml.safe_load(block) for block in blocks("operations/kubernetes.md", "yaml")]
    [one] = [each for each in found if each.get("kind") == kind]
    return one


def pod_of_deployment() -> dict[str, Any]:
    return of_kind("Deployment")["spec"]["template"]["spec"]


def test_the_deployment_stops_in_time_and_its_probes_ask_what_the_worker_serves():
    pod = pod_of_deployment()
    [worker] = pod["containers"]
    options = parsed([*worker["command"], *worker["args"]])
    assert pod["terminationGracePeriodSeconds"] == time_to_stop(options)
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    assert ports == {"health": options["health_port"], "metrics": options["metrics_port"]}
    probes = {name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    paths = {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
    assert {name: probe["path"] for name, probe in probes.items()} == paths
    assert {ports[probe["port"]] for probe in probes.values()} == {options["health_port"]}
    [limit] = re.findall(r"(\d+)Mi", worker["resources"]["limits"]["memory"])
    assert options["max_memory"] < int(limit)
    rows = {row[0]: names(row[1]) for row in table("operations/kubernetes.md", "Probes")}
    assert rows == {name: [path] for name, path in paths.items()}
    assert set(paths.values()) == set(listed("operations/running-workers.md", "Health"))


def test_the_job_before_a_rollout_migrates_and_checks():
    pod = of_kind("Job")["spec"]["template"]["spec"]
    migrate, predeploy = pod["initContainers"]
    [check] = pod["containers"]
    assert migrate["command"] == ["python", "manage.py", "migrate"]
    assert parsed(predeploy["command"])["command"] == "ayework_predeploy"
    assert parsed(check["command"])["check"] is True
    [worker] = pod_of_deployment()["containers"]
    assert migrate["image"] == predeploy["image"] == check["image"] == worker["image"]


def test_what_is_scaled_on_is_a_gauge_with_these_labels():
    name = "ayework_waiting_works"
    assert series()[name] == {"type", "queue"}
    [trigger] = of_kind("ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"]["query"].startswith(f"sum(max by (type, queue) ({name}{{queue=~")
    [rules] = [block for block in blocks("operations/kubernetes.md", "yaml") if "externalRules" in block]
    [rule] = yaml.safe_load(rules)["externalRules"]
    assert rule["seriesQuery"] == name
    [metric] = of_kind("HorizontalPodAutoscaler")["spec"]["metrics"]
    [worker] = pod_of_deployment()["containers"]
    assert metric["external"]["metric"]["name"] == name
    [expression] = metric["external"]["metric"]["selector"]["matchExpressions"]
    assert {expression["key"]} <= series()[name]
    served = parsed([*worker["command"], *worker["args"]])["queues"].split(",")
    assert expression["values"] == served
    assert f'queue=~"{"|".join(served)}"' in trigger["metadata"]["query"]


def test_everything_scales_the_deployment_and_selects_its_pods():
    deployment = of_kind("Deployment")
    name, labels = deployment["metadata"]["name"], deployment["spec"]["template"]["metadata"]["labels"]
    for kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        assert of_kind(kind)["spec"]["scaleTargetRef"]["name"] == name
    monitor = of_kind("PodMonitor")["spec"]
    assert deployment["spec"]["selector"]["matchLabels"] == monitor["selector"]["matchLabels"] == labels
    ports = {port["name"] for port in pod_of_deployment()["containers"][0]["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports


def test_the_processes_of_a_procfile():
    [procfile] = [block for block in blocks("operations/platforms.md", "text") if "worker:" in block]
    lines = dict(line.split(": ", 1) for line in procfile.splitlines())
    release = lines["release"].split(" && ")
    assert release[0] == "python manage.py migrate"
    assert parsed(shlex.split(release[1]))["command"] == "ayework_predeploy"
    assert parsed(shlex.split(lines["worker"]))["command"] == "ayework_worker"


# --- times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "said"), [
    ("running-workers", f"`SHUTDOWN_GRACE` ({GRACE:.0f} seconds)"),
    ("running-workers", f"at most {bounds.FAREWELL:.0f} seconds after the grace"),
    ("running-workers", f"`SHUTDOWN_GRACE` and {ALONE:.0f} seconds, or {SUPERVISED:.0f} with `--processes`"),
    ("kubernetes", f"{ALONE:.0f} seconds more, or {SUPERVISED:.0f} with"),
    ("platforms", f"{ALONE:.0f} seconds more, or {SUPERVISED:.0f} with"),
    ("containers", f"{SUPERVISED:.0f} seconds more"),
    ("systemd", f"{SUPERVISED:.0f} seconds more"), ("systemd", f"{ALONE:.0f} seconds more are enough"),
    ("symptoms", f"at most {bounds.FAREWELL:.0f} seconds after `SHUTDOWN_GRACE`"),
    ("symptoms", f"waits {bounds.CHILDREN:.0f} seconds longer"),
    ("security", f"{conf.Settings().max_payload:,} characters by default"),
    ("security", f"deeper than {MAX_DEPTH} levels"), ("security", "bound to 127.0.0.1 by default"),
    ("capacity", f"each worker up to {maintenance.PRUNE_BATCH:,} of each status every minute"),
])  # fmt: skip
def test_times_and_limits_are_said_as_they_are(path, said):
    section = {"running-workers": "Stopping", "symptoms": "A worker does not stop"}.get(path)
    assert said in plain(f"operations/{path}.md", section).replace(" more or ", " more, or ")


def test_the_time_to_stop_on_platforms():
    heroku, *enough, other = table("operations/platforms.md", "The time to stop")
    [limit] = map(int, re.findall(r"\d+", heroku[2]))
    assert re.findall(r"\d+", heroku[3]) == [f"{limit - ALONE:.0f}", f"{limit - SUPERVISED:.0f}"]
    assert len(enough) == 2
    for row in enough:
        assert re.findall(r"\d+", row[3]) == [f"{GRACE + ALONE:.0f}", f"{GRACE + SUPERVISED:.0f}"]
    assert re.findall(r"\d+", other[3]) == [f"{ALONE:.0f}", f"{SUPERVISED:.0f}"]
    [example] = [block for block in blocks("operations/platforms.md", "python") if "DYNO" in block]
    assert f'AYEWORK["SHUTDOWN_GRACE"] = {limit - ALONE:.0f}\n' in example
    assert f"default of {GRACE:.0f} seconds does not fit into {limit}" in plain("operations/platforms.md")


def test_a_long_grace_and_a_role_behind_a_pooler_have_the_bounds_of_the_settings():
    said = r"`SHUTDOWN_GRACE` to (\d+) and `terminationGracePeriodSeconds` to (\d+)"
    [(grace, period)] = re.findall(said, plain("operations/kubernetes.md"))
    assert int(period) - int(grace) == ALONE
    [statements] = blocks("operations/pgbouncer.md", "sql")
    assert f"statement_timeout = '{conf.Settings().statement_timeout:.0f}s'" in statements


# --- capacity --------------------------------------------------------------------------------------------


def test_how_many_connections_a_command_line_has():
    wakeups = connections_of(PostgresPubSub())
    for row in table("operations/capacity.md", "Connections"):
        [line] = names(row[0])
        options = parsed(["manage.py", *line.split()])
        budget = Budget(
            concurrency=options["concurrency"] or conf.Settings().concurrency,
            processes=options["processes"],
            replaced=bool(options["max_works"] or options["max_memory"]),
            wakeups=wakeups,
        )
        assert re.findall(r"^\d+", row[1]) == [str(budget.most)], line


def test_how_long_rows_are_kept():
    rows = {row[0]: row[1] for row in table("operations/capacity.md", "Rows")}
    assert f"for {maintenance.FIRINGS_KEPT.days} days" in rows["an occurrence of a schedule"]
    assert f"for {bulk_actions.KEPT_FOR.days} days" in rows["a bulk action"]
    assert timedelta(days=1) == maintenance.UNSEEN_WORKERS_KEPT
    assert "for a day" in rows["a start of a worker"]
    kept = [throughput.KEPT[each] for each in (throughput.MINUTE, throughput.QUARTER)]
    assert kept == [timedelta(hours=2), timedelta(days=2)]
    [figures] = [text for what, text in rows.items() if "attempts end" in what]
    assert "per minute for 2 hours" in figures and "quarter of an hour for 2 days" in figures


def test_the_room_on_disk_is_that_of_a_figure_which_can_be_measured():
    rows = table("operations/capacity.md", "Disk")
    measured = {row[0]: [int(cell) for cell in row[1:]] for row in rows}
    assert {len(cells) for cells in measured.values()} == {3}
    packed = [cells for what, cells in measured.items() if what.endswith("packed")]
    assert len(packed) == len(measured) / 2 == 3
    [pool] = re.findall(r"room for about ([\d,]+) succeeded", plain("operations/capacity.md"))
    fits = 128 * 2**20 / measured["succeeded, packed"][2]
    assert abs(fits / int(pool.replace(",", "")) - 1) < 0.1


def test_figures_and_targets_of_make_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) [?:]?=", makefile, re.MULTILINE))
    call = re.compile(r"(?:\$ |`)make ([a-z-]+)((?: +[A-Z]+=[^\s`]+)*)")
    for path in OPERATIONS:
        for target, arguments in call.findall(path.read_text()):
            assert target in targets, (path, target)
            given = dict(each.split("=", 1) for each in arguments.split())
            assert set(given) <= variables, (path, given)
            if "FIGURES" in given:
                select([given["FIGURES"]])


# --- policy and security ---------------------------------------------------------------------------------


PREFIXES = {"Python": "Programming Language :: Python :: ", "Django": "Framework :: Django :: "}


def test_supported_versions_are_those_of_the_package():
    rows = {row[0]: row[1] for row in table("operations/upgrades.md", "What is supported")}
    for title, prefix in PREFIXES.items():
        found = [each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix)]
        versions = [each for each in found if re.fullmatch(r"\d+\.\d+", each)]
        assert rows[title].split("; ")[0] == ", ".join(versions)
    [needed] = [row[2] for row in table("reference/checks.md", "System checks") if "ayework.E006" in row[0]]
    for title in ("MariaDB", "MySQL"):
        [version] = re.findall(rf"{title} ([\d.]+) or newer", needed)
        assert rows[title].startswith(f"{version} and newer")


def test_the_policy_of_versions_is_one():
    assert "before 1.0, a minor version may break" in plain(ROOT / "CHANGELOG.md")
    rows = table("operations/upgrades.md", "What a version number says")
    assert [row[1] for row in rows if "minor" in row[0]] == ["may break"]
    assert "Before 1.0 a minor version may break" in plain(ROOT / "SECURITY.md")
    minor = ".".join(PROJECT["version"].split(".")[:2])
    assert f"| {minor}, the latest minor version | yes |" in (ROOT / "SECURITY.md").read_text()


def test_vulnerabilities_are_reported_to_the_repository():
    source = PROJECT["urls"]["Source"]
    assert f"({source}/security/advisories/new)" in (ROOT / "SECURITY.md").read_text()
    assert f"({source}/blob/main/SECURITY.md)" in page("operations/security.md").read_text()


def test_permissions_that_are_named_exist():
    known = set()
    for model in apps.get_app_config("django_ayework").get_models():
        known |= {name for name, _ in model._meta.permissions}
        known |= {f"{act}_{model._meta.model_name}" for act in model._meta.default_permissions}
    named = {name for row in table("operations/security.md", "The admin") for name in names(row[0])}
    assert {"edit_input_work", "bulk_work"} <= named <= known


def test_ports_are_bound_to_the_host_itself():
    options = parsed(["manage.py", "ayework_worker"])
    for port in ("health", "metrics"):
        assert (options[f"{port}_host"] or LOOPBACK, options[f"{port}_port"]) == ("127.0.0.1", None)
    assert listed("operations/security.md", "Ports") == ["--health-port", "--metrics-port"]


def test_the_overview_links_every_page_on_deployment():
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", page("operations/deployment.md").read_text()))
    others = {"deployment", "delivery", "logging", "monitoring", "runbook", "tracing", "wake-ups"}
    assert {path.stem for path in page("operations").glob("*.md")} - linked <= others
