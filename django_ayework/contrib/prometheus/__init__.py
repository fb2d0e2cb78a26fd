"""Metrics for Prometheus: counters and histograms of this process, gauges of the fleet, a page for both.

``"django_ayework.contrib.prometheus"`` in ``INSTALLED_APPS`` counts in every process of the project. A worker
shows the page with ``ayework_worker --metrics-port``; ``urls`` has views of it. Needs ``prometheus_client``,
which the extra ``metrics`` installs.

``prometheus_client`` chooses when it is imported whether values go to files that several processes share.
So nothing here imports it before the first event: a supervisor chooses the folder after Django has started.
"""
