"""Ours for a harness that other projects share: it runs ``driver.py`` as ``ayework.json`` says.

That harness gives its module ``common`` on the path, and the addresses of its databases in the environment.
"""
